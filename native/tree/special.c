#define _GNU_SOURCE
#include "special.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "below.h"

static char *link_text(const struct entry *entry) {
  char *text = must_alloc((size_t)entry->record->link_len + 1);
  memcpy(text, entry->link, entry->record->link_len);
  text[entry->record->link_len] = 0;
  return text;
}

void special_create(int dir, const char *name, const struct entry *entry, const char *path) {
  const struct record *record = entry->record;
  int failed;
  if (record->type == 'l') {
    char *target = link_text(entry);
    failed = symlinkat(target, dir, name);
    free(target);
  } else if (record->type == 'p') failed = mkfifoat(dir, name, 0600);
  else failed = mknodat(dir, name, (record->type == 'c' ? S_IFCHR : S_IFBLK) | 0600, record->size);
  if (failed) die_errno("create", path);
}

bool special_link(int root, const struct entry *entry, int dir, const char *name, const char *path) {
  char *target = link_text(entry);
  const char *last;
  const int parent = parent_below(root, target, &last);
  if (parent < 0) die_errno("find", target);
  const int failed = linkat(parent, last, dir, name, 0);
  const int error = errno;
  close(parent);
  free(target);
  errno = error;
  if (failed && errno != EXDEV) die_errno("create", path);
  return !failed;
}
