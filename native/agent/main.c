/* coppice-agent: PID 1 of a sandbox. It starts and reaps every process, owns jobs and terminals, and does the file work, all on
   behalf of a daemon outside that talks to it in the protocol of docs/guest-protocol.md. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"

static void die(const char *what) {
  fprintf(stderr, "coppice-agent: %s: %s\n", what, strerror(errno));
  exit(70);
}

static void on_connect(struct item *item, uint32_t events) {
  (void)events;
  for (;;) {
    int fd = accept4(item->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      connection_open(fd, fd);
      continue;
    }
    if (errno != EINTR && errno != ECONNABORTED) return;
  }
}

static int bind_path(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  /* It gets its name when it listens: whoever sees the path can connect. */
  int length = snprintf(address.sun_path, sizeof address.sun_path, "%s~", path);
  if (length < 0 || (size_t)length >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    die(path);
  }
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  mode_t mask = umask(0177);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 64) < 0 || rename(address.sun_path, path) < 0)
    die(path);
  umask(mask);
  return fd;
}

/* Descriptors that the starter left open are not for the processes of the sandbox. */
static void seal_descriptors(void) {
  if (syscall(SYS_close_range, 3U, ~0U, 1U << 2) == 0) return;
  for (int fd = 3; fd < 1024; fd++) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void replace_with_null(int fd, int null_fd) {
  if (null_fd >= 0) dup2(null_fd, fd);
  else close(fd);
}

/* Until here they lead to a file of the host. Nothing runs inside yet: whoever is root there can take descriptors from us,
   and could fill the host's disk through one. */
static void forget_console(void) {
  int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; fd++) replace_with_null(fd, null_fd);
  if (null_fd >= 0) close(null_fd);
}

static void open_stdio(void) {
  int in = fcntl(0, F_DUPFD_CLOEXEC, 10);
  int out = fcntl(1, F_DUPFD_CLOEXEC, 10);
  if (in < 0 || out < 0) die("stdio");
  int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  replace_with_null(0, null_fd);
  replace_with_null(1, null_fd);
  connection_open(in, out);
}

int main(int argc, char **argv) {
  if (argc > 2 && strcmp(argv[1], "--cover") == 0) return cover(argv + 2, argc - 2);
  if (argc >= 2 && argv[1][0] != '-') return helper_main(argc, argv);
  bool stdio = argc == 2 && strcmp(argv[1], "--stdio") == 0;
  bool inherited = argc == 3 && strcmp(argv[1], "--listen-fd") == 0;
  bool path = argc == 3 && strcmp(argv[1], "--listen") == 0;
  if (!stdio && !inherited && !path) {
    fprintf(stderr, "usage: coppice-agent --listen-fd N | --listen PATH | --stdio | --cover {FILE PLACE}... | help\n");
    return 64;
  }
  /* 0, 1 and 2 must be taken, or a pipe of a process could get one of them. */
  for (int fd = 0; fd < 3; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) break;
  seal_descriptors();
  umask(022);
  if (chdir("/") < 0) die("/");
  loop_init();
  processes_init();
  static struct item listener;
  if (stdio) {
    processes_withhold_admin();
    open_stdio();
  } else {
    int fd = inherited ? atoi(argv[2]) : bind_path(argv[2]);
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0) die("listening socket");
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    listener = (struct item){.fd = fd, .on_event = on_connect};
    if (!loop_add(&listener, EPOLLIN | EPOLLET)) die("listening socket");
    if (inherited && !lend_init(&listener)) die("control socket");
    if (inherited) forget_console();
    if (inherited) meminfo_init();
  }
  loop_run();
}
