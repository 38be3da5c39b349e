#define _GNU_SOURCE
#include "launch.h"

#include "../lib/processors.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ids_per_sandbox = 65536, open_files_limit = 65536 };

static unsigned first_id(const struct message *request) { return (unsigned)strtoul(message_get(request, "base"), NULL, 10); }

int clone_tree(const char *path) { return (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC); }

/* Each has one of every field, in the same order. */
static bool open_mounts(const struct message *request, struct trees *trees, char *reason) {
  static const char *const fields[] = {"mount", "mount-identity", "mount-at", "mount-mode"};
  enum { field_count = sizeof fields / sizeof *fields };
  const char *at[field_count] = {NULL}, *values[field_count];
  char trouble[mount_trouble_limit];
  trees->mount_count = 0;
  while ((values[0] = message_next(request, fields[0], &at[0]))) {
    size_t number = trees->mount_count;
    for (size_t field = 1; field < field_count; field++)
      if (!(values[field] = message_next(request, fields[field], &at[field]))) return fail(reason, "a mount without %s", fields[field]);
    if (number == mounts_limit || values[2][0] != '/') return fail(reason, "a mount that cannot be");
    trees->mounts[number] =
        (struct host_mount){.host = values[0], .identity = values[1], .guest = values[2], .read_only = strcmp(values[3], "ro") == 0};
    trees->mount_trees[number] = clone_mount(&trees->mounts[number], number, first_id(request), trouble);
    if (trees->mount_trees[number] < 0) {
      if (trouble[0]) errno = 0;
      return trouble[0] ? fail(reason, "%s", trouble) : fail(reason, "open the directory %s", values[0]);
    }
    trees->mount_count++;
  }
  return true;
}

bool open_trees(const struct setup *setup, const struct message *request, struct trees *trees, char *reason) {
  trees->image = clone_tree(message_get(request, "image"));
  if (trees->image < 0) return fail(reason, "open the image %s", message_get(request, "image"));
  trees->disk = clone_tree(message_get(request, "disk"));
  if (trees->disk < 0) return fail(reason, "open the disk %s", message_get(request, "disk"));
  /* A checkpoint goes on with the agent that it was taken of. */
  const char *agent = message_get(request, "agent") ? message_get(request, "agent") : setup->agent;
  trees->agent = clone_agent(setup, agent, reason);
  if (trees->agent < 0) return false;
  return open_mounts(request, trees, reason);
}

/* By a relative name, since the whole path may be longer than a socket address can hold. */
int listen_in(const char *directory) {
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "agent.sock"};
  if (chdir(directory) < 0) return -1;
  if (unlink(address.sun_path) < 0 && errno != ENOENT) return -1;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  mode_t mask = umask(0077);
  int bound = bind(fd, (struct sockaddr *)&address, sizeof address);
  umask(mask);
  if (bound < 0 || listen(fd, 128) < 0) {
    close(fd);
    return -1;
  }
  return fd;
}

static bool open_inherited(const struct setup *setup, const char *run, struct inherited *fds, char *reason) {
  char path[64];
  fds->listen = listen_in(run);
  if (fds->listen < 0) return fail(reason, "listen in %s", run);
  fds->log = open("console.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  fds->console = open("console.log", O_RDONLY | O_CLOEXEC);
  if (fds->log < 0 || fds->console < 0) return fail(reason, "open the log in %s", run);
  /* Opened anew: bubblewrap reads from the current position, and every standby shares that of the original. */
  snprintf(path, sizeof path, "/proc/self/fd/%d", setup->seccomp_fd);
  fds->seccomp = open(path, O_RDONLY | O_CLOEXEC);
  return fds->seccomp >= 0 || fail(reason, "open the system call filter");
}

bool map_ids(const struct namespaces *ahead, const struct message *request, char *reason) {
  char text[64];
  int length = snprintf(text, sizeof text, "0 %u %d", first_id(request), ids_per_sandbox);
  return (write(ahead->uid_map, text, (size_t)length) == length && write(ahead->gid_map, text, (size_t)length) == length) ||
         fail(reason, "map the ids of the sandbox");
}

static bool lower_limit(int resource, rlim_t most) {
  struct rlimit limit;
  if (getrlimit(resource, &limit) < 0) return false;
  if (limit.rlim_max > most) limit.rlim_max = most;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(resource, &limit) == 0;
}

static bool limit_resources(const struct message *request, char *reason) {
  const char *processors = message_get(request, "processors");
  if (processors && !keep_on_processors(0, processors)) return fail(reason, "keep it on the processors %s", processors);
  if (!lower_limit(RLIMIT_NOFILE, open_files_limit)) return fail(reason, "limit open files");
  /* One byte and not none: with none, a core pattern that names a program of the host would still run it as root. */
  if (!lower_limit(RLIMIT_CORE, 1)) return fail(reason, "forbid core dumps");
  /* Should the machine run out of memory, sandboxes go before anything of the host. */
  return write_value("/proc/self/oom_score_adj", "800") || fail(reason, "offer the sandbox to the OOM killer");
}

bool enter_namespaces(const struct namespaces *ahead, char *reason) {
  if (setns(ahead->user, CLONE_NEWUSER) < 0 || setns(ahead->network, CLONE_NEWNET) < 0 || unshare(CLONE_NEWNS | CLONE_NEWCGROUP) < 0)
    return fail(reason, "enter the namespaces");
  if (setresgid(0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresuid(0, 0, 0) < 0) return fail(reason, "become root of the user namespace");
  umask(0022);
  return true;
}

/* The first process in the user namespace. Returns only when something failed, with the reason. */
static void inner(const struct setup *setup, const struct namespaces *ahead, const struct message *request, const struct trees *trees,
                  const struct inherited *fds, int guard, char *reason) {
  if (!limit_resources(request, reason) || !enter_namespaces(ahead, reason)) return;
  if (!build_root(start_scratch, trees, request, reason)) return;
  if (trees->mount_count > 0 && !begin_guard(guard, reason)) return;
  exec_bubblewrap(setup, request, fds, reason);
}

pid_t clone_into(int cgroup) {
  struct clone_args arguments = {
      .flags = cgroup >= 0 ? CLONE_INTO_CGROUP : 0,
      .exit_signal = SIGCHLD,
      .cgroup = (__u64)(cgroup >= 0 ? cgroup : 0),
  };
  return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

/* Reads to the end; what does not fit is dropped. */
static void drain(int fd, char *text, size_t size) {
  size_t length = 0;
  char spill[256];
  for (;;) {
    bool fits = length + 1 < size;
    ssize_t got = read(fd, fits ? text + length : spill, fits ? size - 1 - length : sizeof spill);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (fits) length += (size_t)got;
  }
  text[length] = '\0';
}

/* Bubblewrap says on the console why it ended. */
static bool fail_with_console(int console, char *reason) {
  char text[512];
  off_t end = lseek(console, 0, SEEK_END);
  ssize_t got = end > 0 ? pread(console, text, sizeof text - 1, end > 511 ? end - 511 : 0) : 0;
  text[got > 0 ? got : 0] = '\0';
  for (char *at = text; *at; at++)
    if ((unsigned char)*at < ' ') *at = ' ';
  errno = 0;
  return fail(reason, "bubblewrap ended before the sandbox ran%s%s", got > 0 ? "; the console ends with: " : "", text);
}

static bool report(pid_t monitor, int console, const char *info, pid_t *init, struct message *reply, char *reason) {
  const char *found = strstr(info, "\"child-pid\":");
  pid_t pid = found ? (pid_t)atoi(found + strlen("\"child-pid\":")) : 0;
  unsigned long long started = 0, monitor_started = 0;
  if (pid <= 0 || !process_started(pid, &started) || !process_started(monitor, &monitor_started)) return fail_with_console(console, reason);
  *init = pid;
  message_put(reply, "pid", "%d", (int)pid);
  message_put(reply, "started", "%llu", started);
  message_put(reply, "monitor", "%d", (int)monitor);
  message_put(reply, "monitorStarted", "%llu", monitor_started);
  return true;
}

bool start_container(const struct setup *setup, const struct namespaces *ahead, const struct message *request, struct message *reply,
                     char *reason) {
  struct trees trees = {0};
  struct inherited fds = {0};
  int errors[2], info[2], guard[2], cgroup = -1;
  pid_t init = 0;
  const char *v2 = message_get(request, "v2");
  if (!open_trees(setup, request, &trees, reason)) return false;
  if (!open_inherited(setup, message_get(request, "run"), &fds, reason)) return false;
  if (pipe2(errors, O_CLOEXEC) < 0 || pipe2(info, O_CLOEXEC) < 0) return fail(reason, "make a pipe");
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, guard) < 0) return fail(reason, "make a socket");
  fds.info = info[1];
  if (v2 && (cgroup = open(v2, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) return fail(reason, "open %s", v2);
  if (!map_ids(ahead, request, reason) || !idmap_trees(&trees, ahead->user, reason)) return false;
  /* From here on the host's filesystems are out of reach: all that is needed of them is open. */
  if (setns(setup->mounts_fd, CLONE_NEWNS) < 0) return fail(reason, "leave the host's mounts");

  pid_t pid = clone_into(cgroup);
  if (pid < 0) return fail(reason, "fork into the cgroup");
  if (pid == 0) {
    inner(setup, ahead, request, &trees, &fds, guard[1], reason);
    ssize_t written = write(errors[1], reason, strlen(reason));
    _exit(written > 0 ? 1 : 2);
  }
  close(errors[1]);
  close(info[1]);
  close(guard[1]);
  close(fds.listen);
  /* Ends when the child becomes bubblewrap; anything that it holds is why it did not. */
  char text[4096];
  drain(errors[0], text, sizeof text);
  if (text[0] != '\0') {
    errno = 0;
    return fail(reason, "%s", text);
  }
  drain(info[0], text, sizeof text);
  if (!report(pid, fds.console, text, &init, reply, reason)) return false;
  return trees.mount_count == 0 || start_guard(guard[0], ahead->user, init, cgroup, reason);
}
