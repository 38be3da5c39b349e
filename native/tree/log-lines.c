#include "log-lines.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct id_key) == ID_LEN, "an id is a key");

struct id_key id_key(const char *id) {
  struct id_key key = {0};
  memcpy(&key, id, strnlen(id, ID_LEN));
  return key;
}

/* Room for one more at the end of an array. */
static void *one_more(void *array, size_t count, size_t size) { return count % 64 ? array : must_realloc(array, (count + 64) * size); }

char *keep_text(struct log *log, char *text) {
  buf_add(&log->texts, &text, sizeof text);
  return text;
}

static bool json_equal(struct json a, struct json b) {
  return a.end - a.at == b.end - b.at && memcmp(a.at, b.at, (size_t)(a.end - a.at)) == 0;
}

bool says(struct json value, const char *text) {
  const size_t len = strlen(text);
  if ((size_t)(value.end - value.at) == len + 2 && memcmp(value.at + 1, text, len) == 0 && !memchr(text, '\\', len)) return true;
  if (!memchr(value.at, '\\', (size_t)(value.end - value.at))) return false;
  char *meant = json_text(value);
  const bool same = meant && strcmp(meant, text) == 0;
  free(meant);
  return same;
}

static bool is_string(struct json value) { return *value.at == '"'; }
static bool is_number(struct json value) { return *value.at >= '0' && *value.at <= '9'; }
static bool is_bool(struct json value) { return json_is(value, "true") || json_is(value, "false"); }

static bool is_letter(char sign) { return (sign >= 'a' && sign <= 'z') || (sign >= '0' && sign <= '9'); }

/* Ids and names become parts of paths. A log can come from a stranger, whose hashes are correct too. */
static bool is_id(const char *id) {
  size_t len = 0;
  while (is_letter(id[len])) len++;
  return len == ID_LEN && !id[len];
}

/* As isName() in names.ts. */
static bool is_name(struct json value) {
  const char *at = value.at + 1, *end = value.end - 1;
  if (!is_string(value) || at >= end || end - at > 128 || *at == '.' || *at == '-') return false;
  for (; at < end; at++)
    if (!is_letter(*at) && !(*at >= 'A' && *at <= 'Z') && !strchr("_.-", *at)) return false;
    else if (*at == '.' && at[1] == '.') return false;
  return true;
}

static bool is_strings(struct json value) {
  struct json one;
  if (*value.at != '[') return false;
  while (json_next(&value, &one))
    if (!is_string(one)) return false;
  return true;
}

/* A string, or null, which is empty here. */
static bool maybe_string(struct json object, const char *key, char *out, size_t size) {
  struct json value;
  *out = 0;
  return json_field(object, key, &value) && (json_is(value, "null") || json_string(value, out, size));
}

static struct worktree *worktree_called(const struct log *log, struct json name) {
  for (size_t i = log->worktree_count; i-- > 0;)
    if (json_equal(log->worktrees[i].name, name)) return &log->worktrees[i];
  return NULL;
}

static bool or_null(struct json value, bool (*kind)(struct json)) { return kind(value) || json_is(value, "null"); }

bool is_record(struct json record, struct snapshot *out) {
  enum { ID, PARENT, WORKTREE, AT, NOTE, TAGS, ENGINE, REQUESTED, STORAGE, HASH, ROOT, PATHS, AUTOMATIC, FILES, BYTES, NEW_BYTES, FIELDS };
  static const char *const keys[FIELDS] = {
      "snapshot_id", "parent_id",         "worktree_name", "created_at",    "note",      "tags",  "engine", "requested_engine",
      "storage",     "payload_root_hash", "root",          "partial_paths", "automatic", "files", "bytes",  "new_bytes"};
  struct json field[FIELDS];
  if (!json_fields(record, keys, field, FIELDS)) return false;
  out->worktree = field[WORKTREE];
  out->tags = field[TAGS];
  char root[ROOT_TEXT], hash[65];
  struct root parsed;
  return json_string(field[ID], out->id, sizeof out->id) && is_id(out->id) && or_null(field[PARENT], is_string) &&
         is_name(field[WORKTREE]) && is_string(field[AT]) && is_string(field[NOTE]) && is_strings(field[TAGS]) &&
         is_string(field[ENGINE]) && or_null(field[REQUESTED], is_string) &&
         (json_is(field[STORAGE], "\"objects\"") || json_is(field[STORAGE], "\"tree\"")) && json_string(field[HASH], hash, sizeof hash) &&
         strlen(hash) == 64 && json_string(field[ROOT], root, sizeof root) && root_parse(root, &parsed) &&
         or_null(field[PATHS], is_strings) && is_bool(field[AUTOMATIC]) && is_number(field[FILES]) && is_number(field[BYTES]) &&
         is_number(field[NEW_BYTES]);
}

static bool add_snapshot(struct log *log, struct json data) {
  static const char *const keys[] = {"snapshot", "saved_root_hash"};
  struct json field[2];
  struct snapshot snapshot;
  if (!json_fields(data, keys, field, 2) || !is_record(field[0], &snapshot)) return false;
  snapshot.record = field[0];
  const struct json saved = field[1];
  log->snapshots = one_more(log->snapshots, log->snapshot_count, sizeof snapshot);
  log->snapshots[log->snapshot_count++] = snapshot;
  struct worktree *worktree = worktree_called(log, snapshot.worktree);
  if (!worktree) return true;
  strcpy(worktree->head, snapshot.id);
  strcpy(worktree->latest, snapshot.id);
  return json_is(saved, "null") || json_string(saved, worktree->saved_hash, sizeof worktree->saved_hash);
}

/* Drops the oldest step when there are too many. */
static void add_step(struct steps *steps, const struct worktree *worktree) {
  if (steps->count == STEPS_MAX) memmove(steps->at, steps->at + 1, --steps->count * sizeof *steps->at);
  struct step *step = &steps->at[steps->count++];
  strcpy(step->id, worktree->head);
  strcpy(step->hash, worktree->saved_hash);
}

/* An undo goes one step back and can be redone. Any other restore adds a step, and nothing can be redone after it. */
static void note_step(struct worktree *worktree, struct json data) {
  struct json step = {0};
  const bool named = json_field(data, "step", &step);
  const bool undoes = named && json_is(step, "\"undo\""), redoes = named && json_is(step, "\"redo\"");
  if (undoes && worktree->undo.count) worktree->undo.count--;
  if (redoes && worktree->redo.count) worktree->redo.count--;
  if (!undoes && !redoes) worktree->redo.count = 0;
  add_step(undoes ? &worktree->redo : &worktree->undo, worktree);
}

static bool add_restore(struct log *log, struct json data) {
  struct json name;
  if (!json_field(data, "worktree", &name) || !is_string(name)) return false;
  struct worktree *worktree = worktree_called(log, name);
  if (worktree) note_step(worktree, data);
  return !worktree || (json_field_string(data, "snapshot_id", worktree->head, sizeof worktree->head) && is_id(worktree->head) &&
                       json_field_string(data, "root_hash", worktree->saved_hash, sizeof worktree->saved_hash));
}

static bool add_worktree(struct log *log, struct json line, struct json data) {
  struct worktree worktree = {0};
  if (!json_field(data, "name", &worktree.name) || !is_name(worktree.name)) return false;
  if (!json_field(line, "at", &worktree.created_at) || !is_string(worktree.created_at)) return false;
  if (!maybe_string(data, "base", worktree.base, sizeof worktree.base) || (*worktree.base && !is_id(worktree.base))) return false;
  if (!maybe_string(data, "root_hash", worktree.saved_hash, sizeof worktree.saved_hash)) return false;
  strcpy(worktree.head, worktree.base);
  struct worktree *same = worktree_called(log, worktree.name);
  if (!same) {
    log->worktrees = one_more(log->worktrees, log->worktree_count, sizeof worktree);
    same = &log->worktrees[log->worktree_count++];
  }
  *same = worktree;
  return true;
}

static void remove_worktree(struct log *log, struct json name) {
  struct worktree *worktree = worktree_called(log, name);
  if (!worktree) return;
  log->worktree_count--;
  memmove(worktree, worktree + 1, (size_t)(log->worktrees + log->worktree_count - worktree) * sizeof *worktree);
}

static bool rename_worktree(struct log *log, struct json data) {
  struct json from, to;
  if (!json_field(data, "from", &from) || !json_field(data, "to", &to) || !is_string(from) || !is_name(to)) return false;
  struct worktree *worktree = worktree_called(log, from);
  if (!worktree) return true;
  struct worktree renamed = *worktree;
  renamed.name = to;
  remove_worktree(log, from);
  log->worktrees[log->worktree_count++] = renamed;
  for (size_t i = 0; i < log->snapshot_count; i++)
    if (json_equal(log->snapshots[i].worktree, from)) log->snapshots[i].worktree = to;
  return true;
}

static void unpin(struct log *log, const char *id) {
  size_t kept = 0;
  for (size_t i = 0; i < log->pin_count; i++)
    if (strcmp(log->pins[i].id, id) != 0) log->pins[kept++] = log->pins[i];
  log->pin_count = kept;
}

static bool add_pin(struct log *log, struct json data) {
  struct pin pin;
  if (!json_field_string(data, "snapshot_id", pin.id, sizeof pin.id) || !json_field(data, "reason", &pin.reason) || !is_string(pin.reason))
    return false;
  unpin(log, pin.id);
  log->pins = one_more(log->pins, log->pin_count, sizeof pin);
  log->pins[log->pin_count++] = pin;
  return true;
}

/* Which tags a snapshot has from now on. */
static bool set_tags(struct log *log, struct json data) {
  char id[ID_LEN + 1];
  struct json tags;
  if (!json_field_string(data, "snapshot_id", id, sizeof id) || !json_field(data, "tags", &tags) || !is_strings(tags)) return false;
  for (size_t i = log->snapshot_count; i-- > 0;) {
    if (strcmp(log->snapshots[i].id, id) != 0) continue;
    log->snapshots[i].tags = tags;
    break;
  }
  return true;
}

/* Removes all collected snapshots in one pass, since a collection may take most of them. */
static bool begin_collection(struct log *log, struct json data) {
  struct json gone, id, pid, plan;
  if (!json_field(data, "snapshots", &gone) || !is_strings(gone)) return false;
  if (!json_field(data, "plan_id", &plan) || !is_name(plan) || !json_field(data, "pid", &pid) || !is_number(pid)) return false;
  struct map named = {0};
  char name[ID_LEN + 1];
  bool good = true;
  while (good && json_next(&gone, &id)) {
    good = json_string(id, name, sizeof name);
    const struct id_key key = id_key(name);
    if (good) *map_at(&named, key.a, key.b) = *map_at(&log->collected, key.a, key.b) = log;
  }
  size_t kept = 0;
  for (size_t i = 0; i < log->snapshot_count; i++) {
    const struct id_key key = id_key(log->snapshots[i].id);
    if (!map_get(&named, key.a, key.b)) log->snapshots[kept++] = log->snapshots[i];
  }
  log->snapshot_count = kept;
  log->collection = data;
  free(named.slots);
  return good;
}

bool add_line(struct log *log, struct json line) {
  static const char *const keys[] = {"seq", "type", "data", "hash"};
  char type[32];
  struct json field[4], name;
  if (!json_fields(line, keys, field, 4)) return false;
  const struct json data = field[2];
  if (!is_number(field[0]) || !json_string(field[1], type, sizeof type) || *data.at != '{') return false;
  if (!json_string(field[3], log->last_hash, sizeof log->last_hash) || strlen(log->last_hash) != 64) return false;
  log->seq = strtoull(field[0].at, NULL, 10);
  if (strcmp(type, "snapshot") == 0) return add_snapshot(log, data);
  if (strcmp(type, "restore") == 0) return add_restore(log, data);
  if (strcmp(type, "worktree_create") == 0) return add_worktree(log, line, data);
  if (strcmp(type, "worktree_rename") == 0) return rename_worktree(log, data);
  if (strcmp(type, "worktree_remove") == 0) {
    if (!json_field(data, "name", &name) || !is_string(name)) return false;
    remove_worktree(log, name);
    return true;
  }
  if (strcmp(type, "pin") == 0) return add_pin(log, data);
  if (strcmp(type, "unpin") == 0) {
    char id[ID_LEN + 1];
    if (!json_field_string(data, "snapshot_id", id, sizeof id)) return false;
    unpin(log, id);
    return true;
  }
  if (strcmp(type, "tags") == 0) return set_tags(log, data);
  if (strcmp(type, "gc_mark") == 0) return begin_collection(log, data);
  if (strcmp(type, "gc_done") == 0) {
    log->collection.at = NULL;
    return true;
  }
  return strcmp(type, "init") == 0 || strcmp(type, "repair") == 0;
}

void forget_all(struct log *log) {
  char **texts = (char **)log->texts.data;
  for (size_t i = 0; i < log->texts.len / sizeof *texts; i++) free(texts[i]);
  free(log->texts.data);
  free(log->snapshots);
  free(log->worktrees);
  free(log->pins);
  free(log->collected.slots);
  *log = (struct log){.path = log->path, .fd = log->fd};
}
