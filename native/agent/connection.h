#ifndef COPPICE_CONNECTION_H
#define COPPICE_CONNECTION_H

#include "agent.h"

#define BUCKETS 64u

struct connection {
  struct item in;
  /* The same descriptor as `in` for a socket, another one for stdio. */
  struct item out;
  bool stdio;
  /* The how-manieth of those whose descriptors are lent; 0: it is not. */
  size_t lent;
  bool greeted;
  /* Nothing is read any more; it is closed when what is queued has been sent. */
  bool closing;
  bool dead;
  /* All is sent; what the peer still sends is dropped until it has seen that. */
  bool lingering;
  struct timer linger_timer;
  bool out_blocked;
  /* Frames have come that wait for room for their answers. */
  bool stalled;
  /* Frames that need not leave at once are queued: flush by then. */
  uint64_t flush_at_ms;
  bool flush_now;
  struct timer flush_timer;
  uint8_t *input;
  size_t input_start;
  size_t input_end;
  uint8_t *output;
  size_t output_start;
  size_t output_end;
  size_t output_capacity;
  /* A request whose frames are still coming; they come one after another. */
  struct buffer request;
  uint32_t request_id;
  bool request_open;
  uint32_t last_id;
  bool any_id;
  uint32_t channel_count;
  struct channel *buckets[BUCKETS];
  struct channel *active_head;
  struct channel *active_tail;
  struct connection *next;
};

/* Room for a frame; the header is written by connection_commit. */
uint8_t *connection_reserve(struct connection *connection, size_t payload);
void connection_commit(struct connection *connection, uint8_t type, uint8_t flags, uint32_t channel, size_t payload, bool may_wait);
/* Ends every channel: the foreground work of that peer is over. */
void connection_end_session(struct connection *connection);

#endif
