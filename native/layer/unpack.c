#define _GNU_SOURCE
#include "layer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../lib/write.h"

/* Paths of directories are remembered to the end. */
#define MAX_REMEMBERED (256u << 20)

static int root;
static uint64_t max_bytes, max_entries, bytes, entries, files, remembered;
static uint64_t devices_dropped, attributes_dropped;
/* The directory that the last entry went into: most entries follow another of the same one. */
static char parent_path[MAX_PATH + 1];
static int parent = -1;

static void count_entry(void) {
  if (++entries > max_entries) stop("too_large", "the layer holds more than %llu entries", (unsigned long long)max_entries);
}

static void count_bytes(uint64_t length) {
  if (length > max_bytes || bytes > max_bytes - length)
    stop("too_large", "the layer holds more than %llu bytes", (unsigned long long)max_bytes);
  bytes += length;
}

static struct directory *remember(const char *path) {
  remembered += strlen(path) + sizeof(struct directory);
  if (remembered > MAX_REMEMBERED) stop("too_large", "the layer has too many directories");
  count_entry();
  return add_directory(path);
}

static bool is_whiteout(int in, const char *name) {
  struct stat status;
  return fstatat(in, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == makedev(0, 0);
}

static int open_below(const char *path) {
  struct open_how how = {
      .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
      .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
  };
  return (int)syscall(SYS_openat2, root, path[0] == 0 ? "." : path, &how, sizeof how);
}

/* What lay below is hidden, and what the layer itself has stays. */
static void make_opaque(int fd, struct directory *directory) {
  if (fsetxattr(fd, OPAQUE, "y", 1, 0) < 0) stop_errno("mark %.1000s as opaque", directory->path);
  directory->opaque = true;
}

/* One directory, made where it is missing. In place of a deletion it hides what was deleted. */
static int enter(int in, const char *name, const char *path, struct directory **known) {
  *known = find_directory(path);
  bool hides = false;
  if (*known == NULL) {
    if (mkdirat(in, name, 0755) < 0) {
      if (errno != EEXIST) stop_errno("make the directory %.1000s", path);
      if (!is_whiteout(in, name)) stop("unsafe", "the layer has an entry that goes through a link or a file: %.1000s", path);
      if (unlinkat(in, name, 0) < 0 || mkdirat(in, name, 0755) < 0) stop_errno("make the directory %.1000s", path);
      hides = true;
    }
    *known = remember(path);
  }
  int fd = openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) stop_errno("open the directory %.1000s", path);
  if (hides) make_opaque(fd, *known);
  return fd;
}

static int make_parents(const char *path) {
  char partial[MAX_PATH + 1];
  int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) stop_errno("open the layer");
  for (size_t start = 0; path[start] != 0;) {
    const size_t end = start + strcspn(path + start, "/");
    struct directory *known;
    memcpy(partial, path, end);
    partial[end] = 0;
    const int next = enter(fd, partial + start, partial, &known);
    close(fd);
    fd = next;
    start = path[end] == 0 ? end : end + 1;
  }
  return fd;
}

/* The directory that holds a path; sets `name` to the last part. */
static int open_parent(const char *path, const char **name) {
  const char *slash = strrchr(path, '/');
  const size_t length = slash == NULL ? 0 : (size_t)(slash - path);
  *name = slash == NULL ? path : slash + 1;
  if (parent >= 0 && strlen(parent_path) == length && memcmp(parent_path, path, length) == 0) return parent;
  memcpy(parent_path, path, length);
  parent_path[length] = 0;
  if (parent >= 0) close(parent);
  parent = open_below(parent_path);
  if (parent < 0 && (errno == ELOOP || errno == EXDEV))
    stop("unsafe", "the layer has an entry that goes through a link or a file: %.1000s", path);
  if (parent < 0 && errno != ENOENT && errno != ENOTDIR) stop_errno("open the directory of %.1000s", path);
  if (parent < 0) parent = make_parents(parent_path);
  return parent;
}

static void set_attributes(int fd, const struct entry *entry) {
  for (size_t i = 0; i < entry->attribute_count; i++) {
    const struct attribute *attribute = &entry->attributes[i];
    count_bytes(attribute->length);
    if (fsetxattr(fd, attribute->name, attribute->value, attribute->length, 0) < 0) {
      if (errno != EOPNOTSUPP && errno != EINVAL && errno != EPERM)
        stop_errno("set the attribute %s of %.1000s", attribute->name, entry->path);
      attributes_dropped++;
    }
  }
}

/* Owner first, since a change of owner clears set-id bits and capabilities. */
static void set_owner_and_mode(int fd, const struct entry *entry) {
  if (fchown(fd, entry->uid, entry->gid) < 0 || fchmod(fd, entry->mode) < 0) stop_errno("set owner and mode of %.1000s", entry->path);
  set_attributes(fd, entry);
}

static void take_directory(const struct entry *entry) {
  struct directory *known;
  int fd;
  if (entry->path[0] == 0) {
    known = find_directory("");
    fd = open_below("");
    if (fd < 0) stop_errno("open the layer");
  } else {
    const char *name;
    const int in = open_parent(entry->path, &name);
    fd = enter(in, name, entry->path, &known);
  }
  known->named = true;
  known->changed = entry->changed;
  set_owner_and_mode(fd, entry);
  close(fd);
}

static void replace(int in, const char *name, const char *path) {
  if (find_directory(path) != NULL) stop("unsafe", "the layer has an entry in place of a directory: %.1000s", path);
  if (unlinkat(in, name, 0) < 0 && errno != ENOENT) stop_errno("replace %.1000s", path);
}

static void take_file(const struct entry *entry) {
  const char *name;
  const int in = open_parent(entry->path, &name), flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  count_bytes(entry->size);
  int fd = openat(in, name, flags, 0600);
  if (fd < 0 && errno == EEXIST) {
    replace(in, name, entry->path);
    fd = openat(in, name, flags, 0600);
  }
  if (fd < 0) stop_errno("make %.1000s", entry->path);
  const uint8_t *content;
  for (size_t length; (length = next_content(&content)) > 0;)
    if (!write_fully(fd, content, length)) stop_errno("write %.1000s", entry->path);
  set_owner_and_mode(fd, entry);
  const struct timespec times[2] = {entry->changed, entry->changed};
  if (futimens(fd, times) < 0) stop_errno("set the time of %.1000s", entry->path);
  if (close(fd) < 0) stop_errno("write %.1000s", entry->path);
  files++;
}

/* To what came before it in this layer: a layer is kept once and stands on any other, so it cannot share files with one. */
static void take_hard_link(const struct entry *entry) {
  const char *slash = strrchr(entry->link, '/');
  char directory[MAX_PATH + 1] = "";
  if (slash != NULL) {
    memcpy(directory, entry->link, (size_t)(slash - entry->link));
    directory[slash - entry->link] = 0;
  }
  const char *name, *target = slash == NULL ? entry->link : slash + 1;
  const int from = open_below(directory);
  struct stat status;
  if (from < 0 || fstatat(from, target, &status, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(status.st_mode) || S_ISCHR(status.st_mode))
    stop("unsafe", "the layer has a hard link to what is no file of it: %.500s to %.500s", entry->path, entry->link);
  if (strcmp(entry->path, entry->link) != 0) {
    const int in = open_parent(entry->path, &name);
    if (linkat(from, target, in, name, 0) < 0) {
      if (errno != EEXIST) stop_errno("link %.1000s", entry->path);
      replace(in, name, entry->path);
      if (linkat(from, target, in, name, 0) < 0) stop_errno("link %.1000s", entry->path);
    }
  }
  close(from);
}

static void take_special(const struct entry *entry) {
  const char *name;
  const int in = open_parent(entry->path, &name);
  const bool is_link = entry->type == '2';
  if (is_link && entry->link[0] == 0) stop("invalid_argument", "the layer has a link without a target: %.1000s", entry->path);
  for (int again = 0; (is_link ? symlinkat(entry->link, in, name) : mknodat(in, name, S_IFIFO | 0600, 0)) < 0; again++) {
    if (errno != EEXIST || again > 0) stop_errno("make %.1000s", entry->path);
    replace(in, name, entry->path);
  }
  const struct timespec times[2] = {entry->changed, entry->changed};
  if (fchownat(in, name, entry->uid, entry->gid, AT_SYMLINK_NOFOLLOW) < 0 || (!is_link && fchmodat(in, name, entry->mode, 0) < 0))
    stop_errno("set owner and mode of %.1000s", entry->path);
  attributes_dropped += entry->attribute_count;
  if (utimensat(in, name, times, AT_SYMLINK_NOFOLLOW) < 0) stop_errno("set the time of %.1000s", entry->path);
}

/* `mark` is the last part of the path, which begins as all of them do. */
static void take_whiteout(const struct entry *entry, const char *mark) {
  const char *name;
  const int in = open_parent(entry->path, &name);
  struct directory *known = find_directory(parent_path);
  if (strcmp(mark, OPAQUE_MARK) == 0) {
    make_opaque(in, known);
    return;
  }
  const char *hidden = mark + strlen(WHITEOUT_PREFIX);
  if (strncmp(hidden, WHITEOUT_PREFIX, strlen(WHITEOUT_PREFIX)) == 0) return; /* notes of aufs to itself */
  if (hidden[0] == 0 || strcmp(hidden, ".") == 0 || strcmp(hidden, "..") == 0)
    stop("unsafe", "the layer deletes a name that is none: %.1000s", entry->path);
  struct stat status;
  if (fstatat(in, hidden, &status, AT_SYMLINK_NOFOLLOW) < 0) {
    if (errno != ENOENT) stop_errno("look at %.1000s", entry->path);
    if (mknodat(in, hidden, S_IFCHR, makedev(0, 0)) < 0) stop_errno("delete with %.1000s", entry->path);
    known->whiteouts = true;
  } else if (S_ISDIR(status.st_mode)) {
    /* Deleted below and made anew in this layer. */
    char path[2 * MAX_PATH];
    snprintf(path, sizeof path, "%s%s%s", parent_path, parent_path[0] == 0 ? "" : "/", hidden);
    struct directory *anew = find_directory(path);
    int fd = openat(in, hidden, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || anew == NULL) stop_errno("open what %.1000s names", entry->path);
    make_opaque(fd, anew);
    close(fd);
  }
}

static void take_entry(const struct entry *entry) {
  const char *slash = strrchr(entry->path, '/'), *name = slash == NULL ? entry->path : slash + 1;
  attributes_dropped += entry->attributes_dropped;
  for (const char *at = entry->path; at < name; at += strcspn(at, "/") + 1)
    if (strncmp(at, WHITEOUT_PREFIX, strlen(WHITEOUT_PREFIX)) == 0)
      stop("unsafe", "the layer has an entry below a deletion: %.1000s", entry->path);
  if (strncmp(name, WHITEOUT_PREFIX, strlen(WHITEOUT_PREFIX)) == 0) {
    count_entry();
    take_whiteout(entry, name);
    return;
  }
  if (entry->type == '5') {
    take_directory(entry);
    return;
  }
  if (entry->path[0] == 0) stop("unsafe", "the layer has an entry in place of its root");
  count_entry();
  if (entry->type == '0') take_file(entry);
  else if (entry->type == '1') take_hard_link(entry);
  else if (entry->type == '2' || entry->type == '6') take_special(entry);
  else devices_dropped++; /* A sandbox has devices of its own, and no use for others. */
}

/* Last: whatever is made in a directory changes its time. */
static void set_directory_times(void) {
  for (size_t index = 0; index < directory_count(); index++) {
    const struct directory *directory = directory_at(index);
    const struct timespec times[2] = {directory->changed, directory->changed};
    if (utimensat(root, directory->path[0] == 0 ? "." : directory->path, times, AT_SYMLINK_NOFOLLOW) < 0)
      stop_errno("set the time of %.1000s", directory->path);
  }
}

/* Nothing of the machine but the directory itself is within reach from here on, and no privilege but those that writing needs. */
static void confine(const char *directory) {
  static const int needed[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_MKNOD, CAP_SETFCAP};
  root = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (root < 0 || fchdir(root) < 0 || chroot(".") < 0 || chdir("/") < 0) stop_errno("enter %s", directory);
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct sets[2] = {{0}};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    sets[needed[i] / 32].effective |= 1u << needed[i] % 32;
    sets[needed[i] / 32].permitted |= 1u << needed[i] % 32;
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &header, sets) < 0) stop_errno("drop privileges");
}

static void say_number(const char *key, uint64_t value) { printf("%s=%llu%c", key, (unsigned long long)value, 0); }

void unpack(uint64_t most_bytes, uint64_t most_entries, const char *directory) {
  static struct entry entry;
  max_bytes = most_bytes;
  max_entries = most_entries;
  confine(directory);
  add_directory("");
  while (next_entry(&entry)) take_entry(&entry);
  set_directory_times();
  say_number("entries", entries);
  say_number("files", files);
  say_number("bytes", bytes);
  say_number("devices_dropped", devices_dropped);
  say_number("attributes_dropped", attributes_dropped);
  for (size_t index = 0; index < directory_count(); index++) {
    const struct directory *known = directory_at(index);
    if (!known->named) printf("unnamed=%s%c", known->path, 0);
    if (known->whiteouts) printf("whiteouts=%s%c", known->path, 0);
    if (known->opaque) printf("opaque=%s%c", known->path, 0);
  }
  if (fflush(stdout) != 0) stop_errno("say what was unpacked");
}
