/* What a job has running beside its own process: found in /proc by descent and by a variable that the job was started with, so that
   what has lost its parent is found too. It runs in a worker: see worker_open. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"

#define ENVIRONMENT_BYTES (256u << 10)
#define PROCESSES_MAX 65536u
/* A process that starts others faster than they are ended is met again; in the end there is a limit. */
#define ROUNDS 64

struct seen {
  pid_t pid;
  pid_t parent;
  bool marked;
};

struct sweep {
  pid_t job;
  int signal;
  const char *marker;
  const uint8_t *spared;
  uint32_t spared_count;
};

static size_t read_proc(pid_t pid, const char *file, char *into, size_t size) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return 0;
  size_t length = 0;
  ssize_t n;
  while (length < size && ((n = read(fd, into + length, size - length)) > 0 || (n < 0 && errno == EINTR)))
    if (n > 0) length += (size_t)n;
  close(fd);
  return length;
}

/* Its parent; 0 where it is gone or only waits to be reaped. */
static pid_t parent_of(pid_t pid) {
  char stat[512];
  size_t length = read_proc(pid, "stat", stat, sizeof stat - 1);
  stat[length] = 0;
  /* The name is in parentheses and may hold any byte. */
  const char *end = strrchr(stat, ')');
  char state;
  int parent;
  if (end == NULL || sscanf(end + 1, " %c %d", &state, &parent) != 2 || state == 'Z' || state == 'X') return 0;
  return (pid_t)parent;
}

static bool has_marker(pid_t pid, const char *marker) {
  static char environment[ENVIRONMENT_BYTES];
  size_t length = read_proc(pid, "environ", environment, sizeof environment);
  size_t wanted = strlen(marker);
  for (size_t at = 0; at < length;) {
    const char *end = memchr(environment + at, 0, length - at);
    size_t size = end == NULL ? length - at : (size_t)(end - environment) - at;
    if (size == wanted && memcmp(environment + at, marker, wanted) == 0) return true;
    at += size + 1;
  }
  return false;
}

static size_t look(struct seen *all, const struct sweep *sweep) {
  DIR *proc = opendir("/proc");
  if (proc == NULL) worker_fail_errno(errno, "cannot look at the processes of the sandbox");
  size_t count = 0;
  for (struct dirent *entry; count < PROCESSES_MAX && (entry = readdir(proc)) != NULL;) {
    if (!isdigit((unsigned char)entry->d_name[0])) continue;
    pid_t pid = (pid_t)atoi(entry->d_name);
    if (pid <= 1 || pid == getpid()) continue;
    pid_t parent = parent_of(pid);
    if (parent == 0) continue;
    all[count++] = (struct seen){pid, parent, pid == sweep->job || (*sweep->marker != 0 && has_marker(pid, sweep->marker))};
  }
  closedir(proc);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < count; i++)
      for (size_t k = 0; k < count && !all[i].marked; k++)
        if (all[k].marked && all[k].pid == all[i].parent) changed = all[i].marked = true;
  }
  return count;
}

static bool is_spared(const struct sweep *sweep, pid_t pid) {
  for (uint32_t i = 0; i < sweep->spared_count; i++)
    if ((pid_t)load_u32(sweep->spared + 4 * i) == pid) return true;
  return pid == sweep->job;
}

static void sweep_worker(void *argument) {
  const struct sweep *sweep = argument;
  struct seen *all = must_alloc(PROCESSES_MAX * sizeof *all);
  for (int round = 0; round < ROUNDS; round++) {
    size_t count = look(all, sweep);
    bool any = false;
    for (size_t i = 0; i < count; i++) {
      if (!all[i].marked || is_spared(sweep, all[i].pid)) continue;
      if (sweep->signal != 0 && kill(all[i].pid, sweep->signal) < 0) continue;
      any = true;
      uint8_t pid[4];
      store_u32(pid, (uint32_t)all[i].pid);
      worker_write(pid, sizeof pid);
    }
    /* Others than SIGKILL may be ignored: once is what was asked for. */
    if (!any || sweep->signal != SIGKILL) break;
    usleep(2000);
  }
  worker_done(NULL);
}

void job_sweep(struct channel *channel, struct reader *body) {
  uint32_t id = read_u32(body);
  uint32_t number = read_u32(body);
  struct sweep sweep = {.signal = (int)number, .marker = read_string(body)};
  size_t length;
  sweep.spared = read_bytes(body, &length);
  if (!read_finished(body) || number > 64 || length % 4 != 0) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request to end what a job left running is malformed");
    return;
  }
  sweep.spared_count = (uint32_t)(length / 4);
  sweep.job = job_pid(channel, id);
  if (sweep.job != 0) worker_open(channel, sweep_worker, &sweep, false);
}
