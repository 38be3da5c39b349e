/* /proc/meminfo of a container: the kernel shows that of the host. The launcher mounts a file of ours there, which says what the limit is
   and how much of it is taken. It is written when a process is started, and now and then while there are any. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "agent.h"

#define FILE_NAME "/run/coppice/meminfo"
#define REFRESH_MS 5000
/* Processes may be started one after the other. */
#define FRESH_MS 1000

/* Where the cgroup of the sandbox says it, in version 2 and version 1. */
static const struct source {
  const char *limit, *used, *statistics, *cache, *shared, *droppable;
} sources[] = {
    {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "file", "shmem", "inactive_file"},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes", "/sys/fs/cgroup/memory/memory.stat",
     "total_cache", "total_shmem", "total_inactive_file"},
};

/* The file that was there first: who is root inside may put another in its place. */
static struct stat ours;
static struct timer refresh;
static uint64_t written_ms;

static bool read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t length = read(fd, text, size - 1);
  close(fd);
  text[length > 0 ? length : 0] = 0;
  return length > 0;
}

static uint64_t value_of(const char *statistics, const char *name) {
  size_t length = strlen(name);
  for (const char *line = statistics; line != NULL && *line != 0;) {
    if (strncmp(line, name, length) == 0 && line[length] == ' ') return strtoull(line + length, NULL, 10);
    line = strchr(line, '\n');
    if (line != NULL) line++;
  }
  return 0;
}

static uint64_t lesser(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void show(uint64_t total, uint64_t used, uint64_t cache, uint64_t shared, uint64_t droppable) {
  const uint64_t unit = 1024;
  char text[2048];
  uint64_t left = total - lesser(used, total), plain = used - lesser(used, cache);
  const struct {
    const char *name;
    uint64_t bytes;
  } lines[] = {
      {"MemTotal:", total},
      {"MemFree:", left},
      {"MemAvailable:", left + lesser(droppable, used)},
      {"Buffers:", 0},
      {"Cached:", lesser(cache, used)},
      {"SwapCached:", 0},
      {"Active:", used - lesser(used, droppable)},
      {"Inactive:", lesser(droppable, used)},
      {"SwapTotal:", 0},
      {"SwapFree:", 0},
      {"Dirty:", 0},
      {"Writeback:", 0},
      {"AnonPages:", plain},
      {"Mapped:", 0},
      {"Shmem:", shared},
      {"Slab:", 0},
      {"SReclaimable:", 0},
      {"SUnreclaim:", 0},
      {"CommitLimit:", total},
      {"Committed_AS:", used},
  };
  int length = 0;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    length += snprintf(text + length, sizeof text - (size_t)length, "%-15s %12llu kB\n", lines[i].name,
                       (unsigned long long)(lines[i].bytes / unit));
  /* Always as long, so that who reads meanwhile sees whole lines. */
  int fd = open(FILE_NAME, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat found;
  if (fd >= 0 && fstat(fd, &found) == 0 && found.st_dev == ours.st_dev && found.st_ino == ours.st_ino)
    (void)!pwrite(fd, text, (size_t)length, 0);
  if (fd >= 0) close(fd);
}

static void on_refresh(struct timer *timer) {
  (void)timer;
  if (processes_left()) meminfo_refresh();
}

void meminfo_refresh(void) {
  char number[64], statistics[8192];
  uint64_t now = now_ms();
  if (ours.st_ino == 0 || (written_ms != 0 && now - written_ms < FRESH_MS)) return;
  written_ms = now;
  for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
    const struct source *source = &sources[i];
    if (!read_text(source->limit, number, sizeof number)) continue;
    uint64_t limit = number[0] == 'm' ? UINT64_MAX : strtoull(number, NULL, 10);
    struct sysinfo machine;
    if (sysinfo(&machine) < 0 || !read_text(source->used, number, sizeof number)) return;
    uint64_t used = strtoull(number, NULL, 10);
    if (!read_text(source->statistics, statistics, sizeof statistics)) return;
    show(lesser(limit, (uint64_t)machine.totalram * machine.mem_unit), used, value_of(statistics, source->cache),
         value_of(statistics, source->shared), value_of(statistics, source->droppable));
    refresh.on_time = on_refresh;
    timer_arm(&refresh, REFRESH_MS);
    return;
  }
}

void meminfo_init(void) {
  if (lstat(FILE_NAME, &ours) < 0) ours.st_ino = 0;
  meminfo_refresh();
}
