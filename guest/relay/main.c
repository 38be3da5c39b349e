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

#include "relay.h"

void die(const char *what) {
  fprintf(stderr, "coppice-relay: %s: %s\n", what, strerror(errno));
  exit(70);
}

static void usage(void) {
  fprintf(stderr, "usage: coppice-relay --socket PATH --hold-socket PATH [--netns PATH] [--cgroup FILE]... -- COMMAND...\n");
  exit(64);
}

/* Bound by its name alone, from its own directory: the path may be longer than an address can hold. */
static int listen_at(const char *path) {
  char *copy = strdup(path);
  char *slash = copy == NULL ? NULL : strrchr(copy, '/');
  if (slash == NULL) usage();
  *slash = '\0';
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(slash + 1) >= sizeof address.sun_path) usage();
  memcpy(address.sun_path, slash + 1, strlen(slash + 1) + 1);
  int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (here < 0 || chdir(copy) < 0) die(copy);
  unlink(address.sun_path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  mode_t mask = umask(0177);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 16) < 0) die(path);
  umask(mask);
  if (fchdir(here) < 0) die("working directory");
  close(here);
  free(copy);
  return fd;
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
    else if (strcmp(argv[at], "--netns") == 0) plan.netns = value;
    else if (strcmp(argv[at], "--cgroup") == 0) plan.cgroup_files[plan.cgroup_count++] = value;
    else usage();
  }
  if (at + 1 >= argc || strcmp(argv[at], "--") != 0 || plan.socket == NULL || plan.hold_socket == NULL) usage();
  plan.command = argv + at + 1;
  return plan;
}

int main(int argc, char **argv) {
  struct plan plan = parse(argc, argv);
  signal(SIGPIPE, SIG_IGN);
  setsid();
  int listener = listen_at(plan.socket);
  int hold_listener = listen_at(plan.hold_socket);
  enter_cgroups(&plan);
  if (plan.netns != NULL) enter_network(plan.netns);
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) die("subreaper");
  struct pipes pipes;
  int code = run_command(plan.command, &pipes);
  if (code != 0) {
    unlink(plan.socket);
    unlink(plan.hold_socket);
    return code;
  }
  /* Who started us reads this, and may go. */
  if (write(1, "ready\n", 6) != 6) die("stdout");
  int null_fd = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; fd++) dup2(null_fd, fd);
  if (null_fd > 2) close(null_fd);
  forward(&pipes, listener, hold_listener);
  /* The last of the sandbox; if it does not go, who ends the sandbox kills it, and us with it. */
  while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) continue;
  unlink(plan.socket);
  unlink(plan.hold_socket);
  return 0;
}
