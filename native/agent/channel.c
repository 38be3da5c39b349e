#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "connection.h"

static struct channel **bucket_of(struct connection *c, uint32_t id) { return &c->buckets[id % BUCKETS]; }

struct channel *channel_find(struct connection *c, uint32_t id) {
  struct channel *channel = *bucket_of(c, id);
  while (channel != NULL && channel->id != id) channel = channel->next_in_bucket;
  return channel;
}

void channel_activate(struct channel *channel) {
  if (channel->active || channel->closed) return;
  struct connection *c = channel->connection;
  channel->active = true;
  channel->next_active = NULL;
  channel->previous_active = c->active_tail;
  if (c->active_tail == NULL) c->active_head = channel;
  else c->active_tail->next_active = channel;
  c->active_tail = channel;
}

static void deactivate(struct channel *channel) {
  if (!channel->active) return;
  struct connection *c = channel->connection;
  if (channel->previous_active == NULL) c->active_head = channel->next_active;
  else channel->previous_active->next_active = channel->next_active;
  if (channel->next_active == NULL) c->active_tail = channel->previous_active;
  else channel->next_active->previous_active = channel->previous_active;
  channel->active = false;
}

void channel_close(struct channel *channel) {
  if (channel->closed) return;
  struct connection *c = channel->connection;
  channel->closed = true;
  deactivate(channel);
  for (struct channel **at = bucket_of(c, channel->id); *at != NULL; at = &(*at)->next_in_bucket)
    if (*at == channel) {
      *at = channel->next_in_bucket;
      break;
    }
  c->channel_count--;
  if (channel->kind->on_close != NULL) channel->kind->on_close(channel);
  loop_free(channel);
}

uint8_t *channel_reserve(struct channel *channel, size_t wanted, size_t *granted) {
  *granted = wanted < channel->credit ? wanted : channel->credit;
  if (*granted > FRAME_MAX_PAYLOAD) *granted = FRAME_MAX_PAYLOAD;
  return *granted == 0 ? NULL : connection_reserve(channel->connection, *granted);
}

void channel_commit(struct channel *channel, uint8_t stream, size_t length) {
  channel->credit -= (uint32_t)length;
  connection_commit(channel->connection, FRAME_DATA, stream, channel->id, length, false);
}

static void send_frame(struct channel *channel, uint8_t type, const void *bytes, size_t length, bool may_wait) {
  uint8_t *payload = connection_reserve(channel->connection, length);
  if (length > 0) memcpy(payload, bytes, length);
  connection_commit(channel->connection, type, 0, channel->id, length, may_wait);
}

void channel_reply(struct channel *channel, const struct buffer *body, bool may_wait) {
  send_frame(channel, FRAME_REPLY, body->bytes, body->length, may_wait);
}

void channel_end(struct channel *channel) { send_frame(channel, FRAME_END, NULL, 0, false); }

void channel_grant(struct channel *channel, size_t bytes) {
  if (channel->closed) return;
  channel->grant += (uint32_t)bytes;
  if (channel->grant < RECEIVE_WINDOW / 4) return;
  uint8_t payload[4];
  store_u32(payload, channel->grant);
  send_frame(channel, FRAME_CREDIT, payload, sizeof payload, false);
  channel->receive_window += channel->grant;
  channel->grant = 0;
}

void channel_done(struct channel *channel, const struct buffer *body) {
  send_frame(channel, FRAME_DONE, body == NULL ? NULL : body->bytes, body == NULL ? 0 : body->length, false);
  channel_close(channel);
}

/* ---- a result that is too large for one frame ---- */

struct blob {
  struct buffer data;
  size_t sent;
};

static enum pump pump_blob(struct channel *channel) {
  struct blob *blob = channel->state;
  size_t left = blob->data.length - blob->sent;
  if (left == 0) {
    channel_done(channel, NULL);
    return PUMP_IDLE;
  }
  size_t granted;
  uint8_t *payload = channel_reserve(channel, left, &granted);
  if (payload == NULL) return PUMP_IDLE;
  memcpy(payload, blob->data.bytes + blob->sent, granted);
  blob->sent += granted;
  channel_commit(channel, 0, granted);
  return PUMP_MORE;
}

static void close_blob(struct channel *channel) {
  struct blob *blob = channel->state;
  buffer_free(&blob->data);
  free(blob);
}

static const struct channel_kind blob_kind = {.pump = pump_blob, .on_close = close_blob};

void channel_done_with_data(struct channel *channel, struct buffer *data) {
  struct blob *blob = must_alloc(sizeof *blob);
  blob->data = *data;
  *data = (struct buffer){0};
  channel->kind = &blob_kind;
  channel->state = blob;
  channel_activate(channel);
}

/* ---- failures ---- */

const char *code_of_errno(int error) {
  switch (error) {
  case ENOENT:
  case ESRCH:
  case ENXIO:
  case ECONNREFUSED:
    return "not_found";
  case EEXIST:
    return "name_taken";
  case EACCES:
  case EPERM:
  case EROFS:
    return "forbidden";
  case ENOTDIR:
  case EISDIR:
  case EINVAL:
  case ENAMETOOLONG:
  case ELOOP:
  case ENOEXEC:
    return "invalid_argument";
  case ENOTEMPTY:
  case EBUSY:
  case ETXTBSY:
    return "in_use";
  case ENOSPC:
  case EDQUOT:
    return "no_space";
  case EMFILE:
  case ENFILE:
  case ENOMEM:
  case EAGAIN:
    return "limit_reached";
  case E2BIG:
  case EFBIG:
    return "too_large";
  case ETIMEDOUT:
    return "timeout";
  case EBADF:
  case EFAULT:
    return "internal"; /* A mistake of the agent itself. */
  case EIO:
    return "internal"; /* The disk gave an error. */
  default:
    /* The file, or the filesystem that it is on, does not do this: special files answer with any error there is. */
    return "unsupported";
  }
}

int errno_of_read(int fd, int error) {
  struct statfs filesystem;
  return error == EIO && fstatfs(fd, &filesystem) == 0 && filesystem.f_blocks == 0 ? EOPNOTSUPP : error;
}

static void fail(struct channel *channel, const char *code, int error, const char *message) {
  struct buffer body = {0};
  put_string(&body, code);
  put_string(&body, name_of_errno(error));
  put_string(&body, message);
  if (channel->failed_step != NULL) put_string(&body, channel->failed_step);
  send_frame(channel, FRAME_ERROR, body.bytes, body.length, false);
  buffer_free(&body);
  channel_close(channel);
}

void channel_fail(struct channel *channel, const char *code, int error, const char *format, ...) {
  char message[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  fail(channel, code, error, message);
}

void channel_fail_errno(struct channel *channel, int error, const char *format, ...) {
  char message[2048];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (length >= 0 && (size_t)length < sizeof message) snprintf(message + length, sizeof message - (size_t)length, ": %s", strerror(error));
  fail(channel, code_of_errno(error), error, message);
}

/* ---- which operation is which function ---- */

static const struct channel_kind plain_kind = {0};

typedef void operation_function(struct channel *channel, struct reader *body);

static operation_function *const operations[] = {
    [OP_EXEC] = exec_open,
    [OP_JOB_START] = job_start,
    [OP_JOB_LIST] = job_list,
    [OP_JOB_READ] = job_read,
    [OP_JOB_SIGNAL] = job_signal,
    [OP_PTY_OPEN] = terminal_open,
    [OP_PTY_LIST] = terminal_list,
    [OP_PTY_ATTACH] = terminal_attach,
    [OP_PTY_RESIZE] = terminal_resize,
    [OP_PTY_SIGNAL] = terminal_signal,
    [OP_STAT] = file_stat,
    [OP_LIST] = tree_list,
    [OP_READ] = file_read,
    [OP_WRITE] = file_write,
    [OP_MOVE] = file_move,
    [OP_REMOVE] = tree_remove,
    [OP_MKDIR] = file_mkdir,
    [OP_WATCH] = tree_watch,
    [OP_PACK] = tree_pack,
    [OP_UNPACK] = tree_unpack,
    [OP_DIAL] = dial_open,
    [OP_HOSTNAME] = machine_hostname,
    [OP_FORK] = machine_fork,
    [OP_SYNC] = tree_sync,
    [OP_SHUTDOWN] = machine_shutdown,
    [OP_LINK] = file_link,
    [OP_ATTRIBUTES] = file_attributes,
    [OP_WRITE_STRETCHES] = file_write_stretches,
    [OP_JOB_INPUT] = job_input,
    [OP_JOB_SWEEP] = job_sweep,
    [OP_LISTEN] = accept_listen,
    [OP_ACCEPT] = accept_next,
};

void channel_open(struct connection *c, uint32_t id, uint8_t operation, uint32_t window, struct reader *body) {
  struct channel *channel = must_alloc(sizeof *channel);
  channel->connection = c;
  channel->id = id;
  channel->credit = window;
  channel->receive_window = RECEIVE_WINDOW;
  channel->kind = &plain_kind;
  struct channel **bucket = bucket_of(c, id);
  channel->next_in_bucket = *bucket;
  *bucket = channel;
  c->channel_count++;
  operation_function *function = operation < sizeof operations / sizeof *operations ? operations[operation] : NULL;
  if (c->channel_count > CHANNELS_MAX)
    channel_fail(channel, "limit_reached", 0, "more than %u calls are open on one connection", CHANNELS_MAX);
  else if (machine_is_stopping()) channel_fail(channel, "wrong_state", 0, "the sandbox is shutting down");
  else if (function == NULL) channel_fail(channel, "unsupported", 0, "the agent knows no operation %u", operation);
  else function(channel, body);
}
