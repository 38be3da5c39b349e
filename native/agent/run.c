/* Foreground work: a process with its pipes, tied to one channel. Workers are the agent's own children for what may take long
   on a filesystem: they may block, be killed, or crash on hostile input without harm to PID 1. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../lib/write.h"
#include "agent.h"

/* How long a finished process's pipes are still read when something else holds them open. */
#define GRACE_MS 50
#define ORPHANS_MAX 64
#define LARGE_PIPE (1 << 20)

/* ---- pipes that outlive their process ---- */

struct orphan {
  struct item item;
  struct orphan *next;
};

static struct orphan *orphans;
static int orphan_count;

static void orphan_free(struct orphan *orphan) {
  for (struct orphan **at = &orphans; *at != NULL; at = &(*at)->next)
    if (*at == orphan) {
      *at = orphan->next;
      break;
    }
  orphan_count--;
  loop_close(&orphan->item);
  loop_free(orphan);
}

static void on_orphan(struct item *item, uint32_t events) {
  (void)events;
  static uint8_t scratch[65536];
  ssize_t n = read(item->fd, scratch, sizeof scratch);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) orphan_free(item->owner);
}

void drain_orphan(int fd) {
  struct orphan *orphan = must_alloc(sizeof *orphan);
  orphan->item = (struct item){.fd = fd, .on_event = on_orphan, .owner = orphan};
  if (orphan_count >= ORPHANS_MAX) {
    struct orphan *oldest = orphans;
    while (oldest->next != NULL) oldest = oldest->next;
    orphan_free(oldest);
  }
  orphan->next = orphans;
  orphans = orphan;
  orphan_count++;
  if (!loop_add(&orphan->item, EPOLLIN)) orphan_free(orphan);
}

/* ---- run ---- */

struct run {
  struct channel *channel;
  struct process *process;
  bool worker;
  bool tidies_up;
  struct sink in;
  struct item out[2];
  int next_out;
  /* What was in each pipe when the process ended: that much is always delivered. */
  size_t owed[2];
  struct timer grace;
  bool grace_over;
  bool large_pipe[2];
};

static void run_check_done(struct run *run);

static void on_output(struct item *item, uint32_t events) {
  (void)events;
  struct run *run = item->owner;
  item->ready = true;
  channel_activate(run->channel);
}

/* Told once. While output waits here anyway, a process that writes on must not wake the agent with every write. */
#define OUTPUT_EVENTS (EPOLLIN | EPOLLONESHOT)

static void await_output(struct run *run, int i) {
  run->out[i].ready = false;
  run->owed[i] = 0;
  loop_change(&run->out[i], OUTPUT_EVENTS);
}

static void close_output(struct run *run, int i) {
  loop_close(&run->out[i]);
  run->owed[i] = 0;
}

static bool at_end(int fd) {
  struct pollfd p = {.fd = fd, .events = POLLIN};
  return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) == 0 && (p.revents & (POLLHUP | POLLERR)) != 0;
}

/* The worker's second output is not data but its last word, a few bytes long: it stays in the pipe until it has ended. */
static int output_count(const struct run *run) { return run->worker ? 1 : 2; }

static void send_last_word(struct run *run) {
  struct channel *channel = run->channel;
  uint8_t word[4096];
  ssize_t n;
  while ((n = read(run->out[1].fd, word, sizeof word)) < 0 && errno == EINTR) {}
  uint8_t type = n > 0 ? word[0] : 0;
  if (n > 0 && type == FRAME_REPLY) {
    struct buffer nothing = {0};
    channel_reply(channel, &nothing, false);
    n -= 1;
    memmove(word, word + 1, (size_t)n);
    type = n > 0 ? word[0] : 0;
  }
  if (n < 2) type = 0;
  if (type == FRAME_DONE) {
    struct buffer body = {word + 2, (size_t)n - 2, 0};
    channel_done(channel, &body);
  } else if (type == FRAME_ERROR) {
    struct reader r = {word + 2, word + n, false};
    const char *code = read_string(&r);
    int error = (int)read_u32(&r);
    const char *message = read_string(&r);
    channel_fail(channel, code, error, "%s", message);
  } else {
    struct exit_status *status = &run->process->status;
    channel_fail(channel, "internal", 0, "the agent's worker ended without a result (wait status %d)", status->wait_status);
  }
}

static void run_check_done(struct run *run) {
  if (!run->process->status.exited || run->channel->closed) return;
  for (int i = 0; i < output_count(run); i++) {
    if (run->out[i].fd < 0) continue;
    if (run->owed[i] == 0 && (run->grace_over || at_end(run->out[i].fd))) continue;
    return;
  }
  if (run->worker) {
    send_last_word(run);
    return;
  }
  struct buffer body = {0};
  put_exit_status(&body, &run->process->status);
  channel_done(run->channel, &body);
  buffer_free(&body);
}

static enum pump pump_run(struct channel *channel) {
  struct run *run = channel->state;
  enum pump result = PUMP_IDLE;
  for (int turn = 0; turn < 2; turn++) {
    int i = run->next_out;
    run->next_out = 1 - i;
    if (i >= output_count(run) || run->out[i].fd < 0 || !run->out[i].ready) continue;
    size_t granted;
    uint8_t *payload = channel_reserve(channel, FRAME_MAX_PAYLOAD, &granted);
    if (payload == NULL) break;
    size_t taken = 0;
    ssize_t n;
    /* Many programs write little at a time: what is there by now goes into one frame. */
    while ((n = read(run->out[i].fd, payload + taken, granted - taken)) > 0 && (taken += (size_t)n) < granted) {}
    if (taken > 0) {
      run->owed[i] = run->owed[i] > taken ? run->owed[i] - taken : 0;
      channel_commit(channel, (uint8_t)i, taken);
      if (n < 0 && errno == EAGAIN) await_output(run, i);
      if (taken == FRAME_MAX_PAYLOAD && !run->large_pipe[i]) {
        /* Much is coming: fewer turns between the two are worth the memory. Refused by a limit, it goes on as it is. */
        run->large_pipe[i] = true;
        (void)fcntl(run->out[i].fd, F_SETPIPE_SZ, LARGE_PIPE);
      }
      result = PUMP_MORE;
      break;
    }
    if (n < 0 && errno == EINTR) {
      result = PUMP_MORE;
      break;
    }
    if (n < 0 && errno == EAGAIN) await_output(run, i);
    else close_output(run, i);
  }
  if (run->out[0].ready || (!run->worker && run->out[1].ready)) result = channel->credit > 0 ? PUMP_MORE : PUMP_IDLE;
  run_check_done(run);
  return result;
}

static void on_grace(struct timer *timer) {
  struct run *run = timer->owner;
  run->grace_over = true;
  run_check_done(run);
}

static void on_run_exit(struct process *process) {
  struct run *run = process->owner;
  for (int i = 0; i < output_count(run); i++) {
    if (run->out[i].fd < 0) continue;
    int left = 0;
    if (ioctl(run->out[i].fd, FIONREAD, &left) == 0 && left > 0) run->owed[i] = (size_t)left;
    run->out[i].ready = true;
  }
  sink_free(&run->in);
  timer_arm(&run->grace, GRACE_MS);
  channel_activate(run->channel);
  /* Without credit the pump does not come to see the end of an empty pipe. */
  if (run->channel->credit == 0) run_check_done(run);
}

static void close_run(struct channel *channel) {
  struct run *run = channel->state;
  timer_disarm(&run->grace);
  run->in.channel = NULL;
  sink_free(&run->in);
  for (int i = 0; i < 2; i++) {
    if (run->out[i].fd < 0) continue;
    int fd = run->out[i].fd;
    if (run->worker) {
      loop_close(&run->out[i]);
    } else {
      loop_remove(&run->out[i]);
      run->out[i].fd = -1;
      drain_orphan(fd);
    }
  }
  process_abandon(run->process, !run->tidies_up);
  loop_free(run);
}

static void run_data(struct channel *channel, const uint8_t *bytes, size_t length) {
  struct run *run = channel->state;
  sink_push(&run->in, bytes, length);
}

static void run_end(struct channel *channel) {
  struct run *run = channel->state;
  sink_end(&run->in);
}

static void run_signal(struct channel *channel, int signal) {
  struct run *run = channel->state;
  process_signal(run->process, signal);
}

static void finish_input(struct sink *sink) { loop_close(&sink->item); }

static const struct channel_kind run_kind = {
    .pump = pump_run, .on_data = run_data, .on_end = run_end, .on_signal = run_signal, .on_close = close_run};

static const struct channel_kind worker_kind = {.pump = pump_run, .on_data = run_data, .on_end = run_end, .on_close = close_run};

struct pipes {
  int child[3];
  int ours[3];
};

static void close_pipes(struct pipes *pipes) {
  for (int i = 0; i < 3; i++) {
    if (pipes->child[i] >= 0) close(pipes->child[i]);
    if (pipes->ours[i] >= 0) close(pipes->ours[i]);
  }
}

static bool make_pipes(struct pipes *pipes) {
  *pipes = (struct pipes){{-1, -1, -1}, {-1, -1, -1}};
  for (int i = 0; i < 3; i++) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
      int error = errno;
      close_pipes(pipes);
      errno = error;
      return false;
    }
    pipes->child[i] = ends[i == 0 ? 0 : 1];
    pipes->ours[i] = ends[i == 0 ? 1 : 0];
    /* Only our end: the process must see an ordinary pipe. */
    fcntl(pipes->ours[i], F_SETFL, O_NONBLOCK);
  }
  return true;
}

static struct run *run_begin(struct channel *channel, struct process *process, struct pipes *pipes, bool worker) {
  struct run *run = must_alloc(sizeof *run);
  for (int i = 0; i < 3; i++) close(pipes->child[i]);
  run->channel = channel;
  run->process = process;
  run->worker = worker;
  run->in = (struct sink){.item = {.fd = pipes->ours[0]}, .channel = channel, .finish = finish_input};
  for (int i = 0; i < 2; i++) run->out[i] = (struct item){.fd = pipes->ours[i + 1], .on_event = on_output, .owner = run};
  run->grace = (struct timer){.on_time = on_grace, .owner = run};
  process->owner = run;
  process->on_exit = on_run_exit;
  channel->state = run;
  channel->kind = worker ? &worker_kind : &run_kind;
  if (!loop_add(&run->out[0], OUTPUT_EVENTS)) channel_fail_errno(channel, errno, "cannot watch the output");
  return run;
}

void exec_open(struct channel *channel, struct reader *body) {
  struct process_request request;
  if (!process_request_read(body, &request)) {
    channel_fail(channel, "invalid_argument", 0, "the request to execute is malformed");
    return;
  }
  struct pipes pipes;
  struct process *process = NULL;
  if (!make_pipes(&pipes)) channel_fail_errno(channel, errno, "cannot make the pipes of a process");
  else if ((process = process_start(channel, &request, pipes.child, false)) == NULL) close_pipes(&pipes);
  process_request_free(&request);
  if (process == NULL) return;
  struct run *run = run_begin(channel, process, &pipes, false);
  if (channel->closed) return;
  if (!loop_add(&run->out[1], OUTPUT_EVENTS)) {
    channel_fail_errno(channel, errno, "cannot watch the output");
    return;
  }
  struct buffer reply = {0};
  put_u32(&reply, (uint32_t)process->pid);
  /* Most commands end at once: then this leaves together with their output and exit status. */
  channel_reply(channel, &reply, true);
  buffer_free(&reply);
}

/* ---- workers ---- */

/* The word that says "armed" must reach the peer while the worker goes on. */
static void on_word(struct item *item, uint32_t events) {
  (void)events;
  struct run *run = item->owner;
  int left = 0;
  if (run->process->status.exited || ioctl(item->fd, FIONREAD, &left) < 0 || left != 1) return;
  uint8_t word;
  if (read(item->fd, &word, 1) != 1 || word != FRAME_REPLY) return;
  struct buffer nothing = {0};
  channel_reply(run->channel, &nothing, false);
}

void worker_open(struct channel *channel, void (*body)(void *argument), void *argument, bool tidies_up) {
  struct pipes pipes;
  if (!make_pipes(&pipes)) {
    channel_fail_errno(channel, errno, "cannot make the pipes of a worker");
    return;
  }
  struct process *process = process_fork(pipes.child, body, argument);
  if (process == NULL) {
    int error = errno;
    close_pipes(&pipes);
    channel_fail_errno(channel, error, "cannot start another process in the sandbox");
    return;
  }
  struct run *run = run_begin(channel, process, &pipes, true);
  if (channel->closed) return;
  run->tidies_up = tidies_up;
  run->out[1].on_event = on_word;
  if (!loop_add(&run->out[1], EPOLLIN | EPOLLET)) channel_fail_errno(channel, errno, "cannot watch the worker");
}

void worker_write(const void *bytes, size_t length) {
  if (!write_fully(1, bytes, length)) _exit(0); /* Nobody listens any more. */
}

static void last_word(uint8_t type, const void *bytes, size_t length) {
  uint8_t word[4096] = {type};
  if (length > sizeof word - 2) length = sizeof word - 2;
  if (length > 0) memcpy(word + 2, bytes, length);
  /* One write of at most PIPE_BUF bytes arrives whole. Only "ready" is a single byte: that tells it from the last word. */
  if (write(2, word, type == FRAME_REPLY ? 1 : length + 2) < 0) _exit(71);
}

void worker_ready(void) { last_word(FRAME_REPLY, NULL, 0); }

void worker_done(const struct buffer *body) {
  last_word(FRAME_DONE, body == NULL ? NULL : body->bytes, body == NULL ? 0 : body->length);
  _exit(0);
}

void worker_fail(const char *code, int error, const char *format, ...) {
  char message[3072];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  struct buffer body = {0};
  put_string(&body, code);
  put_u32(&body, (uint32_t)error);
  put_string(&body, message);
  last_word(FRAME_ERROR, body.bytes, body.length);
  _exit(1);
}

void worker_fail_errno(int error, const char *format, ...) {
  char message[2048];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (length >= 0 && (size_t)length < sizeof message) snprintf(message + length, sizeof message - (size_t)length, ": %s", strerror(error));
  worker_fail(code_of_errno(error), error, "%s", message);
}
