#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A page of memory, and a block of the filesystem. */
#define PAGE 4096u
#define WINDOW (256u * PAGE)
/* A run that is shorter is written again: what is read later is then less scattered. */
#define LEAST_RUN 4u
#define NOWHERE UINT32_MAX

/* What of a file was read last, so that going through it forwards costs one read for many pages. */
struct window {
  int file;
  uint64_t pages; /* whole ones of the file */
  uint64_t first, count;
  unsigned char *bytes;
};

/* Where pages of the older file stand, by what they hold: half of a hash, and the page. Of equal pages the first. */
struct place {
  uint32_t tag, page;
};
struct page_index {
  struct place *places;
  uint64_t mask;
};

struct sharing {
  struct window older, newer;
  struct page_index index;
  int target;
  uint64_t written;
};

static int read_all_at(int file, void *data, size_t length, uint64_t offset) {
  unsigned char *bytes = data;
  while (length > 0) {
    ssize_t got = pread(file, bytes, length, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = EIO; /* shorter than it was: nobody may write these files */
    if (got <= 0) return -1;
    bytes += got;
    offset += (uint64_t)got;
    length -= (size_t)got;
  }
  return 0;
}

static int write_all_at(int file, const void *data, size_t length, uint64_t offset) {
  const unsigned char *bytes = data;
  while (length > 0) {
    ssize_t put = pwrite(file, bytes, length, (off_t)offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return -1;
    bytes += put;
    offset += (uint64_t)put;
    length -= (size_t)put;
  }
  return 0;
}

static int open_window(struct window *window, int directory, const char *name, uint64_t *size) {
  struct stat status;
  window->file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (window->file < 0 || fstat(window->file, &status) < 0) return -1;
  *size = (uint64_t)status.st_size;
  window->pages = *size / PAGE;
  window->bytes = malloc(WINDOW);
  if (window->bytes == NULL) return -1;
  if (window->pages < NOWHERE) return 0;
  errno = EFBIG;
  return -1;
}

static void close_window(struct window *window) {
  if (window->file >= 0) close(window->file);
  free(window->bytes);
}

/* Good until the next call on the same window; NULL: it cannot be read. */
static const unsigned char *page_at(struct window *window, uint64_t page) {
  if (page < window->first || page - window->first >= window->count) {
    uint64_t left = window->pages - page;
    window->count = 0;
    uint64_t count = left < WINDOW / PAGE ? left : WINDOW / PAGE;
    if (read_all_at(window->file, window->bytes, count * PAGE, page * PAGE) < 0) return NULL;
    window->first = page;
    window->count = count;
  }
  return window->bytes + (page - window->first) * PAGE;
}

/* Only says where to look: what is shared has been compared byte by byte. */
static uint64_t hash_page(const unsigned char *page) {
  uint64_t lanes[4] = {1, 2, 3, 4}, words[4];
  for (size_t at = 0; at < PAGE; at += sizeof words) {
    memcpy(words, page + at, sizeof words);
    for (int lane = 0; lane < 4; lane++) {
      lanes[lane] = (lanes[lane] ^ words[lane]) * 0x9e3779b97f4a7c15ull;
      lanes[lane] ^= lanes[lane] >> 29;
    }
  }
  uint64_t hash = (lanes[0] * 31 + lanes[1]) * 31 + lanes[2] * 17 + lanes[3];
  return hash ^ hash >> 32 ^ hash << 17;
}

/* The place of that content, or the free one where it belongs. */
static struct place *find_place(const struct page_index *index, uint64_t hash) {
  for (uint64_t at = hash;; at++) {
    struct place *place = &index->places[at & index->mask];
    if (place->page == NOWHERE || place->tag == (uint32_t)(hash >> 32)) return place;
  }
}

static int build_index(struct sharing *sharing) {
  uint64_t places = 64;
  while (places < sharing->older.pages * 2) places *= 2;
  sharing->index.mask = places - 1;
  sharing->index.places = malloc(places * sizeof *sharing->index.places);
  if (sharing->index.places == NULL) return -1;
  memset(sharing->index.places, 0xff, places * sizeof *sharing->index.places);
  for (uint64_t page = 0; page < sharing->older.pages; page++) {
    const unsigned char *bytes = is_cancelled() ? NULL : page_at(&sharing->older, page);
    if (bytes == NULL) return -1;
    uint64_t hash = hash_page(bytes);
    struct place *place = find_place(&sharing->index, hash);
    if (place->page == NOWHERE) *place = (struct place){.tag = (uint32_t)(hash >> 32), .page = (uint32_t)page};
  }
  return 0;
}

/* 1: the same, 0: another, -1: cannot be read. */
static int same_page(struct sharing *sharing, uint64_t older, const unsigned char *bytes) {
  if (older >= sharing->older.pages) return 0;
  const unsigned char *other = page_at(&sharing->older, older);
  return other == NULL ? -1 : memcmp(other, bytes, PAGE) == 0;
}

/* How many pages from `newer` on are the same as those of the older file from `older` on; -1: cannot be read. */
static int64_t run_length(struct sharing *sharing, uint64_t newer, uint64_t older) {
  int64_t length = 0;
  for (; newer + (uint64_t)length < sharing->newer.pages; length++) {
    const unsigned char *bytes = page_at(&sharing->newer, newer + (uint64_t)length);
    int same = bytes == NULL ? -1 : same_page(sharing, older + (uint64_t)length, bytes);
    if (same < 0) return -1;
    if (same == 0) break;
  }
  return length;
}

static int write_page(struct sharing *sharing, uint64_t page) {
  const unsigned char *bytes = page_at(&sharing->newer, page);
  if (bytes == NULL) return -1;
  sharing->written += PAGE;
  return write_all_at(sharing->target, bytes, PAGE, page * PAGE);
}

static int clone_run(struct sharing *sharing, uint64_t newer, uint64_t older, uint64_t length) {
  struct file_clone_range range = {
      .src_fd = sharing->older.file,
      .src_offset = older * PAGE,
      .src_length = length * PAGE,
      .dest_offset = newer * PAGE,
  };
  return ioctl(sharing->target, FICLONERANGE, &range);
}

static int fill_target(struct sharing *sharing) {
  uint64_t page = 0;
  while (page < sharing->newer.pages) {
    const unsigned char *bytes = is_cancelled() ? NULL : page_at(&sharing->newer, page);
    if (bytes == NULL) return -1;
    uint32_t older = find_place(&sharing->index, hash_page(bytes))->page;
    int64_t length = older == NOWHERE ? 0 : run_length(sharing, page, older);
    if (length < 0) return -1;
    if (length < LEAST_RUN) {
      if (write_page(sharing, page) < 0) return -1;
      page++;
      continue;
    }
    if (clone_run(sharing, page, older, (uint64_t)length) < 0) return -1;
    page += (uint64_t)length;
  }
  return 0;
}

/* What the last page leaves of a file that is no whole number of pages. */
static int write_tail(struct sharing *sharing, uint64_t size) {
  unsigned char tail[PAGE];
  uint64_t begin = sharing->newer.pages * PAGE;
  size_t length = (size_t)(size - begin);
  if (length == 0) return 0;
  sharing->written += length;
  if (read_all_at(sharing->newer.file, tail, length, begin) < 0) return -1;
  return write_all_at(sharing->target, tail, length, begin);
}

static int build_target(struct sharing *sharing, int newer_dir, int older_dir, const char *name) {
  uint64_t older_size, newer_size;
  if (open_window(&sharing->older, older_dir, name, &older_size) < 0) return -1;
  if (open_window(&sharing->newer, newer_dir, name, &newer_size) < 0) return -1;
  /* Without a name until it is whole, so that a crash leaves nothing. */
  sharing->target = openat(newer_dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (sharing->target < 0) return -1;
  if (build_index(sharing) < 0 || fill_target(sharing) < 0) return -1;
  return write_tail(sharing, newer_size);
}

static int put_in_place(int target, int directory, const char *name) {
  char path[64], draft[300];
  snprintf(path, sizeof path, "/proc/self/fd/%d", target);
  snprintf(draft, sizeof draft, ".%s.shared", name);
  unlinkat(directory, draft, 0); /* of a run that was cut short here */
  if (linkat(AT_FDCWD, path, directory, draft, AT_SYMLINK_FOLLOW) < 0) return -1;
  return renameat(directory, draft, directory, name);
}

/*
 * NEWER OLDER NAME: the file NAME of the directory NEWER is replaced by one that holds the same, and shares with the file
 * of that name in OLDER every page that stands there too, wherever. -> bytes that it does not share. Neither file
 * may be written by anyone; who has the replaced one open reads on in it. A file of shared ranges is made beside it instead
 * of sharing ranges in place, as one page that stays would keep the whole extent that it was written in.
 */
static int share_pages(struct request *request, struct reply *reply) {
  const char *name = request->fields[2].data;
  if (strchr(name, '/') != NULL || strlen(name) > 200) {
    errno = EINVAL;
    return fail(reply, "share the file %s", name);
  }
  struct sharing sharing = {.older = {.file = -1}, .newer = {.file = -1}, .target = -1};
  int newer_dir = open_directory(reply, request->fields[0].data);
  if (newer_dir < 0) return -1;
  int older_dir = open_directory(reply, request->fields[1].data);
  /* Whoever waits for something else goes first. */
  id_t thread = (id_t)syscall(SYS_gettid);
  setpriority(PRIO_PROCESS, thread, 10);
  int result = older_dir < 0 ? -1 : build_target(&sharing, newer_dir, older_dir, name);
  if (result == 0) result = put_in_place(sharing.target, newer_dir, name);
  int saved = errno;
  setpriority(PRIO_PROCESS, thread, 0);
  close_window(&sharing.older);
  close_window(&sharing.newer);
  free(sharing.index.places);
  if (sharing.target >= 0) close(sharing.target);
  if (older_dir >= 0) close(older_dir);
  close(newer_dir);
  errno = saved;
  if (result < 0) return fail(reply, "share %s of %s with %s", name, request->fields[0].data, request->fields[1].data);
  reply_number(reply, sharing.written);
  return 0;
}

const struct operation_entry share_operations[] = {
    {"share-pages", 3, share_pages},
    {NULL, 0, NULL},
};
