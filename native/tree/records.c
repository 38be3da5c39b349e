#define _GNU_SOURCE
#include "records.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sha256.h"

#define RECORD_MAGIC "CTrecord"
/* A note has 64 KiB at most, and six signs of JSON stand for one of its bytes at most. */
#define RECORD_MAX (1u << 20)

/* The last bytes of a pack, behind the text of the record. */
struct __attribute__((packed)) record_end {
  uint64_t pack;    /* this one: what is content elsewhere is no record there */
  uint8_t hash[32]; /* of the text and of `pack` */
  uint32_t len;
  char magic[8];
};

struct stored_record {
  uint64_t pack, offset, len; /* of the text and its end */
  char *text;                 /* owned */
  struct json data, record;   /* in it */
  struct snapshot snapshot;
};

static void hash_record(const void *text, size_t len, uint64_t pack, uint8_t out[32]) {
  struct buf covered = {0};
  buf_add(&covered, &pack, sizeof pack);
  buf_add(&covered, text, len);
  sha256(covered.data, covered.len, out);
  free(covered.data);
}

void record_append(struct store *store, const struct buf *data) {
  struct record_end end = {.pack = store->pack_id, .len = (uint32_t)data->len};
  memcpy(end.magic, RECORD_MAGIC, sizeof end.magic);
  hash_record(data->data, data->len, end.pack, end.hash);
  struct buf text = {0};
  buf_add(&text, data->data, data->len);
  buf_add(&text, &end, sizeof end);
  /* The log holds the same record, so a pack with nothing else in it need not be synced. */
  store->only_record = !store->pack_len;
  store_append(store, text.data, text.len);
  free(text.data);
}

static bool read_at(int fd, void *out, size_t len, uint64_t at) {
  uint8_t *bytes = out;
  while (len) {
    const ssize_t got = pread(fd, bytes, len, (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    at += (uint64_t)got;
    len -= (size_t)got;
  }
  return true;
}

static bool parse_record(struct stored_record *out, size_t len) {
  return json_parse(out->text, len, &out->data) && json_field(out->data, "snapshot", &out->record) &&
         is_record(out->record, &out->snapshot);
}

static bool read_record(int fd, uint64_t pack, struct stored_record *out) {
  memset(out, 0, sizeof *out);
  struct stat stat;
  struct record_end end;
  if (fstat(fd, &stat) != 0 || (uint64_t)stat.st_size < sizeof end) return false;
  const uint64_t end_at = (uint64_t)stat.st_size - sizeof end;
  if (!read_at(fd, &end, sizeof end, end_at) || memcmp(end.magic, RECORD_MAGIC, sizeof end.magic) != 0 || end.pack != pack ||
      end.len > RECORD_MAX || end.len > end_at)
    return false;
  out->pack = pack;
  out->offset = end_at - end.len;
  out->len = end.len + sizeof end;
  out->text = must_alloc(end.len + 1);
  uint8_t hash[32];
  if (read_at(fd, out->text, end.len, out->offset)) {
    hash_record(out->text, end.len, pack, hash);
    if (memcmp(hash, end.hash, sizeof hash) == 0 && parse_record(out, end.len)) return true;
  }
  free(out->text);
  return false;
}

/* Calls `use` for each record; the text is freed afterwards unless `use` takes it. */
static void each_record(const char *control, void (*use)(void *context, struct stored_record *record), void *context) {
  char path[4200];
  snprintf(path, sizeof path, "%s/packs", control);
  DIR *dir = opendir(path);
  if (!dir && errno == ENOENT) return;
  if (!dir) die_errno("list", path);
  for (struct dirent *entry; (entry = readdir(dir));) {
    char *end;
    const uint64_t pack = strtoull(entry->d_name, &end, 16);
    if (end != entry->d_name + 16 || strcmp(end, ".pack") != 0) continue;
    const int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) continue;
    if (fd < 0) die_errno("open", entry->d_name);
    struct stored_record record;
    if (read_record(fd, pack, &record)) {
      use(context, &record);
      free(record.text);
    }
    close(fd);
  }
  closedir(dir);
}

struct listing_of {
  const struct log *log;
  struct buf *out;
};

static void list_one(void *context, struct stored_record *record) {
  const struct listing_of *list = context;
  const char *id = record->snapshot.id;
  buf_text(list->out,
           "%s{\"pack\":\"%016" PRIx64 "\",\"offset\":%" PRIu64 ",\"length\":%" PRIu64 ",\"snapshot_id\":\"%s\",\"fate\":\"%s\"}",
           list->out->len ? "," : "", record->pack, record->offset, record->len, id,
           log_find(list->log, id)        ? "live"
           : log_collected(list->log, id) ? "collected"
                                          : "unknown");
}

void records_list(const char *control, const struct log *log, struct buf *out) {
  struct listing_of list = {log, out};
  each_record(control, list_one, &list);
}

/* Where what was added stands among lines of the same moment. */
enum { INIT, AFTER_INIT, FIRST_LINE };

/* A line of the new log. */
struct line {
  struct json at, by, data;
  char type[32], moment[32]; /* moment: what it is sorted by */
  size_t order;
  bool doubtful; /* a snapshot whose line was changed: it counts where no pack holds its record */
  char snapshot[ID_LEN + 1];
};

struct rebuild {
  struct line *lines;
  size_t count, cap;
  struct map named; /* snapshots with a line, or that were collected */
  struct buf texts; /* char *, to be freed */
  struct json by, earliest;
  struct rebuilt *result;
  char last[32];
};

static struct json kept_text(struct rebuild *work, const char *format, ...) __attribute__((format(printf, 2, 3)));
static struct json kept_text(struct rebuild *work, const char *format, ...) {
  char *text;
  va_list args;
  va_start(args, format);
  const int len = vasprintf(&text, format, args);
  va_end(args);
  if (len < 0) die("limit_reached", "out of memory");
  buf_add(&work->texts, &text, sizeof text);
  return (struct json){text, text + len};
}

static void **named(struct rebuild *work, const char *id) {
  uint64_t a, b;
  memcpy(&a, id, 8);
  memcpy(&b, id + 8, 8);
  return map_at(&work->named, a, b);
}

static struct line *new_line(struct rebuild *work, const char *type, struct json at, struct json by, struct json data) {
  if (work->count == work->cap) {
    work->cap = work->cap ? work->cap * 2 : 64;
    work->lines = must_realloc(work->lines, work->cap * sizeof *work->lines);
  }
  struct line *line = &work->lines[work->count];
  *line = (struct line){.at = at, .by = by, .data = data, .order = work->count++};
  strcpy(line->type, type);
  if (!json_string(at, line->moment, sizeof line->moment)) *line->moment = 0;
  return line;
}

static void note_collected(struct rebuild *work, struct json data) {
  struct json ids, id;
  char text[ID_LEN + 1];
  if (!json_field(data, "snapshots", &ids)) return;
  while (json_next(&ids, &id))
    if (json_string(id, text, sizeof text) && strlen(text) == ID_LEN) *named(work, text) = work;
}

/* Undamaged lines keep their order, even if the clock was set back between them. */
static void keep_lines(struct rebuild *work, const char *text, size_t len) {
  uint64_t highest = 0;
  const char *at = text;
  for (struct log_line found; log_next_line(&at, text + len, &found);) {
    if (found.parses && found.is_whole && found.seq > highest) highest = found.seq;
    if (!found.parses || (!found.is_whole && !*found.snapshot)) continue;
    struct line *line = new_line(work, found.type, found.at, found.by, found.data);
    line->doubtful = !found.is_whole;
    if (found.is_whole) {
      if (strcmp(line->moment, work->last) < 0) strcpy(line->moment, work->last);
      strcpy(work->last, line->moment);
      work->result->kept++;
      if (*found.snapshot) *named(work, found.snapshot) = work;
    }
    strcpy(line->snapshot, found.snapshot);
    if (found.is_whole && strcmp(found.type, "gc_mark") == 0) note_collected(work, found.data);
  }
  if (highest > work->result->kept) work->result->lost = highest - work->result->kept;
}

static void add_record(void *context, struct stored_record *record) {
  struct rebuild *work = context;
  void **known = named(work, record->snapshot.id);
  struct json at;
  if (*known || !json_field(record->record, "created_at", &at)) return;
  *known = work;
  struct line *line = new_line(work, "snapshot", at, work->by, record->data);
  strcpy(line->snapshot, record->snapshot.id);
  buf_add(&work->texts, &record->text, sizeof record->text);
  record->text = NULL;
  work->result->restored++;
}

static void settle_doubtful(struct rebuild *work) {
  size_t kept = 0;
  for (size_t i = 0; i < work->count; i++) {
    struct line *line = &work->lines[i];
    if (line->doubtful && *named(work, line->snapshot)) continue;
    if (line->doubtful) {
      *named(work, line->snapshot) = work;
      work->result->restored++;
    }
    work->lines[kept++] = *line;
  }
  work->count = kept;
}

static int by_moment(const void *a, const void *b) {
  const struct line *x = a, *y = b;
  const int order = strcmp(x->moment, y->moment);
  return order ? order : (x->order > y->order) - (x->order < y->order);
}

static bool same_text(struct json a, struct json b) {
  return a.end - a.at == b.end - b.at && memcmp(a.at, b.at, (size_t)(a.end - a.at)) == 0;
}

/* A worktree directory without a line gets one at the beginning of the log, before the snapshots that were taken in it. */
static void add_worktree(struct rebuild *work, const char *root, const char *name) {
  struct stat stat;
  char path[4300];
  if (strcmp(name, "main") == 0) snprintf(path, sizeof path, "%s/main", root);
  else snprintf(path, sizeof path, "%s/worktrees/%s/main", root, name);
  if (lstat(path, &stat) != 0 || !S_ISDIR(stat.st_mode)) return;
  struct buf text = {0};
  buf_json(&text, name, strlen(name));
  const struct json quoted = kept_text(work, "%.*s", (int)text.len, (char *)text.data);
  free(text.data);
  for (size_t i = 0; i < work->count; i++) {
    const struct line *line = &work->lines[i];
    struct json value;
    if (strcmp(line->type, "worktree_create") == 0 && json_field(line->data, "name", &value) && same_text(value, quoted)) return;
    if (strcmp(line->type, "worktree_rename") == 0 && json_field(line->data, "to", &value) && same_text(value, quoted)) return;
  }
  struct line *line =
      new_line(work, "worktree_create", work->earliest, work->by,
               kept_text(work, "{\"name\":%.*s,\"base\":null,\"root_hash\":null}", (int)(quoted.end - quoted.at), quoted.at));
  line->order = AFTER_INIT;
}

static void add_worktrees(struct rebuild *work, const char *root) {
  char path[4200];
  add_worktree(work, root, "main");
  snprintf(path, sizeof path, "%s/worktrees", root);
  DIR *dir = opendir(path);
  for (struct dirent *entry; dir && (entry = readdir(dir));)
    if (entry->d_name[0] != '.') add_worktree(work, root, entry->d_name);
  if (dir) closedir(dir);
}

static void add_init(struct rebuild *work, const char *repo_id, const char *engine) {
  for (size_t i = 0; i < work->count; i++)
    if (strcmp(work->lines[i].type, "init") == 0) return;
  struct line *line =
      new_line(work, "init", work->earliest, work->by, kept_text(work, "{\"repo_id\":\"%s\",\"engine\":\"%s\"}", repo_id, engine));
  line->order = INIT;
}

/* Sorts lines by time. Added lines go first, after the line of `init`. */
static void sort_lines(struct rebuild *work) {
  if (work->count) qsort(work->lines, work->count, sizeof *work->lines, by_moment);
  for (size_t i = 0; i < work->count; i++) work->lines[i].order = strcmp(work->lines[i].type, "init") == 0 ? INIT : i + FIRST_LINE;
}

static void write_lines(const struct rebuild *work, const char *path) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) die_errno("create", path);
  close(fd);
  struct log log;
  if (!log_open(&log, path)) die("internal", "%s", log.problem);
  for (size_t i = 0; i < work->count; i++) log_add(&log, work->lines[i].at, work->lines[i].by, work->lines[i].type, work->lines[i].data);
  if (fsync(log.fd) != 0) die_errno("sync", path);
  log_close(&log);
}

void log_rebuild(const char *control, const char *by, const char *repo_id, const char *engine, const char *kept, struct rebuilt *out) {
  memset(out, 0, sizeof *out);
  struct rebuild work = {.result = out};
  char path[4200], fresh[4200], lock[4200], now[32];
  snprintf(path, sizeof path, "%s/log.jsonl", control);
  snprintf(fresh, sizeof fresh, "%s/tmp/log.rebuilt", control);
  struct buf name = {0};
  buf_json(&name, by, strlen(by));
  work.by = kept_text(&work, "%.*s", (int)name.len, (char *)name.data);
  free(name.data);
  snprintf(lock, sizeof lock, "%s/locks/log", control);
  const int held = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (held < 0 || flock(held, LOCK_EX) != 0) die_errno("lock", lock);
  size_t len = 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno != ENOENT) die_errno("open", path);
  char *text = fd < 0 ? must_strdup("") : read_whole(fd, &len);
  if (!text) die_errno("read", path);
  if (fd >= 0) close(fd);
  keep_lines(&work, text, len);
  each_record(control, add_record, &work);
  settle_doubtful(&work);
  out->lost = out->lost > out->restored ? out->lost - out->restored : 0;
  sort_lines(&work);
  now_text(now);
  work.earliest = work.count ? work.lines[0].at : kept_text(&work, "\"%s\"", now);
  char *root = must_strdup(control);
  *strrchr(root, '/') = 0;
  add_init(&work, repo_id, engine);
  add_worktrees(&work, root);
  free(root);
  qsort(work.lines, work.count, sizeof *work.lines, by_moment);
  write_lines(&work, fresh);
  if (fd >= 0 && link(path, kept) != 0) die_errno("keep", path);
  if (rename(fresh, path) != 0) die_errno("replace", path);
  char **texts = (char **)work.texts.data;
  for (size_t i = 0; i < work.texts.len / sizeof *texts; i++) free(texts[i]);
  free(work.texts.data);
  free(work.named.slots);
  free(work.lines);
  free(text);
  close(held);
}
