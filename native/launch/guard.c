#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../mounts/modes.h"

bool begin_guard(int socket, char *reason) {
  int listener = watch_modes();
  bool sent = listener >= 0 && send_listener(socket, listener) == 0;
  if (listener >= 0) close(listener);
  return sent || fail(reason, "have the modes of files watched");
}

static void guard(const struct mode_watch *watch) {
  for (;;) {
    struct pollfd ready = {.fd = watch->listener, .events = POLLIN};
    if (poll(&ready, 1, -1) < 0 && errno != EINTR) return;
    if (ready.revents & POLLIN) answer_mode(watch);
    else if (ready.revents) return;
  }
}

/* Keeps three descriptors and the mounts of the sandbox, so that it holds nothing of the host in use. */
static bool leave_host(struct mode_watch *watch, pid_t init) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)init);
  int mounts = open(path, O_RDONLY | O_CLOEXEC);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC), proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
  int kept[] = {watch->listener, watch->userns, proc};
  enum { first_kept = 3, kept_count = sizeof kept / sizeof *kept };
  if (mounts < 0 || null < 0 || setns(mounts, CLONE_NEWNS) < 0) return false;
  for (int number = 0; number < first_kept; number++)
    if (dup2(null, number) < 0) return false;
  for (int index = 0; index < kept_count; index++)
    if ((kept[index] = fcntl(kept[index], F_DUPFD, 64)) < 0) return false;
  for (int index = 0; index < kept_count; index++)
    if (dup3(kept[index], first_kept + index, O_CLOEXEC) < 0) return false;
  syscall(SYS_close_range, first_kept + kept_count, ~0U, 0);
  *watch = (struct mode_watch){.listener = first_kept, .userns = first_kept + 1, .proc = first_kept + 2};
  return true;
}

bool start_guard(int socket, int userns, pid_t init, int cgroup, char *reason) {
  struct mode_watch watch = {.listener = receive_listener(socket), .userns = userns};
  if (watch.listener < 0) return fail(reason, "take over what watches the modes of files");
  pid_t pid = clone_into(cgroup);
  if (pid == 0) {
    if (leave_host(&watch, init)) guard(&watch);
    _exit(0);
  }
  close(watch.listener);
  return pid > 0 || fail(reason, "start what watches the modes of files");
}
