#include "verify.h"

#include <stdlib.h>
#include <string.h>

#include "jobs.h"
#include "progress.h"

struct check {
  struct record record;
  struct location location;
  char *path;
  const char *problem;
};

struct round {
  struct store *store;
  struct verify_result *result;
  bool contents;
  struct check *checks;
  size_t count;
};

/* Places that were found to be good. A directory can be good without its contents having been read. */
static struct map good, good_without_contents;
static char yes;

static void *known_good(const struct map *good, const struct record *record, struct location at) {
  uint64_t a = at.pack, b = at.offset;
  if (at.pack == IN_BLOB) {
    memcpy(&a, record->hash, 8);
    memcpy(&b, record->hash + 8, 8);
  }
  return map_get(good, a, b);
}

static void mark_good(struct map *good, const struct record *record, struct location at) {
  uint64_t a = at.pack, b = at.offset;
  if (at.pack == IN_BLOB) {
    memcpy(&a, record->hash, 8);
    memcpy(&b, record->hash + 8, 8);
  }
  *map_at(good, a, b) = &yes;
}

static void report(struct verify_result *result, const char *path, const char *problem) {
  if (result->problems.len) buf_text(&result->problems, ",");
  buf_text(&result->problems, "{\"path\":");
  buf_json(&result->problems, path, strlen(path));
  buf_text(&result->problems, ",\"problem\":\"%s\"}", problem);
}

static void check_one(void *context, size_t at, struct content_memory *memory) {
  struct round *round = context;
  struct check *check = &round->checks[at];
  progress_add(1, 0);
  check->problem = content_check(round->store, &check->record, check->location, memory);
}

static bool verify_node(struct store *store, struct verify_result *result, bool contents, const struct record *record, struct location at,
                        const char *path, bool top) {
  struct map *known = contents ? &good : &good_without_contents;
  if (known_good(known, record, at)) return true;
  struct node node;
  if (!node_try_load(store, at, record->hash, top, &node)) {
    report(result, *path ? path : ".", "the stored directory is missing or does not match its hash");
    return false;
  }
  result->nodes++;
  struct round round = {.store = store, .result = result, .contents = contents};
  uint64_t bytes = 0;
  bool sound = true;
  struct cursor cursor;
  for (cursor_start(&cursor, node.canonical, node.canonical_len); cursor.valid; cursor_next(&cursor)) {
    const struct entry *entry = &cursor.entry;
    struct buf child = {0};
    if (top) buf_text(&child, "%s", path);
    else buf_text(&child, "%s%s%.*s", path, *path ? "/" : "", (int)entry->record->name_len, entry->name);
    *buf_room(&child, 1) = 0;
    if (entry->record->type == 'd') {
      if (!verify_node(store, result, contents, entry->record, node.locations[cursor.index], (char *)child.data, false)) sound = false;
    } else if (entry->record->type == 'f' && contents && entry->record->size &&
               !known_good(&good, entry->record, node.locations[cursor.index])) {
      round.checks = must_realloc(round.checks, (round.count + 1) * sizeof *round.checks);
      round.checks[round.count++] = (struct check){*entry->record, node.locations[cursor.index], (char *)child.data, NULL};
      bytes += entry->record->size;
      child.data = NULL;
    }
    free(child.data);
  }
  jobs_run(check_one, &round, round.count, bytes > 128 * 1024);
  result->contents += round.count;
  for (size_t i = 0; i < round.count; i++) {
    if (round.checks[i].problem) {
      report(result, round.checks[i].path, round.checks[i].problem);
      sound = false;
    } else mark_good(&good, &round.checks[i].record, round.checks[i].location);
    free(round.checks[i].path);
  }
  free(round.checks);
  node_free(&node);
  if (sound) mark_good(known, record, at);
  return sound;
}

void verify(struct store *store, const struct root *root, bool contents, struct verify_result *result) {
  memset(result, 0, sizeof *result);
  struct record record = {.type = 'd'};
  memcpy(record.hash, root->hash, HASH_LEN);
  verify_node(store, result, contents, &record, root->location, "", true);
  progress_clear();
}
