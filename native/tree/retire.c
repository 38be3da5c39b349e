#define _GNU_SOURCE
#include "retire.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "common.h"

struct batch {
  const char *staging;
  size_t group, first, end;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool running;
static struct buf waiting; /* batches */
static size_t taken;       /* how many of them were begun */
static bool busy;

static void remove_batch(const struct batch *batch) {
  char group[PATH_MAX], name[32];
  if (snprintf(group, sizeof group, "%s/%zu", batch->staging, batch->group) >= (int)sizeof group) return;
  const int dir = open(group, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0) return;
  for (size_t at = batch->first; at < batch->end; at++) {
    snprintf(name, sizeof name, "%zu", at);
    (void)unlinkat(dir, name, 0);
  }
  close(dir);
}

static size_t batches(void) { return waiting.len / sizeof(struct batch); }

static void *remover(void *unused) {
  (void)unused;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (taken == batches()) pthread_cond_wait(&changed, &lock);
    const struct batch batch = ((struct batch *)waiting.data)[taken++];
    busy = true;
    pthread_mutex_unlock(&lock);
    remove_batch(&batch);
    pthread_mutex_lock(&lock);
    busy = false;
    pthread_cond_broadcast(&changed);
  }
  return NULL;
}

void retire(const char *staging, size_t group, size_t first, size_t end) {
  pthread_t thread;
  if (!running && pthread_create(&thread, NULL, remover, NULL) != 0) return;
  running = true;
  const struct batch batch = {staging, group, first, end};
  pthread_mutex_lock(&lock);
  buf_add(&waiting, &batch, sizeof batch);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

void retire_settle(void) {
  pthread_mutex_lock(&lock);
  while (busy || taken < batches()) pthread_cond_wait(&changed, &lock);
  waiting.len = taken = 0;
  pthread_mutex_unlock(&lock);
}
