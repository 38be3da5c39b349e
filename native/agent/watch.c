/* Watching runs in a worker of its own: when its peer is slow it stands still, the kernel's queue overflows, and the peer is
   told so. Nothing of that touches the agent. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/path.h"
#include "agent.h"
#include "tree.h"

#define MASK                                                                                                                      \
  (IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_DONT_FOLLOW | \
   IN_EXCL_UNLINK)
/* How long the second half of a rename may be behind the first. */
#define RENAME_WAIT_MS 20

enum watch_event { CREATED, MODIFIED, REMOVED, MOVED, OVERFLOW };

struct watched {
  char *path;
  /* What a scan of the new directory has reported already; the kernel may report it as well. */
  char **known;
  size_t known_count;
};

struct watching {
  const char *path;
  bool recursive;
  int fd;
  int root;
  struct watched *table;
  size_t table_size;
  char *last_modified;
  char *moved_from;
  uint32_t moved_cookie;
  bool moved_directory;
};

static void emit(struct watching *w, enum watch_event kind, const char *path, const char *to) {
  /* A file that is written piece by piece is one modification until something else happens. */
  if (kind == MODIFIED && w->last_modified != NULL && strcmp(w->last_modified, path) == 0) return;
  free(w->last_modified);
  w->last_modified = kind == MODIFIED ? must_copy(path) : NULL;
  struct buffer b = {0};
  put_u32(&b, 0);
  put_u8(&b, (uint8_t)kind);
  put_string(&b, path);
  put_u8(&b, to != NULL);
  if (to != NULL) put_string(&b, to);
  store_u32(b.bytes, (uint32_t)b.length - 4);
  worker_write(b.bytes, b.length);
  buffer_free(&b);
}

static void forget(struct watching *w, int wd) {
  struct watched *watched = &w->table[wd];
  free(watched->path);
  free_names(watched->known, watched->known_count);
  *watched = (struct watched){0};
}

static int add(struct watching *w, const char *path, bool *fresh) {
  int wd = inotify_add_watch(w->fd, path, MASK);
  if (wd < 0) {
    if (errno == ENOSPC)
      worker_fail("limit_reached", errno, "the machine allows no more watches: %.1024s has too many directories", w->path);
    return -1;
  }
  if ((size_t)wd >= w->table_size) {
    size_t size = w->table_size == 0 ? 64 : w->table_size;
    while (size <= (size_t)wd) size *= 2;
    w->table = must_realloc(w->table, size * sizeof *w->table);
    memset(w->table + w->table_size, 0, (size - w->table_size) * sizeof *w->table);
    w->table_size = size;
  }
  *fresh = w->table[wd].path == NULL;
  free(w->table[wd].path);
  w->table[wd].path = must_copy(path);
  return wd;
}

/* Watches a directory and those below it. One that was not watched yet may have been filled meanwhile: if asked to, what is in
   it is reported. */
static void add_tree(struct watching *w, const char *path, bool report) {
  bool fresh;
  int wd = add(w, path, &fresh);
  if (wd < 0) return; /* Gone again, or moved: then the event of that brings us back. */
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  size_t count;
  char **names = directory_names(fd, &count);
  for (size_t i = 0; names != NULL && i < count; i++) {
    struct stat st;
    if (fstatat(fd, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0) continue;
    char *child = join_path(path, names[i]);
    if (report && fresh) emit(w, CREATED, child, NULL);
    if (S_ISDIR(st.st_mode)) add_tree(w, child, report);
    free(child);
  }
  close(fd);
  if (names == NULL) return;
  if (report && fresh) {
    free_names(w->table[wd].known, w->table[wd].known_count);
    w->table[wd].known = names;
    w->table[wd].known_count = count;
  } else {
    free_names(names, count);
  }
}

/* True when the name had been reported by the scan: the event is the same fact once more. */
static bool take_known(struct watched *watched, const char *name) {
  for (size_t i = 0; i < watched->known_count; i++)
    if (strcmp(watched->known[i], name) == 0) {
      free(watched->known[i]);
      watched->known[i] = watched->known[--watched->known_count];
      return true;
    }
  return false;
}

static void rename_below(struct watching *w, const char *from, const char *to) {
  for (size_t wd = 0; wd < w->table_size; wd++) {
    char *path = w->table[wd].path;
    if (path == NULL || !is_at_or_below(path, from)) continue;
    char *renamed = must_alloc(strlen(to) + strlen(path) - strlen(from) + 1);
    sprintf(renamed, "%s%s", to, path + strlen(from));
    w->table[wd].path = renamed;
    free(path);
  }
}

static void unwatch_below(struct watching *w, const char *directory) {
  for (size_t wd = 0; wd < w->table_size; wd++)
    if (w->table[wd].path != NULL && is_at_or_below(w->table[wd].path, directory)) {
      inotify_rm_watch(w->fd, (int)wd);
      forget(w, (int)wd);
    }
}

/* The first half of a rename whose second half did not come: it left what is watched. */
static void settle_move(struct watching *w) {
  if (w->moved_from == NULL) return;
  char *from = w->moved_from;
  w->moved_from = NULL;
  emit(w, REMOVED, from, NULL);
  if (w->moved_directory && w->recursive) unwatch_below(w, from);
  free(from);
}

static void on_root_gone(struct watching *w) {
  emit(w, REMOVED, w->path, NULL);
  worker_done(NULL);
}

static void handle(struct watching *w, const struct inotify_event *event) {
  bool second_half = (event->mask & IN_MOVED_TO) && w->moved_from != NULL && w->moved_cookie == event->cookie;
  if (!second_half) settle_move(w);
  if (event->mask & IN_Q_OVERFLOW) {
    emit(w, OVERFLOW, w->path, NULL);
    /* Directories may have come unseen. */
    if (w->recursive) add_tree(w, w->path, false);
    return;
  }
  if (event->wd < 0 || (size_t)event->wd >= w->table_size || w->table[event->wd].path == NULL) return;
  struct watched *watched = &w->table[event->wd];
  if (event->wd == w->root && (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT))) on_root_gone(w);
  if (event->mask & IN_IGNORED) {
    forget(w, event->wd);
    return;
  }
  bool directory = (event->mask & IN_ISDIR) != 0;
  if (event->len == 0) {
    if (event->wd == w->root && (event->mask & (IN_MODIFY | IN_ATTRIB))) emit(w, MODIFIED, w->path, NULL);
    return;
  }
  char *path = join_path(watched->path, event->name);
  if (second_half) {
    emit(w, MOVED, w->moved_from, path);
    if (directory && w->recursive) {
      rename_below(w, w->moved_from, path);
      /* Directories that came just before may not have been found under their old path any more. */
      add_tree(w, path, true);
    }
    free(w->moved_from);
    w->moved_from = NULL;
  } else if (event->mask & (IN_CREATE | IN_MOVED_TO)) {
    if (!take_known(watched, event->name)) {
      emit(w, CREATED, path, NULL);
      if (directory && w->recursive) add_tree(w, path, true);
    }
  } else if (event->mask & IN_MOVED_FROM) {
    take_known(watched, event->name);
    w->moved_from = must_copy(path);
    w->moved_cookie = event->cookie;
    w->moved_directory = directory;
  } else if (event->mask & IN_DELETE) {
    take_known(watched, event->name);
    emit(w, REMOVED, path, NULL);
  } else if ((event->mask & (IN_MODIFY | IN_ATTRIB)) && !directory) {
    emit(w, MODIFIED, path, NULL);
  }
  free(path);
}

static void watch_worker(void *argument) {
  struct watching *w = argument;
  w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (w->fd < 0) worker_fail("limit_reached", errno, "the machine allows no more watches: %s", strerror(errno));
  struct stat st;
  /* Below a link to a directory is what is meant; links further down are not followed. */
  char *resolved = realpath(w->path, NULL);
  if (resolved == NULL || lstat(resolved, &st) < 0) worker_fail_errno(errno, "cannot watch %.1024s", w->path);
  bool fresh;
  w->root = add(w, resolved, &fresh);
  if (w->root < 0) worker_fail_errno(errno, "cannot watch %.1024s", w->path);
  if (w->recursive && S_ISDIR(st.st_mode)) add_tree(w, resolved, false);
  /* Paths begin as the caller wrote them. */
  if (strcmp(resolved, w->path) != 0) rename_below(w, resolved, w->path);
  worker_ready();
  char events[16384] __attribute__((aligned(8)));
  for (;;) {
    struct pollfd p[] = {{.fd = w->fd, .events = POLLIN}, {.fd = 1, .events = 0}};
    int count = poll(p, 2, w->moved_from == NULL ? -1 : RENAME_WAIT_MS);
    if (count < 0 && errno != EINTR) worker_fail_errno(errno, "cannot watch %.1024s", w->path);
    if (p[1].revents & (POLLERR | POLLHUP)) _exit(0);
    if (count == 0) settle_move(w);
    ssize_t n = read(w->fd, events, sizeof events);
    if (n <= 0) continue;
    free(w->last_modified);
    w->last_modified = NULL;
    for (char *at = events; at < events + n;) {
      const struct inotify_event *event = (const struct inotify_event *)at;
      handle(w, event);
      at += sizeof *event + event->len;
    }
  }
}

void tree_watch(struct channel *channel, struct reader *body) {
  struct watching w = {.path = read_string(body), .recursive = read_u8(body) != 0};
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request to watch is malformed");
    return;
  }
  if (path_is_absolute(channel, w.path)) worker_open(channel, watch_worker, &w, false);
}
