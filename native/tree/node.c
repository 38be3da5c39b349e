#include "node.h"

#include <limits.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_entry(struct cursor *cursor) {
  const size_t left = (size_t)(cursor->end - cursor->at);
  if (left < sizeof(struct record)) return false;
  struct entry *entry = &cursor->entry;
  entry->record = (const struct record *)cursor->at;
  entry->size = sizeof(struct record) + entry->record->name_len + entry->record->link_len + entry->record->xattr_len;
  if (left < entry->size) return false;
  entry->name = (const char *)(entry->record + 1);
  entry->link = entry->name + entry->record->name_len;
  entry->xattrs = (const uint8_t *)entry->link + entry->record->link_len;
  return true;
}

void cursor_start(struct cursor *cursor, const uint8_t *canonical, size_t len) {
  cursor->at = canonical;
  cursor->end = canonical + len;
  cursor->index = 0;
  cursor->valid = len && read_entry(cursor);
}

void cursor_next(struct cursor *cursor) {
  cursor->at += cursor->entry.size;
  cursor->index++;
  cursor->valid = cursor->at < cursor->end && read_entry(cursor);
}

int name_compare(const char *a, size_t a_len, const char *b, size_t b_len) {
  const int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
  return order ? order : (a_len > b_len) - (a_len < b_len);
}

static bool is_name(const char *name, size_t len) {
  if (len == 0 || len > NAME_MAX || (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))) return false;
  return !memchr(name, '/', len) && !memchr(name, 0, len);
}

static bool top_is_sound(const uint8_t *canonical, size_t len, uint32_t count) {
  struct cursor cursor;
  cursor_start(&cursor, canonical, len);
  const struct entry *entry = &cursor.entry;
  return count == 1 && cursor.valid && entry->size == len && entry->record->type == 'd' && entry->record->name_len == 1 &&
         *entry->name == '.' && entry->record->link_len == 0;
}

bool node_is_sound(const uint8_t *canonical, size_t len, uint32_t count) {
  struct cursor cursor;
  struct entry last = {0};
  for (cursor_start(&cursor, canonical, len); cursor.valid; cursor_next(&cursor)) {
    const struct entry *entry = &cursor.entry;
    if (!is_name(entry->name, entry->record->name_len)) return false;
    if (!entry->record->type || !strchr("fdlpcbh", entry->record->type)) return false;
    if (memchr(entry->link, 0, entry->record->link_len)) return false;
    if (last.record && name_compare(last.name, last.record->name_len, entry->name, entry->record->name_len) >= 0) return false;
    last = *entry;
  }
  return cursor.at == cursor.end && cursor.index == count;
}

bool node_try_load(struct store *store, struct location at, const uint8_t hash[HASH_LEN], bool top, struct node *node) {
  memset(node, 0, sizeof *node);
  struct node_header header;
  if (at.len < sizeof header || at.len > UINT32_MAX) return false;
  node->bytes = must_alloc(at.len);
  if (!store_try_read(store, at, node->bytes, at.len)) {
    node_free(node);
    return false;
  }
  memcpy(&header, node->bytes, sizeof header);
  const uint64_t expected = sizeof header + (uint64_t)header.canonical_len + (uint64_t)header.count * sizeof(struct location);
  uint8_t found[HASH_LEN];
  if (header.magic == NODE_MAGIC && expected == at.len) {
    blake3_hash(node->bytes + sizeof header, header.canonical_len, found);
    /* A hostile workspace can hold any bytes with a correct hash, so the structure is checked as well. */
    if (memcmp(found, hash, HASH_LEN) == 0 &&
        (top ? top_is_sound : node_is_sound)(node->bytes + sizeof header, header.canonical_len, header.count)) {
      node->count = header.count;
      node->canonical_len = header.canonical_len;
      node->flags = header.flags;
      node->canonical = node->bytes + sizeof header;
      node->locations = (const struct location *)(node->canonical + header.canonical_len);
      return true;
    }
  }
  node_free(node);
  return false;
}

struct node node_load(struct store *store, struct location at, const uint8_t hash[HASH_LEN], const char *path) {
  struct node node;
  if (!node_try_load(store, at, hash, false, &node)) die("corrupt", "the stored directory %s does not match its hash", *path ? path : ".");
  return node;
}

struct node node_load_top(struct store *store, const struct root *root) {
  struct node node;
  if (!node_try_load(store, root->location, root->hash, true, &node)) die("corrupt", "the stored root does not match its hash");
  return node;
}

void node_free(struct node *node) {
  free(node->bytes);
  memset(node, 0, sizeof *node);
}

struct location node_store(struct store *store, const struct buf *canonical, const struct location *locations, uint32_t count,
                           uint32_t flags) {
  const struct node_header header = {NODE_MAGIC, count, (uint32_t)canonical->len, flags};
  struct buf bytes = {0};
  buf_add(&bytes, &header, sizeof header);
  buf_add(&bytes, canonical->data, canonical->len);
  buf_add(&bytes, locations, count * sizeof *locations);
  struct location at = store_append(store, bytes.data, bytes.len);
  at.len = bytes.len;
  store->new_nodes++;
  free(bytes.data);
  return at;
}

void root_text(const struct root *root, char out[ROOT_TEXT]) {
  char hex[65];
  hex_of(root->hash, HASH_LEN, hex);
  snprintf(out, ROOT_TEXT, "%s:%016" PRIx64 ":%" PRIu64 ":%" PRIu64, hex, root->location.pack, root->location.offset, root->location.len);
}

bool root_parse(const char *text, struct root *out) {
  char hex[65];
  uint64_t pack, offset, len;
  if (sscanf(text, "%64[0-9a-f]:%" SCNx64 ":%" SCNu64 ":%" SCNu64, hex, &pack, &offset, &len) != 4) return false;
  out->location = (struct location){pack, offset, len};
  return hash_from_hex(hex, out->hash);
}
