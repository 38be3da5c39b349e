/* The bytes on the wire: docs/guest-protocol.md is the other half of this file. */
#ifndef COPPICE_WIRE_H
#define COPPICE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC "COPPICE1"
#define WIRE_VERSION 1u
#define FRAME_HEADER 12u
#define FRAME_MAX_PAYLOAD 65536u
#define REQUEST_MAX_BYTES (4u << 20)
#define RECEIVE_WINDOW (256u << 10)
#define SEND_WINDOW_MAX (16u << 20)
#define CHANNELS_MAX 1024u

enum frame_type {
  FRAME_HELLO = 1,
  FRAME_REQUEST = 2,
  FRAME_REPLY = 3,
  FRAME_DATA = 4,
  FRAME_END = 5,
  FRAME_CREDIT = 6,
  FRAME_SIGNAL = 7,
  FRAME_CANCEL = 8,
  FRAME_DONE = 9,
  FRAME_ERROR = 10,
};

#define REQUEST_MORE 1u

enum operation {
  OP_EXEC = 1,
  OP_JOB_START = 2,
  OP_JOB_LIST = 3,
  OP_JOB_READ = 4,
  OP_JOB_SIGNAL = 5,
  OP_PTY_OPEN = 6,
  OP_PTY_LIST = 7,
  OP_PTY_ATTACH = 8,
  OP_PTY_RESIZE = 9,
  OP_PTY_SIGNAL = 10,
  OP_STAT = 11,
  OP_LIST = 12,
  OP_READ = 13,
  OP_WRITE = 14,
  OP_MOVE = 15,
  OP_REMOVE = 16,
  OP_MKDIR = 17,
  OP_WATCH = 18,
  OP_PACK = 19,
  OP_UNPACK = 20,
  OP_DIAL = 21,
  OP_HOSTNAME = 22,
  OP_FORK = 23,
  OP_SYNC = 24,
  OP_SHUTDOWN = 25,
  OP_LINK = 26,
  OP_ATTRIBUTES = 27,
  OP_WRITE_STRETCHES = 28,
  OP_JOB_INPUT = 29,
  OP_JOB_SWEEP = 30,
  OP_LISTEN = 31,
  OP_ACCEPT = 32,
};

/* Reads a request. After the first bad field every further read gives zero, and `bad` stays set: check it once at the end. */
struct reader {
  uint8_t *at;
  uint8_t *end;
  bool bad;
};

uint8_t read_u8(struct reader *r);
uint16_t read_u16(struct reader *r);
uint32_t read_u32(struct reader *r);
uint64_t read_u64(struct reader *r);
/* A string without NUL inside; it points into the request, where the wire carries its terminator. */
char *read_string(struct reader *r);
uint8_t *read_bytes(struct reader *r, size_t *length);
/* True when all fields were well formed and nothing is left over. */
bool read_finished(const struct reader *r);

struct buffer {
  uint8_t *bytes;
  size_t length;
  size_t capacity;
};

void put_bytes(struct buffer *b, const void *bytes, size_t length);
void put_u8(struct buffer *b, uint8_t value);
void put_u16(struct buffer *b, uint16_t value);
void put_u32(struct buffer *b, uint32_t value);
void put_u64(struct buffer *b, uint64_t value);
void put_string(struct buffer *b, const char *value);
void buffer_free(struct buffer *b);

void store_u32(uint8_t *at, uint32_t value);
uint32_t load_u32(const uint8_t *at);

#endif
