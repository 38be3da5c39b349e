#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "modes.h"

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif

enum { groups_limit = 65536, no_descriptor = -1, set_id = S_ISUID | S_ISGID };

enum kind { changes_mode, opens_file, makes_node };

/* Every call that is stopped, in the form of its most general one. */
struct request {
  enum kind kind;
  int directory;
  uint64_t path; /* in the memory of who asks; 0 for none */
  mode_t mode;
  int flags;
  dev_t device;
};

static bool decode(const struct seccomp_data *call, struct request *request) {
  const __u64 *args = call->args;
  int directory = (int)args[0];
  switch (call->nr) {
#ifdef __NR_chmod
  case __NR_chmod:
    *request = (struct request){changes_mode, AT_FDCWD, args[0], (mode_t)args[1], 0, 0};
    return true;
  case __NR_mknod:
    *request = (struct request){makes_node, AT_FDCWD, args[0], (mode_t)args[1], 0, args[2]};
    return true;
  case __NR_open:
    *request = (struct request){opens_file, AT_FDCWD, args[0], (mode_t)args[2], (int)args[1], 0};
    return true;
  case __NR_creat:
    *request = (struct request){opens_file, AT_FDCWD, args[0], (mode_t)args[1], O_CREAT | O_WRONLY | O_TRUNC, 0};
    return true;
#endif
  case __NR_fchmod:
    *request = (struct request){changes_mode, directory, 0, (mode_t)args[1], AT_EMPTY_PATH, 0};
    return true;
  case __NR_fchmodat:
    *request = (struct request){changes_mode, directory, args[1], (mode_t)args[2], 0, 0};
    return true;
  case 452:
    *request = (struct request){changes_mode, directory, args[1], (mode_t)args[2], (int)args[3], 0};
    return true;
  case __NR_mknodat:
    *request = (struct request){makes_node, directory, args[1], (mode_t)args[2], 0, args[3]};
    return true;
  case __NR_openat:
    *request = (struct request){opens_file, directory, args[1], (mode_t)args[3], (int)args[2], 0};
    return true;
  default:
    return false;
  }
}

static int open_of(int proc, pid_t pid, const char *name, int flags) {
  char path[64];
  snprintf(path, sizeof path, "%d/%s", (int)pid, name);
  return openat(proc, path, flags | O_CLOEXEC);
}

static int open_descriptor_of(int proc, pid_t pid, int number) {
  char name[32];
  snprintf(name, sizeof name, "fd/%d", number);
  return open_of(proc, pid, name, O_PATH);
}

static bool read_path(int proc, pid_t pid, uint64_t at, char *path) {
  int memory = open_of(proc, pid, "mem", O_RDONLY);
  size_t have = 0;
  bool ended = false;
  while (memory >= 0 && !ended && have < PATH_MAX) {
    /* To the end of the page: what follows may not be there. */
    size_t part = 4096 - (at + have) % 4096;
    if (part > PATH_MAX - have) part = PATH_MAX - have;
    ssize_t got = pread(memory, path + have, part, (off_t)(at + have));
    if (got <= 0) break;
    ended = memchr(path + have, '\0', (size_t)got) != NULL;
    have += (size_t)got;
  }
  if (memory >= 0) close(memory);
  return ended;
}

struct rights {
  mode_t mask;
  uid_t uid;
  gid_t gid;
  uint64_t capabilities;
  size_t group_count;
  gid_t groups[groups_limit];
};

/* As this process sees its ids, so call it where those are to be used. */
static bool read_rights(int proc, pid_t pid, struct rights *rights) {
  static char text[65536];
  int fd = open_of(proc, pid, "status", O_RDONLY);
  ssize_t got = 0, part;
  while (fd >= 0 && (size_t)got < sizeof text - 1 && (part = read(fd, text + got, sizeof text - 1 - (size_t)got)) > 0) got += part;
  if (fd >= 0) close(fd);
  text[got > 0 ? got : 0] = '\0';
  const char *uids = strstr(text, "\nUid:"), *gids = strstr(text, "\nGid:"), *groups = strstr(text, "\nGroups:");
  const char *effective = strstr(text, "\nCapEff:");
  const char *mask = strstr(text, "\nUmask:");
  unsigned long long capabilities;
  if (!mask || sscanf(mask, "\nUmask: %o", &rights->mask) != 1) return false;
  /* The last of four is what files are judged by. */
  if (!uids || sscanf(uids, "\nUid: %*u %*u %*u %u", &rights->uid) != 1) return false;
  if (!gids || sscanf(gids, "\nGid: %*u %*u %*u %u", &rights->gid) != 1) return false;
  if (!effective || sscanf(effective, "\nCapEff: %llx", &capabilities) != 1 || !groups) return false;
  rights->capabilities = capabilities;
  const char *end = strchr(groups + 1, '\n'), *at = groups + strlen("\nGroups:");
  for (char *next; end && at < end && rights->group_count < groups_limit; at = next) {
    unsigned long group = strtoul(at, &next, 10);
    if (next == at || next > end) break;
    rights->groups[rights->group_count++] = (gid_t)group;
  }
  return true;
}

/* Its capabilities too, and none besides: they decide whether it may change the mode of what is not its own. */
static bool take_rights(const struct rights *rights) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct held[2], wanted[2];
  if (syscall(SYS_capget, &header, held) < 0) return false;
  for (int half = 0; half < 2; half++) {
    wanted[half].effective = held[half].permitted & (uint32_t)(rights->capabilities >> (32 * half));
    wanted[half].permitted = wanted[half].effective;
    wanted[half].inheritable = 0;
  }
  umask(rights->mask);
  return prctl(PR_SET_KEEPCAPS, 1) == 0 && setgroups(rights->group_count, rights->groups) == 0 &&
         setresgid(rights->gid, rights->gid, rights->gid) == 0 && setresuid(rights->uid, rights->uid, rights->uid) == 0 &&
         syscall(SYS_capset, &header, wanted) == 0;
}

/* C libraries change the mode of a descriptor that they must not write to by such a path, which is theirs and not ours. */
static int descriptor_in(const char *path) {
  static const char *const directories[] = {"/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"};
  for (size_t index = 0; index < sizeof directories / sizeof *directories; index++) {
    size_t length = strlen(directories[index]);
    if (strncmp(path, directories[index], length) != 0) continue;
    char *end;
    unsigned long number = strtoul(path + length, &end, 10);
    if (end > path + length && *end == '\0' && number <= INT_MAX) return (int)number;
  }
  return no_descriptor;
}

static bool is_of_own_root(int object) {
  struct statfs filesystem;
  return fstatfs(object, &filesystem) == 0 && (unsigned long)filesystem.f_type == OVERLAYFS_SUPER_MAGIC;
}

static int change_mode(int descriptors, int object, mode_t mode) {
  char name[16];
  struct stat found;
  if (fstat(object, &found) < 0) return errno;
  if (!S_ISDIR(found.st_mode) && !is_of_own_root(object)) mode &= ~(mode_t)set_id;
  snprintf(name, sizeof name, "%d", object);
  return fchmodat(descriptors, name, mode & 07777, 0) < 0 ? errno : 0;
}

/*
 * Becomes the one who asks: its rights, its root, its directory. A descriptor that is asked about is opened on the way, by its
 * number or by a path that names it; else -1. What goes wrong is returned, as an error of the kernel.
 */
static int take_place(const struct mode_watch *watch, const struct seccomp_notif *notice, const struct request *request, char *path,
                      int *object) {
  static struct rights rights;
  pid_t pid = (pid_t)notice->pid;
  uint64_t id = notice->id;
  if (request->path && !read_path(watch->proc, pid, request->path, path)) return EFAULT;
  bool by_number = path[0] == '\0' && request->kind == changes_mode && request->flags & AT_EMPTY_PATH;
  if (path[0] == '\0' && !by_number) return ENOENT;
  int number = by_number ? request->directory : descriptor_in(path);
  bool is_descriptor = number != no_descriptor && number != AT_FDCWD;
  if (is_descriptor && request->kind != changes_mode) return EPERM;
  int root = open_of(watch->proc, pid, "root", O_PATH | O_DIRECTORY), base;
  if (is_descriptor) base = open_descriptor_of(watch->proc, pid, number);
  else if (request->directory == AT_FDCWD || path[0] == '/') base = open_of(watch->proc, pid, "cwd", O_PATH);
  else base = open_descriptor_of(watch->proc, pid, request->directory);
  if (base < 0) return EBADF;
  if (watch->userns >= 0 && setns(watch->userns, CLONE_NEWUSER) < 0) return EIO;
  /* Until here the number of the process could have become another's. */
  if (!read_rights(watch->proc, pid, &rights) || ioctl(watch->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) < 0) return ESRCH;
  if (watch->userns < 0) rights.capabilities |= 1ull << CAP_FSETID;
  if (root < 0 || fchdir(root) < 0 || chroot(".") < 0) return EIO;
  *object = is_descriptor || by_number ? base : -1;
  if (*object < 0 && fchdir(base) < 0) return errno;
  return take_rights(&rights) ? 0 : EIO;
}

/* The one who asks gets the descriptor, and with it the answer. */
static int open_for(const struct mode_watch *watch, const struct seccomp_notif *notice, const struct request *request, const char *path) {
  int fd = open(path, request->flags | O_CLOEXEC, request->mode);
  struct seccomp_notif_addfd added = {
      .id = notice->id,
      .flags = SECCOMP_ADDFD_FLAG_SEND,
      .srcfd = (__u32)fd,
      .newfd_flags = (__u32)(request->flags & O_CLOEXEC),
  };
  return fd >= 0 && ioctl(watch->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &added) >= 0 ? 0 : errno;
}

/* In a process of its own, which never comes back from where it goes. */
static int do_for(const struct mode_watch *watch, const struct seccomp_notif *notice) {
  static char path[PATH_MAX];
  struct request request;
  int object = -1;
  if (!decode(&notice->data, &request)) return ENOSYS;
  if (request.kind == changes_mode && request.flags & ~(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)) return EINVAL;
  int descriptors = openat(watch->proc, "self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
  int trouble = descriptors < 0 ? EIO : take_place(watch, notice, &request, path, &object);
  if (trouble != 0) return trouble;
  if (request.kind != changes_mode) request.mode &= ~(mode_t)set_id;
  if (request.kind == opens_file) return open_for(watch, notice, &request, path);
  if (request.kind == makes_node) return mknod(path, request.mode, request.device) < 0 ? errno : 0;
  if (object < 0) object = open(path, O_PATH | O_CLOEXEC | (request.flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0));
  return object < 0 ? errno : change_mode(descriptors, object, request.mode);
}

void answer_mode(const struct mode_watch *watch) {
  /* The kernel may know more fields than we do. */
  union {
    struct seccomp_notif notice;
    char room[1024];
  } asked;
  union {
    struct seccomp_notif_resp answer;
    char room[1024];
  } said;
  memset(&asked, 0, sizeof asked);
  memset(&said, 0, sizeof said);
  if (ioctl(watch->listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) < 0) return;
  pid_t pid = fork();
  if (pid == 0) _exit(do_for(watch, &asked.notice));
  int status = 0;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  int number = pid < 0 ? EAGAIN : WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
  said.answer.id = asked.notice.id;
  said.answer.error = -number;
  ioctl(watch->listener, SECCOMP_IOCTL_NOTIF_SEND, &said);
}
