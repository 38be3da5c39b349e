#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

/* Every root is built over this place, which hides it. */
static const char agents_at[] = start_scratch;

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* Under another name first: a standby beside this one may look for it. */
static bool keep(int program, const char *name) {
  char draft[PATH_MAX], whole[PATH_MAX];
  struct stat found;
  snprintf(draft, sizeof draft, "%s/%d", agents_at, (int)getpid());
  snprintf(whole, sizeof whole, "%s/%s", agents_at, name);
  int fd = fstat(program, &found) == 0 ? open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755) : -1;
  if (fd < 0) return false;
  off_t at = 0;
  while (at < found.st_size)
    if (sendfile(fd, program, &at, (size_t)(found.st_size - at)) <= 0) break;
  bool kept = at == found.st_size && fchmod(fd, 0555) == 0 && rename(draft, whole) == 0;
  int number = errno;
  close(fd);
  errno = number;
  return kept;
}

bool make_agents(int program, const char *path, char *reason) {
  if (mount("coppice", agents_at, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700,size=64m") < 0)
    return fail(reason, "mount a filesystem for the agent");
  return keep(program, name_of(path)) || fail(reason, "copy the agent %s", path);
}

/* In the bare mounts; a checkpoint may need an agent that is not there yet. */
static int clone_kept(int program, const char *name) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", agents_at, name);
  int tree = clone_tree(path);
  return tree >= 0 || errno != ENOENT || !keep(program, name) ? tree : clone_tree(path);
}

int clone_agent(const struct setup *setup, const char *path, char *reason) {
  int program = open(path, O_RDONLY | O_CLOEXEC), tree = -1;
  int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC), root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (program >= 0 && own >= 0 && root >= 0 && setns(setup->mounts_fd, CLONE_NEWNS) == 0) {
    tree = clone_kept(program, name_of(path));
    int number = errno;
    /* The root of the mounts need not be ours. */
    if (setns(own, CLONE_NEWNS) < 0 || fchdir(root) < 0 || chroot(".") < 0) _exit(1);
    errno = number;
  }
  if (tree < 0) fail(reason, "open the agent %s", path);
  const int opened[] = {program, own, root};
  for (size_t index = 0; index < sizeof opened / sizeof *opened; index++)
    if (opened[index] >= 0) close(opened[index]);
  return tree;
}
