#define _GNU_SOURCE
#include "xattrs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#define LIST_MAX (64 * 1024)

/* Older kernels have no getxattrat(). A path through /proc reaches an entry of an open directory at any depth. */
static void entry_path(int dir, const char *name, char *out, size_t len) { snprintf(out, len, "/proc/self/fd/%d/%s", dir, name); }

static bool ours(const char *name) {
  return strncmp(name, "user.", 5) == 0 || strncmp(name, "trusted.", 8) == 0 || strcmp(name, "security.capability") == 0 ||
         strcmp(name, "system.posix_acl_access") == 0 || strcmp(name, "system.posix_acl_default") == 0;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static size_t list_names(const char *full, char **list, char ***names) {
  char small[512];
  ssize_t len = llistxattr(full, small, sizeof small);
  *list = NULL;
  *names = NULL;
  if (len <= 0 && !(len < 0 && errno == ERANGE)) return 0;
  *list = must_alloc(LIST_MAX);
  len = llistxattr(full, *list, LIST_MAX);
  if (len <= 0) return 0;
  size_t count = 0;
  for (char *at = *list; at < *list + len; at += strlen(at) + 1) {
    if (!ours(at)) continue;
    *names = must_realloc(*names, (count + 1) * sizeof **names);
    (*names)[count++] = at;
  }
  if (count) qsort(*names, count, sizeof **names, by_name);
  return count;
}

void xattrs_read(int dir, const char *name, const char *path, struct buf *out) {
  char full[512];
  entry_path(dir, name, full, sizeof full);
  char *list, **names;
  const size_t count = list_names(full, &list, &names);
  for (size_t i = 0; i < count; i++) {
    uint8_t *value = must_alloc(LIST_MAX);
    const ssize_t len = lgetxattr(full, names[i], value, LIST_MAX);
    if (len < 0 && errno != ENODATA) die_errno("read an extended attribute of", path);
    if (len >= 0) {
      const uint16_t name_len = (uint16_t)strlen(names[i]);
      const uint32_t value_len = (uint32_t)len;
      buf_add(out, &name_len, sizeof name_len);
      buf_add(out, &value_len, sizeof value_len);
      buf_add(out, names[i], name_len);
      buf_add(out, value, value_len);
    }
    free(value);
  }
  free(names);
  free(list);
}

static bool named_in(const char *name, const uint8_t *bytes, size_t len) {
  for (size_t at = 0; at + 6 <= len;) {
    uint16_t name_len;
    uint32_t value_len;
    memcpy(&name_len, bytes + at, 2);
    memcpy(&value_len, bytes + at + 2, 4);
    if (name_len > len - at - 6) return false;
    if (strlen(name) == name_len && memcmp(name, bytes + at + 6, name_len) == 0) return true;
    at += 6 + (size_t)name_len + value_len;
  }
  return false;
}

unsigned xattrs_write(int dir, const char *name, const uint8_t *bytes, size_t len) {
  char full[512], key[256 + 1];
  unsigned refused = 0;
  entry_path(dir, name, full, sizeof full);
  char *list, **names;
  const size_t count = list_names(full, &list, &names);
  for (size_t i = 0; i < count; i++)
    if (!named_in(names[i], bytes, len) && lremovexattr(full, names[i]) != 0) refused++;
  free(names);
  free(list);
  for (size_t at = 0; at + 6 <= len;) {
    uint16_t name_len;
    uint32_t value_len;
    memcpy(&name_len, bytes + at, 2);
    memcpy(&value_len, bytes + at + 2, 4);
    if (name_len > 255 || at + 6 + name_len + value_len > len) return refused + 1;
    memcpy(key, bytes + at + 6, name_len);
    key[name_len] = 0;
    if (lsetxattr(full, key, bytes + at + 6 + name_len, value_len, 0) != 0) {
      if (errno == ENOSPC || errno == EDQUOT) die_errno("write an extended attribute of", name);
      refused++;
    }
    at += 6 + (size_t)name_len + value_len;
  }
  return refused;
}
