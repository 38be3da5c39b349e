#define _GNU_SOURCE
#include "parcel.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Every byte of the stream may be hostile. What it can make this program remember is bounded by these. */
#define MAX_ENTRIES (64u << 20)
#define MAX_LINKED_BYTES (512u << 20)
#define MAX_HELD_BYTES (256u << 20)
/* An entry takes room on the disk even when nothing is in it. */
#define ENTRY_BYTES 512u

struct attribute {
  char name[MAX_NAME + 1];
  char *value;
  uint32_t length;
};

struct attributes {
  uint8_t flags;
  uint32_t mode, uid, gid;
  struct timespec changed;
  uint16_t count;
  struct attribute *list;
};

struct level {
  int directory; /* -1 when nothing is written */
  char name[MAX_NAME + 1];
  char last[MAX_NAME + 1]; /* the entry that came before, as names ascend */
  struct attributes attributes;
  size_t path_length; /* of the path from the root to it, with a slash before each name */
};

struct unpacker {
  enum policy policy;
  int writes, root;
  uint64_t max_bytes, bytes, entries;
  struct level *levels;
  size_t depth, room; /* levels[depth] is where entries go now */
  char **linked;      /* paths of what more names may follow for; NULL when nothing is written */
  size_t linked_count, linked_room, linked_bytes;
  size_t held_bytes; /* attributes of directories that are not left yet */
  char *copy;
};

static _Noreturn void damaged(const char *reason) { stop("damaged", "the tree in it is not well formed: %s", reason); }

static void take(void *data, size_t length) {
  if (fread(data, 1, length, stdin) == length) return;
  if (ferror(stdin)) stop_errno("read the stream");
  damaged("it ends too early");
}
static uint8_t take8(void) {
  uint8_t value;
  take(&value, 1);
  return value;
}
static uint16_t take16(void) {
  uint16_t value;
  take(&value, 2);
  return le16toh(value);
}
static uint32_t take32(void) {
  uint32_t value;
  take(&value, 4);
  return le32toh(value);
}
static uint64_t take64(void) {
  uint64_t value;
  take(&value, 8);
  return le64toh(value);
}

static void count_bytes(struct unpacker *unpacker, uint64_t length) {
  uint64_t used = unpacker->bytes + unpacker->entries * ENTRY_BYTES;
  if (used > unpacker->max_bytes || length > unpacker->max_bytes - used)
    stop("too_large", "its files hold more than the %llu bytes that there is room for", (unsigned long long)unpacker->max_bytes);
  unpacker->bytes += length;
}

static void take_name(struct unpacker *unpacker, char *name) {
  struct level *level = &unpacker->levels[unpacker->depth];
  uint8_t length = take8();
  take(name, length);
  name[length] = 0;
  if (length == 0 || memchr(name, '/', length) != NULL || strlen(name) != length || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
    stop("unsafe", "the tree in it has an entry whose name is none");
  if (strcmp(name, level->last) <= 0) damaged("names are not in order");
  strcpy(level->last, name);
  if (unpacker->policy == POLICY_IMAGE && level->path_length + 1 + length > MAX_IMAGE_PATH)
    stop("unsupported", "the image in it has a path that is longer than %d bytes", MAX_IMAGE_PATH);
  if (++unpacker->entries > MAX_ENTRIES) stop("too_large", "the tree in it has more than %u entries", MAX_ENTRIES);
  count_bytes(unpacker, 0);
}

static void take_attributes(struct unpacker *unpacker, const char *name, struct attributes *attributes) {
  attributes->flags = take8();
  attributes->mode = take32();
  attributes->uid = take32();
  attributes->gid = take32();
  attributes->changed.tv_sec = (int64_t)take64();
  attributes->changed.tv_nsec = take32();
  attributes->count = take16();
  if ((attributes->flags & ~FLAG_LINKED) != 0 || (attributes->mode & ~07777u) != 0 || attributes->uid == UINT32_MAX ||
      attributes->gid == UINT32_MAX || attributes->changed.tv_nsec > 999999999 || attributes->count > MAX_ATTRIBUTES)
    damaged("attributes that no file can have");
  attributes->list = attributes->count == 0 ? NULL : must(calloc(attributes->count, sizeof *attributes->list));
  for (uint16_t index = 0; index < attributes->count; index++) {
    struct attribute *attribute = &attributes->list[index];
    uint8_t length = take8();
    attribute->length = take32();
    if (attribute->length > MAX_VALUE) damaged("an attribute that is too long");
    take(attribute->name, length);
    if (strlen(attribute->name) != length || !keeps_attribute(unpacker->policy, attribute->name))
      stop("unsafe", "%s has an attribute that may not come from outside: %s", name, attribute->name);
    count_bytes(unpacker, attribute->length);
    if ((unpacker->held_bytes += sizeof *attribute + attribute->length) > MAX_HELD_BYTES)
      stop("too_large", "the tree in it has too many attributes");
    attribute->value = must(malloc(attribute->length + 1));
    take(attribute->value, attribute->length);
  }
}

static void forget_attributes(struct unpacker *unpacker, struct attributes *attributes) {
  for (uint16_t index = 0; index < attributes->count; index++) {
    unpacker->held_bytes -= sizeof *attributes->list + attributes->list[index].length;
    free(attributes->list[index].value);
  }
  free(attributes->list);
  attributes->list = NULL;
  attributes->count = 0;
}

/* Owner first, since a change of owner clears set-id bits and capabilities; times last, since all else moves them. */
static void give_attributes(int directory, const char *name, const struct attributes *attributes, int is_symlink) {
  char path[300];
  struct timespec times[2] = {attributes->changed, attributes->changed};
  snprintf(path, sizeof path, "/proc/self/fd/%d/%s", directory, name);
  if (fchownat(directory, name, attributes->uid, attributes->gid, AT_SYMLINK_NOFOLLOW) < 0) stop_errno("give %s to its owner", name);
  if (!is_symlink && fchmodat(directory, name, attributes->mode, 0) < 0) stop_errno("set the mode of %s", name);
  for (uint16_t index = 0; index < attributes->count; index++) {
    const struct attribute *attribute = &attributes->list[index];
    if (lsetxattr(path, attribute->name, attribute->value, attribute->length, 0) < 0)
      stop_errno("set the attribute %s of %s", attribute->name, name);
  }
  if (utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW) < 0) stop_errno("set the time of %s", name);
}

static void remember_linked(struct unpacker *unpacker, const char *name) {
  char *path = NULL;
  /* What the memory of it costs, besides the path. */
  if ((unpacker->linked_bytes += 4 * sizeof path) > MAX_LINKED_BYTES)
    stop("too_large", "the tree in it has too many files with several names");
  if (unpacker->linked_count == unpacker->linked_room) {
    unpacker->linked_room = unpacker->linked_room * 2 + 64;
    unpacker->linked = must(realloc(unpacker->linked, unpacker->linked_room * sizeof *unpacker->linked));
  }
  if (unpacker->writes) {
    size_t length = strlen(name) + 1;
    for (size_t depth = 1; depth <= unpacker->depth; depth++) length += strlen(unpacker->levels[depth].name) + 1;
    if ((unpacker->linked_bytes += length) > MAX_LINKED_BYTES) stop("too_large", "the tree in it has too many files with several names");
    path = must(malloc(length));
    char *at = path;
    for (size_t depth = 1; depth <= unpacker->depth; depth++) {
      at = stpcpy(at, unpacker->levels[depth].name);
      *at++ = '/';
    }
    strcpy(at, name);
  }
  unpacker->linked[unpacker->linked_count++] = path;
}

/* Step by step, as a path may be longer than the kernel takes at once. All directories on it were made here. */
static void make_link(struct unpacker *unpacker, const char *path, int to, const char *name) {
  int from = dup(unpacker->root);
  if (from < 0) stop_errno("open the tree");
  for (const char *slash; (slash = strchr(path, '/')) != NULL; path = slash + 1) {
    char part[MAX_NAME + 1];
    memcpy(part, path, (size_t)(slash - path));
    part[slash - path] = 0;
    int next = openat(from, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0) stop_errno("open the directory %s", part);
    close(from);
    from = next;
  }
  if (linkat(from, path, to, name, 0) < 0) stop_errno("make the link %s", name);
  close(from);
}

static void take_extent(struct unpacker *unpacker, int file, const char *name, uint64_t offset, uint64_t length) {
  count_bytes(unpacker, length);
  while (length > 0) {
    size_t part = length < COPY_BYTES ? (size_t)length : COPY_BYTES;
    take(unpacker->copy, part);
    for (size_t done = 0; file >= 0 && done < part;) {
      ssize_t wrote = pwrite(file, unpacker->copy + done, part - done, (off_t)(offset + done));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) stop_errno("write %s", name);
      done += (size_t)wrote;
    }
    offset += part;
    length -= part;
  }
}

static void take_content(struct unpacker *unpacker, int directory, const char *name) {
  uint64_t size = take64(), at = 0;
  int file = -1;
  if (size > INT64_MAX) damaged("a file that is too large");
  if (unpacker->writes) {
    file = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) stop_errno("make %s", name);
    if (ftruncate(file, (off_t)size) < 0) stop_errno("make %s as long as it was", name);
  }
  for (;;) {
    uint64_t offset = take64(), length = take64();
    if (offset < at || offset > size || length > size - offset) damaged("content that is not inside of its file");
    if (length == 0) {
      if (offset != size) damaged("the content of a file ends too early");
      break;
    }
    take_extent(unpacker, file, name, offset, length);
    at = offset + length;
  }
  if (file >= 0 && close(file) < 0) stop_errno("write %s", name);
}

static void enter(struct unpacker *unpacker, const char *name, struct attributes attributes) {
  struct level *parent = &unpacker->levels[unpacker->depth];
  size_t path_length = parent->path_length + 1 + strlen(name);
  int directory = -1;
  if (unpacker->depth + 1 > MAX_DEPTH) stop("too_large", "directories lie more than %d deep", MAX_DEPTH);
  if (unpacker->writes) {
    if (mkdirat(parent->directory, name, 0700) < 0) stop_errno("make the directory %s", name);
    directory = openat(parent->directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0) stop_errno("open the directory %s", name);
  }
  if (++unpacker->depth == unpacker->room) {
    unpacker->room = unpacker->room * 2;
    unpacker->levels = must(realloc(unpacker->levels, unpacker->room * sizeof *unpacker->levels));
  }
  struct level *level = &unpacker->levels[unpacker->depth];
  *level = (struct level){.directory = directory, .attributes = attributes, .path_length = path_length};
  strcpy(level->name, name);
}

static void leave(struct unpacker *unpacker) {
  if (unpacker->depth == 0) damaged("it leaves the root");
  struct level *level = &unpacker->levels[unpacker->depth--];
  if (unpacker->writes) {
    close(level->directory);
    give_attributes(unpacker->levels[unpacker->depth].directory, level->name, &level->attributes, 0);
  }
  forget_attributes(unpacker, &level->attributes);
}

static void take_symlink(struct unpacker *unpacker, int directory, const char *name) {
  char target[MAX_TARGET + 1];
  uint16_t length = take16();
  if (length == 0 || length > MAX_TARGET) damaged("a link without a usable target");
  take(target, length);
  target[length] = 0;
  if (strlen(target) != length) damaged("a link without a usable target");
  if (unpacker->writes && symlinkat(target, directory, name) < 0) stop_errno("make the link %s", name);
}

/*
 * Where sandboxes have something mounted, a link would lead to wherever a stranger likes. A start copes with that, but no honest
 * tree has it: an image has directories there, and a disk cannot have changed what was mounted over. /tmp and /workspace are the
 * sandbox's own as long as nothing is mounted there.
 */
static void check_place(const struct unpacker *unpacker, int record, const char *name) {
  static const char *const places[] = {"proc", "sys", "dev", "run", "tmp", "workspace"};
  enum { mounted_always = 4, all_places = sizeof places / sizeof *places };
  if (unpacker->depth > 0 || unpacker->policy == POLICY_MEMORY || record == RECORD_DIRECTORY || record == RECORD_WHITEOUT) return;
  for (size_t index = 0; index < (unpacker->policy == POLICY_DISK ? mounted_always : all_places); index++)
    if (strcmp(name, places[index]) == 0) stop("unsafe", "/%s in it is no directory, and sandboxes have something mounted there", name);
}

static void take_entry(struct unpacker *unpacker, int record) {
  char name[MAX_NAME + 1];
  struct attributes attributes;
  int directory = unpacker->levels[unpacker->depth].directory;
  if (unpacker->policy == POLICY_MEMORY && record != RECORD_FILE) stop("unsafe", "the memory in it holds something else than plain files");
  if (unpacker->policy == POLICY_IMAGE && record == RECORD_WHITEOUT) stop("unsafe", "the image in it holds a device");
  take_name(unpacker, name);
  check_place(unpacker, record, name);
  if (record == RECORD_LINK) {
    uint32_t number = take32();
    if (number >= unpacker->linked_count) damaged("a link to what did not come before it");
    if (unpacker->writes) make_link(unpacker, unpacker->linked[number], directory, name);
    return;
  }
  take_attributes(unpacker, name, &attributes);
  if (record == RECORD_DIRECTORY) {
    enter(unpacker, name, attributes);
    return;
  }
  if (record == RECORD_FILE) take_content(unpacker, directory, name);
  else if (record == RECORD_SYMLINK) take_symlink(unpacker, directory, name);
  else if (unpacker->writes) {
    mode_t type = record == RECORD_FIFO ? S_IFIFO : record == RECORD_SOCKET ? S_IFSOCK : S_IFCHR;
    if (mknodat(directory, name, type | 0600, 0) < 0) stop_errno("make %s", name);
  }
  if (unpacker->writes) give_attributes(directory, name, &attributes, record == RECORD_SYMLINK);
  if (attributes.flags & FLAG_LINKED) remember_linked(unpacker, name);
  forget_attributes(unpacker, &attributes);
}

static void take_entries(struct unpacker *unpacker) {
  for (;;) {
    int record = take8();
    switch (record) {
    case RECORD_END:
      if (unpacker->depth != 0) damaged("it ends inside of a directory");
      return;
    case RECORD_UP:
      leave(unpacker);
      break;
    case RECORD_DIRECTORY:
    case RECORD_FILE:
    case RECORD_SYMLINK:
    case RECORD_LINK:
    case RECORD_FIFO:
    case RECORD_SOCKET:
    case RECORD_WHITEOUT:
      take_entry(unpacker, record);
      break;
    default:
      damaged("a record of an unknown kind");
    }
  }
}

void unpack(enum policy policy, uint64_t max_bytes, const char *path) {
  struct unpacker unpacker = {.policy = policy, .writes = path != NULL, .root = -1, .max_bytes = max_bytes, .room = 64};
  char magic[MAGIC_LENGTH];
  setvbuf(stdin, NULL, _IOFBF, COPY_BYTES);
  unpacker.copy = must(malloc(COPY_BYTES));
  unpacker.levels = must(calloc(unpacker.room, sizeof *unpacker.levels));
  if (unpacker.writes) {
    unpacker.root = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (unpacker.root < 0) stop_errno("open %s", path);
  }
  unpacker.levels[0].directory = unpacker.root;
  take(magic, MAGIC_LENGTH);
  if (memcmp(magic, MAGIC, MAGIC_LENGTH) != 0) damaged("it does not begin as one");
  if (take8() != RECORD_ROOT) damaged("it has no root");
  struct attributes attributes;
  take_attributes(&unpacker, "the root", &attributes);
  take_entries(&unpacker);
  if (getchar() != EOF) damaged("something follows its end");
  if (unpacker.writes) {
    /* Memory lies in a directory of the store's own, which stays as the store made it. */
    if (policy != POLICY_MEMORY) give_attributes(unpacker.root, ".", &attributes, 0);
    /* What is said to be there must be there after a power cut. */
    if (syncfs(unpacker.root) < 0) stop_errno("write all of it to the disk");
  }
  printf("%llu %llu\n", (unsigned long long)unpacker.entries, (unsigned long long)unpacker.bytes);
}
