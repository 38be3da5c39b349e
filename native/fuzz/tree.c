#include "tree.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "../tree/progress.h"

/* No line on a terminal here. */
void progress_clear(void) {}

static void give_up(const char *failure) {
  (void)failure;
  longjmp(fuzz_over, 1);
}

__attribute__((constructor)) static void set_up(void) { last_words = give_up; }

void fuzz_read_bytes(const void *bytes, size_t len) {
  static volatile uint8_t sum;
  for (size_t at = 0; at < len; at++) sum = (uint8_t)(sum + ((const uint8_t *)bytes)[at]);
}

void fuzz_read_entries(const uint8_t *canonical, size_t canonical_len, uint32_t count, const struct location *locations) {
  struct cursor cursor;
  for (cursor_start(&cursor, canonical, canonical_len); cursor.valid; cursor_next(&cursor)) {
    const struct entry *entry = &cursor.entry;
    /* Whoever makes a path of it counts on this. */
    if (cursor.index >= count || entry->record->name_len == 0 || entry->record->name_len > NAME_MAX ||
        memchr(entry->name, '/', entry->record->name_len) || memchr(entry->name, 0, entry->record->name_len) ||
        (entry->record->name_len == 2 && memcmp(entry->name, "..", 2) == 0) ||
        (*entry->name == '.' && entry->record->name_len == 1 && count > 1))
      abort();
    fuzz_read_bytes(entry->name, entry->record->name_len);
    fuzz_read_bytes(entry->link, entry->record->link_len);
    fuzz_read_bytes(entry->xattrs, entry->record->xattr_len);
    /* As all do that walk over entries. */
    fuzz_read_bytes(&locations[cursor.index], sizeof *locations);
    fuzz_read_bytes(entry->record->hash, HASH_LEN);
  }
}

/* For those that have no store. */
__attribute__((weak)) bool store_try_read(struct store *store, struct location at, void *out, size_t len) {
  (void)store, (void)at, (void)out, (void)len;
  return false;
}
__attribute__((weak)) struct location store_append(struct store *store, const void *data, size_t len) {
  (void)store, (void)data;
  return (struct location){1, 0, len};
}
