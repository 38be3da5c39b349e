#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/path.h"

/* What bubblewrap is loaded from, and what a sandbox is given parts of. */
static const char *const kept[] = {"/proc", "/dev", "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc"};

static bool is_needed(const struct setup *setup, const char *place) {
  if (strcmp(place, "/") == 0 || strcmp(place, "/sys") == 0 || is_at_or_below(setup->bwrap, place)) return true;
  for (size_t index = 0; index < sizeof kept / sizeof *kept; index++)
    if (is_at_or_below(place, kept[index])) return true;
  return false;
}

/*
 * The host's other filesystems are none of a sandbox's business, and each one makes its start slower: the table of mounts
 * is copied twice and read by bubblewrap over and over. One that cannot be detached, or whose name is written with
 * escapes, stays; it is left behind with the rest when the sandbox gets its root.
 */
static bool detach_the_rest(const struct setup *setup, char *reason) {
  FILE *table = fopen("/proc/self/mountinfo", "re");
  char line[2 * PATH_MAX], place[PATH_MAX];
  if (!table) return fail(reason, "read the table of mounts");
  while (fgets(line, sizeof line, table))
    if (sscanf(line, "%*s %*s %*s %*s %4095s", place) == 1 && !is_needed(setup, place)) umount2(place, MNT_DETACH);
  fclose(table);
  return true;
}

bool raise_loopback(char *reason) {
  struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
  if (!up) fail(reason, "raise the loopback");
  if (fd >= 0) close(fd);
  return up;
}

/* With the host's privileges, as what is mounted could not be taken away otherwise. */
static bool enter_bare_mounts(const struct setup *setup, char *reason) {
  if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) return fail(reason, "make a mount namespace");
  int agent = open(setup->agent, O_RDONLY | O_CLOEXEC);
  if (agent < 0) return fail(reason, "open the agent %s", setup->agent);
  bool made = detach_the_rest(setup, reason) && make_agents(agent, setup->agent, reason);
  close(agent);
  return made;
}

static bool enter_empty_network(const struct setup *setup, char *reason) {
  if (!become_owner(setup->owner, reason)) return false;
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) return fail(reason, "make a user and a network namespace");
  return raise_loopback(reason);
}

static void end_child(pid_t pid) {
  kill(pid, SIGKILL);
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
}

static int open_of(pid_t pid, const char *name, int flags) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
  return open(path, flags | O_CLOEXEC);
}

/* A child enters them, since a user namespace cannot be left again; descriptors keep them when it is gone. */
static pid_t start_child(bool (*enter)(const struct setup *, char *), const struct setup *setup, char *reason) {
  int told[2];
  char text[reason_limit] = "";
  if (pipe2(told, O_CLOEXEC) < 0) return fail(reason, "make a pipe"), -1;
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    /* With its end, which alone is the word that all went well. */
    size_t length = (enter(setup, text) ? 0 : strlen(text)) + 1;
    if (write(told[1], text, length) != (ssize_t)length) _exit(1);
    wait_to_be_killed(parent);
  }
  close(told[1]);
  ssize_t got = pid > 0 ? read(told[0], text, sizeof text) : -1;
  if (pid < 0) fail(reason, "fork");
  close(told[0]);
  if (pid > 0 && (got <= 0 || text[0] != '\0')) {
    errno = 0;
    fail(reason, "%s", got > 0 ? text : "the process that makes namespaces died");
    end_child(pid);
    return -1;
  }
  return pid;
}

bool make_namespaces(const struct setup *setup, struct namespaces *made, char *reason) {
  pid_t pid = start_child(enter_empty_network, setup, reason);
  if (pid < 0) return false;
  made->user = open_of(pid, "ns/user", O_RDONLY);
  made->network = open_of(pid, "ns/net", O_RDONLY);
  made->uid_map = open_of(pid, "uid_map", O_WRONLY);
  made->gid_map = open_of(pid, "gid_map", O_WRONLY);
  bool all = made->user >= 0 && made->network >= 0 && made->uid_map >= 0 && made->gid_map >= 0;
  if (!all) fail(reason, "hold the namespaces");
  end_child(pid);
  return all;
}

int make_bare_mounts(const struct setup *setup, char *reason) {
  pid_t pid = start_child(enter_bare_mounts, setup, reason);
  if (pid < 0) return -1;
  int fd = open_of(pid, "ns/mnt", O_RDONLY);
  if (fd < 0) fail(reason, "hold the mount namespace");
  end_child(pid);
  return fd;
}
