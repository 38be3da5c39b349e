#define _GNU_SOURCE
#include "launch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

enum { arguments_limit = 200, first_free = 6 };

static const char *arguments[arguments_limit + 1];
static size_t count;

static void push(const char *argument) {
  if (count == arguments_limit) abort();
  arguments[count++] = argument;
}
#define PUSH(...)                                                                      \
  do {                                                                                 \
    const char *const list[] = {__VA_ARGS__};                                          \
    for (size_t item = 0; item < sizeof list / sizeof *list; item++) push(list[item]); \
  } while (0)

/*
 * The set that container engines give, less what reaches beyond a sandbox or that nothing here needs: no raw sockets,
 * no device nodes, no audit log. All of them count only against things of the sandbox's own user namespace.
 */
static const char *const capabilities[] = {
    "CAP_CHOWN",  "CAP_DAC_OVERRIDE", "CAP_FOWNER",  "CAP_FSETID",           "CAP_KILL",
    "CAP_SETGID", "CAP_SETUID",       "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT",
};

/*
 * World-readable on many kernels and about the host; the rest of /proc that is dangerous belongs to the host's root. While locks are
 * listed nobody on the machine can lock a file, and whoever has many makes the list long.
 */
static const char *const masked_files[] = {"/proc/keys", "/proc/interrupts", "/proc/timer_list", "/proc/sched_debug", "/proc/locks"};
static const char *const masked_directories[] = {"/proc/acpi", "/proc/scsi", "/proc/asound"};

static void push_masks(void) {
  /* The sysctls of this file tree belong to whoever reads them; only the mount is the host's, and it is read-only here. */
  PUSH("--ro-bind", "/proc/sys", "/proc/sys");
  PUSH("--ro-bind", start_root "/run/coppice/meminfo", "/proc/meminfo");
  for (size_t index = 0; index < sizeof masked_files / sizeof *masked_files; index++)
    if (access(masked_files[index], F_OK) == 0) PUSH("--ro-bind", "/dev/null", masked_files[index]);
  for (size_t index = 0; index < sizeof masked_directories / sizeof *masked_directories; index++)
    if (access(masked_directories[index], F_OK) == 0) PUSH("--tmpfs", masked_directories[index], "--remount-ro", masked_directories[index]);
}

/* Puts what the container inherits at fixed numbers; everything above is closed by the exec. */
static bool place(const struct inherited *fds) {
  const int wanted[first_free] = {-1, fds->log, fds->log, fds->listen, fds->seccomp, fds->info};
  int raised[first_free];
  for (int number = 1; number < first_free; number++) {
    raised[number] = fcntl(wanted[number], F_DUPFD, 64);
    if (raised[number] < 0) return false;
  }
  for (int number = 1; number < first_free; number++)
    if (dup2(raised[number], number) < 0) return false;
  return syscall(SYS_close_range, first_free, ~0U, CLOSE_RANGE_CLOEXEC) == 0;
}

void exec_bubblewrap(const struct setup *setup, const struct message *request, const struct inherited *fds, char *reason) {
  static char *const environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};
  count = 0;
  PUSH(setup->bwrap, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup");
  PUSH("--as-pid-1", "--new-session", "--hostname", message_get(request, "hostname"), "--chdir", "/");
  /* With devices, as /dev is part of it; the rest of the root bears nodev already. */
  PUSH("--dev-bind", start_root, "/", "--proc", "/proc", "--mqueue", "/dev/mqueue");
  push_masks();
  PUSH("--cap-drop", "ALL");
  for (size_t index = 0; index < sizeof capabilities / sizeof *capabilities; index++) PUSH("--cap-add", capabilities[index]);
  /* In a directory of root such a file would have its capabilities on the host. */
  if (!message_get(request, "mount")) PUSH("--cap-add", "CAP_SETFCAP");
  PUSH("--seccomp", "4", "--info-fd", "5", "--", "/run/coppice/agent", "--listen-fd", "3");
  arguments[count] = NULL;
  if (!place(fds)) {
    fail(reason, "place the descriptors of the container");
    return;
  }
  execve(setup->bwrap, (char *const *)arguments, environment);
  fail(reason, "run %s", setup->bwrap);
}
