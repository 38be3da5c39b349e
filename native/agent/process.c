/* Starting and reaping. A new process shares the agent's memory until it has executed its program (clone with CLONE_VFORK):
   that is several times faster than a copy, and the reason why it failed comes back without a pipe. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "agent.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define PROCESS_BUCKETS 64

static struct process *processes[PROCESS_BUCKETS];
static struct item signals;
#define WORK_DIRECTORY "/workspace"

static struct rlimit file_limit;
static bool adjust_oom_score;
static bool withholds_admin;

struct start {
  char **argv;
  char **envp;
  const char *path;
  const char *cwd;
  bool cwd_optional;
  const struct user *user;
  const int *fds;
  bool terminal;
  /* Filled by the child when it fails. */
  int error;
  const char *stage;
};

static int fail_at(struct start *start, const char *stage) {
  start->error = errno;
  start->stage = stage;
  return 127;
}

static void try_execute(struct start *start, const char *file) {
  execve(file, start->argv, start->envp);
  if (errno != ENOEXEC) return;
  /* A script without a first line that names its interpreter: a shell runs it, as it would have by hand. */
  size_t count = 0;
  while (start->argv[count] != NULL) count++;
  char *shell_argv[1002];
  if (count + 2 > sizeof shell_argv / sizeof *shell_argv) return;
  shell_argv[0] = "/bin/sh";
  shell_argv[1] = (char *)file;
  for (size_t i = 1; i <= count; i++) shell_argv[i + 1] = start->argv[i];
  execve("/bin/sh", shell_argv, start->envp);
}

static void search_and_execute(struct start *start) {
  const char *name = start->argv[0];
  if (strchr(name, '/') != NULL) {
    try_execute(start, name);
    return;
  }
  int best = ENOENT;
  char file[4096];
  for (const char *at = start->path; at != NULL;) {
    const char *colon = strchr(at, ':');
    int length = colon == NULL ? (int)strlen(at) : (int)(colon - at);
    int size = snprintf(file, sizeof file, "%.*s/%s", length, at, name);
    if (length > 0 && size > 0 && (size_t)size < sizeof file) {
      try_execute(start, file);
      if (errno != ENOENT && errno != ENOTDIR) best = errno;
      if (errno == E2BIG || errno == ENOMEM) break;
    }
    at = colon == NULL ? NULL : colon + 1;
  }
  errno = best;
}

/* Where the caller names none, a process starts where the files are, or else at home. */
static bool enter_directory(const struct start *start) {
  if (!start->cwd_optional) return chdir(start->cwd) == 0;
  return chdir(WORK_DIRECTORY) == 0 || chdir(start->cwd) == 0 || chdir("/") == 0;
}

/* Runs in the child on a stack of its own. System calls are made directly where the C library would want to tell threads. */
static int child_main(void *argument) {
  struct start *start = argument;
  const struct user *user = start->user;
  setsid();
  for (int i = 0; i < 3; i++)
    if (dup2(start->fds[i], i) < 0) return fail_at(start, "descriptors");
  if (start->terminal && ioctl(0, TIOCSCTTY, 0) < 0) return fail_at(start, "terminal");
  if (adjust_oom_score) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
      if (write(fd, "0", 1) < 0) return fail_at(start, "oom_score_adj");
      close(fd);
    }
  }
  setrlimit(RLIMIT_NOFILE, &file_limit);
  /* Only what is in the bounding set comes through an exec. */
  if (withholds_admin && prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) < 0) return fail_at(start, "capabilities");
  if (user->uid != 0 || user->gid != 0 || user->group_count > 1) {
    if (syscall(SYS_setgroups, (size_t)user->group_count, user->groups) < 0) return fail_at(start, "user");
    if (syscall(SYS_setresgid, user->gid, user->gid, user->gid) < 0) return fail_at(start, "user");
    if (user->uid != 0) {
      prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
      if (syscall(SYS_setresuid, user->uid, user->uid, user->uid) < 0) return fail_at(start, "user");
    }
  }
  if (!enter_directory(start)) return fail_at(start, "cwd");
  struct sigaction standard = {.sa_handler = SIG_DFL};
  sigaction(SIGPIPE, &standard, NULL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  search_and_execute(start);
  return fail_at(start, "program");
}

static void on_timeout(struct timer *timer) {
  struct process *process = timer->owner;
  process->status.timed_out = true;
  process_signal(process, SIGKILL);
}

static struct process *process_register(pid_t pid) {
  struct process *process = must_alloc(sizeof *process);
  process->pid = pid;
  process->timeout = (struct timer){.on_time = on_timeout, .owner = process};
  struct process **bucket = &processes[(unsigned)pid % PROCESS_BUCKETS];
  process->next = *bucket;
  *bucket = process;
  return process;
}

static const char *find_variable(char **envp, const char *name) {
  size_t length = strlen(name);
  for (; *envp != NULL; envp++)
    if (strncmp(*envp, name, length) == 0 && (*envp)[length] == '=') return *envp + length + 1;
  return NULL;
}

bool process_request_read(struct reader *body, struct process_request *request) {
  *request = (struct process_request){0};
  request->timeout_ms = read_u32(body);
  request->user = read_string(body);
  request->cwd = read_string(body);
  for (int list = 0; list < 2; list++) {
    uint32_t count = read_u32(body);
    /* Every string takes at least five bytes, so the request itself bounds the count. */
    if (body->bad || count > (size_t)(body->end - body->at) / 5) {
      process_request_free(request);
      body->bad = true;
      return false;
    }
    /* Room for the four variables that the agent may add. */
    char **strings = must_alloc((count + 5) * sizeof *strings);
    for (uint32_t i = 0; i < count; i++) strings[i] = read_string(body);
    if (list == 0) request->argv = strings;
    else request->envp = strings;
  }
  if (!read_finished(body) || request->argv[0] == NULL) {
    process_request_free(request);
    return false;
  }
  return true;
}

void process_request_free(struct process_request *request) {
  free(request->argv);
  free(request->envp);
  request->argv = request->envp = NULL;
}

static void fail_start(struct channel *channel, const struct process_request *request, const struct start *start, const char *cwd) {
  channel->failed_step = start->stage;
  if (strcmp(start->stage, "cwd") == 0) {
    channel_fail_errno(channel, start->error, "cannot enter the working directory %s", cwd);
  } else if (strcmp(start->stage, "user") == 0) {
    channel_fail_errno(channel, start->error, "cannot become user %s", start->user->name);
  } else if (strcmp(start->stage, "program") == 0 && start->error == ENOENT && strchr(request->argv[0], '/') == NULL) {
    channel_fail(channel, "not_found", ENOENT, "there is no program %.512s in PATH (%.512s)", request->argv[0], start->path);
  } else if (strcmp(start->stage, "program") == 0) {
    channel_fail_errno(channel, start->error, "cannot execute %.1024s", request->argv[0]);
  } else {
    channel_fail_errno(channel, start->error, "cannot start %.1024s (%s)", request->argv[0], start->stage);
  }
}

struct process *process_start(struct channel *channel, const struct process_request *request, const int fds[3], bool terminal) {
  static uint8_t stack[128 << 10] __attribute__((aligned(16)));
  static char home[1040], name[272], shell[1040];
  struct user user;
  if (!user_find(request->user, &user)) {
    channel_fail(channel, "not_found", 0, "the sandbox has no user %.256s", request->user);
    return NULL;
  }
  hosts_refresh();
  char **end = request->envp;
  while (*end != NULL) end++;
  char **first_added = end;
  snprintf(home, sizeof home, "HOME=%s", user.home);
  snprintf(name, sizeof name, "USER=%s", user.name);
  snprintf(shell, sizeof shell, "SHELL=%s", user.shell);
  if (find_variable(request->envp, "HOME") == NULL) *end++ = home;
  if (find_variable(request->envp, "USER") == NULL) *end++ = name;
  if (find_variable(request->envp, "SHELL") == NULL) *end++ = shell;
  if (find_variable(request->envp, "PATH") == NULL) *end++ = "PATH=" DEFAULT_PATH;
  struct start start = {
      .argv = request->argv,
      .envp = request->envp,
      .path = find_variable(request->envp, "PATH"),
      .cwd = *request->cwd == 0 ? user.home : request->cwd,
      .cwd_optional = *request->cwd == 0,
      .user = &user,
      .fds = fds,
      .terminal = terminal,
  };
  pid_t pid = clone(child_main, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &start);
  int error = errno;
  /* Changing its user made the memory that the child shared unreadable in /proc. */
  if (user.uid != 0) prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  while (first_added < end) *first_added++ = NULL;
  if (pid < 0) {
    channel_fail_errno(channel, error, "cannot start another process in the sandbox");
    return NULL;
  }
  if (start.stage != NULL) {
    waitpid(pid, NULL, 0);
    fail_start(channel, request, &start, start.cwd);
    return NULL;
  }
  struct process *process = process_register(pid);
  if (request->timeout_ms > 0) timer_arm(&process->timeout, request->timeout_ms);
  meminfo_refresh();
  return process;
}

static void close_from(int first) {
  if (syscall(SYS_close_range, (unsigned)first, ~0U, 0U) == 0) return;
  for (int fd = first; fd < 65536; fd++) close(fd);
}

struct process *process_fork(const int fds[3], void (*body)(void *argument), void *argument) {
  pid_t pid = fork();
  if (pid < 0) return NULL;
  if (pid == 0) {
    setsid();
    int safe[3];
    for (int i = 0; i < 3; i++) safe[i] = fcntl(fds[i], F_DUPFD, 10);
    for (int i = 0; i < 3; i++) dup2(safe[i], i);
    close_from(3);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    body(argument);
    _exit(70);
  }
  return process_register(pid);
}

void process_signal(struct process *process, int signal) {
  if (process->status.exited) return;
  kill(-process->pid, signal);
  /* The child leads its group by the time it runs its program; this covers one that moved to another group. */
  if (signal == SIGKILL) kill(process->pid, signal);
}

void process_abandon(struct process *process, bool kill) {
  process->on_exit = NULL;
  process->owner = NULL;
  if (process->status.exited) {
    loop_free(process);
    return;
  }
  if (kill) process_signal(process, SIGKILL);
}

void processes_reap(void) {
  for (;;) {
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) {
      if (pid < 0 && errno == EINTR) continue;
      return;
    }
    struct process **at = &processes[(unsigned)pid % PROCESS_BUCKETS];
    while (*at != NULL && (*at)->pid != pid) at = &(*at)->next;
    struct process *process = *at;
    if (process == NULL) continue; /* An orphan that came to PID 1. */
    *at = process->next;
    timer_disarm(&process->timeout);
    process->status.exited = true;
    process->status.wait_status = status;
    if (process->on_exit != NULL) process->on_exit(process);
    else loop_free(process);
  }
}

bool processes_left(void) {
  siginfo_t info;
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

void processes_signal_all(int signal) {
  if (getpid() == 1) {
    kill(-1, signal);
    return;
  }
  for (int i = 0; i < PROCESS_BUCKETS; i++)
    for (struct process *process = processes[i]; process != NULL; process = process->next) process_signal(process, signal);
}

void put_exit_status(struct buffer *b, const struct exit_status *status) {
  bool signaled = status->exited && WIFSIGNALED(status->wait_status);
  put_u8(b, !status->exited ? 0 : signaled ? 2 : 1);
  put_u8(b, !status->exited ? 0 : (uint8_t)(signaled ? WTERMSIG(status->wait_status) : WEXITSTATUS(status->wait_status)));
  put_u8(b, status->timed_out);
}

static void on_signals(struct item *item, uint32_t events) {
  (void)events;
  struct signalfd_siginfo info[8];
  ssize_t n;
  bool stop = false;
  while ((n = read(item->fd, info, sizeof info)) > 0)
    for (size_t i = 0; i < (size_t)n / sizeof *info; i++) stop |= info[i].ssi_signo == SIGTERM || info[i].ssi_signo == SIGINT;
  processes_reap();
  if (stop) machine_stop(5000, SIGTERM);
}

void processes_withhold_admin(void) { withholds_admin = true; }

void processes_init(void) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  sigaddset(&mask, SIGTERM);
  sigaddset(&mask, SIGINT);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  signal(SIGPIPE, SIG_IGN);
  signals = (struct item){.fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC), .on_event = on_signals};
  if (signals.fd < 0 || !loop_add(&signals, EPOLLIN)) {
    perror("coppice-agent: signalfd");
    _exit(70);
  }
  getrlimit(RLIMIT_NOFILE, &file_limit);
  struct rlimit raised = {file_limit.rlim_max, file_limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  char score[16] = "0";
  int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    if (read(fd, score, sizeof score - 1) > 0) adjust_oom_score = atoi(score) < 0;
    close(fd);
  }
}
