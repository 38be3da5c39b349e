#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/path.h"
#include "../lib/processors.h"

/*
 * Brings back what CRIU kept. It runs with the host's privileges and makes the namespaces of the sandbox anew. The root of
 * image and disk is built as for a start, in a user namespace with the same map of ids, and CRIU takes it from there, as it takes
 * whatever else came from the host. It runs in the sandbox's cgroups, and so does all that it restores.
 */
enum { arguments_limit = 200, text_limit = 64 };

struct yard {
  const char *top; /* covered by a filesystem in memory, in mounts of our own */
  char scratch[text_limit];
  char root[text_limit + 8];
  char bare[text_limit + 8];
  char images[text_limit];
};

/* CRIU makes places of its own in /tmp, and these go with it; unless it is installed below. */
static bool make_yard(const char *criu, struct yard *yard, char *reason) {
  static const char *const places[] = {"/tmp", "/mnt", "/media", "/srv"};
  yard->top = NULL;
  for (size_t index = 0; !yard->top && index < sizeof places / sizeof *places; index++)
    if (!is_at_or_below(criu, places[index]) && access(places[index], F_OK) == 0) yard->top = places[index];
  if (!yard->top) return fail(reason, "find a place for the root");
  if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) return fail(reason, "make mounts of our own");
  if (mount("coppice", yard->top, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=16m") < 0) return fail(reason, "mount over %s", yard->top);
  snprintf(yard->scratch, sizeof yard->scratch, "%s/build", yard->top);
  snprintf(yard->root, sizeof yard->root, "%s/root", yard->scratch);
  snprintf(yard->bare, sizeof yard->bare, "%s/bare", yard->scratch);
  snprintf(yard->images, sizeof yard->images, "%s/images", yard->top);
  return (mkdir(yard->scratch, 0755) == 0 && mkdir(yard->images, 0700) == 0) || fail(reason, "make places below %s", yard->top);
}

static bool attach(int tree, const char *at, const char *what, char *reason) {
  return syscall(SYS_move_mount, tree, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) == 0 || fail(reason, "attach %s", what);
}

/* The ids of the sandbox that it was taken of are not those of this one. */
static bool attach_images(const struct yard *yard, int images, int map, const char *map_name, char *reason) {
  char at[PATH_MAX];
  snprintf(at, sizeof at, "%s/%s", yard->images, map_name);
  return attach(images, yard->images, "the checkpoint", reason) && attach(map, at, "the map of ids", reason);
}

/*
 * The root once more, without what is mounted in it: CRIU binds it in a user namespace of its own, where mounts that came from
 * here cannot be taken apart.
 */
static bool build(const struct yard *yard, const struct trees *trees, const struct message *request, char *reason) {
  if (!build_root(yard->scratch, trees, request, reason)) return false;
  return (mkdir(yard->bare, 0755) == 0 && mount(yard->root, yard->bare, NULL, MS_BIND, NULL) == 0) || fail(reason, "bind the bare root");
}

/* Builds it in a child, since a user namespace cannot be left again, and enters the mounts that it was built in. */
static bool enter_root(const struct namespaces *ahead, const struct trees *trees, const struct message *request, const struct yard *yard,
                       int cgroup, char *reason) {
  int told[2];
  char text[reason_limit] = "", path[text_limit];
  if (pipe2(told, O_CLOEXEC) < 0) return fail(reason, "make a pipe");
  pid_t parent = getpid(), pid = clone_into(cgroup);
  if (pid < 0) return fail(reason, "fork");
  if (pid == 0) {
    bool built = enter_namespaces(ahead, text) && build(yard, trees, request, text);
    size_t length = (built ? 0 : strlen(text)) + 1;
    if (write(told[1], text, length) != (ssize_t)length) _exit(1);
    wait_to_be_killed(parent);
  }
  close(told[1]);
  ssize_t got = read(told[0], text, sizeof text - 1);
  close(told[0]);
  errno = 0;
  bool built = got == 1 || fail(reason, "%s", got > 1 ? text : "the process that builds the root died");
  if (built) {
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pid);
    int mounts = open(path, O_RDONLY | O_CLOEXEC);
    built = (mounts >= 0 && setns(mounts, CLONE_NEWNS) == 0) || fail(reason, "enter the mounts of the root");
  }
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  return built;
}

struct arguments {
  const char *list[arguments_limit + 1];
  size_t count;
};

static void push(struct arguments *arguments, const char *argument) {
  if (arguments->count == arguments_limit) abort();
  arguments->list[arguments->count++] = argument;
}

/* What came from the host and not from the sandbox: a mount named by its place inside is taken from the new root. */
static void push_external(struct arguments *arguments, const struct yard *yard, const char *place) {
  char *text;
  const char *root = strncmp(place, "/proc/", 6) == 0 ? "" : yard->root;
  const char *source = strncmp(place, "/proc/", 6) != 0 || strcmp(place, "/proc/sys") == 0 ? place : "/dev/null";
  if (asprintf(&text, "mnt[%s]:%s%s", place, root, source) < 0) abort();
  push(arguments, "--external");
  push(arguments, text);
}

static void exec_criu(const struct message *request, const struct yard *yard, const char *hook) {
  static char *const environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};
  struct arguments arguments = {.count = 0};
  const char *at = NULL, *option, *place;
  push(&arguments, message_get(request, "criu"));
  push(&arguments, "restore");
  while ((option = message_next(request, "option", &at))) push(&arguments, option);
  const char *const more[] = {
      "--images-dir", yard->images, "--work-dir", yard->top,         "--root", yard->bare,           "--log-file",
      "log",          "--pidfile",  "pid",        "--action-script", hook,     "--restore-detached",
  };
  for (size_t index = 0; index < sizeof more / sizeof *more; index++) push(&arguments, more[index]);
  at = NULL;
  while ((place = message_next(request, "external", &at))) push_external(&arguments, yard, place);
  arguments.list[arguments.count] = NULL;
  execve(arguments.list[0], (char *const *)arguments.list, environment);
}

/* The first thing that it calls an error says why; what follows is what it had to give up because of that. */
static bool fail_with_log(const struct yard *yard, int status, char *reason) {
  char path[text_limit + 8], line[600], first[600] = "";
  snprintf(path, sizeof path, "%s/log", yard->top);
  FILE *log = fopen(path, "re");
  while (log && first[0] == '\0' && fgets(line, sizeof line, log)) {
    const char *error = strstr(line, "Error (");
    /* It asks for more descriptors than it may have, and does without. */
    if (error && !strstr(line, "rlimit:")) snprintf(first, sizeof first, "%s", error);
  }
  if (log) fclose(log);
  first[strcspn(first, "\n")] = '\0';
  errno = 0;
  return fail(reason, "CRIU ended with %d%s%s", WIFEXITED(status) ? WEXITSTATUS(status) : 128, first[0] ? ": " : "", first);
}

static pid_t read_pid(const struct yard *yard) {
  char path[text_limit + 8], text[32] = "";
  snprintf(path, sizeof path, "%s/pid", yard->top);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
  if (fd >= 0) close(fd);
  return got > 0 ? (pid_t)atoi(text) : 0;
}

static bool has_given_up(const struct yard *yard) {
  char path[text_limit + 8], line[600];
  bool found = false;
  snprintf(path, sizeof path, "%s/log", yard->top);
  FILE *log = fopen(path, "re");
  while (log && !found && fgets(line, sizeof line, log)) found = strstr(line, "Killing processes because of failure") != NULL;
  if (log) fclose(log);
  return found;
}

/* A restore takes as long as it takes. But one that failed may wait without end for a process that it did not kill. */
static int await_criu(pid_t pid, const struct yard *yard) {
  enum { look_every_ms = 1000, looks_after_failure = 5 };
  int ended = (int)syscall(SYS_pidfd_open, pid, 0), status = 0;
  struct pollfd end = {.fd = ended, .events = POLLIN};
  for (int looks = 0; ended >= 0 && poll(&end, 1, look_every_ms) <= 0;)
    if (has_given_up(yard) && ++looks == looks_after_failure) kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (ended >= 0) close(ended);
  return status;
}

static bool run_criu(const struct message *request, const struct yard *yard, int cgroup, pid_t *init, char *reason) {
  char hook[text_limit];
  snprintf(hook, sizeof hook, "/proc/%d/exe", (int)getpid());
  pid_t pid = clone_into(cgroup);
  if (pid < 0) return fail(reason, "fork into the cgroup");
  if (pid == 0) {
    const char *processors = message_get(request, "processors");
    if (processors && !keep_on_processors(0, processors)) _exit(127);
    /* Its own view of cgroups becomes that of the sandbox. */
    if (unshare(CLONE_NEWCGROUP) == 0) exec_criu(request, yard, hook);
    _exit(127);
  }
  int status = await_criu(pid, yard);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return fail_with_log(yard, status, reason);
  *init = read_pid(yard);
  return *init > 0 || fail(reason, "CRIU did not say what it restored");
}

bool restore_container(const struct setup *setup, const struct namespaces *ahead, const struct message *request, struct message *reply,
                       char *reason) {
  static const char *const needed[] = {"criu", "images", "map", "map-name"};
  struct trees trees;
  struct yard yard;
  pid_t init = 0;
  unsigned long long started;
  const char *v2 = message_get(request, "v2");
  int cgroup = -1;
  for (size_t index = 0; index < sizeof needed / sizeof *needed; index++)
    if (!message_get(request, needed[index])) return fail(reason, "a restore without %s", needed[index]);
  if (!open_trees(setup, request, &trees, reason)) return false;
  int listener = listen_in(message_get(request, "run"));
  if (listener < 0) return fail(reason, "listen in %s", message_get(request, "run"));
  int images = clone_tree(message_get(request, "images")), map = clone_tree(message_get(request, "map"));
  if (images < 0 || map < 0) return fail(reason, "open the checkpoint %s", message_get(request, "images"));
  if (v2 && (cgroup = open(v2, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) return fail(reason, "open %s", v2);
  if (!map_ids(ahead, request, reason) || !idmap_trees(&trees, ahead->user, reason)) return false;
  /* Some of it is read by the root of the sandbox, before that becomes what it was. */
  if (!idmap_tree(images, ahead->user, MOUNT_ATTR_RDONLY)) return fail(reason, "map the owners of the checkpoint");
  if (!make_yard(message_get(request, "criu"), &yard, reason)) return false;
  if (!attach_images(&yard, images, map, message_get(request, "map-name"), reason)) return false;
  if (!enter_root(ahead, &trees, request, &yard, cgroup, reason)) return false;
  if (!run_criu(request, &yard, cgroup, &init, reason)) return false;
  if (!limit_watches(init, reason) || !renew_listener(init, listener, reason)) return false;
  if (!process_started(init, &started)) return fail(reason, "the sandbox ended right after it was restored");
  message_put(reply, "pid", "%d", (int)init);
  message_put(reply, "started", "%llu", started);
  return true;
}
