#define _GNU_SOURCE
#include "history.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sha256.h"

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

/* All that a collection took, in one pass over what there is: it may be as much. */
static bool forget_snapshots(struct history *history, struct json gone) {
  struct map named = {0};
  struct json id;
  char name[ID_LEN + 1];
  while (json_next(&gone, &id)) {
    if (!json_string(id, name, sizeof name)) return false;
    const struct id_key key = key_of(name);
    *map_at(&named, key.a, key.b) = history;
  }
  size_t kept = 0;
  for (size_t i = 0; i < history->count; i++) {
    const struct id_key key = key_of(history->snapshots[i].id);
    if (!map_get(&named, key.a, key.b)) history->snapshots[kept++] = history->snapshots[i];
  }
  history->count = kept;
  free(named.slots);
  return true;
}

static struct snapshot *next_snapshot(struct history *history) {
  if (history->count % 64 == 0)
    history->snapshots = must_realloc(history->snapshots, (history->count + 64) * sizeof *history->snapshots);
  return &history->snapshots[history->count++];
}

void history_learn(struct history *history, const char id[ID_LEN + 1]) {
  struct snapshot *snapshot = next_snapshot(history);
  memset(snapshot, 0, sizeof *snapshot);
  strcpy(snapshot->id, id);
}

static bool add_snapshot(struct history *history, struct json data) {
  struct json record, saved;
  char worktree[256];
  if (!json_field(data, "snapshot", &record) || !json_field(data, "saved_root_hash", &saved)) return false;
  struct snapshot *snapshot = next_snapshot(history);
  snapshot->record = record;
  if (!json_field_string(record, "snapshot_id", snapshot->id, sizeof snapshot->id)) return false;
  if (!json_field_string(record, "worktree_name", worktree, sizeof worktree)) return false;
  if (strcmp(worktree, history->worktree) != 0) return true;
  strcpy(history->head, snapshot->id);
  return json_is(saved, "null") || json_string(saved, history->saved_hash, sizeof history->saved_hash);
}

/* A string, or null, which is empty here. */
static bool maybe_string(struct json object, const char *key, char *out, size_t size) {
  struct json value;
  *out = 0;
  return json_field(object, key, &value) && (json_is(value, "null") || json_string(value, out, size));
}

static bool concerns(const struct history *history, struct json data, const char *key) {
  char name[256];
  return !json_field_string(data, key, name, sizeof name) || strcmp(name, history->worktree) == 0;
}

static bool add_line(struct history *history, struct json line) {
  char type[32];
  struct json data;
  if (!json_field_string(line, "type", type, sizeof type) || !json_field(line, "data", &data) || *data.at != '{') return false;
  if (!json_field_number(line, "seq", &history->seq)) return false;
  if (!json_field_string(line, "hash", history->last_hash, sizeof history->last_hash)) return false;
  if (strcmp(type, "snapshot") == 0) return add_snapshot(history, data);
  if (strcmp(type, "restore") == 0)
    return !concerns(history, data, "worktree") ||
           (json_field_string(data, "snapshot_id", history->head, sizeof history->head) &&
            json_field_string(data, "root_hash", history->saved_hash, sizeof history->saved_hash));
  if (strcmp(type, "worktree_create") == 0) {
    if (!concerns(history, data, "name")) return true;
    history->has_worktree = true;
    return maybe_string(data, "base", history->head, sizeof history->head) &&
           maybe_string(data, "root_hash", history->saved_hash, sizeof history->saved_hash);
  }
  if (strcmp(type, "worktree_remove") == 0) {
    if (concerns(history, data, "name")) history->has_worktree = false;
    return true;
  }
  /* Who was renamed has a past under another name. */
  if (strcmp(type, "worktree_rename") == 0) return !concerns(history, data, "from") && !concerns(history, data, "to");
  if (strcmp(type, "gc_mark") == 0) {
    struct json gone;
    history->collecting = true;
    return json_field(data, "snapshots", &gone) && forget_snapshots(history, gone);
  }
  if (strcmp(type, "gc_done") == 0) history->collecting = false;
  else return strcmp(type, "init") == 0 || strcmp(type, "repair") == 0 || strcmp(type, "pin") == 0 || strcmp(type, "unpin") == 0;
  return true;
}

/* A whole file, with room for nothing more; NULL when it cannot be read. */
static char *read_whole(int fd, size_t *len) {
  struct stat stat;
  if (fstat(fd, &stat) != 0) return NULL;
  char *text = must_alloc((size_t)stat.st_size);
  for (*len = 0; *len < (size_t)stat.st_size;) {
    const ssize_t got = pread(fd, text + *len, (size_t)stat.st_size - *len, (off_t)*len);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    *len += (size_t)got;
  }
  return text;
}

/* Reads all anew: a line that others have added meanwhile is as good as those before it. */
static bool read_lines(struct history *history) {
  history->count = 0;
  history->has_worktree = history->collecting = false;
  size_t len;
  history->text = read_whole(history->fd, &len);
  if (!history->text) return false;
  /* After the last newline stands nothing, or a line whose writer died: that one did not happen. */
  while (len && history->text[len - 1] != '\n') len--;
  history->len = len;
  for (const char *at = history->text, *end = at + len; at < end;) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    struct json line;
    if (!json_parse(at, (size_t)(stop - at), &line) || *line.at != '{' || !add_line(history, line)) return false;
    at = stop + 1;
  }
  return history->seq > 0;
}

/* From /etc/passwd alone: other sources of names need libraries that a static program cannot load. */
static bool user_name(char out[64]) {
  FILE *file = fopen("/etc/passwd", "re");
  if (!file) return false;
  const struct passwd *entry;
  while ((entry = fgetpwent(file)) && entry->pw_uid != geteuid());
  const bool plain = entry && strlen(entry->pw_name) < 64 && strspn(entry->pw_name, "abcdefghijklmnopqrstuvwxyz0123456789_.-") == strlen(entry->pw_name);
  if (plain) strcpy(out, entry->pw_name);
  fclose(file);
  return plain;
}

bool history_open(struct history *history, const char *path, const char *worktree) {
  memset(history, 0, sizeof *history);
  history->path = path;
  history->worktree = worktree;
  history->fd = open(path, O_RDWR | O_CLOEXEC);
  return history->fd >= 0 && user_name(history->user) && read_lines(history) && history->has_worktree && !history->collecting;
}

const struct snapshot *history_find(const struct history *history, const char *id) {
  for (size_t i = history->count; i-- > 0;)
    if (strcmp(history->snapshots[i].id, id) == 0) return &history->snapshots[i];
  return NULL;
}

const struct snapshot *history_tagged(const struct history *history, const char *tag) {
  for (size_t i = history->count; i-- > 0;) {
    struct json tags, one;
    char text[600];
    if (!json_field(history->snapshots[i].record, "tags", &tags)) continue;
    while (json_next(&tags, &one))
      if (json_string(one, text, sizeof text) && strcmp(text, tag) == 0) return &history->snapshots[i];
  }
  return NULL;
}

void history_new_id(const struct history *history, char out[ID_LEN + 1]) {
  for (;;) {
    uint8_t bytes[ID_LEN];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) die_errno("ask for", "random bytes");
    for (int i = 0; i < ID_LEN; i++) out[i] = "0123456789abcdefghjkmnpqrstvwxyz"[bytes[i] % 32];
    out[ID_LEN] = 0;
    if (strspn(out, "0123456789") >= 8) continue;
    bool taken = false;
    for (size_t i = 0; i < history->count && !taken; i++) taken = memcmp(history->snapshots[i].id, out, 8) == 0;
    if (!taken) return;
  }
}

void now_text(char out[32]) {
  struct timespec now;
  struct tm day;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &day);
  const size_t len = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &day);
  snprintf(out + len, 32 - len, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

void history_append(struct history *history, const char *type, const struct buf *data, bool durable) {
  char at[32], hash[65];
  struct stat stat;
  if (fstat(history->fd, &stat) != 0) die_errno("stat", history->path);
  if ((size_t)stat.st_size != history->len) {
    free(history->text);
    if (!read_lines(history)) die("corrupt", "the log cannot be read");
    if ((size_t)stat.st_size > history->len && ftruncate(history->fd, (off_t)history->len) != 0) die_errno("write", history->path);
  }
  now_text(at);
  struct buf line = {0};
  uint8_t digest[32];
  buf_text(&line, "[%" PRIu64 ",\"%s\",\"%s\",\"%s\",%.*s,\"%s\"]", history->seq + 1, at, history->user, type, (int)data->len,
           (const char *)data->data, history->last_hash);
  sha256(line.data, line.len, digest);
  hex_of(digest, sizeof digest, hash);
  line.len = 0;
  buf_text(&line, "{\"seq\":%" PRIu64 ",\"at\":\"%s\",\"by\":\"%s\",\"type\":\"%s\",\"data\":%.*s,\"prev\":\"%s\",\"hash\":\"%s\"}\n",
           history->seq + 1, at, history->user, type, (int)data->len, (const char *)data->data, history->last_hash, hash);
  if (pwrite(history->fd, line.data, line.len, (off_t)history->len) != (ssize_t)line.len) die_errno("write", history->path);
  if (durable && fsync(history->fd) != 0) die_errno("sync", history->path);
  history->seq++;
  history->len += line.len;
  strcpy(history->last_hash, hash);
  free(line.data);
}
