#define _GNU_SOURCE
#include "layer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../lib/tar.h"

enum { MAX_ATTRIBUTES = 1024 };

static uint8_t buffer[COPY_BYTES];
static size_t buffered, taken;
/* What is left of the entry that came last: content, then padding. */
static uint64_t content_left, padding_left;

static _Noreturn void damaged(const char *reason) { stop("invalid_argument", "the layer is damaged: %s", reason); }

static bool fill(void) {
  ssize_t got;
  do got = read(0, buffer, sizeof buffer);
  while (got < 0 && errno == EINTR);
  if (got < 0) stop_errno("read the layer");
  buffered = (size_t)got;
  taken = 0;
  return got > 0;
}

static bool take(void *bytes, size_t length) {
  uint8_t *at = bytes;
  while (length > 0) {
    if (taken == buffered && !fill()) return false;
    size_t part = buffered - taken < length ? buffered - taken : length;
    if (at != NULL) {
      memcpy(at, buffer + taken, part);
      at += part;
    }
    taken += part;
    length -= part;
  }
  return true;
}

static void must_take(void *bytes, uint64_t length) {
  for (; length > COPY_BYTES; length -= COPY_BYTES) {
    if (!take(bytes, COPY_BYTES)) damaged("it is cut off");
    if (bytes != NULL) bytes = (uint8_t *)bytes + COPY_BYTES;
  }
  if (!take(bytes, (size_t)length)) damaged("it is cut off");
}

static uint64_t padding_of(uint64_t size) { return (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK; }

size_t next_content(const uint8_t **bytes) {
  if (content_left == 0) return 0;
  if (taken == buffered && !fill()) damaged("it is cut off");
  size_t part = buffered - taken;
  if (part > content_left) part = (size_t)content_left;
  *bytes = buffer + taken;
  taken += part;
  content_left -= part;
  return part;
}

/* Octal digits, or GNU's binary form for what these do not hold, which may be negative. */
static int64_t parse_field(const char *field, size_t size) {
  const uint8_t *bytes = (const uint8_t *)field;
  if (bytes[0] & 0x80) {
    const bool negative = bytes[0] & 0x40;
    uint64_t value = negative ? UINT64_MAX : 0;
    for (size_t i = 0; i < size; i++) {
      const uint8_t byte = i == 0 ? (negative ? bytes[0] : bytes[0] & 0x7f) : bytes[i];
      if (value >> 55 != 0 && value >> 55 != UINT64_MAX >> 55) damaged("a number is too large");
      value = value << 8 | byte;
    }
    return (int64_t)value;
  }
  uint64_t value = 0;
  size_t i = 0;
  while (i < size && field[i] == ' ') i++;
  for (; i < size && field[i] >= '0' && field[i] <= '7'; i++) value = value << 3 | (uint64_t)(field[i] - '0');
  if (i < size && field[i] != 0 && field[i] != ' ') damaged("a number is malformed");
  return (int64_t)value;
}

static bool has_checksum(const struct tar_header *header) {
  return tar_checksum(header) == parse_field(header->checksum, sizeof header->checksum);
}

static uint64_t parse_decimal(const char *text) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != 0 || errno != 0) damaged("a number is malformed");
  return value;
}

/* Seconds with a fraction; before 1970 both count backwards. */
static struct timespec parse_time(const char *text) {
  const bool negative = *text == '-';
  const char *at = text + negative;
  struct timespec time = {0};
  if (*at < '0' || *at > '9') damaged("a time is malformed");
  for (; *at >= '0' && *at <= '9'; at++) {
    if (time.tv_sec > INT64_MAX / 16) damaged("a time is too large");
    time.tv_sec = time.tv_sec * 10 + (*at - '0');
  }
  if (*at == '.') {
    long unit = 100000000;
    for (at++; *at >= '0' && *at <= '9'; at++, unit /= 10) time.tv_nsec += unit * (*at - '0');
  }
  if (*at != 0) damaged("a time is malformed");
  if (!negative) return time;
  time.tv_sec = -time.tv_sec;
  if (time.tv_nsec > 0) {
    time.tv_sec--;
    time.tv_nsec = 1000000000 - time.tv_nsec;
  }
  return time;
}

static uint32_t checked_owner(int64_t id) {
  /* The largest of all means "leave it as it is". */
  if (id < 0 || id >= UINT32_MAX) damaged("an owner is no number that a system has");
  return (uint32_t)id;
}

/* Without what means nothing in it; refuses what leads elsewhere. `shown` is for the message. */
static void normalise(const char *path, char *into, const char *what) {
  size_t length = 0;
  /* A leading slash is taken for the root of the layer, as every other reader does. */
  for (const char *at = path; *at != 0;) {
    size_t part = strcspn(at, "/");
    if (part > 0 && !(part == 1 && at[0] == '.')) {
      if (part == 2 && at[0] == '.' && at[1] == '.') stop("unsafe", "the layer has %s that climbs out of it: %.1000s", what, path);
      if (part > MAX_NAME || length + part + 1 > MAX_ENTRY_PATH)
        stop("invalid_argument", "the layer has %s that is too long: %.300s…", what, path);
      if (length > 0) into[length++] = '/';
      memcpy(into + length, at, part);
      length += part;
    }
    at += part;
    while (*at == '/') at++;
  }
  into[length] = 0;
}

struct extensions {
  char *path, *link, *size, *uid, *gid, *changed;
  struct attribute *attributes;
  size_t attribute_count, dropped;
};

static void clear(struct extensions *e) {
  char **texts[] = {&e->path, &e->link, &e->size, &e->uid, &e->gid, &e->changed};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    free(*texts[i]);
    *texts[i] = NULL;
  }
  for (size_t i = 0; i < e->attribute_count; i++) {
    free(e->attributes[i].name);
    free(e->attributes[i].value);
  }
  free(e->attributes);
  e->attributes = NULL;
  e->attribute_count = e->dropped = 0;
}

static void take_attribute(struct extensions *e, const char *name, const char *value, size_t length) {
  if (!keeps_attribute(name)) {
    e->dropped++;
    return;
  }
  if (e->attribute_count == MAX_ATTRIBUTES || length > MAX_VALUE || strlen(name) > MAX_NAME)
    stop("invalid_argument", "the layer has an entry whose attributes are too many or too long");
  e->attributes = must(realloc(e->attributes, (e->attribute_count + 1) * sizeof *e->attributes));
  struct attribute *attribute = &e->attributes[e->attribute_count++];
  attribute->name = must(strdup(name));
  attribute->value = must(malloc(length + 1));
  memcpy(attribute->value, value, length);
  attribute->length = length;
}

static void take_text(char **slot, const char *value, size_t length) {
  if (strlen(value) != length) damaged("a text holds a NUL byte");
  free(*slot);
  *slot = must(strdup(value));
}

static void parse_pax(char *text, size_t size, struct extensions *e) {
  const struct {
    const char *key;
    char **slot;
  } known[] = {{"path", &e->path}, {"linkpath", &e->link}, {"size", &e->size}, {"uid", &e->uid}, {"gid", &e->gid}, {"mtime", &e->changed}};
  for (char *at = text, *end = text + size; at < end;) {
    char *rest;
    const unsigned long length = *at >= '0' && *at <= '9' ? strtoul(at, &rest, 10) : 0;
    if (length == 0 || *rest != ' ' || length > (size_t)(end - at) || length < (size_t)(rest - at) + 3 || at[length - 1] != '\n')
      damaged("an extended header is malformed");
    at[length - 1] = 0;
    char *key = rest + 1, *equals = memchr(key, '=', (size_t)(at + length - 1 - key));
    if (equals == NULL) damaged("an extended header is malformed");
    *equals = 0;
    const char *value = equals + 1;
    const size_t value_length = (size_t)(at + length - 1 - value);
    if (strncmp(key, "GNU.sparse.", 11) == 0) stop("unsupported", "the layer holds a sparse file in the form of GNU tar");
    if (strncmp(key, "SCHILY.xattr.", 13) == 0) take_attribute(e, key + 13, value, value_length);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
      if (strcmp(key, known[i].key) == 0) take_text(known[i].slot, value, value_length);
    at += length;
  }
}

static char *take_extension(int64_t size) {
  if (size < 0 || size > MAX_EXTENSION) damaged("an extended header is larger than 1 MiB");
  char *text = must(calloc(1, (size_t)size + 1));
  must_take(text, (uint64_t)size);
  must_take(NULL, padding_of((uint64_t)size));
  return text;
}

static void read_entry(const struct tar_header *header, const struct extensions *e, struct entry *entry) {
  char name[sizeof header->prefix + sizeof header->name + 2], link[sizeof header->link + 1];
  /* The form of GNU has other things in place of the prefix. */
  if (memcmp(header->magic, "ustar", 6) == 0 && header->prefix[0] != 0)
    snprintf(name, sizeof name, "%.155s/%.100s", header->prefix, header->name);
  else snprintf(name, sizeof name, "%.100s", header->name);
  snprintf(link, sizeof link, "%.100s", header->link);
  const char *path = e->path != NULL ? e->path : name, *target = e->link != NULL ? e->link : link;
  normalise(path, entry->path, "a path");
  entry->type = header->type == 0 || header->type == '7' ? '0' : header->type;
  /* Archives older than POSIX mark a directory by the slash at its end. */
  if (header->type == 0 && path[0] != 0 && path[strlen(path) - 1] == '/') entry->type = '5';
  if (entry->type == '1') normalise(target, entry->link, "a hard link");
  else if (strlen(target) > MAX_PATH) stop("invalid_argument", "the layer has a link whose target is too long: %.300s", path);
  else strcpy(entry->link, target);
  const int64_t size = e->size != NULL ? (int64_t)parse_decimal(e->size) : parse_field(header->size, sizeof header->size);
  if (size < 0) damaged("a file has a size that none can have");
  entry->size = entry->type == '0' ? (uint64_t)size : 0;
  entry->uid = checked_owner(e->uid != NULL ? (int64_t)parse_decimal(e->uid) : parse_field(header->uid, sizeof header->uid));
  entry->gid = checked_owner(e->gid != NULL ? (int64_t)parse_decimal(e->gid) : parse_field(header->gid, sizeof header->gid));
  entry->mode = (mode_t)parse_field(header->mode, sizeof header->mode) & 07777;
  entry->changed =
      e->changed != NULL ? parse_time(e->changed) : (struct timespec){.tv_sec = parse_field(header->mtime, sizeof header->mtime)};
}

/* Of the entry that came last. */
static struct extensions extensions;

/* A layer may end without the blocks of zeros that close a tar: its digest says whether it is whole. */
bool next_entry(struct entry *entry) {
  must_take(NULL, content_left);
  must_take(NULL, padding_left);
  content_left = padding_left = 0;
  clear(&extensions);
  for (bool first = true;; first = false) {
    static const uint8_t zeros[TAR_BLOCK];
    struct tar_header header;
    if (taken == buffered && !fill()) {
      if (first) return false;
      damaged("it is cut off");
    }
    must_take(&header, sizeof header);
    if (memcmp(&header, zeros, sizeof header) == 0) {
      while (fill()) continue;
      return false;
    }
    if (!has_checksum(&header)) damaged("this is no tar, or it is broken in the middle");
    if (header.type == 'x' || header.type == 'g' || header.type == 'L' || header.type == 'K') {
      const int64_t size = parse_field(header.size, sizeof header.size);
      char *text = take_extension(size);
      if (header.type == 'x') parse_pax(text, (size_t)size, &extensions);
      else if (header.type == 'L') take_text(&extensions.path, text, strlen(text));
      else if (header.type == 'K') take_text(&extensions.link, text, strlen(text));
      free(text);
      continue;
    }
    read_entry(&header, &extensions, entry);
    if (strchr("0123456", entry->type) == NULL) stop("unsupported", "the layer has an entry of type %c: %.1000s", entry->type, entry->path);
    entry->attributes = extensions.attributes;
    entry->attribute_count = extensions.attribute_count;
    entry->attributes_dropped = extensions.dropped;
    content_left = entry->size;
    padding_left = padding_of(entry->size);
    return true;
  }
}
