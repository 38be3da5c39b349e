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

#include "log-lines.h"
#include "sha256.h"

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

static bool read_lines(struct log *log) {
  forget_all(log);
  strcpy(log->last_hash, FIRST_HASH);
  size_t len, number = 0;
  char *text = read_whole(log->fd, &len);
  if (!text) die_errno("read", log->path);
  keep_text(log, text);
  /* Text after the last newline is a line whose writer was killed: what it says did not happen. */
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

/* Whether the open file is still the log. A log that was rebuilt is another file. */
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
  const struct id_key key = id_key(id);
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
    /* Eight digits look like a number, so at least one of the first eight characters is a letter. */
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

/* When this fails, no part of the line stays in the file. */
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
