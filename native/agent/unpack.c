/* Unpacks a tar stream. Everything goes into a directory beside its place first; only when the whole archive has been read and
   found good does it move there. So a bad archive, a full disk or a lost connection leaves nothing behind. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/stat.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"
#include "../lib/tar.h"
#include "../lib/write.h"
#include "tree.h"

#define EXTENSION_MAX_BYTES (1u << 20)

/* A directory below the top that the archive has an entry of; its path is plain, as in `a/b`. */
struct made_directory {
  char *path;
  struct timespec mtime;
};

struct attributes {
  uid_t uid;
  gid_t gid;
  mode_t mode;
  struct timespec mtime;
};

struct unpacking {
  const char *path;
  /* Directories that are there already get the owner, mode and time of their entries too. */
  bool replaces_attributes;
  int target;
  bool made_target;
  char stage_name[40];
  int stage;
  uint64_t files;
  uint64_t bytes;
  struct made_directory *directories;
  size_t directory_count;
  size_t directory_capacity;
  /* Of the directory that is unpacked into, where the archive has an entry of it. */
  bool has_top;
  struct attributes top;
};

struct entry {
  char *path;
  char *link;
  uint64_t size;
  uint64_t uid;
  uint64_t gid;
  int64_t mtime;
  mode_t mode;
  char type;
};

static struct unpacking *current;

static void clean_up(void) {
  struct unpacking *u = current;
  current = NULL; /* A failure of the clean-up itself must not come back here. */
  if (u == NULL) return;
  if (u->stage >= 0) {
    close(u->stage);
    remove_tree(u->target, u->stage_name, u->path);
  }
  if (u->made_target) rmdir(u->path);
}

static void refuse(const char *code, int error, const char *format, ...) __attribute__((noreturn, format(printf, 3, 4)));

static void refuse(const char *code, int error, const char *format, ...) {
  char message[2048];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (error != 0 && length >= 0 && (size_t)length < sizeof message)
    snprintf(message + length, sizeof message - (size_t)length, ": %s", strerror(error));
  clean_up();
  worker_fail(code, error, "%s", message);
}

#define REFUSE_ERRNO(...) refuse(code_of_errno(errno), errno, __VA_ARGS__)

/* ---- reading the archive ---- */

static void read_exactly(void *bytes, size_t length) {
  uint8_t *at = bytes;
  while (length > 0) {
    ssize_t n = read(0, at, length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) refuse("invalid_argument", 0, "the archive ends before it is complete");
    at += n;
    length -= (size_t)n;
  }
}

static void skip(uint64_t length) {
  uint8_t scratch[4096];
  while (length > 0) {
    size_t part = length < sizeof scratch ? (size_t)length : sizeof scratch;
    read_exactly(scratch, part);
    length -= part;
  }
}

static void skip_padding(uint64_t size) {
  if (size % TAR_BLOCK != 0) skip(TAR_BLOCK - size % TAR_BLOCK);
}

static _Noreturn void refuse_number(void) { refuse("invalid_argument", 0, "the archive has a malformed number"); }

static uint64_t parse_number(const char *field, size_t size) {
  const uint8_t *bytes = (const uint8_t *)field;
  uint64_t value = 0;
  if (bytes[0] & 0x80) {
    /* GNU's binary form, for what octal digits do not hold. */
    for (size_t i = 0; i < size; i++) {
      uint8_t byte = i == 0 ? bytes[i] & 0x7f : bytes[i];
      if (value >> 55 != 0) refuse("invalid_argument", 0, "the archive has a number that is too large");
      value = value << 8 | byte;
    }
    return value;
  }
  size_t i = 0;
  while (i < size && field[i] == ' ') i++;
  for (; i < size && field[i] >= '0' && field[i] <= '7'; i++) value = value << 3 | (uint64_t)(field[i] - '0');
  if (i < size && field[i] != 0 && field[i] != ' ') refuse_number();
  return value;
}

static bool is_good_header(const struct tar_header *header) {
  return tar_checksum(header) == parse_number(header->checksum, sizeof header->checksum);
}

static char *read_extension(uint64_t size) {
  if (size > EXTENSION_MAX_BYTES) refuse("invalid_argument", 0, "the archive has an extended header of more than 1 MiB");
  char *text = must_alloc((size_t)size + 1);
  read_exactly(text, (size_t)size);
  skip_padding(size);
  return text;
}

static uint64_t parse_decimal(const char *text) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != 0 || errno != 0) refuse_number();
  return value;
}

/* Before 1970 it is negative; a fraction of a second may follow. */
static int64_t parse_time(const char *text) {
  const char *digits = text + (*text == '-');
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (*digits < '0' || *digits > '9' || (*end != 0 && *end != '.') || errno != 0) refuse_number();
  return value;
}

/* The largest of all stands for "leave the owner as it is". */
static uint64_t checked_owner(uint64_t id) {
  if (id >= UINT32_MAX) refuse("invalid_argument", 0, "the archive has an owner that no system has");
  return id;
}

static void take_text(char **slot, const char *value) {
  free(*slot);
  *slot = must_copy(value);
}

struct overrides {
  char *path;
  char *link;
  char *size;
  char *uid;
  char *gid;
  char *mtime;
};

static void overrides_clear(struct overrides *o) {
  char **all[] = {&o->path, &o->link, &o->size, &o->uid, &o->gid, &o->mtime};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    free(*all[i]);
    *all[i] = NULL;
  }
}

static void parse_pax(char *text, size_t size, struct overrides *o) {
  const struct {
    const char *key;
    char **slot;
  } known[] = {{"path", &o->path}, {"linkpath", &o->link}, {"size", &o->size}, {"uid", &o->uid}, {"gid", &o->gid}, {"mtime", &o->mtime}};
  for (char *at = text, *end = text + size; at < end;) {
    char *rest;
    unsigned long length = strtoul(at, &rest, 10);
    if (*rest != ' ' || length > (size_t)(end - at) || length < (size_t)(rest - at) + 3 || at[length - 1] != '\n')
      refuse("invalid_argument", 0, "the archive has a malformed extended header");
    at[length - 1] = 0;
    char *key = rest + 1;
    char *equals = strchr(key, '=');
    if (equals == NULL || strlen(equals + 1) != (size_t)(at + length - 1 - (equals + 1)))
      refuse("invalid_argument", 0, "the archive has a malformed extended header");
    *equals = 0;
    if (strncmp(key, "GNU.sparse.", 11) == 0) refuse("unsupported", 0, "the archive holds sparse files in GNU's own form");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
      if (strcmp(key, known[i].key) == 0) take_text(known[i].slot, equals + 1);
    at += length;
  }
}

/* The next entry; false at the end of the archive. */
static bool next_entry(struct entry *entry) {
  struct overrides o = {0};
  for (;;) {
    struct tar_header header;
    static const uint8_t zeros[TAR_BLOCK];
    read_exactly(&header, sizeof header);
    if (memcmp(&header, zeros, TAR_BLOCK) == 0) {
      overrides_clear(&o);
      return false;
    }
    if (!is_good_header(&header)) refuse("invalid_argument", 0, "this is not a tar archive, or it is damaged");
    uint64_t size = parse_number(header.size, sizeof header.size);
    if (header.type == 'x' || header.type == 'g') {
      char *text = read_extension(size);
      struct overrides global = {0};
      parse_pax(text, (size_t)size, header.type == 'x' ? &o : &global);
      overrides_clear(&global);
      free(text);
      continue;
    }
    if (header.type == 'L' || header.type == 'K') {
      char *text = read_extension(size);
      take_text(header.type == 'L' ? &o.path : &o.link, text);
      free(text);
      continue;
    }
    char path[sizeof header.prefix + sizeof header.name + 2];
    bool ustar = memcmp(header.magic, "ustar", 6) == 0;
    if (ustar && header.prefix[0] != 0) snprintf(path, sizeof path, "%.155s/%.100s", header.prefix, header.name);
    else snprintf(path, sizeof path, "%.100s", header.name);
    char link[sizeof header.link + 1];
    snprintf(link, sizeof link, "%.100s", header.link);
    entry->path = o.path != NULL ? must_copy(o.path) : must_copy(path);
    entry->link = o.link != NULL ? must_copy(o.link) : must_copy(link);
    entry->size = o.size != NULL ? parse_decimal(o.size) : size;
    entry->uid = checked_owner(o.uid != NULL ? parse_decimal(o.uid) : parse_number(header.uid, sizeof header.uid));
    entry->gid = checked_owner(o.gid != NULL ? parse_decimal(o.gid) : parse_number(header.gid, sizeof header.gid));
    entry->mtime = o.mtime != NULL ? parse_time(o.mtime) : (int64_t)parse_number(header.mtime, sizeof header.mtime);
    entry->mode = (mode_t)parse_number(header.mode, sizeof header.mode) & 07777;
    entry->type = header.type == 0 || header.type == '7' ? '0' : header.type;
    overrides_clear(&o);
    if (entry->size > INT64_MAX) refuse("invalid_argument", 0, "the archive has a file that is too large");
    return true;
  }
}

/* ---- the stage ---- */

/* The parts of a path of the archive, in place; refuses one that could lead elsewhere. */
static size_t split_path(char *path, char **parts, size_t max, const char *shown) {
  size_t count = 0;
  if (path[0] == '/') refuse("unsafe", 0, "the archive has an absolute path: %.1024s", shown);
  if (strlen(path) >= PATH_MAX) refuse("unsafe", 0, "the archive has a path of more than %d bytes", PATH_MAX - 1);
  for (char *part; (part = strsep(&path, "/")) != NULL;) {
    if (*part == 0 || strcmp(part, ".") == 0) continue;
    if (strcmp(part, "..") == 0) refuse("unsafe", 0, "the archive has a path with ..: %.1024s", shown);
    if (count == max) refuse("unsafe", 0, "the archive nests too deep: %.1024s", shown);
    parts[count++] = part;
  }
  return count;
}

/* Opens the directory of an entry in the stage, making what is missing. No link is ever followed. */
static int open_parent(const struct unpacking *u, char **parts, size_t count, bool make, const char *shown) {
  int fd = dup(u->stage);
  for (size_t i = 0; fd >= 0 && i + 1 < count; i++) {
    if (make && mkdirat(fd, parts[i], 0755) < 0 && errno != EEXIST) REFUSE_ERRNO("cannot make %.1024s", shown);
    int next = openat(fd, parts[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0 && (errno == ELOOP || errno == ENOTDIR))
      refuse("unsafe", 0, "the archive has an entry that goes through a link or a file: %.1024s", shown);
    if (next < 0) REFUSE_ERRNO("cannot enter the directory of %.1024s", shown);
    close(fd);
    fd = next;
  }
  if (fd < 0) REFUSE_ERRNO("cannot enter the directory of %.1024s", shown);
  return fd;
}

static void remember_directory(struct unpacking *u, char **parts, size_t count, int64_t mtime) {
  char *path = must_copy(parts[0]);
  for (size_t i = 1; i < count; i++) {
    char *longer = join_path(path, parts[i]);
    free(path);
    path = longer;
  }
  if (u->directory_count == u->directory_capacity) {
    u->directory_capacity = u->directory_capacity == 0 ? 64 : u->directory_capacity * 2;
    u->directories = must_realloc(u->directories, u->directory_capacity * sizeof *u->directories);
  }
  u->directories[u->directory_count++] = (struct made_directory){path, {.tv_sec = (time_t)mtime}};
}

static void write_content(struct unpacking *u, int fd, const struct entry *entry) {
  static uint8_t chunk[65536];
  for (uint64_t left = entry->size; left > 0;) {
    size_t part = left < sizeof chunk ? (size_t)left : sizeof chunk;
    read_exactly(chunk, part);
    if (!write_fully(fd, chunk, part)) REFUSE_ERRNO("cannot write %.1024s", entry->path);
    left -= part;
  }
  skip_padding(entry->size);
  u->bytes += entry->size;
}

static void make_link(struct unpacking *u, int parent, const char *name, const struct entry *entry) {
  char *copy = must_copy(entry->link);
  char *parts[PATH_MAX / 2];
  size_t count = split_path(copy, parts, PATH_MAX / 2, entry->link);
  if (count == 0) refuse("unsafe", 0, "the archive has a hard link to nothing: %.1024s", entry->path);
  int from = open_parent(u, parts, count, false, entry->link);
  if (linkat(from, parts[count - 1], parent, name, 0) < 0) {
    if (errno == ENOENT)
      refuse("unsafe", 0, "the archive has a hard link to what is not in it: %.512s to %.512s", entry->path, entry->link);
    REFUSE_ERRNO("cannot link %.1024s", entry->path);
  }
  close(from);
  free(copy);
}

static void stage_entry(struct unpacking *u, struct entry *entry) {
  char *copy = must_copy(entry->path);
  char *parts[PATH_MAX / 2];
  size_t count = split_path(copy, parts, PATH_MAX / 2, entry->path);
  if (strchr("012567", entry->type) == NULL) {
    if (entry->type == '3' || entry->type == '4') refuse("unsafe", 0, "the archive has a device node: %.1024s", entry->path);
    refuse("unsupported", 0, "the archive has an entry of type %c: %.1024s", entry->type, entry->path);
  }
  if (count == 0) {
    if (entry->type != '5') refuse("unsafe", 0, "the archive has an entry without a name");
    free(copy);
    u->has_top = true;
    u->top = (struct attributes){(uid_t)entry->uid, (gid_t)entry->gid, entry->mode, {.tv_sec = (time_t)entry->mtime}};
    return;
  }
  int parent = open_parent(u, parts, count, true, entry->path);
  const char *name = parts[count - 1];
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)entry->mtime}};
  if (entry->type == '5') {
    if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST) REFUSE_ERRNO("cannot make %.1024s", entry->path);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) refuse("unsafe", 0, "the archive has a directory in place of a link or a file: %.1024s", entry->path);
    if (fchown(fd, (uid_t)entry->uid, (gid_t)entry->gid) < 0 || fchmod(fd, entry->mode) < 0)
      REFUSE_ERRNO("cannot set the owner of %.1024s", entry->path);
    close(fd);
    remember_directory(u, parts, count, entry->mtime);
  } else {
    /* The last of several entries of the same name is the one that counts. */
    if (unlinkat(parent, name, 0) < 0 && errno != ENOENT) REFUSE_ERRNO("cannot replace %.1024s", entry->path);
    if (entry->type == '0') {
      int fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
      if (fd < 0) REFUSE_ERRNO("cannot make %.1024s", entry->path);
      write_content(u, fd, entry);
      if (fchown(fd, (uid_t)entry->uid, (gid_t)entry->gid) < 0 || fchmod(fd, entry->mode) < 0 || futimens(fd, times) < 0)
        REFUSE_ERRNO("cannot set owner, mode or time of %.1024s", entry->path);
      close(fd);
    } else if (entry->type == '1') {
      make_link(u, parent, name, entry);
    } else {
      if (entry->type == '2' ? symlinkat(entry->link, parent, name) < 0 : mkfifoat(parent, name, 0600) < 0)
        REFUSE_ERRNO("cannot make %.1024s", entry->path);
      if (fchownat(parent, name, (uid_t)entry->uid, (gid_t)entry->gid, AT_SYMLINK_NOFOLLOW) < 0 ||
          (entry->type == '6' && fchmodat(parent, name, entry->mode, 0) < 0) || utimensat(parent, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        REFUSE_ERRNO("cannot set the owner of %.1024s", entry->path);
    }
    u->files++;
  }
  if (entry->type != '0' && entry->size > 0) {
    skip(entry->size);
    skip_padding(entry->size);
  }
  close(parent);
  free(copy);
}

/* ---- from the stage to its place ---- */

/* The directory that a name stands for in the place to unpack to; -1 with ENOENT when there is none yet. A link is taken for its
   directory when it plainly stays below (lib -> usr/lib). */
static int open_existing(int target, const char *name, const char *shown) {
  int fd = openat(target, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0 || errno == ENOENT) return fd;
  char link[PATH_MAX];
  ssize_t n = readlinkat(target, name, link, sizeof link - 1);
  if (n < 0) refuse("conflict", 0, "%.1024s is a directory in the archive, and something else there", shown);
  link[n] = 0;
  fd = link[0] == '/' ? -1 : dup(target);
  char *rest = link;
  for (char *part; fd >= 0 && (part = strsep(&rest, "/")) != NULL;) {
    if (*part == 0 || strcmp(part, ".") == 0) continue;
    int next = strcmp(part, "..") == 0 ? -1 : openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    close(fd);
    fd = next;
  }
  if (fd < 0) refuse("unsafe", 0, "the archive has entries below %.1024s, which is a link that leads elsewhere", shown);
  return fd;
}

/* Whether what is in one directory can be moved to the other. */
static bool is_same_mount(int one, int other) {
  struct statx a, b;
  unsigned mask = STATX_TYPE | STATX_MNT_ID;
  if (syscall(SYS_statx, one, "", AT_EMPTY_PATH, mask, &a) < 0 || syscall(SYS_statx, other, "", AT_EMPTY_PATH, mask, &b) < 0) return true;
  if (a.stx_dev_major != b.stx_dev_major || a.stx_dev_minor != b.stx_dev_minor) return false;
  return (a.stx_mask & b.stx_mask & STATX_MNT_ID) == 0 || a.stx_mnt_id == b.stx_mnt_id;
}

static int compare_directories(const void *a, const void *b) {
  return strcmp(((const struct made_directory *)a)->path, ((const struct made_directory *)b)->path);
}

static void set_attributes(int fd, struct attributes attributes, const char *shown) {
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, attributes.mtime};
  if (fchown(fd, attributes.uid, attributes.gid) < 0 || fchmod(fd, attributes.mode) < 0 || futimens(fd, times) < 0)
    REFUSE_ERRNO("cannot set the owner of %.1024s", shown);
}

/* Parents that the archive has no entry of are in the stage too: those that are there already stay as they are. */
static bool has_entry(const struct unpacking *u, const char *shown) {
  size_t length = strlen(u->path);
  while (length > 0 && u->path[length - 1] == '/') length--;
  struct made_directory key = {.path = (char *)shown + length + 1};
  return u->directory_count > 0 && bsearch(&key, u->directories, u->directory_count, sizeof key, compare_directories) != NULL;
}

/* First as a trial that only looks, so that a conflict is found before anything moved. */
static void settle(const struct unpacking *u, int stage, int target, const char *path, bool trial) {
  size_t count;
  char **names = directory_names(stage, &count);
  if (names == NULL) REFUSE_ERRNO("cannot list the stage of %.1024s", path);
  for (size_t i = 0; i < count; i++) {
    char *shown = join_path(path, names[i]);
    struct stat staged, there;
    if (fstatat(stage, names[i], &staged, AT_SYMLINK_NOFOLLOW) < 0) REFUSE_ERRNO("cannot look at %.1024s", shown);
    bool exists = fstatat(target, names[i], &there, AT_SYMLINK_NOFOLLOW) == 0;
    int below = S_ISDIR(staged.st_mode) && exists ? open_existing(target, names[i], shown) : -1;
    if (below >= 0) {
      int fd = openat(stage, names[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (fd < 0) REFUSE_ERRNO("cannot enter %.1024s", shown);
      if (!is_same_mount(fd, below))
        refuse("unsupported", EXDEV, "%.1024s is on another filesystem: unpack what belongs there by itself", shown);
      settle(u, fd, below, shown, trial);
      if (!trial && u->replaces_attributes && S_ISDIR(there.st_mode) && has_entry(u, shown))
        set_attributes(below, (struct attributes){staged.st_uid, staged.st_gid, staged.st_mode & 07777, staged.st_mtim}, shown);
      close(fd);
      close(below);
    } else if (exists && S_ISDIR(there.st_mode)) {
      refuse("conflict", EISDIR, "%.1024s is a directory there, and something else in the archive", shown);
    } else if (!trial && renameat(stage, names[i], target, names[i]) < 0) {
      REFUSE_ERRNO("cannot put %.1024s into place", shown);
    }
    free(shown);
  }
  free_names(names, count);
}

static void begin(struct unpacking *u) {
  if (make_parents(u->path) && mkdir(u->path, 0755) == 0) u->made_target = true;
  u->target = open(u->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (u->target < 0) worker_fail_errno(errno, "cannot unpack into %.1024s", u->path);
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) worker_fail_errno(errno, "cannot name a directory");
  snprintf(u->stage_name, sizeof u->stage_name, ".coppice-%016llx", (unsigned long long)random);
  if (mkdirat(u->target, u->stage_name, 0700) < 0) {
    int error = errno;
    if (u->made_target) rmdir(u->path);
    worker_fail_errno(error, "cannot unpack into %.1024s", u->path);
  }
  u->stage = openat(u->target, u->stage_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  current = u;
}

static void unpack_worker(void *argument) {
  struct unpacking *u = argument;
  begin(u);
  struct entry entry;
  while (next_entry(&entry)) {
    stage_entry(u, &entry);
    free(entry.path);
    free(entry.link);
  }
  /* What follows the end (archives are padded to large blocks) is taken, so that its sender can finish. */
  uint8_t scratch[4096];
  while (read(0, scratch, sizeof scratch) > 0) {}
  for (size_t i = u->directory_count; i > 0; i--) {
    struct made_directory *made = &u->directories[i - 1];
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, made->mtime};
    if (utimensat(u->stage, made->path, times, AT_SYMLINK_NOFOLLOW) < 0) REFUSE_ERRNO("cannot set the time of %.1024s", made->path);
  }
  if (u->directory_count > 0) qsort(u->directories, u->directory_count, sizeof *u->directories, compare_directories);
  settle(u, u->stage, u->target, u->path, true);
  settle(u, u->stage, u->target, u->path, false);
  close(u->stage);
  remove_tree(u->target, u->stage_name, u->path);
  u->stage = -1;
  if (u->replaces_attributes && u->has_top) set_attributes(u->target, u->top, u->path);
  struct buffer body = {0};
  put_u64(&body, u->files);
  put_u64(&body, u->bytes);
  worker_done(&body);
}

void tree_unpack(struct channel *channel, struct reader *body) {
  struct unpacking u = {.path = read_string(body), .target = -1, .stage = -1};
  u.replaces_attributes = body->at < body->end && read_u8(body) != 0;
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request to unpack is malformed");
    return;
  }
  if (path_is_absolute(channel, u.path)) worker_open(channel, unpack_worker, &u, true);
}
