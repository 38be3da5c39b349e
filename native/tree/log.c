#define _GNU_SOURCE
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sha256.h"

#define FIRST_HASH "0000000000000000000000000000000000000000000000000000000000000000"

/* An id as the key of a map, which it just fills. */
struct id_key {
  uint64_t a, b;
};
_Static_assert(sizeof(struct id_key) == ID_LEN, "an id is a key");

static struct id_key key_of(const char *id) {
  struct id_key key = {0};
  memcpy(&key, id, strnlen(id, ID_LEN));
  return key;
}

/* Room for one more at the end of an array. */
static void *one_more(void *array, size_t count, size_t size) { return count % 64 ? array : must_realloc(array, (count + 64) * size); }

static char *keep_text(struct log *log, char *text) {
  buf_add(&log->texts, &text, sizeof text);
  return text;
}

static bool json_equal(struct json a, struct json b) {
  return a.end - a.at == b.end - b.at && memcmp(a.at, b.at, (size_t)(a.end - a.at)) == 0;
}

/* Whether a JSON string says this. */
static bool says(struct json value, const char *text) {
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
  return json_string(field[ID], out->id, sizeof out->id) && strlen(out->id) == ID_LEN && or_null(field[PARENT], is_string) &&
         is_string(field[WORKTREE]) && is_string(field[AT]) && is_string(field[NOTE]) && is_strings(field[TAGS]) &&
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

/* The oldest goes where there are too many. */
static void add_step(struct steps *steps, const struct worktree *worktree) {
  if (steps->count == STEPS_MAX) memmove(steps->at, steps->at + 1, --steps->count * sizeof *steps->at);
  struct step *step = &steps->at[steps->count++];
  strcpy(step->id, worktree->head);
  strcpy(step->hash, worktree->saved_hash);
}

/* An undo goes one step back, and can be taken back itself; any other restore is a step of its own, with nothing after it. */
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
  return !worktree || (json_field_string(data, "snapshot_id", worktree->head, sizeof worktree->head) &&
                       json_field_string(data, "root_hash", worktree->saved_hash, sizeof worktree->saved_hash));
}

static bool add_worktree(struct log *log, struct json line, struct json data) {
  struct worktree worktree = {0};
  if (!json_field(data, "name", &worktree.name) || !is_string(worktree.name)) return false;
  if (!json_field(line, "at", &worktree.created_at) || !is_string(worktree.created_at)) return false;
  if (!maybe_string(data, "base", worktree.base, sizeof worktree.base)) return false;
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
  if (!json_field(data, "from", &from) || !json_field(data, "to", &to) || !is_string(from) || !is_string(to)) return false;
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

/* All that a collection took, in one pass over what there is: it may be as much. */
static bool begin_collection(struct log *log, struct json data) {
  struct json gone, id, pid, plan;
  if (!json_field(data, "snapshots", &gone) || !is_strings(gone)) return false;
  if (!json_field(data, "plan_id", &plan) || !is_string(plan) || !json_field(data, "pid", &pid) || !is_number(pid)) return false;
  struct map named = {0};
  char name[ID_LEN + 1];
  bool good = true;
  while (good && json_next(&gone, &id)) {
    good = json_string(id, name, sizeof name);
    const struct id_key key = key_of(name);
    if (good) *map_at(&named, key.a, key.b) = *map_at(&log->collected, key.a, key.b) = log;
  }
  size_t kept = 0;
  for (size_t i = 0; i < log->snapshot_count; i++) {
    const struct id_key key = key_of(log->snapshots[i].id);
    if (!map_get(&named, key.a, key.b)) log->snapshots[kept++] = log->snapshots[i];
  }
  log->snapshot_count = kept;
  log->collection = data;
  free(named.slots);
  return good;
}

static bool add_line(struct log *log, struct json line) {
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

char *read_whole(int fd, size_t *len) {
  struct stat stat;
  if (fstat(fd, &stat) != 0) return NULL;
  char *text = must_alloc((size_t)stat.st_size + 1);
  for (*len = 0; *len < (size_t)stat.st_size;) {
    const ssize_t got = pread(fd, text + *len, (size_t)stat.st_size - *len, (off_t)*len);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    *len += (size_t)got;
  }
  text[*len] = 0;
  return text;
}

static void forget_all(struct log *log) {
  char **texts = (char **)log->texts.data;
  for (size_t i = 0; i < log->texts.len / sizeof *texts; i++) free(texts[i]);
  free(log->texts.data);
  free(log->snapshots);
  free(log->worktrees);
  free(log->pins);
  free(log->collected.slots);
  *log = (struct log){.path = log->path, .fd = log->fd};
}

static bool read_lines(struct log *log) {
  forget_all(log);
  strcpy(log->last_hash, FIRST_HASH);
  size_t len, number = 0;
  char *text = read_whole(log->fd, &len);
  if (!text) die_errno("read", log->path);
  keep_text(log, text);
  /* After the last newline stands nothing, or a line whose writer died: that one did not happen. */
  while (len && text[len - 1] != '\n') len--;
  for (const char *at = text, *end = text + len; at < end;) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    struct json line;
    number++;
    if (!json_parse(at, (size_t)(stop - at), &line) || !add_line(log, line)) {
      snprintf(log->problem, sizeof log->problem, "line %zu of the workspace's log cannot be read", number);
      return false;
    }
    at = stop + 1;
  }
  log->len = len;
  return true;
}

bool log_open(struct log *log, const char *path) {
  memset(log, 0, sizeof *log);
  log->path = must_strdup(path);
  log->fd = open(path, O_RDWR | O_CLOEXEC);
  if (log->fd < 0 && errno == ENOENT) {
    snprintf(log->problem, sizeof log->problem, "the workspace's log is missing");
    return false;
  }
  if (log->fd < 0) die_errno("open", path);
  return read_lines(log);
}

/* Whether the file that is open is still the log: one that was rebuilt is another file. */
static bool is_current(const struct log *log) {
  struct stat opened, named;
  return log->fd >= 0 && fstat(log->fd, &opened) == 0 && stat(log->path, &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

bool log_refresh(struct log *log) {
  struct stat stat;
  if (!is_current(log)) {
    char *path = must_strdup(log->path);
    log_close(log);
    const bool good = log_open(log, path);
    free(path);
    return good;
  }
  if (fstat(log->fd, &stat) != 0) die_errno("stat", log->path);
  return ((size_t)stat.st_size == log->len && !*log->problem) || read_lines(log);
}

void log_close(struct log *log) {
  forget_all(log);
  if (log->fd >= 0) close(log->fd);
  free(log->path);
  memset(log, 0, sizeof *log);
}

const struct snapshot *log_find(const struct log *log, const char *id) {
  for (size_t i = log->snapshot_count; i-- > 0;)
    if (strcmp(log->snapshots[i].id, id) == 0) return &log->snapshots[i];
  return NULL;
}

bool log_collected(const struct log *log, const char *id) {
  const struct id_key key = key_of(id);
  return map_get(&log->collected, key.a, key.b);
}

const struct snapshot *log_find_tagged(const struct log *log, const char *tag) {
  for (size_t i = log->snapshot_count; i-- > 0;) {
    struct json tags = log->snapshots[i].tags, one;
    while (json_next(&tags, &one))
      if (says(one, tag)) return &log->snapshots[i];
  }
  return NULL;
}

const struct worktree *log_find_worktree(const struct log *log, const char *name) {
  for (size_t i = 0; i < log->worktree_count; i++)
    if (says(log->worktrees[i].name, name)) return &log->worktrees[i];
  return NULL;
}

void log_new_id(const struct log *log, char out[ID_LEN + 1]) {
  for (;;) {
    uint8_t bytes[ID_LEN];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) die_errno("ask for", "random bytes");
    for (int i = 0; i < ID_LEN; i++) out[i] = "0123456789abcdefghjkmnpqrstvwxyz"[bytes[i] % 32];
    out[ID_LEN] = 0;
    /* Eight digits could be taken for a number; one letter at least makes it an id to the eye. */
    if (strspn(out, "0123456789") >= 8) continue;
    bool taken = false;
    for (size_t i = 0; i < log->snapshot_count && !taken; i++) taken = memcmp(log->snapshots[i].id, out, 8) == 0;
    if (!taken) return;
  }
}

int64_t now_text(char out[32]) {
  struct timespec now;
  struct tm day;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &day);
  const size_t len = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &day);
  snprintf(out + len, 32 - len, ".%03dZ", (int)(now.tv_nsec / 1000000));
  return now.tv_sec;
}

/* Where it fails, no part of the line stays: what it says did not happen. */
static void write_at_end(struct log *log, const struct buf *line, bool durable) {
  bool failed = false;
  for (size_t done = 0; done < line->len && !failed;) {
    const ssize_t wrote = pwrite(log->fd, line->data + done, line->len - done, (off_t)(log->len + done));
    if (wrote > 0) done += (size_t)wrote;
    else failed = errno != EINTR;
  }
  if (!failed && durable) failed = fsync(log->fd) != 0;
  if (!failed) return;
  const int error = errno;
  if (ftruncate(log->fd, (off_t)log->len) != 0) die_errno("take back a line of", log->path);
  errno = error;
  die_errno("write", log->path);
}

static struct json json_of(const struct buf *text) { return (struct json){(char *)text->data, (char *)text->data + text->len}; }

static void append_line(struct log *log, struct json at, struct json by, const char *type, struct json data, bool durable) {
  char hash[65];
  uint8_t digest[32];
  struct buf line = {0};
  const int at_len = (int)(at.end - at.at), by_len = (int)(by.end - by.at), data_len = (int)(data.end - data.at);
  buf_text(&line, "[%" PRIu64 ",%.*s,%.*s,\"%s\",%.*s,\"%s\"]", log->seq + 1, at_len, at.at, by_len, by.at, type, data_len, data.at,
           log->last_hash);
  sha256(line.data, line.len, digest);
  hex_of(digest, sizeof digest, hash);
  line.len = 0;
  buf_text(&line, "{\"seq\":%" PRIu64 ",\"at\":%.*s,\"by\":%.*s,\"type\":\"%s\",\"data\":%.*s,\"prev\":\"%s\",\"hash\":\"%s\"}\n",
           log->seq + 1, at_len, at.at, by_len, by.at, type, data_len, data.at, log->last_hash, hash);
  struct json parsed;
  struct log alone = {.fd = -1};
  if (!json_parse((char *)line.data, line.len, &parsed) || !add_line(&alone, parsed))
    die("internal", "this is not a line for the log: %.*s", (int)line.len, (char *)line.data);
  forget_all(&alone);
  write_at_end(log, &line, durable);
  log->len += line.len;
  keep_text(log, (char *)line.data);
  add_line(log, parsed);
}

void log_append(struct log *log, const char *by, const char *type, const struct buf *data, bool durable) {
  char now[32];
  struct stat stat;
  if (!log_refresh(log)) die("corrupt", "%s", log->problem);
  if (fstat(log->fd, &stat) != 0) die_errno("stat", log->path);
  if ((size_t)stat.st_size > log->len && ftruncate(log->fd, (off_t)log->len) != 0) die_errno("write", log->path);
  now_text(now);
  struct buf at = {0}, name = {0};
  buf_json(&at, now, strlen(now));
  buf_json(&name, by, strlen(by));
  append_line(log, json_of(&at), json_of(&name), type, json_of(data), durable);
  free(at.data);
  free(name.data);
}

void log_add(struct log *log, struct json at, struct json by, const char *type, struct json data) {
  append_line(log, at, by, type, data, false);
}

static void add_json(struct buf *out, const char *key, struct json value) {
  buf_text(out, "\"%s\":%.*s", key, (int)(value.end - value.at), value.at);
}

static void add_maybe(struct buf *out, const char *key, const char *text) {
  buf_text(out, *text ? ",\"%s\":\"%s\"" : ",\"%s\":null", key, text);
}

/* The one that comes next; null where there is none. */
static void add_steps(struct buf *out, const char *key, const struct steps *steps) {
  const struct step *step = steps->count ? &steps->at[steps->count - 1] : NULL;
  buf_text(out, ",\"%s\":", key);
  if (step) buf_text(out, "{\"snapshot_id\":\"%s\",\"root_hash\":\"%s\"}", step->id, step->hash);
  else buf_text(out, "null");
}

void log_state(const struct log *log, struct buf *out) {
  buf_text(out, "\"snapshots\":[");
  for (size_t i = 0; i < log->snapshot_count; i++) {
    const struct snapshot *snapshot = &log->snapshots[i];
    buf_text(out, i ? ",{" : "{");
    add_json(out, "record", snapshot->record);
    buf_text(out, ",");
    add_json(out, "worktree_name", snapshot->worktree);
    buf_text(out, ",");
    add_json(out, "tags", snapshot->tags);
    buf_text(out, "}");
  }
  buf_text(out, "],\"worktrees\":[");
  for (size_t i = 0; i < log->worktree_count; i++) {
    const struct worktree *worktree = &log->worktrees[i];
    buf_text(out, i ? ",{" : "{");
    add_json(out, "name", worktree->name);
    buf_text(out, ",");
    add_json(out, "created_at", worktree->created_at);
    add_maybe(out, "base_snapshot_id", worktree->base);
    add_maybe(out, "head_snapshot_id", worktree->head);
    add_maybe(out, "latest_snapshot_id", worktree->latest);
    add_maybe(out, "saved_root_hash", worktree->saved_hash);
    add_steps(out, "undo", &worktree->undo);
    add_steps(out, "redo", &worktree->redo);
    buf_text(out, "}");
  }
  buf_text(out, "],\"pins\":{");
  for (size_t i = 0; i < log->pin_count; i++) {
    buf_text(out, i ? "," : "");
    add_json(out, log->pins[i].id, log->pins[i].reason);
  }
  buf_text(out, "},\"collection\":");
  struct json plan, pid;
  if (log->collection.at && json_field(log->collection, "plan_id", &plan) && json_field(log->collection, "pid", &pid)) {
    buf_text(out, "{");
    add_json(out, "planId", plan);
    buf_text(out, ",");
    add_json(out, "pid", pid);
    buf_text(out, "}");
  } else buf_text(out, "null");
}

/* Of the last line: its writer died, and it did not happen. */
static const char cut_short[] = "is cut short";

static void report(struct buf *problems, size_t line, const char *problem, const char *snapshot) {
  buf_text(problems, "%s{\"line\":%zu,\"problem\":\"%s\",\"snapshot\":", problems->len ? "," : "", line, problem);
  buf_text(problems, *snapshot ? "\"%s\"" : "null", snapshot);
  buf_text(problems, ",\"torn\":%s}", problem == cut_short ? "true" : "false");
}

/* What the hash of a line covers, as it was put together when the line was written. */
static bool hash_of_line(struct json line, char out[65]) {
  static const char *const covered[] = {"seq", "at", "by", "type", "data", "prev"};
  struct buf text = {0};
  uint8_t digest[32];
  bool whole = true;
  for (size_t i = 0; i < sizeof covered / sizeof *covered && whole; i++) {
    struct json value;
    whole = json_field(line, covered[i], &value);
    if (whole) buf_text(&text, "%c%.*s", i ? ',' : '[', (int)(value.end - value.at), value.at);
  }
  buf_text(&text, "]");
  sha256(text.data, text.len, digest);
  hex_of(digest, sizeof digest, out);
  free(text.data);
  return whole;
}

static bool read_line(struct json line, struct log_line *out) {
  struct json record;
  struct snapshot snapshot = {0};
  char found[65];
  if (!json_field_number(line, "seq", &out->seq) || !json_field(line, "at", &out->at) || !is_string(out->at) ||
      !json_field(line, "by", &out->by) || !is_string(out->by) || !json_field_string(line, "type", out->type, sizeof out->type) ||
      !json_field(line, "data", &out->data) || !json_field_string(line, "prev", out->prev, sizeof out->prev) ||
      !json_field_string(line, "hash", out->hash, sizeof out->hash) || !hash_of_line(line, found))
    return false;
  struct log alone = {.fd = -1};
  const bool adds_up = add_line(&alone, line);
  forget_all(&alone);
  if (!adds_up) return false;
  out->is_whole = strcmp(found, out->hash) == 0;
  if (strcmp(out->type, "snapshot") == 0 && json_field(out->data, "snapshot", &record) && is_record(record, &snapshot))
    strcpy(out->snapshot, snapshot.id);
  return true;
}

bool log_next_line(const char **at, const char *end, struct log_line *out) {
  const char *stop = *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL;
  if (!stop) return false;
  memset(out, 0, sizeof *out);
  struct json line;
  out->parses = json_parse(*at, (size_t)(stop - *at), &line) && read_line(line, out);
  *at = stop + 1;
  return true;
}

void log_check(const char *path, struct buf *problems) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) {
    report(problems, 0, "is missing", "");
    return;
  }
  if (fd < 0) die_errno("open", path);
  size_t len, number = 0;
  char *text = read_whole(fd, &len), before[65] = FIRST_HASH;
  close(fd);
  if (!text) die_errno("read", path);
  const char *at = text;
  for (struct log_line line; log_next_line(&at, text + len, &line); strcpy(before, line.hash)) {
    number++;
    if (!line.parses) report(problems, number, "cannot be read", "");
    else {
      if (strcmp(line.prev, before) != 0) report(problems, number, "does not follow the line before it", line.snapshot);
      if (line.seq != number) report(problems, number, "has the wrong number", line.snapshot);
      if (!line.is_whole) report(problems, number, "does not match its hash: it was edited", line.snapshot);
    }
  }
  if (!number) report(problems, 0, "is empty", "");
  if (at < text + len) report(problems, number + 1, cut_short, "");
  free(text);
}
