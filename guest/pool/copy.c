#define _GNU_SOURCE
#include "pool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Files with several names, by inode: where the first of them was put, relative to the copy's root. */
struct link_entry {
  struct link_entry *next;
  ino_t inode;
  char *path;
};
#define LINK_BUCKETS 4096

struct walk {
  struct reply *reply;
  int target_root;
  int reflink;
  dev_t device;
  struct link_entry *links[LINK_BUCKETS];
  uint64_t referenced, exclusive;
};

static struct link_entry *find_link(struct walk *walk, ino_t inode) {
  for (struct link_entry *entry = walk->links[inode % LINK_BUCKETS]; entry != NULL; entry = entry->next)
    if (entry->inode == inode) return entry;
  return NULL;
}

static int remember_link(struct walk *walk, ino_t inode, const char *path) {
  struct link_entry *entry = malloc(sizeof *entry);
  if (entry == NULL) return -1;
  *entry = (struct link_entry){.next = walk->links[inode % LINK_BUCKETS], .inode = inode, .path = strdup(path)};
  if (entry->path == NULL) {
    free(entry);
    return -1;
  }
  walk->links[inode % LINK_BUCKETS] = entry;
  return 0;
}

static void forget_links(struct walk *walk) {
  for (size_t bucket = 0; bucket < LINK_BUCKETS; bucket++)
    for (struct link_entry *entry = walk->links[bucket], *next; entry != NULL; entry = next) {
      next = entry->next;
      free(entry->path);
      free(entry);
    }
}

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
    off_t to = offset;
    ssize_t moved = copy_file_range(source, &offset, target, &to, (size_t)(end - offset), 0);
    if (moved < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS)) {
      if (lseek(target, offset, SEEK_SET) < 0) return -1;
      moved = sendfile(target, source, &offset, (size_t)(end - offset));
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

static int copy_directory(struct walk *walk, int from, int to, const char *path);

static int copy_entry(struct walk *walk, int from, int to, const char *name, const char *path) {
  struct stat status;
  char target[4097];
  if (fstatat(from, name, &status, AT_SYMLINK_NOFOLLOW) < 0) return -1;
  if (!S_ISDIR(status.st_mode) && status.st_nlink > 1) {
    struct link_entry *earlier = find_link(walk, status.st_ino);
    if (earlier != NULL) return linkat(walk->target_root, earlier->path, to, name, 0);
    if (remember_link(walk, status.st_ino, path) < 0) return -1;
  }
  int result = -1;
  switch (status.st_mode & S_IFMT) {
    case S_IFREG:
      result = copy_regular(walk, from, to, name, &status);
      break;
    case S_IFLNK: {
      ssize_t length = readlinkat(from, name, target, sizeof target - 1);
      if (length < 0) return -1;
      target[length] = 0;
      result = symlinkat(target, to, name);
      break;
    }
    case S_IFDIR: {
      if (mkdirat(to, name, 0700) < 0) return -1;
      int source = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      int copy = source < 0 ? -1 : openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      result = copy < 0 ? -1 : copy_directory(walk, source, copy, path);
      int saved = errno;
      if (copy >= 0) close(copy);
      if (source >= 0) close(source);
      errno = saved;
      break;
    }
    default:
      result = mknodat(to, name, status.st_mode & S_IFMT, status.st_rdev);
  }
  if (result == 0) result = copy_metadata(from, to, name, &status);
  return result;
}

static int copy_directory(struct walk *walk, int from, int to, const char *path) {
  /* Opened anew, so that the stream owns its descriptor. */
  int again = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = again < 0 ? NULL : fdopendir(again);
  if (stream == NULL) return -1;
  int result = 0;
  struct dirent *entry;
  while (result == 0 && (errno = 0, entry = readdir(stream)) != NULL) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    char *inside;
    if (asprintf(&inside, "%s%s%s", path, *path == 0 ? "" : "/", entry->d_name) < 0) {
      result = -1;
      break;
    }
    result = copy_entry(walk, from, to, entry->d_name, inside);
    if (result < 0 && strcmp(walk->reply->message, "copy") == 0) fail(walk->reply, "copy %s", inside);
    int saved = errno;
    free(inside);
    errno = saved;
  }
  if (result == 0 && errno != 0) result = -1;
  int saved = errno;
  closedir(stream);
  errno = saved;
  return result;
}

/* SOURCE TARGET reflink|plain: a faithful copy; TARGET must not exist. Half a copy is left where it fails: the caller removes it. */
static int copy(struct request *request, struct reply *reply) {
  const char *from_name, *to_name;
  struct walk *walk = calloc(1, sizeof *walk);
  if (walk == NULL) return -1;
  walk->reply = reply;
  walk->reflink = strcmp(request->fields[2].data, "reflink") == 0;
  int from = open_parent(reply, request->fields[0].data, &from_name);
  int to = from < 0 ? -1 : open_parent(reply, request->fields[1].data, &to_name);
  int source = to < 0 ? -1 : open_directory(reply, request->fields[0].data);
  struct stat status;
  int result = source < 0 ? -1 : fstat(source, &status);
  if (result == 0) result = mkdirat(to, to_name, 0700);
  if (result == 0) {
    walk->target_root = openat(to, to_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    result = walk->target_root < 0 ? -1 : copy_directory(walk, source, walk->target_root, "");
    /* The two roots have different names, so their metadata is copied from "." to ".". */
    if (result == 0) result = copy_metadata(source, walk->target_root, ".", &status);
    int saved = errno;
    if (walk->target_root >= 0) close(walk->target_root);
    errno = saved;
  }
  int saved = errno;
  if (source >= 0) close(source);
  if (to >= 0) close(to);
  if (from >= 0) close(from);
  forget_links(walk);
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

static int measure_directory(struct walk *walk, int directory) {
  DIR *stream = fdopendir(directory);
  if (stream == NULL) {
    close(directory);
    return -1;
  }
  int result = 0;
  struct dirent *entry;
  while (result == 0 && (errno = 0, entry = readdir(stream)) != NULL) {
    struct stat status;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (fstatat(dirfd(stream), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
      if (errno != ENOENT) result = -1;
      continue;
    }
    if (S_ISDIR(status.st_mode)) {
      int inside = openat(dirfd(stream), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (inside >= 0) result = measure_directory(walk, inside);
      else if (errno != ENOENT) result = -1;
    } else if (status.st_nlink > 1) {
      if (find_link(walk, status.st_ino) != NULL) continue;
      result = remember_link(walk, status.st_ino, "");
    }
    if (result < 0) break;
    uint64_t allocated = (uint64_t)status.st_blocks * 512;
    walk->referenced += allocated;
    if (!walk->reflink || !S_ISREG(status.st_mode)) walk->exclusive += allocated;
    else if (unshared_bytes(dirfd(stream), entry->d_name, &walk->exclusive) < 0 && errno != ENOENT) result = -1;
  }
  if (result == 0 && errno != 0 && errno != ENOENT) result = -1;
  int saved = errno;
  closedir(stream);
  errno = saved;
  return result;
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
  int result = measure_directory(walk, directory);
  int saved = errno;
  if (result == 0) {
    reply_number(reply, walk->referenced);
    reply_number(reply, walk->exclusive);
  }
  forget_links(walk);
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
