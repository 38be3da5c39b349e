#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * To move a process into a cgroup takes the kernel 4 to 20 ms, as it waits for every processor to notice; once
 * inside, children are born there at no cost. So a few processes are moved ahead of time into version 1 cgroups with a
 * provisional name, which is then changed. Version 2 needs none of this: clone3 puts a child where it belongs.
 */
bool write_value(const char *path, const char *value) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  size_t length = strlen(value);
  bool written = write(fd, value, length) == (ssize_t)length;
  int number = errno;
  close(fd);
  errno = number;
  return written;
}

static void standby_path(char *path, const char *parent, unsigned number) {
  snprintf(path, PATH_MAX, "%s/standby-%d-%u", parent, (int)getpid(), number);
}

/* The parent goes with the last that leaves it, so it may vanish under one that arrives. */
static bool make_in(const char *parent, const char *path) {
  for (int attempt = 0; attempt < 10; attempt++) {
    if (mkdir(path, 0755) == 0) return true;
    if (errno != ENOENT || (mkdir(parent, 0755) < 0 && errno != EEXIST)) return false;
  }
  return false;
}

/* In version 1 a new group of cpuset holds nobody before it has processors and memory: all that the one above it has. */
static void inherit_cpuset(const char *directory) {
  static const char *const names[] = {"cpuset.cpus", "cpuset.mems"};
  for (size_t index = 0; index < sizeof names / sizeof *names; index++) {
    char path[PATH_MAX + 32], text[4096];
    snprintf(path, sizeof path, "%s/../%s", directory, names[index]);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    snprintf(path, sizeof path, "%s/%s", directory, names[index]);
    write_value(path, text);
  }
}

static bool enter_cgroups(const struct setup *setup, unsigned number, char *reason) {
  char path[PATH_MAX], procs[PATH_MAX + 16];
  for (size_t index = 0; index < setup->v1_count; index++) {
    standby_path(path, setup->v1_parents[index], number);
    if (!make_in(setup->v1_parents[index], path)) return fail(reason, "make %s", path);
    inherit_cpuset(setup->v1_parents[index]);
    inherit_cpuset(path);
    snprintf(procs, sizeof procs, "%s/cgroup.procs", path);
    if (!write_value(procs, "0")) return fail(reason, "enter %s", path);
  }
  return true;
}

/* Goes on past a failure: a directory that stays is found by the next sweep. The parent stays where others are in it. */
static void leave_cgroups(const struct setup *setup, unsigned number) {
  char path[PATH_MAX], procs[PATH_MAX + 16];
  for (size_t index = 0; index < setup->v1_count; index++) {
    snprintf(procs, sizeof procs, "%s/../cgroup.procs", setup->v1_parents[index]);
    write_value(procs, "0");
    standby_path(path, setup->v1_parents[index], number);
    rmdir(path);
    rmdir(setup->v1_parents[index]);
  }
}

static bool take_name(const struct setup *setup, unsigned number, const char *id, char *reason) {
  char from[PATH_MAX], to[PATH_MAX];
  for (size_t index = 0; index < setup->v1_count; index++) {
    standby_path(from, setup->v1_parents[index], number);
    snprintf(to, sizeof to, "%s/%s", setup->v1_parents[index], id);
    if (rename(from, to) < 0) return fail(reason, "name the cgroup %s", to);
  }
  return true;
}

/* Each is `FILE VALUE`; no path below a cgroup mount of ours holds a blank. */
static bool apply_limits(const struct message *request, char *reason) {
  const char *at = NULL, *entry;
  while ((entry = message_next(request, "set", &at))) {
    char path[PATH_MAX];
    const char *blank = strchr(entry, ' ');
    if (!blank || (size_t)(blank - entry) >= sizeof path) return fail(reason, "malformed limit %s", entry);
    memcpy(path, entry, (size_t)(blank - entry));
    path[blank - entry] = '\0';
    if (!write_value(path, blank + 1)) return fail(reason, "set %s to %s", path, blank + 1);
  }
  return true;
}

static bool prepare(const struct setup *setup, unsigned number, const struct message *request, char *reason) {
  static const char *const needed[] = {"id", "run", "image", "disk", "hostname", "base", "shm", "tmpfs"};
  errno = 0;
  for (size_t index = 0; index < sizeof needed / sizeof *needed; index++)
    if (!message_get(request, needed[index])) return fail(reason, "a start without %s", needed[index]);
  const char *v2 = message_get(request, "v2");
  if (v2 && mkdir(v2, 0755) < 0) return fail(reason, "make %s", v2);
  return take_name(setup, number, message_get(request, "id"), reason) && apply_limits(request, reason);
}

static bool begin(const struct setup *setup, const struct namespaces *ahead, const struct message *request, struct message *reply,
                  char *reason) {
  bool restores = strcmp(message_get(request, "verb"), "restore") == 0;
  return (restores ? restore_container : start_container)(setup, ahead, request, reply, reason);
}

void standby_main(const struct setup *setup, unsigned number, int channel) {
  static struct message request, reply;
  struct namespaces ahead;
  char reason[reason_limit] = "", entered[reason_limit] = "";
  bool ready = enter_cgroups(setup, number, entered) && make_namespaces(setup, &ahead, entered);
  ssize_t got;
  while ((got = recv(channel, request.data, sizeof request.data, 0)) < 0 && errno == EINTR) {}
  if (got <= 0) {
    leave_cgroups(setup, number);
    _exit(0);
  }
  request.size = (size_t)got;
  if (!ready) {
    leave_cgroups(setup, number);
    message_put(&reply, "error", "%s", entered);
  } else if (!prepare(setup, number, &request, reason) || !begin(setup, &ahead, &request, &reply, reason)) {
    reply.size = 0;
    message_put(&reply, "error", "%s", reason);
  }
  ssize_t sent = send(channel, reply.data, reply.size, MSG_NOSIGNAL);
  _exit(sent == (ssize_t)reply.size ? 0 : 1);
}
