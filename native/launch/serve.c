#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/write.h"

enum kind { from_daemon, from_kernel, from_standby, from_process, from_clock };

/* New standbys wait that long: a move between cgroups stops every fork on the machine, the first ones of a sandbox too. */
enum { refill_delay_ms = 20 };

/* Something that is waited for. */
struct source {
  enum kind kind;
  int fd;
  pid_t pid;
  char sequence[24];
  bool busy;
  struct source *next;
};

static struct setup *settings;
static int events;
static int refill_clock;
static bool refill_due;
static struct source *standbys;
static unsigned standbys_made;

static bool send_message(const struct message *message) {
  uint32_t size = (uint32_t)message->size;
  char head[4] = {(char)size, (char)(size >> 8), (char)(size >> 16), (char)(size >> 24)};
  return write_fully(STDOUT_FILENO, head, sizeof head) && write_fully(STDOUT_FILENO, message->data, message->size);
}

static void answer(const char *sequence, const struct message *body, const char *error) {
  static struct message message;
  message.size = 0;
  message_put(&message, "seq", "%s", sequence);
  if (error) message_put(&message, "error", "%s", error);
  /* The body may be as long as a whole message, and then there is no room for it behind the sequence. */
  if (body && body->size > sizeof message.data - message.size)
    message_put(&message, "error", "%s", "the answer is too long for one message");
  else if (body) {
    memcpy(message.data + message.size, body->data, body->size);
    message.size += body->size;
  }
  send_message(&message);
}

/* epoll holds the only pointer to the source. clang-tidy cannot see that and reports a leak. */
static struct source *watch(enum kind kind, int fd) {
  struct source *source = calloc(1, sizeof *source);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
  if (!source) abort();
  source->kind = kind;
  source->fd = fd;
  if (epoll_ctl(events, EPOLL_CTL_ADD, fd, &event) < 0) {
    free(source);
    return NULL;
  }
  return source;
}

static void forget(struct source *source) {
  for (struct source **link = &standbys; *link; link = &(*link)->next) {
    if (*link == source) {
      *link = source->next;
      break;
    }
  }
  /* Told to the kernel: a standby that was just forked still holds the description, so closing alone would leave it in the set,
     and an event of it would come with the memory of whatever is watched next. */
  epoll_ctl(events, EPOLL_CTL_DEL, source->fd, NULL);
  close(source->fd);
  free(source);
}

/*
 * User ids that no person, service or sandbox has. Each launcher starts at a random one, so that two homes, or a daemon and
 * its successor, use different ids.
 */
enum { first_owner = 0x70000000, owner_count = 0x0ffe0000 };

static uid_t owner_of(uid_t first, unsigned number) {
  return (uid_t)(first_owner + (first - first_owner + (uint64_t)number) % owner_count);
}

static uid_t any_owner(void) {
  uint32_t random;
  if (getrandom(&random, sizeof random, 0) != sizeof random) abort();
  return owner_of(first_owner, random);
}

/* A standby keeps its channel, the filter and the bare mounts; whatever else the server holds open is none of its business. */
static void become_standby(unsigned number, int channel) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  int null = open("/dev/null", O_RDWR);
  if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0) _exit(1);
  int kept[] = {channel, settings->seccomp_fd, settings->mounts_fd};
  enum { first_kept = 3, kept_count = sizeof kept / sizeof *kept };
  for (int index = 0; index < kept_count; index++)
    if ((kept[index] = fcntl(kept[index], F_DUPFD, 64)) < 0) _exit(1);
  for (int index = 0; index < kept_count; index++)
    if (dup3(kept[index], first_kept + index, O_CLOEXEC) < 0) _exit(1);
  syscall(SYS_close_range, first_kept + kept_count, ~0U, 0);
  settings->seccomp_fd = first_kept + 1;
  settings->mounts_fd = first_kept + 2;
  settings->owner = owner_of(settings->owner, number);
  setsid();
  standby_main(settings, number, first_kept);
}

static struct source *make_standby(void) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) return NULL;
  unsigned number = standbys_made++;
  pid_t pid = fork();
  if (pid == 0) become_standby(number, pair[1]);
  close(pair[1]);
  struct source *source = pid > 0 ? watch(from_standby, pair[0]) : NULL;
  if (!source) {
    close(pair[0]);
    return NULL;
  }
  source->pid = pid;
  source->next = standbys;
  standbys = source;
  return source;
}

/* The oldest first: it is the likeliest to have entered its cgroups. */
static struct source *idle_standby(unsigned *idle) {
  struct source *found = NULL;
  *idle = 0;
  for (struct source *standby = standbys; standby; standby = standby->next) {
    if (standby->busy) continue;
    found = standby;
    ++*idle;
  }
  return found;
}

static void refill(void) {
  unsigned idle;
  for (idle_standby(&idle); idle < settings->standbys; idle++)
    if (!make_standby()) return;
}

static void refill_soon(void) {
  struct itimerspec delay = {.it_value.tv_nsec = refill_delay_ms * 1000000L};
  if (refill_due) return;
  refill_due = timerfd_settime(refill_clock, 0, &delay, NULL) == 0;
}

static void refill_now(void) {
  uint64_t expirations;
  if (read(refill_clock, &expirations, sizeof expirations) < 0) return;
  refill_due = false;
  refill();
}

static void start(const char *sequence, const struct message *request) {
  unsigned idle;
  struct source *standby = idle_standby(&idle);
  if (!standby) standby = make_standby();
  if (!standby) {
    answer(sequence, NULL, "make a process for the sandbox: fork failed");
    return;
  }
  standby->busy = true;
  snprintf(standby->sequence, sizeof standby->sequence, "%s", sequence);
  if (send(standby->fd, request->data, request->size, MSG_NOSIGNAL) != (ssize_t)request->size)
    answer(sequence, NULL, "hand the request to a standby process");
}

static void hear_standby(struct source *standby) {
  static struct message reply;
  ssize_t got = recv(standby->fd, reply.data, sizeof reply.data, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  reply.size = got > 0 ? (size_t)got : 0;
  if (standby->busy) answer(standby->sequence, &reply, reply.size ? NULL : "the standby process died");
  bool replace = standby->busy;
  forget(standby);
  if (replace) refill_soon();
}

static bool same_process(const struct message *request, pid_t *pid) {
  const char *text = message_get(request, "pid"), *started = message_get(request, "started");
  unsigned long long ticks;
  if (!text || !started) return false;
  *pid = (pid_t)atoi(text);
  return *pid > 1 && process_started(*pid, &ticks) && ticks == strtoull(started, NULL, 10);
}

/* Announces the end of a process, whoever's child it is. One that is gone already is announced at once. */
static void watch_process(const char *sequence, const struct message *request) {
  pid_t pid;
  int fd = same_process(request, &pid) ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
  struct source *source = fd >= 0 ? watch(from_process, fd) : NULL;
  struct message *state = calloc(1, sizeof *state);
  if (!state) abort();
  if (source) {
    source->pid = pid;
    message_put(state, "running", "1"); /* NOLINT(clang-analyzer-unix.Malloc): see watch */
  } else {
    if (fd >= 0) close(fd);
    message_put(state, "running", "0");
  }
  answer(sequence, state, NULL);
  free(state);
}

static void announce_end(struct source *source) {
  static struct message message;
  message.size = 0;
  message_put(&message, "exited", "%d", (int)source->pid);
  send_message(&message);
  forget(source);
}

/*
 * Ends the process that bubblewrap leaves beside every sandbox. It only waits, yet it keeps the launcher's mount
 * namespace, and with it every filesystem of the host, in use. The sandbox then becomes a child of this server.
 */
static void end_monitor(const char *sequence, const struct message *request) {
  pid_t pid;
  const char *of = message_get(request, "of");
  int fd = same_process(request, &pid) ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
  /* A sandbox that has not become the agent yet waits for the monitor's word. */
  bool useless = fd >= 0 && of && !same_program(pid, (pid_t)atoi(of));
  /* Looked at again behind the pidfd: from here on the number cannot be reused under us. */
  if (useless && same_process(request, &pid)) syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
  if (fd >= 0) close(fd);
  answer(sequence, NULL, NULL);
}

static void name_host(const char *sequence, const struct message *request) {
  char reason[reason_limit] = "";
  pid_t pid;
  const char *hostname = message_get(request, "hostname");
  errno = 0;
  bool named = hostname && same_process(request, &pid) ? set_hostname(pid, hostname, reason) : fail(reason, "the sandbox no longer runs");
  answer(sequence, NULL, named ? NULL : reason);
}

static void handle(const struct message *request) {
  const char *verb = message_get(request, "verb"), *sequence = message_get(request, "seq");
  if (!verb || !sequence) return;
  if (strcmp(verb, "start") == 0 || strcmp(verb, "restore") == 0) start(sequence, request);
  else if (strcmp(verb, "watch") == 0) watch_process(sequence, request);
  else if (strcmp(verb, "end-monitor") == 0) end_monitor(sequence, request);
  else if (strcmp(verb, "hostname") == 0) name_host(sequence, request);
  else answer(sequence, NULL, "unknown verb");
}

/* What the daemon has sent that is no whole message yet. */
static struct {
  char bytes[4 + message_limit];
  size_t filled;
} heard;

/* False at the end of the daemon's stream, or when it does not speak this protocol. */
static bool hear_daemon(void) {
  static struct message request;
  ssize_t got = read(STDIN_FILENO, heard.bytes + heard.filled, sizeof heard.bytes - heard.filled);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) return false;
  heard.filled += (size_t)got;
  while (heard.filled >= 4) {
    const unsigned char *head = (const unsigned char *)heard.bytes;
    size_t size = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    if (size > message_limit) return false;
    if (heard.filled < 4 + size) break;
    request.size = size;
    memcpy(request.data, heard.bytes + 4, size);
    memmove(heard.bytes, heard.bytes + 4 + size, heard.filled - 4 - size);
    heard.filled -= 4 + size;
    if (!message_valid(&request)) return false;
    handle(&request);
  }
  return true;
}

static void reap(int fd) {
  struct signalfd_siginfo info;
  while (read(fd, &info, sizeof info) > 0) {}
  while (waitpid(-1, NULL, WNOHANG) > 0) {}
}

/* Standbys leave when their channel closes. Only they are waited for: sandboxes go on. */
static void dismiss(void) {
  while (standbys) {
    struct source *standby = standbys;
    pid_t pid = standby->pid;
    standbys = standby->next;
    close(standby->fd);
    free(standby);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
  }
}

int serve(struct setup *setup) {
  settings = setup;
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, NULL);
  signal(SIGPIPE, SIG_IGN);
  int ended = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  events = epoll_create1(EPOLL_CLOEXEC);
  refill_clock = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  setup->owner = any_owner();
  setup->seccomp_fd = make_seccomp_program();
  /* NOLINTBEGIN(clang-analyzer-unix.Malloc): see watch */
  if (ended < 0 || events < 0 || refill_clock < 0 || setup->seccomp_fd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ||
      !watch(from_daemon, STDIN_FILENO) || !watch(from_kernel, ended) || !watch(from_clock, refill_clock)) {
    perror("coppice-launch");
    return 1;
  }
  char reason[reason_limit] = "";
  /* NOLINTEND(clang-analyzer-unix.Malloc) */
  if ((setup->mounts_fd = make_bare_mounts(setup, reason)) < 0) {
    fprintf(stderr, "coppice-launch: %s\n", reason);
    return 1;
  }
  refill();
  for (bool open = true; open;) {
    struct epoll_event event;
    int ready = epoll_wait(events, &event, 1, -1);
    if (ready < 0 && errno != EINTR) break;
    if (ready <= 0) continue;
    struct source *source = event.data.ptr;
    switch (source->kind) {
    case from_daemon:
      open = hear_daemon();
      break;
    case from_kernel:
      reap(source->fd);
      break;
    case from_standby:
      hear_standby(source);
      break;
    case from_process:
      announce_end(source);
      break;
    case from_clock:
      refill_now();
      break;
    }
  }
  dismiss();
  return 0;
}
