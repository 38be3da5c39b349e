#define _GNU_SOURCE
#include "descent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of the directories above the current one as many stay open; others are reached again from below. */
#define OPEN_STEPS 64
#define MAX_STEPS (4u << 20)

int (*descent_is_cancelled)(void);

struct descent_step {
  int directory; /* -1: closed for now */
  off_t position;
  dev_t device;
  ino_t inode;
  char *name; /* in the directory above */
};

static int add_step(struct descent *descent, int directory, const char *name) {
  struct stat status;
  if (descent->count == MAX_STEPS) {
    errno = ELOOP;
    return -1;
  }
  if (descent->count == descent->room) {
    size_t room = descent->room == 0 ? 16 : descent->room * 2;
    struct descent_step *steps = realloc(descent->steps, room * sizeof *steps);
    if (steps == NULL) return -1;
    descent->steps = steps;
    descent->room = room;
  }
  if (fstat(directory, &status) < 0) return -1;
  char *copy = strdup(name);
  if (copy == NULL) return -1;
  descent->steps[descent->count++] =
      (struct descent_step){.directory = directory, .device = status.st_dev, .inode = status.st_ino, .name = copy};
  descent->filled = descent->at = 0;
  if (descent->count > OPEN_STEPS) {
    struct descent_step *far = &descent->steps[descent->count - OPEN_STEPS - 1];
    if (far->directory >= 0) close(far->directory);
    far->directory = -1;
  }
  return 0;
}

int descent_begin(struct descent *descent, int directory) {
  *descent = (struct descent){0};
  if (directory >= 0 && add_step(descent, directory, "") == 0) return 0;
  int saved = errno;
  if (directory >= 0) close(directory);
  descent_end(descent);
  errno = saved;
  return -1;
}

int descent_here(const struct descent *descent) { return descent->steps[descent->count - 1].directory; }

size_t descent_depth(const struct descent *descent) { return descent->count - 1; }

const char *descent_name(const struct descent *descent) { return descent->steps[descent->count - 1].name; }

char *descent_path(const struct descent *descent, const char *name) {
  size_t length = strlen(name) + 1;
  for (size_t step = 1; step < descent->count; step++) length += strlen(descent->steps[step].name) + 1;
  char *path = malloc(length), *end = path;
  if (path == NULL) return NULL;
  for (size_t step = 1; step < descent->count; step++) {
    end = stpcpy(end, descent->steps[step].name);
    *end++ = '/';
  }
  strcpy(end, name);
  return path;
}

int descent_enter(struct descent *descent, const char *name) {
  int inside = openat(descent_here(descent), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (inside < 0) return -1;
  if (add_step(descent, inside, name) == 0) return 0;
  int saved = errno;
  close(inside);
  errno = saved;
  return -1;
}

int descent_leave(struct descent *descent) {
  struct descent_step *below = &descent->steps[--descent->count], *here = below - 1;
  struct stat status;
  int result = 0;
  if (here->directory < 0) {
    here->directory = openat(below->directory, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (here->directory < 0 || fstat(here->directory, &status) < 0) {
      result = -1;
    } else if (status.st_dev != here->device || status.st_ino != here->inode) {
      errno = ESTALE; /* It was moved meanwhile: nobody may do that to a tree that is walked. */
      result = -1;
    }
  }
  int saved = errno;
  close(below->directory);
  free(below->name);
  errno = saved;
  descent->filled = descent->at = 0;
  if (result == 0 && lseek(here->directory, here->position, SEEK_SET) < 0) result = -1;
  return result;
}

const char *descent_next(struct descent *descent) {
  struct descent_step *here = &descent->steps[descent->count - 1];
  for (;;) {
    if (descent_is_cancelled && descent_is_cancelled()) return NULL;
    if (descent->at == descent->filled) {
      ssize_t filled = syscall(SYS_getdents64, here->directory, descent->entries, sizeof descent->entries);
      if (filled <= 0) {
        if (filled == 0) errno = 0;
        return NULL;
      }
      descent->filled = (size_t)filled;
      descent->at = 0;
    }
    const struct dirent *entry = (const struct dirent *)(descent->entries + descent->at);
    descent->at += entry->d_reclen;
    here->position = entry->d_off;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    return entry->d_name;
  }
}

void descent_end(struct descent *descent) {
  int saved = errno;
  for (size_t step = 0; step < descent->count; step++) {
    if (descent->steps[step].directory >= 0) close(descent->steps[step].directory);
    free(descent->steps[step].name);
  }
  free(descent->steps);
  *descent = (struct descent){0};
  errno = saved;
}
