#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../lib/descent.h"

struct walk {
  struct reply *reply;
  int target_root;
  int reflink;
  struct descent from, to;
  struct stat *entered; /* of the directories on the way down, whose metadata comes last */
  size_t entered_room;
  struct link_table links;
  uint64_t referenced, exclusive;
};

/* One call of the kernel copies no more, so that who gives up does not wait for long. */
#define COPY_PIECE (64u << 20)

/* Paths through /proc/self/fd reach an entry by its directory, and the l- calls do not follow it. */
static void entry_path(char *path, size_t size, int directory, const char *name) {
  snprintf(path, size, "/proc/self/fd/%d/%s", directory, name);
}

static int copy_attributes(int from, int to, const char *name) {
  char source[300], target[300], names[65536];
  entry_path(source, sizeof source, from, name);
  entry_path(target, sizeof target, to, name);
  ssize_t length = llistxattr(source, names, sizeof names);
  if (length < 0) return errno == EOPNOTSUPP ? 0 : -1;
  for (char *attribute = names; attribute < names + length; attribute += strlen(attribute) + 1) {
    char value[65536];
    ssize_t size = lgetxattr(source, attribute, value, sizeof value);
    if (size < 0) {
      if (errno == ENODATA) continue;
      return -1;
    }
    if (lsetxattr(target, attribute, value, (size_t)size, 0) < 0) return -1;
  }
  return 0;
}

/* Owner first, since a change of owner clears set-id bits and capabilities; times last, since all else moves them. */
static int copy_metadata(int from, int to, const char *name, const struct stat *status) {
  struct timespec times[2] = {status->st_atim, status->st_mtim};
  if (fchownat(to, name, status->st_uid, status->st_gid, AT_SYMLINK_NOFOLLOW) < 0) return -1;
  if (!S_ISLNK(status->st_mode) && fchmodat(to, name, status->st_mode & 07777, 0) < 0) return -1;
  if (copy_attributes(from, to, name) < 0) return -1;
  return utimensat(to, name, times, AT_SYMLINK_NOFOLLOW);
}

static int copy_range(int source, int target, off_t offset, off_t end) {
  while (offset < end) {
    if (is_cancelled()) return -1;
    off_t to = offset;
    size_t piece = end - offset < COPY_PIECE ? (size_t)(end - offset) : COPY_PIECE;
    ssize_t moved = copy_file_range(source, &offset, target, &to, piece, 0);
    if (moved < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS)) {
      if (lseek(target, offset, SEEK_SET) < 0) return -1;
      moved = sendfile(target, source, &offset, piece);
    }
    if (moved < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    if (moved == 0) break; /* it became shorter */
  }
  return 0;
}

static int copy_sparse(int source, int target, off_t size) {
  off_t offset = 0;
  if (ftruncate(target, size) < 0) return -1;
  while (offset < size) {
    off_t data = lseek(source, offset, SEEK_DATA);
    if (data < 0) return errno == ENXIO ? 0 : -1;
    off_t hole = lseek(source, data, SEEK_HOLE);
    if (hole < 0) return -1;
    if (copy_range(source, target, data, hole) < 0) return -1;
    offset = hole;
  }
  return 0;
}

static int copy_regular(struct walk *walk, int from, int to, const char *name, const struct stat *status) {
  int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (source < 0) return -1;
  int target = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  int result = target < 0 ? -1 : 0;
  if (result == 0 && status->st_size > 0)
    result = walk->reflink ? ioctl(target, FICLONE, source) : copy_sparse(source, target, status->st_size);
  int saved = errno;
  if (target >= 0) close(target);
  close(source);
  errno = saved;
  return result;
}

static int copy_link(struct walk *walk, const char *earlier, const char *name) {
  const char *earlier_name;
  int parent = open_parent_beneath(walk->target_root, earlier, &earlier_name);
  if (parent < 0) return -1;
  int result = linkat(parent, earlier_name, descent_here(&walk->to), name, 0);
  int saved = errno;
  close(parent);
  errno = saved;
  return result;
}

static int copy_symlink(int from, int to, const char *name) {
  char target[4097];
  ssize_t length = readlinkat(from, name, target, sizeof target - 1);
  if (length < 0) return -1;
  target[length] = 0;
  return symlinkat(target, to, name);
}

/* What is in it follows. */
static int enter_directory(struct walk *walk, const char *name, const struct stat *status) {
  size_t depth = descent_depth(&walk->from);
  if (depth == walk->entered_room) {
    size_t room = depth == 0 ? 16 : depth * 2;
    struct stat *entered = realloc(walk->entered, room * sizeof *entered);
    if (entered == NULL) return -1;
    walk->entered = entered;
    walk->entered_room = room;
  }
  walk->entered[depth] = *status;
  if (mkdirat(descent_here(&walk->to), name, 0700) < 0) return -1;
  /* Both or none, as the end of the one is left with the other. */
  if (descent_enter(&walk->to, name) < 0) return -1;
  return descent_enter(&walk->from, name);
}

static int leave_directory(struct walk *walk) {
  char name[NAME_MAX + 1];
  strcpy(name, descent_name(&walk->from));
  if (descent_leave(&walk->from) < 0 || descent_leave(&walk->to) < 0) return -1;
  const struct stat *status = &walk->entered[descent_depth(&walk->from)];
  return copy_metadata(descent_here(&walk->from), descent_here(&walk->to), name, status);
}

static int copy_entry(struct walk *walk, const char *name) {
  struct stat status;
  int from = descent_here(&walk->from), to = descent_here(&walk->to);
  if (fstatat(from, name, &status, AT_SYMLINK_NOFOLLOW) < 0) return -1;
  if (S_ISDIR(status.st_mode)) return enter_directory(walk, name, &status);
  if (status.st_nlink > 1) {
    const char *earlier = find_link(&walk->links, status.st_ino);
    if (earlier != NULL) return copy_link(walk, earlier, name);
    if (remember_link(&walk->links, status.st_ino, descent_path(&walk->to, name)) < 0) return -1;
  }
  int result = -1;
  switch (status.st_mode & S_IFMT) {
  case S_IFREG:
    result = copy_regular(walk, from, to, name, &status);
    break;
  case S_IFLNK:
    result = copy_symlink(from, to, name);
    break;
  default:
    result = mknodat(to, name, status.st_mode & S_IFMT, status.st_rdev);
  }
  return result < 0 ? -1 : copy_metadata(from, to, name, &status);
}

static int copy_tree(struct walk *walk) {
  for (;;) {
    const char *name = descent_next(&walk->from);
    if (name == NULL && errno != 0) return -1;
    if (name == NULL && descent_depth(&walk->from) == 0) return 0;
    char kept[NAME_MAX + 1];
    strcpy(kept, name == NULL ? descent_name(&walk->from) : name);
    if ((name == NULL ? leave_directory(walk) : copy_entry(walk, kept)) == 0) continue;
    int saved = errno;
    char *shown = descent_path(&walk->from, kept);
    errno = saved;
    if (shown != NULL) fail(walk->reply, "copy %s", shown);
    free(shown);
    errno = saved;
    return -1;
  }
}

/* SOURCE TARGET reflink|plain: a faithful copy; TARGET must not exist. Half a copy is left where it fails: the caller removes it. */
static int copy(struct request *request, struct reply *reply) {
  const char *name;
  struct stat status;
  struct walk *walk = calloc(1, sizeof *walk);
  if (walk == NULL) return -1;
  walk->reply = reply;
  walk->reflink = strcmp(request->fields[2].data, "reflink") == 0;
  int source = open_directory(reply, request->fields[0].data);
  int parent = source < 0 ? -1 : open_parent(reply, request->fields[1].data, &name);
  int result = parent < 0 ? -1 : fstat(source, &status);
  if (result == 0) result = mkdirat(parent, name, 0700);
  int target = result < 0 ? -1 : openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (target < 0) result = -1;
  if (result == 0) result = descent_begin(&walk->from, dup(source));
  if (result == 0) result = descent_begin(&walk->to, dup(target));
  walk->target_root = target;
  if (result == 0) result = copy_tree(walk);
  /* The two roots have different names, so their metadata is copied from "." to ".". */
  if (result == 0) result = copy_metadata(source, target, ".", &status);
  int saved = errno;
  descent_end(&walk->from);
  descent_end(&walk->to);
  if (target >= 0) close(target);
  if (parent >= 0) close(parent);
  if (source >= 0) close(source);
  forget_links(&walk->links);
  free(walk->entered);
  free(walk);
  errno = saved;
  if (result < 0 && strcmp(reply->message, "copy") == 0)
    return fail(reply, "copy %s to %s", request->fields[0].data, request->fields[1].data);
  return result;
}

/* What of a file lies in extents that no other file shares. */
static int unshared_bytes(int directory, const char *name, uint64_t *bytes) {
  union {
    struct fiemap map;
    char space[sizeof(struct fiemap) + 128 * sizeof(struct fiemap_extent)];
  } request;
  int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return -1;
  uint64_t start = 0;
  int result = 0, last = 0;
  while (!last) {
    if (is_cancelled()) {
      result = -1;
      break;
    }
    memset(&request, 0, sizeof request);
    request.map.fm_start = start;
    request.map.fm_length = FIEMAP_MAX_OFFSET - start;
    request.map.fm_flags = FIEMAP_FLAG_SYNC;
    request.map.fm_extent_count = 128;
    result = ioctl(file, FS_IOC_FIEMAP, &request.map);
    if (result < 0 || request.map.fm_mapped_extents == 0) break;
    for (uint32_t index = 0; index < request.map.fm_mapped_extents; index++) {
      struct fiemap_extent *extent = &request.map.fm_extents[index];
      if (!(extent->fe_flags & FIEMAP_EXTENT_SHARED)) *bytes += extent->fe_length;
      start = extent->fe_logical + extent->fe_length;
      if (extent->fe_flags & FIEMAP_EXTENT_LAST) last = 1;
    }
  }
  int saved = errno;
  close(file);
  errno = saved;
  return result;
}

/* What goes away while it is measured counts for nothing. */
static int measure_entry(struct walk *walk, const char *name) {
  struct stat status;
  int here = descent_here(&walk->from);
  if (fstatat(here, name, &status, AT_SYMLINK_NOFOLLOW) < 0) return errno == ENOENT ? 0 : -1;
  if (!S_ISDIR(status.st_mode) && status.st_nlink > 1) {
    if (find_link(&walk->links, status.st_ino) != NULL) return 0;
    if (remember_link(&walk->links, status.st_ino, strdup("")) < 0) return -1;
  }
  uint64_t allocated = (uint64_t)status.st_blocks * 512;
  walk->referenced += allocated;
  if (!walk->reflink || !S_ISREG(status.st_mode)) walk->exclusive += allocated;
  else if (unshared_bytes(here, name, &walk->exclusive) < 0 && errno != ENOENT) return -1;
  return !S_ISDIR(status.st_mode) || descent_enter(&walk->from, name) == 0 || errno == ENOENT ? 0 : -1;
}

static int measure_tree(struct walk *walk) {
  for (;;) {
    const char *name = descent_next(&walk->from);
    /* A directory that was removed lists as one that is no longer there. */
    if (name == NULL && errno != 0 && errno != ENOENT) return -1;
    if (name == NULL && descent_depth(&walk->from) == 0) return 0;
    if ((name == NULL ? descent_leave(&walk->from) : measure_entry(walk, name)) < 0) return -1;
  }
}

/* DIR reflink|plain -> allocated bytes, bytes that are shared with nothing */
static int measure(struct request *request, struct reply *reply) {
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  struct walk *walk = calloc(1, sizeof *walk);
  if (walk == NULL) {
    close(directory);
    return -1;
  }
  walk->reflink = strcmp(request->fields[1].data, "reflink") == 0;
  int result = descent_begin(&walk->from, directory);
  if (result == 0) result = measure_tree(walk);
  int saved = errno;
  if (result == 0) {
    reply_number(reply, walk->referenced);
    reply_number(reply, walk->exclusive);
  }
  descent_end(&walk->from);
  forget_links(&walk->links);
  free(walk);
  errno = saved;
  return result < 0 ? fail(reply, "measure %s", request->fields[0].data) : 0;
}

/* DIR -> "reflink" | "none": whether files of this filesystem can share their blocks */
static int probe_reflink(struct request *request, struct reply *reply) {
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  int one = openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  int other = one < 0 ? -1 : openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  char block[4096] = {1};
  int ready = other >= 0 && write(one, block, sizeof block) == sizeof block;
  int cloned = ready && ioctl(other, FICLONE, one) == 0;
  if (other >= 0) close(other);
  if (one >= 0) close(one);
  close(directory);
  reply_text(reply, cloned ? "reflink" : "none");
  return 0;
}

const struct operation_entry copy_operations[] = {
    {"copy", 3, copy},
    {"measure", 2, measure},
    {"probe-reflink", 1, probe_reflink},
    {NULL, 0, NULL},
};
