#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define INPUT_BYTES (256u << 10)
/* Data frames wait while more than this is queued; what a peer asks for waits beyond the second mark. */
#define OUTPUT_HIGH (256u << 10)
#define OUTPUT_STOP_READING (1u << 20)
#define LAZY_FLUSH_MS 2
#define LINGER_MS 2000

static struct connection *connections;

static size_t queued(const struct connection *c) { return c->output_end - c->output_start; }

uint8_t *connection_reserve(struct connection *c, size_t payload) {
  size_t need = FRAME_HEADER + payload;
  if (c->output_start == c->output_end) c->output_start = c->output_end = 0;
  if (c->output_capacity - c->output_end < need && c->output_start > 0) {
    memmove(c->output, c->output + c->output_start, queued(c));
    c->output_end -= c->output_start;
    c->output_start = 0;
  }
  if (c->output_capacity - c->output_end < need) {
    size_t capacity = c->output_capacity == 0 ? 128u << 10 : c->output_capacity;
    while (capacity - c->output_end < need) capacity *= 2;
    c->output = must_realloc(c->output, capacity);
    c->output_capacity = capacity;
  }
  return c->output + c->output_end + FRAME_HEADER;
}

void connection_commit(struct connection *c, uint8_t type, uint8_t flags, uint32_t channel, size_t payload, bool may_wait) {
  uint8_t *header = c->output + c->output_end;
  store_u32(header, (uint32_t)payload);
  header[4] = type;
  header[5] = flags;
  header[6] = header[7] = 0;
  store_u32(header + 8, channel);
  c->output_end += FRAME_HEADER + payload;
  if (!may_wait) {
    c->flush_now = true;
  } else if (!c->flush_now && c->flush_at_ms == 0) {
    c->flush_at_ms = now_ms() + LAZY_FLUSH_MS;
    timer_arm(&c->flush_timer, LAZY_FLUSH_MS);
  }
}

void connection_end_session(struct connection *c) {
  for (size_t i = 0; i < BUCKETS; i++)
    while (c->buckets[i] != NULL) channel_close(c->buckets[i]);
  buffer_free(&c->request);
  c->request_open = false;
  c->any_id = false;
}

static void connection_kill(struct connection *c) {
  if (c->dead) return;
  c->dead = true;
  connection_end_session(c);
  timer_disarm(&c->flush_timer);
  timer_disarm(&c->linger_timer);
  if (c->out.fd == c->in.fd) {
    c->out.on_event = NULL;
    c->out.fd = -1;
  }
  loop_close(&c->out);
  loop_close(&c->in);
  free(c->input);
  free(c->output);
  for (struct connection **at = &connections; *at != NULL; at = &(*at)->next)
    if (*at == c) {
      *at = c->next;
      break;
    }
  loop_free(c);
}

void connection_fail(struct connection *c, const char *message) {
  if (c->closing || c->dead) return;
  struct buffer body = {0};
  put_string(&body, "invalid_argument");
  put_string(&body, "EPROTO");
  put_string(&body, message);
  memcpy(connection_reserve(c, body.length), body.bytes, body.length);
  connection_commit(c, FRAME_ERROR, 0, 0, body.length, false);
  buffer_free(&body);
  connection_end_session(c);
  c->greeted = false;
  /* The byte stream of stdio is the only one there will ever be: it stays, and the next hello starts afresh. */
  if (!c->stdio) c->closing = true;
}

static bool greet(struct connection *c, uint8_t *payload, size_t length) {
  struct reader r = {payload, payload + length, false};
  uint8_t *magic = length >= 8 ? payload : NULL;
  r.at += length >= 8 ? 8 : 0;
  uint32_t version = read_u32(&r);
  uint64_t nonce = read_u64(&r);
  if (magic == NULL || memcmp(magic, WIRE_MAGIC, 8) != 0 || !read_finished(&r)) {
    connection_fail(c, "the hello is malformed");
    return false;
  }
  if (version != WIRE_VERSION) {
    connection_fail(c, "this agent speaks version 1 of the guest protocol only");
    return false;
  }
  connection_end_session(c);
  c->greeted = true;
  struct buffer body = {0};
  put_bytes(&body, WIRE_MAGIC, 8);
  put_u32(&body, WIRE_VERSION);
  put_u64(&body, nonce);
  put_u32(&body, (uint32_t)getpid());
  put_u32(&body, RECEIVE_WINDOW);
  memcpy(connection_reserve(c, body.length), body.bytes, body.length);
  connection_commit(c, FRAME_HELLO, 0, 0, body.length, false);
  buffer_free(&body);
  return true;
}

static void dispatch_request(struct connection *c, uint32_t id, uint8_t *bytes, size_t length) {
  struct reader r = {bytes, bytes + length, false};
  uint8_t operation = read_u8(&r);
  uint32_t window = read_u32(&r);
  if (r.bad || window > SEND_WINDOW_MAX) {
    connection_fail(c, "a request has no operation or too large a window");
    return;
  }
  channel_open(c, id, operation, window, &r);
}

/* Ids grow (and wrap around): one that is not newer than the last belongs to a channel that is open or was. */
static bool is_new_id(const struct connection *c, uint32_t id) { return id != 0 && (!c->any_id || (int32_t)(id - c->last_id) > 0); }

static void on_request(struct connection *c, uint8_t flags, uint32_t id, uint8_t *payload, size_t length) {
  bool more = (flags & REQUEST_MORE) != 0;
  if ((flags & ~REQUEST_MORE) != 0) {
    connection_fail(c, "a request has unknown flags");
    return;
  }
  if (!c->request_open) {
    if (!is_new_id(c, id) || channel_find(c, id) != NULL) {
      connection_fail(c, "a request reuses a channel");
      return;
    }
    c->last_id = id;
    c->any_id = true;
    if (!more) {
      dispatch_request(c, id, payload, length);
      return;
    }
    c->request_open = true;
    c->request_id = id;
  } else if (id != c->request_id) {
    connection_fail(c, "a request came before the one ahead of it was complete");
    return;
  }
  if (c->request.length + length > REQUEST_MAX_BYTES) {
    connection_fail(c, "a request is larger than 4 MiB");
    return;
  }
  put_bytes(&c->request, payload, length);
  if (more) return;
  struct buffer whole = c->request;
  c->request = (struct buffer){0};
  c->request_open = false;
  dispatch_request(c, id, whole.bytes, whole.length);
  buffer_free(&whole);
}

static void on_channel_frame(struct connection *c, uint8_t type, uint8_t flags, uint32_t id, uint8_t *payload, size_t length) {
  if (flags != 0 || (c->request_open && id == c->request_id)) {
    connection_fail(c, "a frame has unknown flags or comes before its request is complete");
    return;
  }
  struct channel *channel = channel_find(c, id);
  if (channel == NULL) {
    if (is_new_id(c, id)) connection_fail(c, "a frame names a channel that was never opened");
    return; /* It crossed the end of its channel on the way. */
  }
  switch (type) {
  case FRAME_DATA:
    if (channel->ended || channel->kind->on_data == NULL || length > channel->receive_window) {
      connection_fail(c, "data came that was not granted");
      return;
    }
    channel->receive_window -= (uint32_t)length;
    if (length > 0) channel->kind->on_data(channel, payload, length);
    return;
  case FRAME_END:
    if (channel->ended || length != 0) {
      connection_fail(c, "a channel ended twice");
      return;
    }
    channel->ended = true;
    if (channel->kind->on_end != NULL) channel->kind->on_end(channel);
    return;
  case FRAME_CREDIT: {
    uint32_t more = length == 4 ? load_u32(payload) : 0;
    if (length != 4 || more > SEND_WINDOW_MAX || channel->credit + more > 2 * SEND_WINDOW_MAX) {
      connection_fail(c, "a credit is malformed or too large");
      return;
    }
    channel->credit += more;
    channel_activate(channel);
    return;
  }
  case FRAME_SIGNAL: {
    uint32_t signal = length == 4 ? load_u32(payload) : 0;
    if (length != 4 || signal > 64) {
      connection_fail(c, "a signal is malformed");
      return;
    }
    if (channel->kind->on_signal != NULL) channel->kind->on_signal(channel, (int)signal);
    return;
  }
  default:
    if (length != 0) {
      connection_fail(c, "a cancellation is malformed");
      return;
    }
    channel_close(channel);
  }
}

/* After garbage on stdio: the next hello, wherever it begins, is where both sides agree again. */
static bool find_hello(struct connection *c) {
  static const uint8_t start[] = {20, 0, 0, 0, FRAME_HELLO, 0, 0, 0, 0, 0, 0, 0, 'C', 'O', 'P', 'P', 'I', 'C', 'E', '1'};
  size_t length = c->input_end - c->input_start;
  uint8_t *found = memmem(c->input + c->input_start, length, start, sizeof start);
  if (found != NULL) {
    c->input_start = (size_t)(found - c->input);
    return true;
  }
  /* Its beginning may be the last that has come. */
  size_t keep = length < sizeof start - 1 ? length : sizeof start - 1;
  c->input_start = c->input_end - keep;
  return false;
}

static void take_frames(struct connection *c) {
  c->stalled = false;
  while (!c->closing && !c->dead) {
    if (queued(c) >= OUTPUT_STOP_READING) {
      c->stalled = true;
      return;
    }
    if (c->stdio && !c->greeted && !find_hello(c)) return;
    size_t length = c->input_end - c->input_start;
    if (length < FRAME_HEADER) return;
    uint8_t *header = c->input + c->input_start;
    size_t payload = load_u32(header);
    uint8_t type = header[4];
    uint32_t id = load_u32(header + 8);
    bool known = type == FRAME_HELLO || type == FRAME_REQUEST || (type >= FRAME_DATA && type <= FRAME_CANCEL);
    if (payload > FRAME_MAX_PAYLOAD || !known || header[6] != 0 || header[7] != 0 || (id == 0) != (type == FRAME_HELLO)) {
      connection_fail(c, "a frame is malformed");
      c->input_start++; /* Where the next one begins is unknown. */
      continue;
    }
    if (!c->greeted && type != FRAME_HELLO) {
      connection_fail(c, "the first frame is not a hello");
      continue;
    }
    if (length < FRAME_HEADER + payload) return;
    c->input_start += FRAME_HEADER + payload;
    if (type == FRAME_HELLO) greet(c, header + FRAME_HEADER, payload);
    else if (type == FRAME_REQUEST) on_request(c, header[5], id, header + FRAME_HEADER, payload);
    else on_channel_frame(c, type, header[5], id, header + FRAME_HEADER, payload);
  }
}

static void drop_input(struct connection *c) {
  static uint8_t scratch[65536];
  ssize_t n = read(c->in.fd, scratch, sizeof scratch);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) connection_kill(c);
  else if (n < 0 && errno == EAGAIN) c->in.ready = false;
}

static void read_input(struct connection *c) {
  if (c->closing && c->in.ready) {
    drop_input(c);
    return;
  }
  if (!c->in.ready || c->closing || queued(c) >= OUTPUT_STOP_READING) return;
  if (c->input == NULL) c->input = must_alloc(INPUT_BYTES);
  if (c->input_start == c->input_end) {
    c->input_start = c->input_end = 0;
  } else if (INPUT_BYTES - c->input_end < FRAME_HEADER + FRAME_MAX_PAYLOAD) {
    memmove(c->input, c->input + c->input_start, c->input_end - c->input_start);
    c->input_end -= c->input_start;
    c->input_start = 0;
  }
  if (c->input_end == INPUT_BYTES) return; /* Whole frames wait here until there is room for their answers. */
  ssize_t n = read(c->in.fd, c->input + c->input_end, INPUT_BYTES - c->input_end);
  if (n > 0) {
    c->input_end += (size_t)n;
  } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    c->in.ready = errno == EINTR;
  } else if (c->stdio) {
    /* The other end went away for now (a relay that restarts); a hang-up of the descriptor would otherwise spin. */
    c->in.ready = false;
    connection_end_session(c);
    c->greeted = false;
  } else {
    connection_kill(c);
  }
}

static void flush(struct connection *c) {
  while (queued(c) > 0 && !c->out_blocked) {
    ssize_t n = c->stdio ? write(c->out.fd, c->output + c->output_start, queued(c))
                         : send(c->out.fd, c->output + c->output_start, queued(c), MSG_NOSIGNAL);
    if (n >= 0) {
      c->output_start += (size_t)n;
    } else if (errno == EAGAIN) {
      c->out_blocked = true;
    } else if (errno != EINTR) {
      if (!c->stdio) {
        connection_kill(c);
        return;
      }
      c->output_start = c->output_end = 0;
      connection_end_session(c);
      c->greeted = false;
    }
  }
  if (queued(c) == 0) {
    c->flush_now = false;
    c->flush_at_ms = 0;
    timer_disarm(&c->flush_timer);
    /* A burst of answers must not stay in memory for ever. */
    if (c->output_capacity > 2 * OUTPUT_HIGH) {
      free(c->output);
      c->output = NULL;
      c->output_capacity = c->output_start = c->output_end = 0;
    }
    if (c->closing && !c->lingering) {
      /* Closed at once with input unread, the kernel would take back what was just sent: the reason. */
      c->lingering = true;
      shutdown(c->out.fd, SHUT_WR);
      timer_arm(&c->linger_timer, LINGER_MS);
    }
  }
}

static void pump(struct connection *c) {
  /* As much as one pass may send: then the others have their turn. */
  while (c->active_head != NULL && queued(c) < OUTPUT_HIGH && !c->dead) {
    struct channel *channel = c->active_head;
    c->active_head = channel->next_active;
    if (c->active_head == NULL) c->active_tail = NULL;
    else c->active_head->previous_active = NULL;
    channel->active = false;
    channel->next_active = channel->previous_active = NULL;
    if (channel->kind->pump != NULL && channel->kind->pump(channel) == PUMP_MORE && !channel->closed) channel_activate(channel);
  }
}

void connections_service(void) {
  for (struct connection *c = connections, *next; c != NULL; c = next) {
    next = c->next;
    read_input(c);
    if (c->dead) continue;
    take_frames(c);
    if (!c->dead) pump(c);
    if (!c->dead && (c->flush_now || (c->flush_at_ms != 0 && now_ms() >= c->flush_at_ms))) flush(c);
  }
}

bool connections_busy(void) {
  for (struct connection *c = connections; c != NULL; c = c->next) {
    if (c->flush_now && !c->out_blocked) return true;
    if (c->active_head != NULL && queued(c) < OUTPUT_HIGH) return true;
    if (c->closing && c->in.ready) return true;
    if ((c->in.ready || c->stalled) && !c->closing && queued(c) < OUTPUT_STOP_READING) return true;
  }
  return false;
}

void connections_flush_and_close(void) {
  for (struct connection *c = connections, *next; c != NULL; c = next) {
    next = c->next;
    flush(c);
  }
}

static void on_input(struct item *item, uint32_t events) {
  struct connection *c = item->owner;
  if (events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP | EPOLLERR)) c->in.ready = true;
  if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) c->out_blocked = false;
}

static void on_output(struct item *item, uint32_t events) {
  struct connection *c = item->owner;
  (void)events;
  c->out_blocked = false;
}

static void on_linger_over(struct timer *timer) { connection_kill(timer->owner); }

static void on_flush_time(struct timer *timer) {
  struct connection *c = timer->owner;
  c->flush_now = true;
}

static bool watch_connection(struct connection *c) {
  return loop_add(&c->in, EPOLLET | (c->stdio ? EPOLLIN : EPOLLIN | EPOLLOUT | EPOLLRDHUP));
}

struct connection *connection_open(int in_fd, int out_fd) {
  struct connection *c = must_alloc(sizeof *c);
  c->stdio = in_fd != out_fd;
  fcntl(in_fd, F_SETFL, fcntl(in_fd, F_GETFL) | O_NONBLOCK);
  fcntl(out_fd, F_SETFL, fcntl(out_fd, F_GETFL) | O_NONBLOCK);
  c->in = (struct item){.fd = in_fd, .ready = true, .on_event = on_input, .owner = c};
  c->out = (struct item){.fd = out_fd, .on_event = on_output, .owner = c};
  c->flush_timer = (struct timer){.on_time = on_flush_time, .owner = c};
  c->linger_timer = (struct timer){.on_time = on_linger_over, .owner = c};
  c->next = connections;
  connections = c;
  if (!watch_connection(c)) {
    connection_kill(c);
    return NULL;
  }
  if (c->stdio) loop_add(&c->out, EPOLLOUT | EPOLLET);
  return c;
}

/* ---- while they are lent ---- */

size_t connections_lend(int *fds, size_t room) {
  size_t count = 0;
  for (struct connection *c = connections; c != NULL; c = c->next) {
    if (count < room) fds[count] = c->in.fd;
    count++;
  }
  return count;
}

void connections_part(void) {
  size_t count = 0;
  for (struct connection *c = connections; c != NULL; c = c->next) {
    c->lent = ++count;
    loop_change(&c->in, 0);
    close(c->in.fd);
    c->in.fd = c->out.fd = -1;
    /* Nothing is read or written until an event of the one that comes back. */
    c->in.ready = false;
    c->out_blocked = true;
  }
}

bool connection_return(size_t number, int fd) {
  for (struct connection *c = connections; c != NULL; c = c->next) {
    if (c->lent != number) continue;
    c->lent = 0;
    c->in.fd = c->out.fd = fd;
    if (!watch_connection(c)) connection_kill(c);
    return true;
  }
  return false;
}

void connections_end_lent(void) {
  for (struct connection *c = connections, *next; c != NULL; c = next) {
    next = c->next;
    if (c->lent != 0) connection_kill(c);
  }
}
