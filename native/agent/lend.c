/*
 * What reaches outside is lent while the memory of the sandbox is kept: sockets of the host cannot be part of a checkpoint.
 *
 * Whoever takes one asks on the control socket. The agent sends every descriptor that is the host's, closes its own, and
 * goes on without them. Then the source gets them back, with every byte that lay in them; what was restored from the checkpoint gets a
 * listener of its own instead, and the sessions that it had lent are over.
 *
 * The socket is an abstract one in the sandbox's own network namespace, which a checkpoint holds like any other. A peer
 * from inside has a pid here; only one from outside has none.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"

static const char control_name[] = "\0coppice-agent";

/* Descriptors in one message: the listener, then the connections. */
enum { lent_limit = 250, listener_at = 0, connections_at = 1 };

enum order { ORDER_LEND = 'l', ORDER_RETURN = 'r', ORDER_RENEW = 'n' };

static struct item control;
static struct item *listener;

static bool from_outside(int fd) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == 0;
}

static bool send_descriptors(int to, const int *fds, size_t count) {
  union {
    char bytes[CMSG_SPACE(lent_limit * sizeof(int))];
    struct cmsghdr align;
  } space;
  char answer = 'l';
  struct iovec text = {&answer, 1};
  struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = space.bytes};
  message.msg_controllen = (socklen_t)CMSG_SPACE(count * sizeof *fds);
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = (socklen_t)CMSG_LEN(count * sizeof *fds);
  memcpy(CMSG_DATA(rights), fds, count * sizeof *fds);
  return sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

/* The order, or 0 at the end or when it is malformed. */
static char receive_order(int from, int *fds, size_t *count) {
  union {
    char bytes[CMSG_SPACE(lent_limit * sizeof(int))];
    struct cmsghdr align;
  } space;
  char order = 0;
  struct iovec text = {&order, 1};
  struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = space.bytes, .msg_controllen = sizeof space.bytes};
  *count = 0;
  if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1) return 0;
  for (struct cmsghdr *rights = CMSG_FIRSTHDR(&message); rights; rights = CMSG_NXTHDR(&message, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    *count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
    memcpy(fds, CMSG_DATA(rights), *count * sizeof *fds);
  }
  return order;
}

static void forget_listener(void) {
  if (listener->fd < 0) return;
  loop_change(listener, 0);
  close(listener->fd);
  listener->fd = -1;
}

static void lend(int to) {
  int fds[lent_limit];
  if (listener->fd < 0) return;
  size_t count = connections_lend(fds + connections_at, lent_limit - connections_at);
  fds[listener_at] = listener->fd;
  if (count > lent_limit - connections_at || !send_descriptors(to, fds, connections_at + count)) return;
  connections_part();
  forget_listener();
}

static void take(enum order order, const int *fds, size_t count) {
  forget_listener();
  listener->fd = fds[listener_at];
  fcntl(listener->fd, F_SETFL, fcntl(listener->fd, F_GETFL) | O_NONBLOCK);
  loop_add(listener, EPOLLIN | EPOLLET);
  for (size_t at = connections_at; at < count; at++)
    if (order != ORDER_RETURN || !connection_return(at, fds[at])) close(fds[at]);
  connections_end_lent();
}

/* Each peer gives one order and waits for the end of the connection. It sends before it can block us: it is the host. */
static void on_control(struct item *item, uint32_t events) {
  (void)events;
  int fds[lent_limit];
  size_t count;
  int fd = accept4(item->fd, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0) return;
  struct timeval patience = {.tv_sec = 2};
  if (from_outside(fd) && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0) {
    char order = receive_order(fd, fds, &count);
    /* What comes back after it was given up for lost is not taken any more. */
    bool gives = count > listener_at && (order == ORDER_RENEW || (order == ORDER_RETURN && listener->fd < 0));
    if (gives) take((enum order)order, fds, count);
    else
      while (count > 0) close(fds[--count]);
    if (order == ORDER_LEND) lend(fd);
  }
  close(fd);
}

bool lend_init(struct item *listening) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, control_name, sizeof control_name - 1);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof control_name - 1);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  listener = listening;
  control = (struct item){.fd = fd, .on_event = on_control};
  return fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 8) == 0 && loop_add(&control, EPOLLIN);
}
