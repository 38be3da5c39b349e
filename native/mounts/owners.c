#define _GNU_SOURCE
#include "owners.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Right below the ranges that sandboxes have on the host. */
enum { stranger_id = 0x1fff0000, ids_per_sandbox = 65536 };

static bool write_map(pid_t pid, const char *name, unsigned owner, unsigned first_id) {
  char path[64], text[96];
  int length = snprintf(text, sizeof text, "%u %u 1\n", owner, first_id);
  /* A map has no place for one id twice. */
  bool is_stranger = owner > stranger_id && owner < stranger_id + ids_per_sandbox;
  if (!is_stranger)
    length += snprintf(text + length, sizeof text - (size_t)length, "%u %u %u\n", stranger_id + 1u, first_id + 1, ids_per_sandbox - 1u);
  snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  bool written = fd >= 0 && write(fd, text, (size_t)length) == length;
  int number = errno;
  if (fd >= 0) close(fd);
  errno = number;
  return written;
}

static void be_namespace(int told) {
  unsigned char entered = unshare(CLONE_NEWUSER) == 0 ? 0 : (unsigned char)errno;
  if (write(told, &entered, 1) != 1) _exit(1);
  for (;;) pause();
}

int make_owner_map(uid_t uid, gid_t gid, uid_t first_id) {
  int told[2], map = -1;
  char path[64];
  unsigned char entered = 0; /* an error's number */
  if (pipe2(told, O_CLOEXEC) < 0) return -1;
  pid_t pid = fork();
  if (pid == 0) be_namespace(told[1]);
  close(told[1]);
  if (pid > 0 && read(told[0], &entered, 1) == 1) {
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    errno = entered;
    if (entered == 0 && write_map(pid, "uid_map", uid, first_id) && write_map(pid, "gid_map", gid, first_id))
      map = open(path, O_RDONLY | O_CLOEXEC);
  }
  int number = errno;
  close(told[0]);
  if (pid > 0) {
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
  }
  errno = number;
  return map;
}
