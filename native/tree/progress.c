#define _GNU_SOURCE
#include "progress.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common.h"

#define PATIENCE_MS 1000
#define LOOK_US 100000
#define LOOK_OFTEN_US 1000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool watched, shown;
static useconds_t look_us = LOOK_US;
static int64_t patience_ns = (int64_t)PATIENCE_MS * 1000000, since;
static uint64_t files, bytes;

static void say(const char *line, size_t len) {
  /* A terminal that cannot be written to is not an error. */
  if (write(2, line, len) < 0) return;
}

static void show(void) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double size = (double)__atomic_load_n(&bytes, __ATOMIC_RELAXED) / 1024;
  int unit = 0;
  for (; size >= 1024 && unit < 3; unit++) size /= 1024;
  char line[128];
  const int len = snprintf(line, sizeof line, "\r%llu files, %.1f %s read\033[K",
                           (unsigned long long)__atomic_load_n(&files, __ATOMIC_RELAXED), size, units[unit]);
  say(line, (size_t)len);
  shown = true;
}

static void *watch(void *unused) {
  (void)unused;
  for (;;) {
    usleep(look_us);
    pthread_mutex_lock(&lock);
    const bool works = __atomic_load_n(&files, __ATOMIC_RELAXED) || __atomic_load_n(&bytes, __ATOMIC_RELAXED);
    if (works && !since) since = now_ns();
    if (works && now_ns() - since >= patience_ns) show();
    pthread_mutex_unlock(&lock);
  }
  return NULL;
}

void progress_watch(void) {
  if (!isatty(2)) return;
  /* Tests set this, so that they need no directory that takes a second to read. */
  const char *given = getenv("JVS_PROGRESS_AFTER_MS");
  if (given) patience_ns = strtoll(given, NULL, 10) * 1000000, look_us = LOOK_OFTEN_US;
  pthread_t thread;
  watched = pthread_create(&thread, NULL, watch, NULL) == 0;
}

void progress_add(uint64_t more_files, uint64_t more_bytes) {
  if (!watched) return;
  if (more_files) __atomic_add_fetch(&files, more_files, __ATOMIC_RELAXED);
  if (more_bytes) __atomic_add_fetch(&bytes, more_bytes, __ATOMIC_RELAXED);
}

void progress_clear(void) {
  if (!watched) return;
  pthread_mutex_lock(&lock);
  if (shown) say("\r\033[K", 4);
  shown = false;
  files = bytes = 0;
  since = 0;
  pthread_mutex_unlock(&lock);
}
