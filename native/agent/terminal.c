/* Terminals: the agent holds the master side, keeps the last 64 KiB, and shows them to whoever attaches, during and after. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent.h"

#define SCROLLBACK (64u << 10)
#define FINISHED_KEPT 64
#define INPUT_MAX (1u << 20)
#define GRACE_MS 50

struct attachment {
  struct channel *channel;
  struct terminal *terminal;
  /* How far this one has been shown; it counts every byte that the terminal ever wrote. */
  uint64_t position;
  size_t owed_grant;
  struct attachment *next;
};

struct terminal {
  uint32_t id;
  pid_t pid;
  struct process *process;
  struct exit_status status;
  char **argv;
  uint16_t cols;
  uint16_t rows;
  struct item master;
  uint32_t interest;
  bool finished;
  bool grace_over;
  struct timer grace;
  uint8_t ring[SCROLLBACK];
  uint64_t head;
  struct buffer input;
  size_t input_start;
  struct attachment *attachments;
  struct terminal *next;
};

static struct terminal *terminals;
static struct terminal **terminals_tail = &terminals;
static uint32_t last_id;

static uint64_t oldest(const struct terminal *t) { return t->head < SCROLLBACK ? 0 : t->head - SCROLLBACK; }

/* A terminal waits for the fastest of those who look at it, so that a single one misses nothing, and for none when nobody
   looks. A slower one skips what has left the scrollback. */
static size_t room(const struct terminal *t) {
  if (t->attachments == NULL) return SCROLLBACK;
  uint64_t best = 0;
  for (struct attachment *a = t->attachments; a != NULL; a = a->next)
    if (a->position > best) best = a->position;
  return SCROLLBACK - (size_t)(t->head - best);
}

static void update_interest(struct terminal *t) {
  if (t->master.fd < 0) return;
  uint32_t wanted = (room(t) > 0 ? EPOLLIN : 0) | (t->input.length > t->input_start ? EPOLLOUT : 0);
  if (wanted == t->interest) return;
  t->interest = wanted;
  /* Without interest it leaves the set, as a hang-up is reported whatever one asks for. */
  loop_change(&t->master, wanted);
}

static void wake_attachments(struct terminal *t) {
  for (struct attachment *a = t->attachments; a != NULL; a = a->next) channel_activate(a->channel);
}

static void forget_oldest(void) {
  int finished = 0;
  for (struct terminal *t = terminals; t != NULL; t = t->next) finished += t->finished;
  for (struct terminal **at = &terminals; *at != NULL && finished > FINISHED_KEPT;) {
    struct terminal *t = *at;
    if (!t->finished || t->attachments != NULL) {
      at = &t->next;
      continue;
    }
    *at = t->next;
    if (t->next == NULL) terminals_tail = at;
    for (char **argument = t->argv; *argument != NULL; argument++) free(*argument);
    free(t->argv);
    buffer_free(&t->input);
    loop_free(t);
    finished--;
  }
}

static void finish(struct terminal *t) {
  if (t->finished) return;
  t->finished = true;
  timer_disarm(&t->grace);
  loop_close(&t->master);
  buffer_free(&t->input);
  t->input_start = 0;
  t->status = t->process->status;
  loop_free(t->process);
  t->process = NULL;
  wake_attachments(t);
  forget_oldest();
}

static void read_master(struct terminal *t) {
  uint8_t scratch[16384];
  size_t space = room(t);
  if (t->finished || space == 0) return;
  ssize_t n = read(t->master.fd, scratch, space < sizeof scratch ? space : sizeof scratch);
  if (n > 0) {
    for (size_t done = 0; done < (size_t)n;) {
      size_t at = (size_t)((t->head + done) % SCROLLBACK);
      size_t part = SCROLLBACK - at < (size_t)n - done ? SCROLLBACK - at : (size_t)n - done;
      memcpy(t->ring + at, scratch + done, part);
      done += part;
    }
    t->head += (uint64_t)n;
    wake_attachments(t);
  } else if (n < 0 && errno == EINTR) {
    return;
  } else if (t->process->status.exited) {
    /* The end of all who could write, or the end of the wait for those who only hold it open. */
    if (!(n < 0 && errno == EAGAIN) || t->grace_over) finish(t);
  } else if (!(n < 0 && errno == EAGAIN)) {
    /* Nobody has the terminal open, but the process lives: its end is what ends the terminal. */
    t->interest = 0;
    loop_change(&t->master, 0);
  }
}

static void grant_all(struct terminal *t) {
  for (struct attachment *a = t->attachments; a != NULL; a = a->next) {
    channel_grant(a->channel, a->owed_grant);
    a->owed_grant = 0;
  }
}

static void write_master(struct terminal *t) {
  while (t->input_start < t->input.length) {
    ssize_t n = write(t->master.fd, t->input.bytes + t->input_start, t->input.length - t->input_start);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    t->input_start = n < 0 ? t->input.length : t->input_start + (size_t)n;
  }
  if (t->input_start == t->input.length) {
    t->input_start = t->input.length = 0;
    grant_all(t);
  }
}

static void on_master(struct item *item, uint32_t events) {
  struct terminal *t = item->owner;
  if (events & EPOLLOUT) write_master(t);
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_master(t);
  if (!t->finished) update_interest(t);
}

static void on_grace(struct timer *timer) {
  struct terminal *t = timer->owner;
  t->grace_over = true;
  read_master(t);
}

static void on_terminal_exit(struct process *process) {
  struct terminal *t = process->owner;
  timer_arm(&t->grace, GRACE_MS);
  t->input_start = t->input.length = 0;
  grant_all(t);
  /* Asked for anew in any case: it may have left the set when nobody had the terminal open. */
  t->interest = room(t) > 0 ? EPOLLIN : 0;
  loop_change(&t->master, t->interest);
}

/* ---- attachments ---- */

static enum pump pump_attachment(struct channel *channel) {
  struct attachment *a = channel->state;
  struct terminal *t = a->terminal;
  if (a->position < oldest(t)) a->position = oldest(t);
  if (a->position == t->head) {
    if (!t->finished) return PUMP_IDLE;
    struct buffer body = {0};
    put_exit_status(&body, &t->status);
    channel_done(channel, &body);
    buffer_free(&body);
    return PUMP_IDLE;
  }
  size_t at = (size_t)(a->position % SCROLLBACK);
  size_t length = (size_t)(t->head - a->position);
  if (length > SCROLLBACK - at) length = SCROLLBACK - at;
  size_t granted;
  uint8_t *payload = channel_reserve(channel, length, &granted);
  if (payload == NULL) return PUMP_IDLE;
  memcpy(payload, t->ring + at, granted);
  a->position += granted;
  channel_commit(channel, 0, granted);
  if (t->grace_over && !t->finished) read_master(t);
  if (!t->finished) update_interest(t);
  return PUMP_MORE;
}

static void attachment_data(struct channel *channel, const uint8_t *bytes, size_t length) {
  struct attachment *a = channel->state;
  struct terminal *t = a->terminal;
  if (t->finished) {
    channel_grant(channel, length);
    return;
  }
  if (t->input.length - t->input_start + length > INPUT_MAX) {
    channel_fail(channel, "limit_reached", 0, "terminal %u does not read its input", t->id);
    return;
  }
  put_bytes(&t->input, bytes, length);
  a->owed_grant += length;
  write_master(t);
  update_interest(t);
}

static void close_attachment(struct channel *channel) {
  struct attachment *a = channel->state;
  struct terminal *t = a->terminal;
  for (struct attachment **at = &t->attachments; *at != NULL; at = &(*at)->next)
    if (*at == a) {
      *at = a->next;
      break;
    }
  loop_free(a);
  if (!t->finished) update_interest(t);
}

static const struct channel_kind attachment_kind = {.pump = pump_attachment, .on_data = attachment_data, .on_close = close_attachment};

/* ---- operations ---- */

static struct terminal *terminal_find(struct channel *channel, uint32_t id) {
  for (struct terminal *t = terminals; t != NULL; t = t->next)
    if (t->id == id) return t;
  channel_fail(channel, "not_found", 0, "there is no terminal %u", id);
  return NULL;
}

static void put_terminal(struct buffer *b, const struct terminal *t) {
  put_u32(b, t->id);
  put_u32(b, (uint32_t)t->pid);
  put_u16(b, t->cols);
  put_u16(b, t->rows);
  put_exit_status(b, &t->status);
  uint32_t count = 0;
  while (t->argv[count] != NULL) count++;
  put_u32(b, count);
  for (uint32_t i = 0; i < count; i++) put_string(b, t->argv[i]);
}

static bool open_pair(const char *user_name, uint16_t cols, uint16_t rows, int *master, int *slave) {
  *slave = -1;
  *master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  int unlock = 0;
  unsigned number;
  char path[32];
  if (*master < 0 || ioctl(*master, TIOCSPTLCK, &unlock) < 0 || ioctl(*master, TIOCGPTN, &number) < 0) return false;
  snprintf(path, sizeof path, "/dev/pts/%u", number);
  *slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (*slave < 0) return false;
  struct winsize size = {.ws_col = cols, .ws_row = rows};
  if (ioctl(*master, TIOCSWINSZ, &size) < 0) return false;
  struct user user;
  if (user_find(user_name, &user) && user.uid != 0 && fchown(*slave, user.uid, (gid_t)-1) < 0) return false;
  return true;
}

void terminal_open(struct channel *channel, struct reader *body) {
  uint16_t cols = read_u16(body);
  uint16_t rows = read_u16(body);
  struct process_request request;
  if (!process_request_read(body, &request)) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request to open a terminal is malformed");
    return;
  }
  int master, slave;
  struct process *process = NULL;
  if (!open_pair(request.user, cols, rows, &master, &slave)) channel_fail_errno(channel, errno, "cannot open a terminal");
  else process = process_start(channel, &request, (int[]){slave, slave, slave}, true);
  if (slave >= 0) close(slave);
  if (process == NULL) {
    if (master >= 0) close(master);
    process_request_free(&request);
    return;
  }
  struct terminal *t = must_alloc(sizeof *t);
  t->id = ++last_id;
  t->pid = process->pid;
  t->process = process;
  t->cols = cols;
  t->rows = rows;
  size_t count = 0;
  while (request.argv[count] != NULL) count++;
  t->argv = must_alloc((count + 1) * sizeof *t->argv);
  for (size_t i = 0; i < count; i++) t->argv[i] = must_copy(request.argv[i]);
  process_request_free(&request);
  t->master = (struct item){.fd = master, .on_event = on_master, .owner = t};
  t->grace = (struct timer){.on_time = on_grace, .owner = t};
  process->owner = t;
  process->on_exit = on_terminal_exit;
  *terminals_tail = t;
  terminals_tail = &t->next;
  t->interest = EPOLLIN;
  loop_add(&t->master, EPOLLIN);
  struct buffer reply = {0};
  put_terminal(&reply, t);
  channel_done_with_data(channel, &reply);
}

void terminal_list(struct channel *channel, struct reader *body) {
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request to list terminals is malformed");
    return;
  }
  struct buffer reply = {0};
  for (struct terminal *t = terminals; t != NULL; t = t->next) put_terminal(&reply, t);
  channel_done_with_data(channel, &reply);
}

void terminal_attach(struct channel *channel, struct reader *body) {
  uint32_t id = read_u32(body);
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request to attach is malformed");
    return;
  }
  struct terminal *t = terminal_find(channel, id);
  if (t == NULL) return;
  struct attachment *a = must_alloc(sizeof *a);
  *a = (struct attachment){.channel = channel, .terminal = t, .position = oldest(t), .next = t->attachments};
  t->attachments = a;
  channel->kind = &attachment_kind;
  channel->state = a;
  struct buffer nothing = {0};
  channel_reply(channel, &nothing, false);
  channel_activate(channel);
  if (!t->finished) update_interest(t);
}

void terminal_resize(struct channel *channel, struct reader *body) {
  uint32_t id = read_u32(body);
  uint16_t cols = read_u16(body);
  uint16_t rows = read_u16(body);
  if (!read_finished(body) || cols == 0 || rows == 0) {
    channel_fail(channel, "invalid_argument", EINVAL, "a terminal has at least one column and one row");
    return;
  }
  struct terminal *t = terminal_find(channel, id);
  if (t == NULL) return;
  struct winsize size = {.ws_col = cols, .ws_row = rows};
  if (t->finished) {
    channel_fail(channel, "wrong_state", 0, "terminal %u has ended", id);
  } else if (ioctl(t->master.fd, TIOCSWINSZ, &size) < 0) {
    channel_fail_errno(channel, errno, "cannot resize terminal %u", id);
  } else {
    t->cols = cols;
    t->rows = rows;
    channel_done(channel, NULL);
  }
}

void terminal_signal(struct channel *channel, struct reader *body) {
  uint32_t id = read_u32(body);
  uint32_t number = read_u32(body);
  if (!read_finished(body) || number > 64) {
    channel_fail(channel, "invalid_argument", EINVAL, "there is no signal %u", number);
    return;
  }
  struct terminal *t = terminal_find(channel, id);
  if (t == NULL) return;
  if (t->finished || t->process->status.exited) {
    channel_fail(channel, "wrong_state", ESRCH, "terminal %u has ended", id);
    return;
  }
  process_signal(t->process, (int)number);
  channel_done(channel, NULL);
}
