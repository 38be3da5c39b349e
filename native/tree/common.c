#include "common.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../lib/write.h"

#include "progress.h"

bool workspace_touched;
bool is_command;
void (*before_dying)(void);
void (*last_words)(const char *failure);
unsigned threads_failed;

static pthread_mutex_t dying = PTHREAD_MUTEX_INITIALIZER;

/* Does not return. The message is empty when memory ran out. */
static _Noreturn void report(const struct buf *failure) {
  if (last_words && failure->len) last_words((char *)failure->data);
  /* The reader may be gone. */
  (void)write_fully(1, failure->data, failure->len);
  _exit(1);
}

void die(const char *code, const char *format, ...) {
  progress_clear();
  /* Never unlocked: only the first failure is reported, even when undoing what was made fails too. */
  static pthread_t first;
  static bool is_dying;
  static struct buf out;
  if (__atomic_load_n(&is_dying, __ATOMIC_ACQUIRE) && pthread_equal(first, pthread_self())) report(&out);
  __atomic_add_fetch(&threads_failed, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_lock(&dying);
  first = pthread_self();
  __atomic_store_n(&is_dying, true, __ATOMIC_RELEASE);
  char message[5000];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  buf_text(&out, "{\"error\":{\"code\":\"%s\",\"message\":", code);
  buf_json(&out, message, strlen(message));
  buf_text(&out, ",\"touched\":%s}}\n", workspace_touched ? "true" : "false");
  if (before_dying) before_dying();
  report(&out);
}

void die_errno(const char *what, const char *path) {
  const int error = errno;
  const char *code = error == ENOSPC || error == EDQUOT                      ? "no_space"
                     : error == EACCES || error == EPERM || error == EROFS   ? "forbidden"
                     : error == ENOENT || error == ENOTDIR                   ? "not_found"
                     : error == ENOTSUP || error == ENOTTY || error == EXDEV ? "unsupported"
                                                                             : "internal";
  die(code, "cannot %s %s: %s", what, *path ? path : ".", strerror(error));
}

void *must_alloc(size_t size) {
  void *memory = malloc(size ? size : 1);
  if (!memory) die("limit_reached", "out of memory");
  return memory;
}

void *must_realloc(void *old, size_t size) {
  void *memory = realloc(old, size ? size : 1);
  if (!memory) die("limit_reached", "out of memory");
  return memory;
}

char *must_strdup(const char *text) {
  const size_t len = strlen(text) + 1;
  return memcpy(must_alloc(len), text, len);
}

uint8_t *buf_room(struct buf *buf, size_t len) {
  if (buf->cap - buf->len < len) {
    size_t cap = buf->cap ? buf->cap : 256;
    /* Large buffers grow by half, so that an index of a million files does not take twice its size. */
    while (cap - buf->len < len) cap += cap < (8u << 20) ? cap : cap / 2;
    buf->data = must_realloc(buf->data, cap);
    buf->cap = cap;
  }
  buf->len += len;
  return buf->data + buf->len - len;
}

void buf_add(struct buf *buf, const void *data, size_t len) {
  if (len) memcpy(buf_room(buf, len), data, len);
}

void buf_text(struct buf *buf, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  const int len = vsnprintf(NULL, 0, format, args);
  va_end(args);
  vsnprintf((char *)buf_room(buf, (size_t)len + 1), (size_t)len + 1, format, again);
  va_end(again);
  buf->len--;
}

size_t utf8_len(const uint8_t *s, size_t left) {
  const uint8_t c = s[0];
  const size_t len = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
  if (!len || len > left) return 0;
  for (size_t i = 1; i < len; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  if (len == 3 && ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f))) return 0;
  if (len == 4 && ((c == 0xf0 && s[1] < 0x90) || (c == 0xf4 && s[1] > 0x8f))) return 0;
  return len;
}

static void json_bytes(struct buf *buf, const char *bytes, size_t len, bool reversible) {
  static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
  const uint8_t *s = (const uint8_t *)bytes;
  buf_text(buf, "\"");
  for (size_t i = 0; i < len;) {
    const size_t n = utf8_len(s + i, len - i);
    const char *found = s[i] ? strchr(special, s[i]) : NULL;
    if (n == 0 && reversible) buf_text(buf, "\\udc%02x", s[i]);
    else if (n == 0) buf_text(buf, "\\ufffd");
    else if (found) buf_text(buf, "\\%c", letters[found - special]);
    else if (s[i] < 0x20) buf_text(buf, "\\u%04x", s[i]);
    else buf_add(buf, s + i, n);
    i += n ? n : 1;
  }
  buf_text(buf, "\"");
}

void buf_json(struct buf *buf, const char *bytes, size_t len) { json_bytes(buf, bytes, len, false); }

void buf_json_path(struct buf *buf, const char *path) { json_bytes(buf, path, strlen(path), true); }

void hex_of(const uint8_t *bytes, size_t len, char *out) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < len; i++) {
    out[2 * i] = digits[bytes[i] >> 4];
    out[2 * i + 1] = digits[bytes[i] & 15];
  }
  out[2 * len] = 0;
}

static int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

bool hash_from_hex(const char *hex, uint8_t out[HASH_LEN]) {
  if (strlen(hex) != 2 * HASH_LEN) return false;
  for (int i = 0; i < HASH_LEN; i++) {
    const int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = (uint8_t)(high << 4 | low);
  }
  return true;
}

void kill_point(const char *name) {
  const char *stop = getenv("JVS_STOP_AT");
  if (stop && strcmp(stop, name) == 0) kill(getpid(), SIGSTOP);
  const char *at = getenv("JVS_KILL_AT");
  if (!at || strcmp(at, name) != 0) return;
  if (!is_command) kill(getppid(), SIGKILL);
  kill(getpid(), SIGKILL);
}

void write_all(int fd, const void *data, size_t len, const char *path) {
  if (!write_fully(fd, data, len)) die_errno("write", path);
}

int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t h = a * 0x9e3779b97f4a7c15u ^ (b + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  h ^= h >> 29;
  h *= 0x94d049bb133111ebu;
  return h ^ h >> 32;
}

uint64_t bytes_key(const void *data, size_t len) {
  const uint8_t *bytes = data;
  uint64_t h = 0xcbf29ce484222325u ^ len;
  for (size_t i = 0; i < len; i++) h = (h ^ bytes[i]) * 0x100000001b3u;
  return h;
}

void *map_get(const struct map *map, uint64_t a, uint64_t b) {
  if (!map->cap) return NULL;
  for (size_t i = mix(a, b) & (map->cap - 1); map->slots[i].value; i = (i + 1) & (map->cap - 1))
    if (map->slots[i].a == a && map->slots[i].b == b) return map->slots[i].value;
  return NULL;
}

/* The place of a key; the caller stores a value there (never NULL). */
void **map_at(struct map *map, uint64_t a, uint64_t b) {
  if (map->used * 4 >= map->cap * 3) {
    const struct map old = *map;
    map->cap = old.cap ? old.cap * 2 : 64;
    map->used = 0;
    map->slots = calloc(map->cap, sizeof *map->slots);
    if (!map->slots) die("limit_reached", "out of memory");
    for (size_t i = 0; i < old.cap; i++)
      if (old.slots[i].value) *map_at(map, old.slots[i].a, old.slots[i].b) = old.slots[i].value;
    free(old.slots);
  }
  size_t i = mix(a, b) & (map->cap - 1);
  while (map->slots[i].value && (map->slots[i].a != a || map->slots[i].b != b)) i = (i + 1) & (map->cap - 1);
  if (!map->slots[i].value) {
    map->slots[i].a = a;
    map->slots[i].b = b;
    map->used++;
  }
  return &map->slots[i].value;
}
