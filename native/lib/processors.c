#define _GNU_SOURCE
#include "processors.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static bool read_list(const char *list, cpu_set_t *set) {
  CPU_ZERO(set);
  for (const char *at = list;;) {
    char *end;
    unsigned long number = strtoul(at, &end, 10);
    if (*at < '0' || *at > '9' || number >= CPU_SETSIZE) break;
    CPU_SET(number, set);
    if (*end == '\0') return true;
    if (*end != ',') break;
    at = end + 1;
  }
  errno = EINVAL;
  return false;
}

bool keep_on_processors(pid_t task, const char *list) {
  cpu_set_t set;
  return read_list(list, &set) && sched_setaffinity(task, sizeof set, &set) == 0;
}

/* How many were not on them yet; one that ended meanwhile does not count. */
static int move_all(const char *tasks, const cpu_set_t *wanted) {
  FILE *file = fopen(tasks, "re");
  if (!file) return -1;
  int moved = 0;
  for (int task; fscanf(file, "%d", &task) == 1;) {
    cpu_set_t has;
    if (sched_getaffinity(task, sizeof has, &has) < 0 || CPU_EQUAL(&has, wanted)) continue;
    if (sched_setaffinity(task, sizeof *wanted, wanted) == 0) moved++;
  }
  fclose(file);
  return moved;
}

bool move_to_processors(const char *tasks, const char *list) {
  enum { most_rounds = 100 };
  cpu_set_t wanted;
  if (!read_list(list, &wanted)) return false;
  int moved = 1;
  for (int round = 0; round < most_rounds && moved > 0; round++) moved = move_all(tasks, &wanted);
  return moved >= 0;
}
