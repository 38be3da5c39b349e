#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The other end of the agent's control socket: see native/agent/lend.c. */
enum { lent_limit = 250 };
static const char control_name[] = "\0coppice-agent";

union rights {
  char bytes[CMSG_SPACE(lent_limit * sizeof(int))];
  struct cmsghdr align;
};

/* A socket belongs to the network namespace that it was made in. */
static int connect_control(pid_t init, char *reason) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char path[64];
  memcpy(address.sun_path, control_name, sizeof control_name - 1);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof control_name - 1);
  snprintf(path, sizeof path, "/proc/%d/ns/net", (int)init);
  int network = open(path, O_RDONLY | O_CLOEXEC), own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (network < 0 || own < 0 || setns(network, CLONE_NEWNET) < 0) return fail(reason, "enter the network of the sandbox"), -1;
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  struct timeval patience = {.tv_sec = 30};
  bool ready = setns(own, CLONE_NEWNET) == 0 && fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
               setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
               connect(fd, (struct sockaddr *)&address, size) == 0;
  if (!ready) {
    fail(reason, "reach the agent of the sandbox");
    if (fd >= 0) close(fd);
    fd = -1;
  }
  close(network);
  close(own);
  return fd;
}

static bool give_order(int to, char order, const int *fds, size_t count) {
  union rights space;
  struct iovec text = {&order, 1};
  struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1};
  if (count > 0) {
    message.msg_control = space.bytes;
    message.msg_controllen = CMSG_SPACE(count * sizeof *fds);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof *fds);
    memcpy(CMSG_DATA(rights), fds, count * sizeof *fds);
  }
  return sendmsg(to, &message, MSG_NOSIGNAL) == 1;
}

static size_t receive_descriptors(int from, int *fds) {
  union rights space;
  char answer;
  struct iovec text = {&answer, 1};
  struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = space.bytes, .msg_controllen = sizeof space.bytes};
  if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1) return 0;
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  if (!rights || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) return 0;
  size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
  memcpy(fds, CMSG_DATA(rights), count * sizeof *fds);
  return count;
}

/* The agent closes the connection when it has done what it was told, and its own copies of what it lent. */
static bool wait_for_end(int fd) {
  char nothing;
  return recv(fd, &nothing, 1, 0) == 0;
}

static bool order(pid_t init, char what, const int *fds, size_t count, char *reason) {
  int fd = connect_control(init, reason);
  if (fd < 0) return false;
  bool done = (give_order(fd, what, fds, count) && wait_for_end(fd)) || fail(reason, "give the agent its descriptors");
  close(fd);
  return done;
}

bool renew_listener(pid_t init, int listener, char *reason) { return order(init, 'n', &listener, 1, reason); }

static bool borrow(pid_t init, int *fds, size_t *count, char *reason) {
  int fd = connect_control(init, reason);
  if (fd < 0) return false;
  *count = give_order(fd, 'l', NULL, 0) ? receive_descriptors(fd, fds) : 0;
  bool done = (*count > 0 && wait_for_end(fd)) || fail(reason, "borrow the descriptors of the agent");
  close(fd);
  return done;
}

static int complain(const char *reason) {
  fprintf(stderr, "%s\n", reason);
  return 1;
}

/*
 * Holds what the agent lends for as long as stdin is open, and gives it back whatever becomes of who asked for it. The agent
 * may stand still by then; it finds what it is given when it goes on.
 */
int lend(pid_t init) {
  static int fds[lent_limit];
  char reason[reason_limit] = "", byte;
  size_t count = 0;
  signal(SIGPIPE, SIG_IGN);
  if (!borrow(init, fds, &count, reason)) {
    char lost[reason_limit];
    if (count > 0) order(init, 'r', fds, count, lost);
    return complain(reason);
  }
  /* Should nobody wait for that any more, stdin is at its end. */
  ssize_t said = write(STDOUT_FILENO, "lent\n", 5);
  (void)said;
  while (read(STDIN_FILENO, &byte, 1) > 0) {}
  return order(init, 'r', fds, count, reason) ? 0 : complain(reason);
}

/* For a sandbox whose descriptors were lost with whoever had borrowed them. */
int renew(pid_t init, const char *run) {
  char reason[reason_limit] = "";
  int listener = listen_in(run);
  if (listener < 0) fail(reason, "listen in %s", run);
  return listener >= 0 && renew_listener(init, listener, reason) ? 0 : complain(reason);
}
