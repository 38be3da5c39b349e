/* Mounts files over files of the root, in a kernel of the sandbox's own: there the agent may, and what it starts may not. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "agent.h"

static bool is_file(const char *path, struct stat *found) { return stat(path, found) == 0 && S_ISREG(found->st_mode); }

/* A place that is missing, or no file, is left out: the image has no such file. */
static bool cover_one(const char *source, const char *place) {
  struct stat ours, theirs;
  if (!is_file(source, &ours)) return false;
  if (!is_file(place, &theirs) || (ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino)) return true;
  return mount(source, place, NULL, MS_BIND | MS_RDONLY | MS_NODEV | MS_NOSUID | MS_NOEXEC, NULL) == 0;
}

int cover(char **pairs, int count) {
  for (int at = 0; at + 1 < count; at += 2) {
    if (cover_one(pairs[at], pairs[at + 1])) continue;
    fprintf(stderr, "coppice-agent: mount %s over %s: %s\n", pairs[at], pairs[at + 1], strerror(errno));
    return 1;
  }
  return 0;
}
