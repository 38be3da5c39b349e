#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "agent.h"

/* What cannot be written any more is taken and dropped, as a shell does with the rest of a pipe whose reader has gone. */
static void sink_break(struct sink *sink) {
  size_t dropped = sink->length;
  sink->broken = true;
  sink->length = 0;
  if (sink->channel != NULL) channel_grant(sink->channel, dropped);
}

static void on_sink_event(struct item *item, uint32_t events) {
  struct sink *sink = item->owner;
  if (events & (EPOLLERR | EPOLLHUP)) {
    sink_break(sink);
    if (sink->ending && sink->finish != NULL) sink->finish(sink);
    return;
  }
  sink_flush(sink);
}

void sink_flush(struct sink *sink) {
  while (sink->length > 0 && !sink->broken) {
    ssize_t n = write(sink->item.fd, sink->queue + sink->start, sink->length);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {
        if (!sink->registered) {
          sink->item.on_event = on_sink_event;
          sink->item.owner = sink;
          sink->registered = true;
          if (!loop_add(&sink->item, EPOLLOUT | EPOLLET)) sink_break(sink);
        }
        return;
      }
      sink_break(sink);
      break;
    }
    sink->start += (size_t)n;
    sink->length -= (size_t)n;
    if (sink->channel != NULL) channel_grant(sink->channel, (size_t)n);
  }
  sink->start = 0;
  if (sink->ending && sink->finish != NULL) sink->finish(sink);
}

void sink_push(struct sink *sink, const uint8_t *bytes, size_t length) {
  if (sink->broken || sink->item.fd < 0) {
    if (sink->channel != NULL) channel_grant(sink->channel, length);
    return;
  }
  if (sink->length == 0) {
    ssize_t n = write(sink->item.fd, bytes, length);
    if (n > 0) {
      bytes += n;
      length -= (size_t)n;
      if (sink->channel != NULL) channel_grant(sink->channel, (size_t)n);
    }
    if (length == 0) return;
  }
  /* The window bounds the queue: a peer that sends more than it was granted has lost its connection before this. */
  if (sink->queue == NULL) sink->queue = must_alloc(RECEIVE_WINDOW);
  if (sink->start > 0) {
    memmove(sink->queue, sink->queue + sink->start, sink->length);
    sink->start = 0;
  }
  if (length > RECEIVE_WINDOW - sink->length) {
    sink_break(sink);
    return;
  }
  memcpy(sink->queue + sink->length, bytes, length);
  sink->length += length;
  sink_flush(sink);
}

void sink_end(struct sink *sink) {
  sink->ending = true;
  if (sink->length == 0 || sink->broken) {
    if (sink->finish != NULL) sink->finish(sink);
  }
}

void sink_free(struct sink *sink) {
  loop_close(&sink->item);
  free(sink->queue);
  sink->queue = NULL;
  sink->length = 0;
}
