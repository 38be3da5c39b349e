#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * Called by CRIU while it restores. The sandbox's network namespace is new and empty. It gets its loopback before sockets
 * are made in it, and while they are, every address is its own: those of the sandbox that it was taken of are not here, and those
 * that it spoke to cannot be reached yet. What it may reach comes with its policy, after this.
 */
static bool enter_network(pid_t init) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/net", (int)init);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  return fd >= 0 && setns(fd, CLONE_NEWNET) == 0 && close(fd) == 0;
}

/* A route without a destination in the table of local addresses. */
struct route {
  struct nlmsghdr head;
  struct rtmsg message;
  struct rtattr device;
  int index;
};

static bool change_route(unsigned char family, bool add) {
  struct route route = {
      .head = {.nlmsg_len = sizeof route, .nlmsg_type = add ? RTM_NEWROUTE : RTM_DELROUTE, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
      .message = {.rtm_family = family, .rtm_table = RT_TABLE_LOCAL, .rtm_type = RTN_LOCAL, .rtm_protocol = RTPROT_STATIC},
      .device = {.rta_len = RTA_LENGTH(sizeof(int)), .rta_type = RTA_OIF},
      .index = (int)if_nametoindex("lo"),
  };
  struct {
    struct nlmsghdr head;
    struct nlmsgerr error;
    char echo[sizeof route];
  } answer;
  route.message.rtm_scope = RT_SCOPE_HOST;
  if (add) route.head.nlmsg_flags |= NLM_F_CREATE;
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  bool asked = fd >= 0 && send(fd, &route, sizeof route, 0) == (ssize_t)sizeof route && recv(fd, &answer, sizeof answer, 0) > 0;
  if (fd >= 0) close(fd);
  return asked && answer.head.nlmsg_type == NLMSG_ERROR && answer.error.error == 0;
}

/* A kernel may lack the second family; then no socket is of it either. */
static bool own_every_address(bool own) {
  bool first = change_route(AF_INET, own);
  change_route(AF_INET6, own);
  return first;
}

int hook(const char *action) {
  const char *init = getenv("CRTOOLS_INIT_PID");
  bool before = strcmp(action, "setup-namespaces") == 0, after = strcmp(action, "post-restore") == 0;
  char reason[reason_limit] = "";
  if (!before && !after) return 0;
  if (!init || !enter_network(atoi(init))) return 1;
  if (before && !raise_loopback(reason)) return 1;
  return own_every_address(before) ? 0 : 1;
}
