#define _GNU_SOURCE
#include "shut.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

struct opened {
  int fd;
  mode_t mode;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened *all;
static size_t count;

static void remember(int fd, mode_t mode) {
  pthread_mutex_lock(&lock);
  all = must_realloc(all, (count + 1) * sizeof *all);
  all[count++] = (struct opened){fd, mode};
  pthread_mutex_unlock(&lock);
}

int open_own(int dir, const char *name, int flags) {
  const int fd = openat(dir, name, flags);
  struct stat found;
  if (fd >= 0 || errno != EACCES) return fd;
  /* Root can open everything. Of other users only the owner may change a mode. */
  if (fstatat(dir, name, &found, AT_SYMLINK_NOFOLLOW) != 0 || found.st_uid != geteuid() ||
      (!S_ISDIR(found.st_mode) && !S_ISREG(found.st_mode)) ||
      fchmodat(dir, name, (found.st_mode & 07777) | (S_ISDIR(found.st_mode) ? 0700 : 0400), AT_SYMLINK_NOFOLLOW) != 0) {
    errno = EACCES;
    return -1;
  }
  const mode_t mode = found.st_mode & 07777;
  const int opened = openat(dir, name, flags);
  /* A directory must stay accessible while it is walked. A file needs its mode only to be opened. */
  const int kept = opened >= 0 && S_ISDIR(found.st_mode) ? fcntl(opened, F_DUPFD_CLOEXEC, 3) : -1;
  if (kept >= 0) remember(kept, mode);
  else if (fchmodat(dir, name, mode, AT_SYMLINK_NOFOLLOW) != 0) die_errno("change the mode of", name);
  return opened;
}

void shut_again(void) {
  pthread_mutex_lock(&lock);
  while (count > 0) {
    /* The last one is the deepest: begin there. */
    const struct opened *one = &all[--count];
    (void)fchmod(one->fd, one->mode);
    close(one->fd);
  }
  pthread_mutex_unlock(&lock);
}
