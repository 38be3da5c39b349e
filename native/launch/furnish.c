#define _GNU_SOURCE
#include "launch.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Done here and not by bubblewrap's own options: that reads the whole table of mounts again for each thing it binds or
 * makes read-only, which together took longer than all the rest of a start. It is given the furnished root as one tree,
 * and adds what only the new pid namespace can have, /proc. Every mount bears nosuid already, as bubblewrap would set it.
 */
enum { quiet = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };

static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
static const char *const links[][2] = {
    {"/proc/self/fd/0", "dev/stdin"}, {"/proc/self/fd/1", "dev/stdout"}, {"/proc/self/fd/2", "dev/stderr"},
    {"/proc/self/fd", "dev/fd"},      {"/proc/kcore", "dev/core"},       {"pts/ptmx", "dev/ptmx"},
};

static bool make_file(const char *at) {
  int fd = open(at, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  return fd >= 0 && close(fd) == 0;
}

/* Adds to the flags and never takes any away, which a mount that comes from the host would refuse. */
static bool restrict_mount(const char *at, uint64_t flags) {
  struct mount_attr attributes = {.attr_set = flags};
  return syscall(SYS_mount_setattr, AT_FDCWD, at, 0, &attributes, sizeof attributes) == 0;
}

static bool bind(const char *source, const char *at, uint64_t flags) {
  return mount(source, at, NULL, MS_BIND, NULL) == 0 && restrict_mount(at, flags);
}

static bool mount_memory(const char *at, const char *mode, const char *size) {
  char options[64];
  snprintf(options, sizeof options, "mode=%s,size=%s", mode, size);
  return mount("tmpfs", at, "tmpfs", MS_NOSUID | MS_NODEV, options) == 0;
}

static bool make_dev(const struct message *request, char *reason) {
  if (!mount_memory("dev", "0755", "64k")) return fail(reason, "mount /dev");
  for (size_t index = 0; index < sizeof devices / sizeof *devices; index++) {
    char source[32], at[32];
    snprintf(source, sizeof source, "/dev/%s", devices[index]);
    snprintf(at, sizeof at, "dev/%s", devices[index]);
    if (!make_file(at) || !bind(source, at, MOUNT_ATTR_NOSUID)) return fail(reason, "give it %s", source);
  }
  for (size_t index = 0; index < sizeof links / sizeof *links; index++)
    if (symlink(links[index][0], links[index][1]) < 0) return fail(reason, "link /%s", links[index][1]);
  if (mkdir("dev/shm", 0755) < 0 || mkdir("dev/pts", 0755) < 0 || mkdir("dev/mqueue", 0755) < 0)
    return fail(reason, "make the places below /dev");
  /* All sandboxes share the few thousand terminals of the machine. */
  if (mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,max=128") < 0)
    return fail(reason, "mount /dev/pts");
  /* What lies in memory is bounded below the sandbox's limit: files there cannot be reclaimed by killing. */
  if (!mount_memory("dev/shm", "1777", message_get(request, "shm"))) return fail(reason, "mount /dev/shm");
  return restrict_mount("dev", MOUNT_ATTR_RDONLY) || fail(reason, "make /dev read-only");
}

static bool make_run(int agent, const struct message *request, char *reason) {
  static const char agent_at[] = "run/coppice/agent";
  /* Filled by the agent, and mounted at /proc/meminfo. */
  static const char memory_at[] = "run/coppice/meminfo";
  if (!mount_memory("run", "0755", message_get(request, "tmpfs"))) return fail(reason, "mount /run");
  if (mkdir("run/lock", 0755) < 0 || chmod("run/lock", 01777) < 0 || mkdir("run/coppice", 0755) < 0 || !make_file(agent_at) ||
      !make_file(memory_at) || chmod(memory_at, 0644) < 0)
    return fail(reason, "make the places below /run");
  return syscall(SYS_move_mount, agent, "", AT_FDCWD, agent_at, MOVE_MOUNT_F_EMPTY_PATH) == 0 || fail(reason, "attach the agent");
}

/*
 * The sandbox's own cgroup, from where programs learn their limits; nobody inside can change them. Where memory is in version 2 it is the
 * only one, else each hierarchy of version 1 has a directory of its own.
 */
static bool show_cgroups(const struct message *request, char *reason) {
  const unsigned long flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
  const char *at = NULL, *hierarchy;
  if (mkdir("sys/fs", 0755) < 0 || mkdir("sys/fs/cgroup", 0755) < 0) return fail(reason, "make /sys/fs/cgroup");
  while ((hierarchy = message_next(request, "cgroup", &at))) {
    char place[128];
    bool is_v2 = strcmp(hierarchy, "v2") == 0;
    snprintf(place, sizeof place, is_v2 ? "sys/fs/cgroup" : "sys/fs/cgroup/%s", hierarchy);
    if (!is_v2 && mkdir(place, 0755) < 0) return fail(reason, "make /%s", place);
    if (mount("cgroup", place, is_v2 ? "cgroup2" : "cgroup", flags, is_v2 ? NULL : hierarchy) < 0) return fail(reason, "mount /%s", place);
  }
  return true;
}

/* Programs that do not ask which processors they may use count those that are said to be online. */
static bool show_processors(const char *list, char *reason) {
  static const char source[] = "sys/devices/system/processors", at[] = "sys/devices/system/cpu/online";
  if (!list) return true;
  int fd = open(source, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  if (fd < 0 || dprintf(fd, "%s\n", list) < 0 || close(fd) < 0) return fail(reason, "write /%s", source);
  return bind(source, at, MOUNT_ATTR_RDONLY | quiet) || fail(reason, "mount /%s", at);
}

/* Of the host's /sys no more than what programs count processors with. */
static bool make_sys(const struct message *request, char *reason) {
  static const char source[] = "/sys/devices/system/cpu", at[] = "sys/devices/system/cpu";
  if (!mount_memory("sys", "0755", "64k")) return fail(reason, "mount /sys");
  if (mkdir("sys/devices", 0755) < 0 || mkdir("sys/devices/system", 0755) < 0 || mkdir(at, 0755) < 0)
    return fail(reason, "make the places below /sys");
  if (!bind(source, at, MOUNT_ATTR_RDONLY | quiet)) return fail(reason, "give it %s", source);
  if (!show_processors(message_get(request, "processors"), reason) || !show_cgroups(request, reason)) return false;
  return restrict_mount("sys", MOUNT_ATTR_RDONLY) || fail(reason, "make /sys read-only");
}

/* The places are real directories, as build_root has made sure; what is below them is made here. */
bool furnish_root(const char *root, int agent, const struct message *request, char *reason) {
  if (chdir(root) < 0) return fail(reason, "enter the root");
  return make_dev(request, reason) && make_run(agent, request, reason) && make_sys(request, reason);
}
