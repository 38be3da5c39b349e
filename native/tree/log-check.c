#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log-lines.h"
#include "sha256.h"

/* Said of the last line. Its writer was killed, so what it says did not happen. */
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
  if (!json_field_number(line, "seq", &out->seq) || !json_field(line, "at", &out->at) || *out->at.at != '"' ||
      !json_field(line, "by", &out->by) || *out->by.at != '"' || !json_field_string(line, "type", out->type, sizeof out->type) ||
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
