#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../lib/hash.h"

/* Beyond this a file's attributes are not compared or carried: a sandbox must not be able to fill our memory with them. */
#define ALL_VALUES_MAX (1u << 20)
#define CAPABILITY_V2_BYTES 20
#define CAPABILITY_V3_BYTES 24

/* What belongs to a file as its content does. What overlayfs itself writes describes the layer, not the file. */
static int is_carried(const char *name) {
  if (strncmp(name, "user.", 5) == 0) return strncmp(name, "user.overlay.", 13) != 0;
  return strcmp(name, "security.capability") == 0 || strcmp(name, "system.posix_acl_access") == 0 ||
         strcmp(name, "system.posix_acl_default") == 0;
}

/* There is no getxattrat on older kernels: the way through /proc reaches an entry of an open directory, and no link is followed. */
static void entry_path(int directory, const char *name, char path[512]) { snprintf(path, 512, "/proc/self/fd/%d/%s", directory, name); }

static int by_name(const void *one, const void *other) { return strcmp(*(char *const *)one, *(char *const *)other); }

struct names {
  char list[XATTR_LIST_MAX];
  char **sorted;
  size_t count;
};

static void free_names(struct names *names) {
  int saved = errno;
  if (names != NULL) free(names->sorted);
  free(names);
  errno = saved;
}

/* Of those that are carried; *found stays NULL when there are none, as with nearly every file. */
static int read_names(const char *path, struct names **found) {
  *found = NULL;
  ssize_t length = llistxattr(path, NULL, 0);
  if (length == 0 || (length < 0 && (errno == EOPNOTSUPP || errno == ENOENT))) return 0;
  struct names *names = calloc(1, sizeof *names);
  if (length < 0 || names == NULL || (length = llistxattr(path, names->list, sizeof names->list)) < 0) {
    free_names(names);
    return -1;
  }
  for (char *at = names->list; at < names->list + length; at += strlen(at) + 1) names->count += (size_t)is_carried(at);
  if (names->count == 0) {
    free_names(names);
    return 0;
  }
  names->sorted = calloc(names->count, sizeof *names->sorted);
  if (names->sorted == NULL) {
    free_names(names);
    return -1;
  }
  size_t count = 0;
  for (char *at = names->list; at < names->list + length && count < names->count; at += strlen(at) + 1)
    if (is_carried(at)) names->sorted[count++] = at;
  qsort(names->sorted, names->count, sizeof *names->sorted, by_name);
  *found = names;
  return 0;
}

/* Capabilities of a file name the root that they are for; what they mean to a sandbox is the same in either form. */
static ssize_t without_root(const char *name, char *value, ssize_t length) {
  if (strcmp(name, "security.capability") != 0 || length != CAPABILITY_V3_BYTES || value[3] != 3) return length;
  value[3] = 2;
  return CAPABILITY_V2_BYTES;
}

/* Gathers name and value, in order of names, into the answer. */
static int read_all(const char *path, struct reply *into) {
  struct names *names;
  if (read_names(path, &names) < 0) return -1;
  if (names == NULL) return 0;
  char *value = malloc(XATTR_SIZE_MAX);
  int result = value == NULL ? -1 : 0;
  for (size_t index = 0; result == 0 && index < names->count; index++) {
    ssize_t length = lgetxattr(path, names->sorted[index], value, XATTR_SIZE_MAX);
    if (length < 0 && errno == ENODATA) continue;
    if (length >= 0 && into->length + (size_t)length > ALL_VALUES_MAX) {
      errno = E2BIG;
      length = -1;
    }
    if (length < 0) {
      result = -1;
      break;
    }
    length = without_root(names->sorted[index], value, length);
    reply_text(into, names->sorted[index]);
    reply_bytes(into, value, (size_t)length);
  }
  int saved = errno;
  free(value);
  free_names(names);
  errno = saved;
  return result;
}

int attributes_digest(int directory, const char *name, uint8_t digest[HASH_LEN]) {
  char path[512];
  struct reply all = {0};
  entry_path(directory, name, path);
  int result = read_all(path, &all);
  if (result == 0 && all.length > 0) {
    blake3_hash(all.data, all.length, digest);
    result = 1;
  }
  int saved = errno;
  free(all.data);
  errno = saved;
  return result;
}

static int open_place(struct request *request, struct reply *reply, const char **name) {
  int root = open_directory(reply, request->fields[0].data);
  if (root < 0) return -1;
  const char *path = request->fields[1].data;
  *name = ".";
  int parent = *path == 0 ? dup(root) : open_parent_beneath(root, path, name);
  int saved = errno;
  close(root);
  errno = saved;
  return parent < 0 ? fail(reply, "reach /%s", path) : parent;
}

/* ROOT PATH -> name, value, name, value… of those that are carried */
static int list_attributes(struct request *request, struct reply *reply) {
  char path[512];
  const char *name;
  int parent = open_place(request, reply, &name);
  if (parent < 0) return -1;
  entry_path(parent, name, path);
  int result = read_all(path, reply);
  if (result < 0) fail(reply, "read the extended attributes of /%s", request->fields[1].data);
  int saved = errno;
  close(parent);
  errno = saved;
  return result;
}

/* ROOT PATH MODE UID GID MTIME_NS: of whatever stands there, a link itself included. Takes away all attributes that are carried. */
static int set_attributes(struct request *request, struct reply *reply) {
  uint64_t numbers[3];
  char *end;
  const char *name;
  char path[512];
  struct stat status;
  struct names *names = NULL;
  for (int index = 0; index < 3; index++)
    if (parse_number(request->fields[2 + index].data, &numbers[index]) < 0) return -1;
  long long mtime_ns = strtoll(request->fields[5].data, &end, 10), second = 1000000000;
  if (end == request->fields[5].data || *end != 0) {
    errno = EINVAL;
    return fail(reply, "take %s as a time", request->fields[5].data);
  }
  long long rest = (mtime_ns % second + second) % second;
  int parent = open_place(request, reply, &name);
  if (parent < 0) return -1;
  entry_path(parent, name, path);
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)((mtime_ns - rest) / second), .tv_nsec = (long)rest}};
  int result = fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW);
  if (result == 0) result = read_names(path, &names);
  for (size_t index = 0; result == 0 && names != NULL && index < names->count; index++) {
    result = lremovexattr(path, names->sorted[index]);
    if (result < 0 && errno == ENODATA) result = 0;
  }
  /* Owner before mode: changing the owner takes set-user-id away. */
  if (result == 0) result = fchownat(parent, name, (uid_t)numbers[1], (gid_t)numbers[2], AT_SYMLINK_NOFOLLOW);
  if (result == 0 && !S_ISLNK(status.st_mode)) {
    int file = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    result = file < 0 ? -1 : fchmod(file, (mode_t)numbers[0] & 07777);
    int saved = errno;
    if (file >= 0) close(file);
    errno = saved;
  }
  if (result == 0) result = utimensat(parent, name, times, AT_SYMLINK_NOFOLLOW);
  if (result < 0) fail(reply, "set owner, mode or time of /%s", request->fields[1].data);
  free_names(names);
  int saved = errno;
  close(parent);
  errno = saved;
  return result;
}

static int nibble(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* ROOT PATH NAME HEX */
static int set_attribute(struct request *request, struct reply *reply) {
  char path[512];
  const char *name;
  struct field *hex = &request->fields[3];
  size_t length = hex->length / 2;
  for (size_t index = 0; index < length; index++) {
    int high = nibble(hex->data[2 * index]), low = nibble(hex->data[2 * index + 1]);
    if (high < 0 || low < 0) {
      errno = EINVAL;
      return fail(reply, "read a value in hexadecimal digits");
    }
    hex->data[index] = (char)(high << 4 | low);
  }
  if (!is_carried(request->fields[2].data)) {
    errno = EINVAL;
    return fail(reply, "set the attribute %s", request->fields[2].data);
  }
  int parent = open_place(request, reply, &name);
  if (parent < 0) return -1;
  entry_path(parent, name, path);
  int result = lsetxattr(path, request->fields[2].data, hex->data, length, 0);
  if (result < 0) fail(reply, "set %s of /%s", request->fields[2].data, request->fields[1].data);
  int saved = errno;
  close(parent);
  errno = saved;
  return result;
}

/* ROOT EXISTING PATH: a second name for a file; nothing stands at PATH. */
static int link_entry(struct request *request, struct reply *reply) {
  const char *from_name, *to_name;
  int root = open_directory(reply, request->fields[0].data);
  if (root < 0) return -1;
  int from = open_parent_beneath(root, request->fields[1].data, &from_name);
  int to = from < 0 ? -1 : open_parent_beneath(root, request->fields[2].data, &to_name);
  int result = to < 0 ? -1 : linkat(from, from_name, to, to_name, 0);
  if (result < 0) fail(reply, "link /%s to /%s", request->fields[2].data, request->fields[1].data);
  int saved = errno;
  if (to >= 0) close(to);
  if (from >= 0) close(from);
  close(root);
  errno = saved;
  return result;
}

const struct operation_entry attribute_operations[] = {
    {"attributes", 2, list_attributes},
    {"set-attributes", 6, set_attributes},
    {"set-attribute", 4, set_attribute},
    {"link", 3, link_entry},
    {NULL, 0, NULL},
};
