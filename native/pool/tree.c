#define _GNU_SOURCE
#include "pool.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../lib/remove.h"
#include "../lib/write.h"

enum entry_flag { ENTRY_WHITEOUT = 1, ENTRY_OPAQUE = 2 };
#define DIGEST_BYTES 32

/* One entry of a directory as it goes over the wire; the name follows, then the target of a symbolic link, then the digest of
   its extended attributes where it has any. */
struct entry_record {
  uint32_t mode, uid, gid, flags;
  uint64_t size, allocated, inode;
  int64_t mtime_ns, ctime_ns;
  uint32_t links, name_length, target_length;
} __attribute__((packed));

static int is_opaque(int directory, const char *name) {
  int inside = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  char value[2];
  if (inside < 0) return 0;
  int opaque = (fgetxattr(inside, "user.overlay.opaque", value, sizeof value) == 1 && value[0] == 'y') ||
               (fgetxattr(inside, "trusted.overlay.opaque", value, sizeof value) == 1 && value[0] == 'y');
  close(inside);
  return opaque;
}

/* Some filesystems keep seconds that are too many to be counted in nanoseconds: those become the most there can be. */
static int64_t nanoseconds(struct timespec time) {
  int64_t most = INT64_MAX / 1000000000 - 1;
  int64_t seconds = time.tv_sec > most ? most : time.tv_sec < -most ? -most : time.tv_sec;
  return seconds * 1000000000 + time.tv_nsec;
}

/* Returns 1 when it is described, 0 when it has gone meanwhile, -1 on error. */
static int describe(struct reply *reply, int directory, const char *name) {
  struct stat status;
  char target[4097];
  ssize_t target_length = 0;
  if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0) return errno == ENOENT ? 0 : -1;
  if (S_ISLNK(status.st_mode)) {
    target_length = readlinkat(directory, name, target, sizeof target);
    if (target_length < 0) return errno == ENOENT || errno == EINVAL ? 0 : -1;
  }
  struct entry_record record = {
      .mode = status.st_mode,
      .uid = status.st_uid,
      .gid = status.st_gid,
      .size = (uint64_t)status.st_size,
      .allocated = (uint64_t)status.st_blocks * 512,
      .inode = status.st_ino,
      .mtime_ns = nanoseconds(status.st_mtim),
      .ctime_ns = nanoseconds(status.st_ctim),
      .links = (uint32_t)status.st_nlink,
      .name_length = (uint32_t)strlen(name),
      .target_length = (uint32_t)target_length,
  };
  if (S_ISCHR(status.st_mode) && status.st_rdev == makedev(0, 0)) record.flags |= ENTRY_WHITEOUT;
  if (S_ISDIR(status.st_mode) && is_opaque(directory, name)) record.flags |= ENTRY_OPAQUE;
  uint8_t digest[DIGEST_BYTES];
  int attributes = S_ISREG(status.st_mode) || S_ISDIR(status.st_mode) ? attributes_digest(directory, name, digest) : 0;
  if (attributes < 0) return errno == ENOENT ? 0 : -1;
  size_t digest_length = attributes > 0 ? sizeof digest : 0;
  char packed[sizeof record + 256 + sizeof target + sizeof digest];
  memcpy(packed, &record, sizeof record);
  memcpy(packed + sizeof record, name, record.name_length);
  memcpy(packed + sizeof record + record.name_length, target, (size_t)target_length);
  memcpy(packed + sizeof record + record.name_length + target_length, digest, digest_length);
  reply_bytes(reply, packed, sizeof record + record.name_length + (size_t)target_length + digest_length);
  reply_flush(reply);
  return 1;
}

/* The first names of a directory in their order, as many as there is room for. While not all fit it is a heap, the last on top. */
struct names_page {
  char **names;
  size_t count, room;
  int more;
};

static void sift_down(struct names_page *page, size_t at) {
  for (;;) {
    size_t largest = at;
    for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < page->count; child++)
      if (strcmp(page->names[child], page->names[largest]) > 0) largest = child;
    if (largest == at) return;
    char *name = page->names[at];
    page->names[at] = page->names[largest];
    page->names[largest] = name;
    at = largest;
  }
}

static int add_name(struct names_page *page, const char *name) {
  int full = page->count == page->room;
  if (full) page->more = 1;
  if (full && strcmp(name, page->names[0]) >= 0) return 0;
  char *copy = strdup(name);
  if (copy == NULL) return -1;
  if (!full) {
    page->names[page->count++] = copy;
    if (page->count == page->room)
      for (size_t at = page->count / 2 + 1; at > 0; at--) sift_down(page, at - 1);
    return 0;
  }
  free(page->names[0]);
  page->names[0] = copy;
  sift_down(page, 0);
  return 0;
}

static int by_name(const void *one, const void *other) { return strcmp(*(char *const *)one, *(char *const *)other); }

static int read_page(DIR *stream, const char *after, struct names_page *page) {
  struct dirent *entry;
  while ((errno = 0, entry = readdir(stream)) != NULL) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (is_cancelled()) return -1;
    if (strcmp(entry->d_name, after) > 0 && add_name(page, entry->d_name) < 0) return -1;
  }
  if (errno != 0) return -1;
  if (page->count > 0) qsort(page->names, page->count, sizeof *page->names, by_name);
  return 0;
}

/*
 * ROOT PATH AFTER COUNT -> the entries of one directory in the order of their names, from the one after AFTER on, COUNT at most;
 * last a field that is "more" or "end". No link is followed on the way.
 */
static int list(struct request *request, struct reply *reply) {
  uint64_t most;
  if (parse_number(request->fields[3].data, &most) < 0 || most == 0 || most > 1000000) {
    errno = EINVAL;
    return fail(reply, "take %s as a number of entries", request->fields[3].data);
  }
  int root = open_directory(reply, request->fields[0].data);
  if (root < 0) return -1;
  int directory = open_beneath(root, request->fields[1].data, O_RDONLY | O_DIRECTORY);
  close(root);
  if (directory < 0) return fail(reply, "list /%s", request->fields[1].data);
  DIR *stream = fdopendir(directory);
  if (stream == NULL) {
    close(directory);
    return fail(reply, "list /%s", request->fields[1].data);
  }
  struct names_page page = {.room = (size_t)most, .names = calloc((size_t)most, sizeof(char *))};
  int result = page.names == NULL ? -1 : read_page(stream, request->fields[2].data, &page);
  for (size_t index = 0; result >= 0 && index < page.count; index++)
    result = is_cancelled() ? -1 : describe(reply, dirfd(stream), page.names[index]);
  int saved = errno;
  for (size_t index = 0; index < page.count; index++) free(page.names[index]);
  free(page.names);
  closedir(stream);
  errno = saved;
  if (result < 0) return fail(reply, "list /%s", request->fields[1].data);
  reply_text(reply, page.more ? "more" : "end");
  return 0;
}

/* ROOT PATH -> its entry ("" is the root itself) */
static int look(struct request *request, struct reply *reply) {
  const char *name = ".";
  int root = open_directory(reply, request->fields[0].data);
  if (root < 0) return -1;
  int parent = request->fields[1].length == 0 ? dup(root) : open_parent_beneath(root, request->fields[1].data, &name);
  close(root);
  if (parent < 0) return fail(reply, "look at /%s", request->fields[1].data);
  int found = describe(reply, parent, name);
  if (found == 0) errno = ENOENT;
  int saved = errno;
  close(parent);
  errno = saved;
  return found > 0 ? 0 : fail(reply, "look at /%s", request->fields[1].data);
}

/* ROOT PATH -> its entry, or nothing when it is not there */
static int look_if(struct request *request, struct reply *reply) {
  if (look(request, reply) == 0) return 0;
  return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
}

static int open_regular(struct reply *reply, const char *root_path, const char *path, off_t *size) {
  struct stat status;
  int root = open_directory(reply, root_path);
  if (root < 0) return -1;
  /* Not blocking, should it have become a FIFO since it was looked at. */
  int file = open_beneath(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  close(root);
  if (file < 0) return fail(reply, "open /%s", path);
  if (fstat(file, &status) < 0 || !S_ISREG(status.st_mode)) {
    close(file);
    errno = EINVAL;
    return fail(reply, "read /%s as a regular file", path);
  }
  *size = status.st_size;
  return file;
}

static off_t next_data(int file, off_t offset, off_t size) {
  off_t found = lseek(file, offset, SEEK_DATA);
  if (found >= 0) return found;
  return errno == ENXIO ? size : offset;
}

static ssize_t read_fully(int file, char *buffer, size_t length, off_t offset) {
  size_t total = 0;
  while (total < length) {
    ssize_t got = pread(file, buffer + total, length - total, offset + (off_t)total);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    total += (size_t)got;
  }
  return (ssize_t)total;
}

/* Returns 1 when equal, 0 when not, -1 on error. Holes that both have are not read, however large. */
static int same_content(int one, int other, off_t size) {
  enum { CHUNK = 128 * 1024 };
  char *buffers = malloc(2 * CHUNK);
  int result = buffers == NULL ? -1 : 1;
  off_t offset = 0;
  while (result == 1 && offset < size) {
    if (is_cancelled()) {
      result = -1;
      break;
    }
    off_t data_one = next_data(one, offset, size), data_other = next_data(other, offset, size);
    offset = data_one < data_other ? data_one : data_other;
    if (offset >= size) break;
    ssize_t got_one = read_fully(one, buffers, CHUNK, offset);
    ssize_t got_other = read_fully(other, buffers + CHUNK, CHUNK, offset);
    if (got_one < 0 || got_other < 0) result = -1;
    else if (got_one != got_other || memcmp(buffers, buffers + CHUNK, (size_t)got_one) != 0) result = 0;
    else if (got_one == 0) break;
    offset += got_one > 0 ? got_one : 0;
  }
  free(buffers);
  return result;
}

/* ROOT PATH ROOT PATH -> "equal" | "different" */
static int compare(struct request *request, struct reply *reply) {
  off_t size_one = 0, size_other = 0;
  int one = open_regular(reply, request->fields[0].data, request->fields[1].data, &size_one);
  if (one < 0) return -1;
  int other = open_regular(reply, request->fields[2].data, request->fields[3].data, &size_other);
  if (other < 0) {
    int saved = errno;
    close(one);
    errno = saved;
    return -1;
  }
  int equal = size_one != size_other ? 0 : same_content(one, other, size_one);
  int saved = errno;
  close(one);
  close(other);
  errno = saved;
  if (equal < 0) return fail(reply, "compare /%s", request->fields[1].data);
  reply_text(reply, equal ? "equal" : "different");
  return 0;
}

/* The next stretch of a file that holds data, from an offset on; 1 found, 0 none, -1 error. */
static int next_extent(int file, off_t from, off_t size, off_t *start, off_t *end) {
  off_t data = lseek(file, from, SEEK_DATA);
  if (data < 0) return errno == ENXIO ? 0 : -1;
  off_t hole = lseek(file, data, SEEK_HOLE);
  if (hole < 0) return -1;
  *start = data;
  *end = hole < size ? hole : size;
  return *start < *end;
}

/* ROOT PATH -> where data is in a regular file, in order: offset and length, 8 bytes each, as many pairs to a field as fit */
static int extents(struct request *request, struct reply *reply) {
  enum { PAIRS = 512 };
  uint64_t pairs[2 * PAIRS];
  size_t count = 0;
  off_t size = 0, start = 0, end = 0;
  int file = open_regular(reply, request->fields[0].data, request->fields[1].data, &size);
  if (file < 0) return -1;
  int found;
  while ((found = is_cancelled() ? -1 : next_extent(file, end, size, &start, &end)) > 0) {
    pairs[2 * count] = htole64((uint64_t)start);
    pairs[2 * count + 1] = htole64((uint64_t)(end - start));
    if (++count < PAIRS) continue;
    reply_bytes(reply, pairs, sizeof pairs);
    reply_flush(reply);
    count = 0;
  }
  if (count > 0) reply_bytes(reply, pairs, count * 2 * sizeof *pairs);
  int saved = errno;
  close(file);
  errno = saved;
  return found < 0 ? fail(reply, "find what is in /%s", request->fields[1].data) : 0;
}

/* By reading and writing, as blocks that are shared would not count against the limit of who gets them. */
static int copy_bytes(int source, int target, off_t offset, off_t end, char *buffer, size_t room) {
  while (offset < end) {
    if (is_cancelled()) return -1;
    size_t wanted = end - offset < (off_t)room ? (size_t)(end - offset) : room;
    ssize_t got = read_fully(source, buffer, wanted, offset);
    if (got < 0) return -1;
    if (got == 0) break; /* it became shorter */
    for (ssize_t done = 0; done < got;) {
      ssize_t put = pwrite(target, buffer + done, (size_t)(got - done), offset + done);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return -1;
      done += put;
    }
    offset += got;
  }
  return 0;
}

/* ROOT PATH DIRECTORY NAME: the content of a regular file becomes a new file, with its holes; owner and mode are not copied. */
static int copy_content(struct request *request, struct reply *reply) {
  enum { ROOM = 256 * 1024 };
  off_t size = 0, start = 0, end = 0;
  const char *name = request->fields[3].data;
  int directory = open_directory(reply, request->fields[2].data);
  if (directory < 0) return -1;
  int source = open_regular(reply, request->fields[0].data, request->fields[1].data, &size);
  int target = source < 0 ? -1 : openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  char *buffer = malloc(ROOM);
  int result = target < 0 || buffer == NULL ? -1 : ftruncate(target, size);
  while (result == 0 && (result = next_extent(source, end, size, &start, &end)) > 0)
    result = copy_bytes(source, target, start, end, buffer, ROOM);
  int saved = errno;
  free(buffer);
  if (target >= 0) close(target);
  if (target >= 0 && result < 0) unlinkat(directory, name, 0);
  if (source >= 0) close(source);
  close(directory);
  errno = saved;
  return result < 0 && source >= 0 ? fail(reply, "copy /%s", request->fields[1].data) : result;
}

/* ROOT PATH: an overlay shows nothing here, whatever lies below. Replaces a file or link, not a directory. */
static int whiteout(struct request *request, struct reply *reply) {
  const char *name;
  int root = open_directory(reply, request->fields[0].data);
  if (root < 0) return -1;
  int parent = open_parent_beneath(root, request->fields[1].data, &name);
  close(root);
  if (parent < 0) return fail(reply, "reach /%s", request->fields[1].data);
  int result = mknodat(parent, name, S_IFCHR, makedev(0, 0));
  if (result < 0) fail(reply, "hide /%s", request->fields[1].data);
  close(parent);
  return result;
}

/* ROOT PATH: an overlay shows nothing of the directory of that name below. */
static int set_opaque(struct request *request, struct reply *reply) {
  int root = open_directory(reply, request->fields[0].data);
  if (root < 0) return -1;
  int directory = open_beneath(root, request->fields[1].data, O_RDONLY | O_DIRECTORY);
  close(root);
  if (directory < 0) return fail(reply, "open /%s", request->fields[1].data);
  int result = fsetxattr(directory, "user.overlay.opaque", "y", 1, 0);
  if (result < 0) fail(reply, "make /%s opaque", request->fields[1].data);
  close(directory);
  return result;
}

/* ROOT PATH: whatever it is, with all that is in it. Absent is fine. */
static int remove_beneath(struct request *request, struct reply *reply) {
  const char *name;
  int root = open_directory(reply, request->fields[0].data);
  if (root < 0) return -1;
  int parent = open_parent_beneath(root, request->fields[1].data, &name);
  close(root);
  if (parent < 0) return errno == ENOENT ? 0 : fail(reply, "reach /%s", request->fields[1].data);
  int result = remove_tree_at(parent, name);
  if (result < 0 && errno == ENOENT) result = 0;
  if (result < 0) fail(reply, "remove /%s", request->fields[1].data);
  close(parent);
  return result;
}

static int rename_with(struct request *request, struct reply *reply, unsigned flags, const char *what) {
  const char *from_name, *to_name;
  int from = open_parent(reply, request->fields[0].data, &from_name);
  if (from < 0) return -1;
  int to = open_parent(reply, request->fields[1].data, &to_name);
  int result = to < 0 ? -1 : renameat2(from, from_name, to, to_name, flags);
  int saved = errno;
  if (to >= 0) close(to);
  close(from);
  errno = saved;
  if (result == 0 || to < 0) return result;
  return fail(reply, "%s %s and %s", what, request->fields[0].data, request->fields[1].data);
}

/* FROM TO: TO must not exist. */
static int rename_entry(struct request *request, struct reply *reply) { return rename_with(request, reply, RENAME_NOREPLACE, "rename"); }

/* ONE OTHER: each takes the other's name, in one step. */
static int exchange(struct request *request, struct reply *reply) { return rename_with(request, reply, RENAME_EXCHANGE, "exchange"); }

/* PATH CONTENT: whoever reads it sees the old content or the new one. */
static int replace_file(struct request *request, struct reply *reply) {
  static unsigned long counter;
  char draft[64];
  const char *name;
  int parent = open_parent(reply, request->fields[0].data, &name);
  if (parent < 0) return -1;
  snprintf(draft, sizeof draft, ".new.%d.%lu", getpid(), __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED));
  int file = openat(parent, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  int result = file >= 0 && write_fully(file, request->fields[1].data, request->fields[1].length) ? 0 : -1;
  if (result == 0) result = renameat(parent, draft, parent, name);
  int saved = errno;
  if (file >= 0) close(file);
  if (file >= 0 && result < 0) unlinkat(parent, draft, 0);
  close(parent);
  errno = saved;
  return result < 0 ? fail(reply, "write %s", request->fields[0].data) : 0;
}

const struct operation_entry tree_operations[] = {
    {"list", 4, list},
    {"look", 2, look},
    {"look-if", 2, look_if},
    {"compare", 4, compare},
    {"extents", 2, extents},
    {"copy-content", 4, copy_content},
    {"whiteout", 2, whiteout},
    {"set-opaque", 2, set_opaque},
    {"remove", 2, remove_beneath},
    {"rename", 2, rename_entry},
    {"exchange", 2, exchange},
    {"replace-file", 2, replace_file},
    {NULL, 0, NULL},
};
