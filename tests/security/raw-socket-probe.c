/* Opens sockets that put packets of its own making on the wire, or see those of others; says which it got. */
#include <arpa/inet.h>
#include <net/ethernet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static void ask(const char *what, int domain, int type, int protocol) {
  int fd = socket(domain, type, protocol);
  printf("%s %s\n", what, fd < 0 ? "refused" : "opened");
  if (fd >= 0) close(fd);
}

int main(void) {
  ask("raw IPv4", AF_INET, SOCK_RAW, IPPROTO_ICMP);
  ask("raw IPv4 that is not inherited", AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
  ask("raw IPv6", AF_INET6, SOCK_RAW | SOCK_NONBLOCK, IPPROTO_ICMPV6);
  ask("raw packets", AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
  ask("packets", AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP));
  ask("TCP", AF_INET, SOCK_STREAM, 0);
  ask("UDP", AF_INET6, SOCK_DGRAM, 0);
  ask("netlink", AF_NETLINK, SOCK_RAW, 0);
  return 0;
}
