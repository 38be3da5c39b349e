#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "agent.h"

static uint8_t *take(struct reader *r, size_t length) {
  if (r->bad || (size_t)(r->end - r->at) < length) {
    r->bad = true;
    return NULL;
  }
  uint8_t *at = r->at;
  r->at += length;
  return at;
}

static uint64_t read_number(struct reader *r, size_t width) {
  const uint8_t *at = take(r, width);
  uint64_t value = 0;
  if (at != NULL)
    for (size_t i = width; i > 0; i--) value = value << 8 | at[i - 1];
  return value;
}

uint8_t read_u8(struct reader *r) { return (uint8_t)read_number(r, 1); }
uint16_t read_u16(struct reader *r) { return (uint16_t)read_number(r, 2); }
uint32_t read_u32(struct reader *r) { return (uint32_t)read_number(r, 4); }
uint64_t read_u64(struct reader *r) { return read_number(r, 8); }

uint8_t *read_bytes(struct reader *r, size_t *length) {
  *length = read_u32(r);
  uint8_t *at = take(r, *length);
  if (at == NULL) *length = 0;
  return at;
}

char *read_string(struct reader *r) {
  static char empty[1];
  size_t length;
  uint8_t *at = read_bytes(r, &length);
  const uint8_t *terminator = take(r, 1);
  if (at == NULL || terminator == NULL || *terminator != 0 || memchr(at, 0, length) != NULL) {
    r->bad = true;
    return empty;
  }
  return (char *)at;
}

bool read_finished(const struct reader *r) { return !r->bad && r->at == r->end; }

void put_bytes(struct buffer *b, const void *bytes, size_t length) {
  if (b->capacity - b->length < length) {
    size_t capacity = b->capacity == 0 ? 256 : b->capacity;
    while (capacity - b->length < length) capacity *= 2;
    b->bytes = must_realloc(b->bytes, capacity);
    b->capacity = capacity;
  }
  if (length > 0) memcpy(b->bytes + b->length, bytes, length);
  b->length += length;
}

static void put_number(struct buffer *b, uint64_t value, size_t width) {
  uint8_t bytes[8];
  for (size_t i = 0; i < width; i++) bytes[i] = (uint8_t)(value >> (8 * i));
  put_bytes(b, bytes, width);
}

void put_u8(struct buffer *b, uint8_t value) { put_number(b, value, 1); }
void put_u16(struct buffer *b, uint16_t value) { put_number(b, value, 2); }
void put_u32(struct buffer *b, uint32_t value) { put_number(b, value, 4); }
void put_u64(struct buffer *b, uint64_t value) { put_number(b, value, 8); }

void put_string(struct buffer *b, const char *value) {
  size_t length = strlen(value);
  put_u32(b, (uint32_t)length);
  put_bytes(b, value, length + 1);
}

void buffer_free(struct buffer *b) {
  free(b->bytes);
  *b = (struct buffer){0};
}

void store_u32(uint8_t *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

uint32_t load_u32(const uint8_t *at) { return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24; }
