/* What every part of coppice-tree uses: dying with a message that the caller can read, growing buffers, kill points. */
#ifndef COPPICE_TREE_COMMON_H
#define COPPICE_TREE_COMMON_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../lib/hash.h"

struct buf {
  uint8_t *data;
  size_t len, cap;
};

/* Whether this request has changed a worktree. An error then says so, because the next command must finish the change. */
extern bool workspace_touched;

/* Called before the process ends with an error, to undo what was made. NULL: nothing is undone. */
extern void (*before_dying)(void);
/* Reports the failure in another way than as an answer, and does not return. NULL: it is an answer. */
extern void (*last_words)(const char *failure);
/* How many threads have called die(). */
extern unsigned threads_failed;
/* Answers {"error":{code,message,touched}} and ends the process. `code` is one of the protocol's error codes. */
void die(const char *code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* The same for a failed system call: chooses the code by errno. */
void die_errno(const char *what, const char *path) __attribute__((noreturn));

void *must_alloc(size_t size);
void *must_realloc(void *old, size_t size);
char *must_strdup(const char *text);

uint8_t *buf_room(struct buf *buf, size_t len);
void buf_add(struct buf *buf, const void *data, size_t len);
void buf_text(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The length in bytes of the character that begins here; 0 when it is not UTF-8. */
size_t utf8_len(const uint8_t *s, size_t left);
/* Bytes as a JSON string, as JSON.stringify() writes it. Bytes that are not UTF-8 become the replacement character. */
void buf_json(struct buf *buf, const char *bytes, size_t len);
/* The same for a path, without losing bytes: a byte that is not UTF-8 becomes a lone surrogate, as in Python. */
void buf_json_path(struct buf *buf, const char *path);

void hex_of(const uint8_t *bytes, size_t len, char *out);
bool hash_from_hex(const char *hex, uint8_t out[HASH_LEN]);

/* Ends this process, and the command that it works for, at once when JVS_KILL_AT names this point: how the crash tests stop us
   anywhere. Where JVS_STOP_AT names it, this process stops until it is told to go on: how tests work beside us at that moment. */
extern bool is_command;
void kill_point(const char *name);

void write_all(int fd, const void *data, size_t len, const char *path);
int64_t now_ns(void);
/* The end of a noun after a number: "1 file", "2 files". */
#define PLURAL(count) ((count) == 1 ? "" : "s")

/* A map from 64-bit pairs to a pointer: hard links by device and inode, restored files by inode. */
struct map_slot {
  uint64_t a, b;
  void *value;
};
struct map {
  struct map_slot *slots;
  size_t cap, used;
};
void **map_at(struct map *map, uint64_t a, uint64_t b);
void *map_get(const struct map *map, uint64_t a, uint64_t b);
uint64_t bytes_key(const void *data, size_t len);

#endif
