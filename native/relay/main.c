#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../lib/processors.h"
#include "relay.h"

void die(const char *what) {
  fprintf(stderr, "coppice-relay: %s: %s\n", what, strerror(errno));
  exit(70);
}

static void usage(void) {
  fprintf(
      stderr,
      "usage: coppice-relay --socket PATH --hold-socket PATH --gate-socket PATH --netns PATH --image DIRECTORY --layers OPTIONS\n"
      "                     --root PATH --tmp PATH [--mount-at PATH --mount-place PATH [--mount DIRECTORY] [--mount-identity IDENTITY]\n"
      "                     [--mount-mode ro|rw]]... [--cgroup FILE]... [--processors LIST] [--memory BYTES] -- COMMAND THAT STARTS...\n"
      "       coppice-relay --gate PATH | --move TASKS LIST\n");
  exit(64);
}

/* A socket is named from its own directory: its path may be longer than an address can hold. Where we were before. */
int enter_directory_of(const char *path, struct sockaddr_un *address) {
  char *copy = strdup(path);
  char *slash = copy == NULL ? NULL : strrchr(copy, '/');
  if (slash == NULL) usage();
  *slash = '\0';
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  if (strlen(slash + 1) >= sizeof address->sun_path) usage();
  memcpy(address->sun_path, slash + 1, strlen(slash + 1) + 1);
  int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (here < 0 || chdir(copy) < 0) die(copy);
  free(copy);
  return here;
}

static int listen_at(const char *path) {
  struct sockaddr_un address;
  int here = enter_directory_of(path, &address);
  unlink(address.sun_path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  mode_t mask = umask(0177);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 16) < 0) die(path);
  umask(mask);
  if (fchdir(here) < 0) die("working directory");
  close(here);
  return fd;
}

/* Where it goes comes first of each. */
static void parse_mount(struct plan *plan, const char *option, const char *value) {
  if (strcmp(option, "--mount-at") == 0) {
    if (plan->mount_count == mounts_limit) usage();
    plan->mounts[plan->mount_count++] = (struct host_mount){.identity = "", .guest = value};
    return;
  }
  if (plan->mount_count == 0) usage();
  struct host_mount *mount = &plan->mounts[plan->mount_count - 1];
  if (strcmp(option, "--mount") == 0) mount->host = value;
  else if (strcmp(option, "--mount-identity") == 0) mount->identity = value;
  else if (strcmp(option, "--mount-place") == 0) plan->mount_places[plan->mount_count - 1] = value;
  else if (strcmp(option, "--mount-mode") == 0) mount->read_only = strcmp(value, "ro") == 0;
  else usage();
}

static struct plan parse(int argc, char **argv) {
  struct plan plan = {0};
  plan.cgroup_files = calloc((size_t)argc, sizeof(char *));
  if (plan.cgroup_files == NULL) die("memory");
  int at = 1;
  for (; at + 1 < argc && strcmp(argv[at], "--") != 0; at += 2) {
    const char *value = argv[at + 1];
    if (strcmp(argv[at], "--socket") == 0) plan.socket = value;
    else if (strcmp(argv[at], "--hold-socket") == 0) plan.hold_socket = value;
    else if (strcmp(argv[at], "--gate-socket") == 0) plan.gate_socket = value;
    else if (strcmp(argv[at], "--netns") == 0) plan.netns = value;
    else if (strcmp(argv[at], "--layers") == 0) plan.layers = value;
    else if (strcmp(argv[at], "--image") == 0) plan.image = value;
    else if (strcmp(argv[at], "--root") == 0) plan.root = value;
    else if (strcmp(argv[at], "--tmp") == 0) plan.tmp = value;
    else if (strncmp(argv[at], "--mount-", 8) == 0 || strcmp(argv[at], "--mount") == 0) parse_mount(&plan, argv[at], value);
    else if (strcmp(argv[at], "--processors") == 0) plan.processors = value;
    else if (strcmp(argv[at], "--memory") == 0) plan.memory = value;
    else if (strcmp(argv[at], "--cgroup") == 0) plan.cgroup_files[plan.cgroup_count++] = value;
    else usage();
  }
  if (plan.socket == NULL || plan.hold_socket == NULL || plan.gate_socket == NULL) usage();
  if (plan.netns == NULL || plan.image == NULL || plan.layers == NULL || plan.root == NULL || plan.tmp == NULL) usage();
  for (size_t number = 0; number < plan.mount_count; number++)
    if (plan.mounts[number].guest[0] != '/' || plan.mount_places[number] == NULL) usage();
  if (at + 1 >= argc || strcmp(argv[at], "--") != 0) usage();
  plan.command = argv + at + 1;
  return plan;
}

/* Who started us may go; what the sandbox writes there later is nobody's. */
static void leave_stdio(void) {
  int null_fd = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; fd++) dup2(null_fd, fd);
  if (null_fd > 2) close(null_fd);
}

static bool tell(const char *line) {
  size_t length = strlen(line);
  return write(1, line, length) == (ssize_t)length;
}

static bool tell_made(pid_t sandbox) {
  char line[32];
  snprintf(line, sizeof line, "made %d\n", (int)sandbox);
  return tell(line);
}

/* False when who started us has gone, or has changed its mind. */
static bool is_told_to_go(void) {
  char byte;
  ssize_t got;
  do got = read(0, &byte, 1);
  while (got < 0 && errno == EINTR);
  return got == 1;
}

/* Makes the sandbox and lets it run. When it does not, what there is of it is for who started us, or comes after, to end. */
static bool start(const struct plan *plan, int gate_listener, struct pipes *pipes, struct mode_watch *watch) {
  pid_t command = start_sandbox(plan, pipes, watch);
  int visitor = -1;
  pid_t sandbox = await_gate(gate_listener, command, &visitor);
  close(gate_listener);
  unlink(plan->gate_socket);
  bool goes = sandbox > 0 && tell_made(sandbox) && is_told_to_go() && open_gate(visitor);
  if (visitor >= 0) close(visitor);
  if (sandbox > 0 && !goes) return false;
  bool runs = wait_for(command) == 0 && goes;
  return tell(runs ? "ready\n" : "failed\n") && runs;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--gate") == 0) return stand_at_gate(argv[2]);
  if (argc == 4 && strcmp(argv[1], "--move") == 0) return move_to_processors(argv[2], argv[3]) ? 0 : 1;
  struct plan plan = parse(argc, argv);
  signal(SIGPIPE, SIG_IGN);
  setsid();
  int listener = listen_at(plan.socket);
  int hold_listener = listen_at(plan.hold_socket);
  int gate_listener = listen_at(plan.gate_socket);
  enter_cgroups(&plan);
  limit_resources(&plan);
  enter_network(plan.netns);
  if (plan.memory != NULL) show_memory(plan.memory);
  mount_root(&plan);
  prepare_root(&plan);
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) die("subreaper");
  struct pipes pipes;
  struct mode_watch watch;
  bool runs = start(&plan, gate_listener, &pipes, &watch);
  leave_stdio();
  if (runs) forward(&pipes, &watch, listener, hold_listener);
  /* The last of the sandbox; if it does not go, who ends the sandbox kills it, and us with it. */
  while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) continue;
  unlink(plan.socket);
  unlink(plan.hold_socket);
  return 0;
}
