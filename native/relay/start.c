#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/processors.h"
#include "../place/place.h"
#include "relay.h"

void enter_cgroups(const struct plan *plan) {
  for (size_t i = 0; i < plan->cgroup_count; i++) {
    int fd = open(plan->cgroup_files[i], O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1) die(plan->cgroup_files[i]);
    close(fd);
  }
}

static void lower_limit(int resource, rlim_t most) {
  struct rlimit limit;
  if (getrlimit(resource, &limit) < 0) die("read a limit");
  if (limit.rlim_max > most) limit.rlim_max = most;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(resource, &limit) < 0) die("lower a limit");
}

void limit_resources(const struct plan *plan) {
  if (plan->processors != NULL && !keep_on_processors(0, plan->processors)) die("keep it on its processors");
  /* Each file that a sandbox opens is open in two processes of runsc, and the machine has a limited number of open files. */
  lower_limit(RLIMIT_NOFILE, 65536);
  /* One byte and not none: with none, a core pattern that names a program would still run it. */
  lower_limit(RLIMIT_CORE, 1);
  /* Should the machine run out of memory, sandboxes go before anything of the host. */
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, "800", 3) != 3) die("/proc/self/oom_score_adj");
  close(fd);
}

/*
 * runsc sets up its network from the namespace that it finds itself in. Releases of 2024 take any namespace that shows
 * net.core.rmem_default for the host's own and refuse it; since Linux 6.14 every namespace shows it. So it is hidden,
 * in mounts of our own. The caller has made sure that this is not the host's namespace.
 */
void enter_network(const char *netns) {
  int fd = open(netns, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) < 0) die(netns);
  close(fd);
  if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) die("mounts of our own");
  if (mount("none", "/proc/sys/net/core", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k") < 0) die("/proc/sys/net/core");
}

/* It reads no more than that of /proc/meminfo. The mounts are our own by now, and so is the filesystem that the file is on. */
void show_memory(const char *bytes) {
  static const char source[] = "/proc/sys/net/core/meminfo", place[] = "/proc/meminfo";
  struct sysinfo machine;
  if (sysinfo(&machine) < 0) die("the memory of the machine");
  unsigned long long total = (unsigned long long)machine.totalram * machine.mem_unit, limit = strtoull(bytes, NULL, 10);
  int file = open(source, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  if (file < 0 || dprintf(file, "MemTotal: %15llu kB\n", (limit < total ? limit : total) / 1024) < 0 || close(file) < 0) die(source);
  if (mount(source, place, NULL, MS_BIND, NULL) < 0) die(place);
}

/* From the directory of the image: an image may have so many layers that their whole paths would not fit. */
void mount_root(const struct plan *plan) {
  int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (here < 0 || chdir(plan->image) < 0) die(plan->image);
  if (mount("overlay", plan->root, "overlay", MS_NOSUID | MS_NODEV, plan->layers) < 0) die(plan->root);
  if (fchdir(here) < 0) die("working directory");
  close(here);
}

static void make_place(int root, const char *name, enum place_kind kind, mode_t mode) {
  int place = open_place(root, name, kind, mode);
  if (place < 0) die(name);
  close(place);
}

/* A directory of the sandbox's own, as a mount. */
static int own_place(int root, const char *name, mode_t mode) {
  int place = open_place(root, name, place_led_to, mode);
  int tree = place < 0 ? -1 : clone_place(place);
  if (tree < 0) die(name);
  close(place);
  return tree;
}

static void show_at(int tree, const char *place) {
  if (syscall(SYS_move_mount, tree, "", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH) < 0) die(place);
  close(tree);
}

static bool has_host_mount(const struct plan *plan) {
  for (size_t number = 0; number < plan->mount_count; number++)
    if (plan->mounts[number].host != NULL) return true;
  return false;
}

static int or_trouble(int fd, const char *what, const char *trouble) {
  if (fd >= 0) return fd;
  if (trouble[0] == '\0') die(what);
  fprintf(stderr, "%s\n", trouble);
  exit(70);
}

static void show_mount(int root, const struct plan *plan, size_t number) {
  const struct host_mount *mount = &plan->mounts[number];
  char trouble[mount_trouble_limit];
  if (mount->host == NULL) {
    show_at(own_place(root, mount->guest + 1, 0755), plan->mount_places[number]);
    return;
  }
  close(or_trouble(open_mount_place(root, mount, number, trouble), mount->guest, trouble));
  /* What asks for its files on the host is root there. */
  show_at(or_trouble(clone_mount(mount, number, 0, trouble), mount->host, trouble), plan->mount_places[number]);
}

void prepare_root(const struct plan *plan) {
  static const char *const directories[] = {"proc", "sys", "dev", "run"};
  int root = open(plan->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) die(plan->root);
  for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) make_place(root, directories[i], place_directory, 0755);
  make_place(root, "run/coppice-agent", place_file, 0755);
  show_at(own_place(root, "tmp", 01777), plan->tmp);
  for (size_t number = 0; number < plan->mount_count; number++) show_mount(root, plan, number);
  close(root);
}

/*
 * Before runsc is, and so for all of its processes: the one among them that writes files does so as root. Nor may it keep the
 * set-id bits of a file that it writes to.
 */
static void have_modes_watched(int socket) {
  int listener = prctl(PR_CAPBSET_DROP, CAP_FSETID, 0, 0, 0) < 0 ? -1 : watch_modes();
  if (listener < 0 || send_listener(socket, listener) < 0) die("watch the modes of files");
}

static pid_t run_with(const struct plan *plan, int in, int out, int watched) {
  char **command = plan->command;
  pid_t pid = fork();
  if (pid < 0) die("fork");
  if (pid == 0) {
    if (has_host_mount(plan)) have_modes_watched(watched);
    /* What it says on stderr goes where our own does: to who started us. */
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0) _exit(126);
    execvp(command[0], command);
    fprintf(stderr, "coppice-relay: %s: %s\n", command[0], strerror(errno));
    _exit(127);
  }
  return pid;
}

int wait_for(pid_t command) {
  int status = 0;
  while (waitpid(command, &status, 0) < 0)
    if (errno != EINTR) die("waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

pid_t start_sandbox(const struct plan *plan, struct pipes *pipes, struct mode_watch *watch) {
  int in[2], out[2], watched[2];
  if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0) die("pipe");
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, watched) < 0) die("socket");
  /* Large enough for some frames at once. */
  fcntl(in[1], F_SETPIPE_SZ, 1 << 20);
  fcntl(out[0], F_SETPIPE_SZ, 1 << 20);
  pid_t pid = run_with(plan, in[0], out[1], watched[1]);
  close(in[0]);
  close(out[1]);
  close(watched[1]);
  *pipes = (struct pipes){.to_guest = in[1], .from_guest = out[0]};
  *watch = (struct mode_watch){.listener = -1, .userns = -1, .proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (has_host_mount(plan) && (watch->listener = receive_listener(watched[0])) < 0) die("watch the modes of files");
  close(watched[0]);
  return pid;
}
