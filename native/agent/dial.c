/* A connection to a port on the sandbox's own loopback, or one that a program of the sandbox made to the agent: neither needs a network. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"

struct dial {
  struct channel *channel;
  uint16_t port;
  bool second_try;
  bool connected;
  struct item item;
  struct sink sink;
  bool input_over;
  bool output_over;
};

static void on_socket(struct item *item, uint32_t events);

static void check_over(struct dial *dial) {
  if (dial->input_over && dial->output_over) channel_done(dial->channel, NULL);
}

static void finish_output(struct sink *sink) {
  struct dial *dial = sink->channel->state;
  if (dial->output_over) return;
  dial->output_over = true;
  shutdown(dial->item.fd, SHUT_WR);
  check_over(dial);
}

static void connected(struct dial *dial) {
  dial->connected = true;
  int on = 1;
  if (dial->port != 0) setsockopt(dial->item.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  /* The one item stands for both directions. */
  dial->sink = (struct sink){.item = {.fd = dial->item.fd}, .channel = dial->channel, .registered = true, .finish = finish_output};
  struct buffer nothing = {0};
  channel_reply(dial->channel, &nothing, false);
}

static void try_connect(struct dial *dial) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(dial->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(dial->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  int error = 0;
  for (;;) {
    bool six = dial->second_try;
    int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
      dial->item = (struct item){.fd = fd, .on_event = on_socket, .owner = dial};
      int result = six ? connect(fd, (struct sockaddr *)&v6, sizeof v6) : connect(fd, (struct sockaddr *)&v4, sizeof v4);
      if ((result == 0 || errno == EINPROGRESS) && loop_add(&dial->item, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)) {
        if (result == 0) connected(dial);
        return;
      }
      if (!six || error == 0) error = errno;
      loop_close(&dial->item);
    } else if (!six || error == 0) {
      error = errno;
    }
    if (six) break;
    dial->second_try = true;
  }
  if (error == ECONNREFUSED || error == ENETUNREACH || error == EADDRNOTAVAIL || error == EAFNOSUPPORT)
    channel_fail(dial->channel, "not_found", ECONNREFUSED, "nothing listens on port %u of the sandbox", dial->port);
  else channel_fail_errno(dial->channel, error, "cannot connect to port %u of the sandbox", dial->port);
}

static void on_socket(struct item *item, uint32_t events) {
  struct dial *dial = item->owner;
  if (!dial->connected) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(item->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0 && (events & EPOLLOUT)) {
      connected(dial);
    } else if (error != 0 && !dial->second_try) {
      loop_close(&dial->item);
      dial->second_try = true;
      try_connect(dial);
      return;
    } else if (error != 0) {
      channel_fail(dial->channel, "not_found", error, "nothing listens on port %u of the sandbox", dial->port);
      return;
    } else {
      return;
    }
  }
  if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
    dial->item.ready = true;
    channel_activate(dial->channel);
  }
  if ((events & EPOLLOUT) && dial->sink.length > 0) sink_flush(&dial->sink);
}

static enum pump pump_dial(struct channel *channel) {
  struct dial *dial = channel->state;
  if (!dial->connected || !dial->item.ready || dial->input_over) return PUMP_IDLE;
  size_t granted;
  uint8_t *payload = channel_reserve(channel, FRAME_MAX_PAYLOAD, &granted);
  if (payload == NULL) return PUMP_IDLE;
  ssize_t n = read(dial->item.fd, payload, granted);
  if (n > 0) {
    channel_commit(channel, 0, (size_t)n);
    return PUMP_MORE;
  }
  if (n < 0 && errno == EINTR) return PUMP_MORE;
  if (n < 0 && errno == EAGAIN) {
    dial->item.ready = false;
    return PUMP_IDLE;
  }
  if (n < 0) {
    if (dial->port == 0) channel_fail(channel, "unavailable", errno, "the program closed the connection");
    else channel_fail(channel, "unavailable", errno, "the server on port %u of the sandbox closed the connection", dial->port);
    return PUMP_IDLE;
  }
  dial->input_over = true;
  channel_end(channel);
  check_over(dial);
  return PUMP_IDLE;
}

static void dial_data(struct channel *channel, const uint8_t *bytes, size_t length) {
  struct dial *dial = channel->state;
  if (dial->connected) sink_push(&dial->sink, bytes, length);
  else channel_fail(channel, "wrong_state", 0, "the connection to port %u does not stand yet", dial->port);
}

static void dial_end(struct channel *channel) {
  struct dial *dial = channel->state;
  if (dial->connected) sink_end(&dial->sink);
  else channel_fail(channel, "wrong_state", 0, "the connection to port %u does not stand yet", dial->port);
}

static void close_dial(struct channel *channel) {
  struct dial *dial = channel->state;
  dial->sink.item.fd = -1;
  sink_free(&dial->sink);
  loop_close(&dial->item);
  loop_free(dial);
}

static const struct channel_kind dial_kind = {.pump = pump_dial, .on_data = dial_data, .on_end = dial_end, .on_close = close_dial};

static struct dial *new_dial(struct channel *channel, uint16_t port) {
  struct dial *dial = must_alloc(sizeof *dial);
  *dial = (struct dial){.channel = channel, .port = port, .item = {.fd = -1}, .sink = {.item = {.fd = -1}}};
  channel->kind = &dial_kind;
  channel->state = dial;
  return dial;
}

void dial_open(struct channel *channel, struct reader *body) {
  uint16_t port = read_u16(body);
  if (!read_finished(body) || port == 0) {
    channel_fail(channel, "invalid_argument", EINVAL, "a port is a number from 1 to 65535");
    return;
  }
  try_connect(new_dial(channel, port));
}

void dial_adopt(struct channel *channel, int fd) {
  struct dial *dial = new_dial(channel, 0);
  dial->item = (struct item){.fd = fd, .on_event = on_socket, .owner = dial};
  if (loop_add(&dial->item, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)) connected(dial);
  else channel_fail_errno(channel, errno, "cannot take the connection");
}
