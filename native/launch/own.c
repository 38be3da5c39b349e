#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * The kernel counts the inotify instances, message queues, signals, timers and locked memory of a user namespace for the user who
 * created it as well. If that were root, all sandboxes and root of the host would share one account. Privileges are kept, because
 * some systems let only privileged processes create user namespaces.
 */
bool become_owner(uid_t owner, char *reason) {
  return (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) == 0 && setresuid((uid_t)-1, owner, (uid_t)-1) == 0) ||
         fail(reason, "become the owner of the namespaces");
}

static bool owner_of(pid_t pid, uid_t *owner) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  bool found = fd >= 0 && ioctl(fd, NS_GET_OWNER_UID, owner) == 0;
  if (fd >= 0) close(fd);
  return found;
}

enum { capability_words = 2 };

static bool read_capabilities(struct __user_cap_data_struct *held) {
  struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  return syscall(SYS_capget, &head, held) == 0;
}

static bool keep_over_exec(struct __user_cap_data_struct *held) {
  struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  for (int word = 0; word < capability_words; word++) held[word].inheritable = held[word].permitted;
  if (syscall(SYS_capset, &head, held) < 0) return false;
  for (int number = 0; number < 32 * capability_words; number++)
    if (held[number / 32].permitted & (1U << number % 32) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0) < 0) return false;
  return true;
}

static int give_up(const char *what) {
  fprintf(stderr, "coppice-launch: %s: %s\n", what, strerror(errno));
  return 1;
}

/*
 * Runs `criu dump`. CRIU reads the resource limits of each process, which needs CAP_SYS_RESOURCE in the sandbox's user namespace. A
 * root that lacks this capability has it only as the owner of the namespace. CRIU must then be told that it does not run as root.
 */
int dump(pid_t init, char **given, size_t count) {
  struct __user_cap_data_struct held[capability_words];
  uid_t owner;
  bool is_owner = false;
  if (!owner_of(init, &owner)) return give_up("find the owner of the sandbox");
  if (!read_capabilities(held)) return give_up("read the privileges");
  if (owner != 0 && !(held[CAP_SYS_RESOURCE / 32].effective & (1U << CAP_SYS_RESOURCE % 32))) {
    /* The real id too: a shell that starts CRIU would switch back to it. */
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0 || !keep_over_exec(held) || setresuid(owner, owner, owner) < 0)
      return give_up("become the owner of the sandbox");
    is_owner = true;
  }
  char **command = calloc(count + 2, sizeof *command);
  if (!command) abort();
  memcpy(command, given, count * sizeof *command);
  if (is_owner) command[count] = "--unprivileged";
  execv(command[0], command);
  free(command);
  return give_up(given[0]);
}

static const char *const watch_limits[] = {"/proc/sys/user/max_inotify_instances", "/proc/sys/user/max_inotify_watches"};
enum { watch_limit_count = sizeof watch_limits / sizeof *watch_limits, share_of_root = 8 };

static bool read_number(const char *path, long *number) {
  FILE *file = fopen(path, "re");
  bool read = file && fscanf(file, "%ld", number) == 1;
  if (file) fclose(file);
  return read;
}

/* These files show the limits of the user namespace that opens them. */
static bool write_shares(const long *of_host) {
  for (int index = 0; index < watch_limit_count; index++) {
    char value[32];
    snprintf(value, sizeof value, "%ld", of_host[index] / share_of_root);
    if (!write_value(watch_limits[index], value)) return false;
  }
  return true;
}

/* CRIU creates the user namespace of a restored sandbox as root, so its watches count for root. Give it a share of them. */
bool limit_watches(pid_t init, char *reason) {
  long of_host[watch_limit_count];
  for (int index = 0; index < watch_limit_count; index++)
    if (!read_number(watch_limits[index], &of_host[index])) return fail(reason, "read %s", watch_limits[index]);
  int pidfd = (int)syscall(SYS_pidfd_open, init, 0);
  pid_t child = pidfd < 0 ? -1 : fork();
  if (child == 0) _exit(setns(pidfd, CLONE_NEWUSER) == 0 && write_shares(of_host) ? 0 : errno);
  if (pidfd >= 0) close(pidfd);
  if (child < 0) return fail(reason, "look at process %d", (int)init);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  errno = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
  return errno == 0 || fail(reason, "limit what process %d may watch", (int)init);
}
