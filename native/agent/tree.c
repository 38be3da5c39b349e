/* What walks over many files runs in a worker: see worker_open. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/remove.h"
#include "agent.h"
#include "tree.h"

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

char **directory_names(int fd, size_t *count) {
  char **names = NULL;
  size_t length = 0, capacity = 0;
  int copy = dup(fd);
  DIR *directory = copy < 0 ? NULL : fdopendir(copy);
  if (directory == NULL) {
    if (copy >= 0) close(copy);
    return NULL;
  }
  rewinddir(directory); /* The copy shares its position with the descriptor, which may have been read before. */
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (length == capacity) {
      capacity = capacity == 0 ? 64 : capacity * 2;
      names = must_realloc(names, capacity * sizeof *names);
    }
    names[length++] = must_copy(entry->d_name);
  }
  closedir(directory);
  if (names == NULL) names = must_alloc(sizeof *names);
  qsort(names, length, sizeof *names, compare_names);
  *count = length;
  return names;
}

void free_names(char **names, size_t count) {
  for (size_t i = 0; i < count; i++) free(names[i]);
  free(names);
}

char *join_path(const char *directory, const char *name) {
  size_t length = strlen(directory);
  while (length > 0 && directory[length - 1] == '/') length--;
  char *path = must_alloc(length + strlen(name) + 2);
  sprintf(path, "%.*s/%s", (int)length, directory, name);
  return path;
}

/* ---- list ---- */

struct listing {
  const char *path;
  uint32_t depth;
  uint32_t limit;
  uint32_t count;
  bool truncated;
  struct buffer out;
};

/* Its room on the stack must not be part of the walk, which is as deep as the tree. */
static __attribute__((noinline)) void list_entry(struct listing *listing, int fd, const char *name, const char *path,
                                                 const struct stat *st) {
  char target[PATH_MAX];
  ssize_t n = S_ISLNK(st->st_mode) ? readlinkat(fd, name, target, sizeof target - 1) : -1;
  if (n >= 0) target[n] = 0;
  put_stat(&listing->out, path, st, n >= 0 ? target : NULL);
  if (listing->out.length <= 32768) return;
  worker_write(listing->out.bytes, listing->out.length);
  listing->out.length = 0;
}

static void list_directory(struct listing *listing, int fd, const char *path, uint32_t depth) {
  size_t count;
  char **names = directory_names(fd, &count);
  if (names == NULL) {
    listing->truncated = true;
    return;
  }
  for (size_t i = 0; i < count && !(listing->truncated && listing->count == listing->limit); i++) {
    struct stat st;
    if (fstatat(fd, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0) continue; /* Removed meanwhile. */
    if (listing->count == listing->limit) {
      listing->truncated = true;
      break;
    }
    listing->count++;
    char *child = join_path(path, names[i]);
    list_entry(listing, fd, names[i], child, &st);
    if (S_ISDIR(st.st_mode) && depth > 1) {
      int child_fd = openat(fd, names[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (child_fd >= 0) {
        list_directory(listing, child_fd, child, depth - 1);
        close(child_fd);
      } else if (errno != ENOENT && errno != ENOTDIR) {
        listing->truncated = true;
      }
    }
    free(child);
  }
  free_names(names, count);
}

static void list_worker(void *argument) {
  struct listing *listing = argument;
  int fd = open(listing->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) worker_fail_errno(errno, "cannot list %.1024s", listing->path);
  list_directory(listing, fd, listing->path, listing->depth);
  worker_write(listing->out.bytes, listing->out.length);
  struct buffer body = {0};
  put_u8(&body, listing->truncated);
  worker_done(&body);
}

void tree_list(struct channel *channel, struct reader *body) {
  struct listing listing = {.path = read_string(body), .depth = read_u32(body), .limit = read_u32(body)};
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request to list is malformed");
    return;
  }
  if (path_is_absolute(channel, listing.path)) worker_open(channel, list_worker, &listing, false);
}

/* ---- remove ---- */

void remove_tree(int parent, const char *name, const char *shown) {
  if (remove_tree_at(parent, name) == 0) return;
  if (errno == ESTALE) worker_fail("conflict", 0, "%.1024s was moved while it was being removed", shown);
  worker_fail_errno(errno, "cannot remove %.1024s", shown);
}

static void remove_worker(void *argument) {
  const char *path = argument;
  char *copy = must_copy(path);
  char *slash = strrchr(copy, '/');
  const char *name = path + (slash - copy) + 1;
  slash[slash == copy ? 1 : 0] = 0;
  int parent = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent < 0) worker_fail_errno(errno, "cannot remove %.1024s", path);
  remove_tree(parent, name, path);
  worker_done(NULL);
}

void tree_remove(struct channel *channel, struct reader *body) {
  char *path = read_string(body);
  bool recursive = read_u8(body) != 0;
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request to remove is malformed");
    return;
  }
  if (!path_is_absolute(channel, path)) return;
  for (size_t length = strlen(path); length > 1 && path[length - 1] == '/';) path[--length] = 0;
  const char *name = strrchr(path, '/') + 1;
  if (*name == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
    channel_fail(channel, "invalid_argument", EINVAL, "%.1024s cannot be removed", path);
    return;
  }
  struct stat st;
  if (lstat(path, &st) < 0) channel_fail_errno(channel, errno, "cannot remove %.1024s", path);
  else if (S_ISDIR(st.st_mode) && recursive) worker_open(channel, remove_worker, path, true);
  else if ((S_ISDIR(st.st_mode) ? rmdir(path) : unlink(path)) < 0) channel_fail_errno(channel, errno, "cannot remove %.1024s", path);
  else channel_done(channel, NULL);
}

/* ---- sync ---- */

static void sync_worker(void *argument) {
  (void)argument;
  /* Each filesystem of the sandbox by itself: sync() would flush those of the whole machine. */
  static const char *const places[] = {"/", "/workspace", "/tmp", "/home", "/root"};
  dev_t done[sizeof places / sizeof *places];
  size_t count = 0;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    struct stat st;
    int fd = open(places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) continue;
    bool seen = false;
    for (size_t k = 0; k < count; k++) seen |= done[k] == st.st_dev;
    if (!seen && syncfs(fd) < 0) worker_fail_errno(errno, "cannot flush the filesystem at %s", places[i]);
    done[count++] = st.st_dev;
    close(fd);
  }
  worker_done(NULL);
}

void tree_sync(struct channel *channel, struct reader *body) {
  if (read_finished(body)) worker_open(channel, sync_worker, NULL, false);
  else channel_fail(channel, "invalid_argument", EINVAL, "the request to flush is malformed");
}
