#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Asked for here and not at once after the fork: a change of credentials, as by entering a user namespace, takes it back. */
void wait_to_be_killed(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent) _exit(1);
  for (;;) pause();
}

/* The start time in clock ticks since boot: together with the pid it names one process for ever. */
bool process_started(pid_t pid, unsigned long long *ticks) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return false;
  text[length] = '\0';
  /* The name may hold blanks and brackets; the fields after its last bracket do not. */
  char *field = strrchr(text, ')');
  if (!field) return false;
  if (field[1] == ' ' && (field[2] == 'Z' || field[2] == 'X')) return false;
  for (int number = 2; number < 22; number++) {
    field = strchr(field + 1, ' ');
    if (!field) return false;
  }
  *ticks = strtoull(field + 1, NULL, 10);
  return true;
}

bool same_program(pid_t one, pid_t other) {
  char path[64];
  struct stat left, right;
  snprintf(path, sizeof path, "/proc/%d/exe", (int)one);
  if (stat(path, &left) < 0) return false;
  snprintf(path, sizeof path, "/proc/%d/exe", (int)other);
  if (stat(path, &right) < 0) return false;
  return left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

/*
 * From outside, as a sandbox has no capability for it. In a child, since entering a user namespace cannot be
 * undone. Both namespaces are entered through one pidfd, so a reused pid cannot mix two sandboxes.
 */
bool set_hostname(pid_t pid, const char *hostname, char *reason) {
  int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (pidfd < 0) return fail(reason, "process %d", (int)pid);
  pid_t child = fork();
  if (child < 0) {
    close(pidfd);
    return fail(reason, "fork");
  }
  if (child == 0) {
    if (setns(pidfd, CLONE_NEWUSER | CLONE_NEWUTS) < 0) _exit(errno);
    if (sethostname(hostname, strlen(hostname)) < 0) _exit(errno);
    _exit(0);
  }
  close(pidfd);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  errno = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  return fail(reason, "set the hostname of process %d", (int)pid);
}
