/* The names that every sandbox knows without a network: its own, and that of the host at the gateway. They change with a rename, a fork
   or a policy, and are no content of the disk: images link /etc/hosts to this file in memory. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"

#define HOSTS_DIRECTORY "/run/coppice"
#define HOSTS HOSTS_DIRECTORY "/hosts"
#define OURS " # coppice"
#define MOST_BYTES (1u << 20)
#define LOOK_MS 200

static char known_name[65];
static struct in_addr known_gateway;
static uint64_t looked_ms;

/* Zero where there is no way out. */
static struct in_addr find_gateway(void) {
  struct in_addr gateway = {0};
  FILE *routes = fopen("/proc/net/route", "re");
  char line[256];
  unsigned long destination, address;
  while (routes != NULL && gateway.s_addr == 0 && fgets(line, sizeof line, routes) != NULL)
    if (sscanf(line, "%*s %lx %lx", &destination, &address) == 2 && destination == 0) gateway.s_addr = (in_addr_t)address;
  if (routes != NULL) fclose(routes);
  return gateway;
}

/* What somebody else added stays. */
static void keep_others(FILE *to) {
  int fd = open(HOSTS, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat st;
  FILE *from = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= (off_t)MOST_BYTES ? fdopen(fd, "r") : NULL;
  if (from == NULL) {
    if (fd >= 0) close(fd);
    return;
  }
  char *line = NULL;
  size_t size = 0;
  while (getline(&line, &size, from) > 0)
    if (strstr(line, OURS "\n") == NULL) fputs(line, to);
  free(line);
  fclose(from);
}

static void write_hosts(void) {
  char gateway[INET_ADDRSTRLEN];
  if (mkdir(HOSTS_DIRECTORY, 0755) < 0 && errno != EEXIST) return;
  unlink(HOSTS ".new");
  int fd = open(HOSTS ".new", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
  if (file == NULL) return;
  fprintf(file, "127.0.0.1 localhost" OURS "\n::1 localhost ip6-localhost" OURS "\n");
  if (known_name[0] != 0) fprintf(file, "127.0.1.1 %s" OURS "\n", known_name);
  if (known_gateway.s_addr != 0 && inet_ntop(AF_INET, &known_gateway, gateway, sizeof gateway) != NULL)
    fprintf(file, "%s host.coppice" OURS "\n", gateway);
  keep_others(file);
  if (fclose(file) == 0) rename(HOSTS ".new", HOSTS);
}

void hosts_refresh(void) {
  char name[sizeof known_name] = "";
  struct in_addr gateway = known_gateway;
  uint64_t now = now_ms();
  bool first = looked_ms == 0;
  if (gethostname(name, sizeof name - 1) < 0) name[0] = 0;
  if (first || now - looked_ms >= LOOK_MS) {
    gateway = find_gateway();
    looked_ms = now;
  }
  if (!first && gateway.s_addr == known_gateway.s_addr && strcmp(name, known_name) == 0) return;
  memcpy(known_name, name, sizeof name);
  known_gateway = gateway;
  write_hosts();
}
