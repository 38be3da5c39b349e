#define _GNU_SOURCE
#include "pool.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* DIR -> "rw" | "ro": also when the filesystem itself gave up writing, whatever it was mounted with */
static int state(struct request *request, struct reply *reply) {
  struct statvfs status;
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  int result = fstatvfs(directory, &status);
  if (result < 0) fail(reply, "look at %s", request->fields[0].data);
  else reply_text(reply, status.f_flag & ST_RDONLY ? "ro" : "rw");
  close(directory);
  return result;
}

/* FILE BYTES: takes so much room of its filesystem, without writing to it. 0 takes the file away. */
static int reserve(struct request *request, struct reply *reply) {
  uint64_t bytes;
  const char *name;
  struct stat status;
  if (parse_number(request->fields[1].data, &bytes) < 0) return fail(reply, "read the size");
  int parent = open_parent(reply, request->fields[0].data, &name);
  if (parent < 0) return -1;
  if (bytes == 0) {
    int result = unlinkat(parent, name, 0);
    if (result < 0 && errno == ENOENT) result = 0;
    if (result < 0) fail(reply, "remove %s", request->fields[0].data);
    close(parent);
    return result;
  }
  int file = openat(parent, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  int result = file < 0 ? -1 : fstat(file, &status);
  if (result == 0 && (uint64_t)status.st_size > bytes) result = ftruncate(file, (off_t)bytes);
  if (result == 0 && (uint64_t)status.st_size < bytes && fallocate(file, 0, 0, (off_t)bytes) < 0) {
    int saved = errno;
    /* What it got of it is of no use to anybody else. */
    if (ftruncate(file, status.st_size) < 0 || status.st_size == 0) unlinkat(parent, name, 0);
    errno = saved;
    result = -1;
  }
  int saved = errno;
  if (file >= 0) close(file);
  close(parent);
  errno = saved;
  return result < 0 ? fail(reply, "reserve %s bytes as %s", request->fields[1].data, request->fields[0].data) : 0;
}

struct chunk {
  uint64_t logical, length, type, physical;
};

/* The next chunk of the filesystem at or after a logical address; 1 found, 0 none, -1 error. There is one device. */
static int next_chunk(int directory, uint64_t from, struct chunk *chunk) {
  struct btrfs_ioctl_search_args args = {.key = {
                                             .tree_id = BTRFS_CHUNK_TREE_OBJECTID,
                                             .min_objectid = BTRFS_FIRST_CHUNK_TREE_OBJECTID,
                                             .max_objectid = BTRFS_FIRST_CHUNK_TREE_OBJECTID,
                                             .min_type = BTRFS_CHUNK_ITEM_KEY,
                                             .max_type = BTRFS_CHUNK_ITEM_KEY,
                                             .min_offset = from,
                                             .max_offset = UINT64_MAX,
                                             .max_transid = UINT64_MAX,
                                             .nr_items = 1,
                                         }};
  struct btrfs_ioctl_search_header header;
  struct btrfs_chunk item;
  if (ioctl(directory, BTRFS_IOC_TREE_SEARCH, &args) < 0) return -1;
  if (args.key.nr_items == 0) return 0;
  memcpy(&header, args.buf, sizeof header);
  memcpy(&item, args.buf + sizeof header, sizeof item);
  *chunk = (struct chunk){header.offset, le64toh(item.length), le64toh(item.type), le64toh(item.stripe.offset)};
  return 1;
}

/*
 * IMAGE DIR -> bytes. All that the filesystem at DIR has set aside for its metadata gets its room in the image that it lies
 * in. A data block that finds none is an error to who wrote it; a metadata block that finds none ends the filesystem.
 */
static int secure(struct request *request, struct reply *reply) {
  int image = open(request->fields[0].data, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (image < 0) return fail(reply, "open the image %s", request->fields[0].data);
  int directory = open_directory(reply, request->fields[1].data);
  if (directory < 0) {
    close(image);
    return -1;
  }
  struct chunk chunk = {0};
  uint64_t secured = 0;
  int found;
  while ((found = next_chunk(directory, chunk.logical + chunk.length, &chunk)) > 0) {
    if (!(chunk.type & (BTRFS_BLOCK_GROUP_METADATA | BTRFS_BLOCK_GROUP_SYSTEM))) continue;
    if (fallocate(image, FALLOC_FL_KEEP_SIZE, (off_t)chunk.physical, (off_t)chunk.length) < 0) {
      found = -1;
      break;
    }
    secured += chunk.length;
  }
  if (found < 0) fail(reply, "keep room for the metadata of %s", request->fields[1].data);
  int saved = errno;
  close(directory);
  close(image);
  errno = saved;
  if (found == 0) reply_number(reply, secured);
  return found;
}

/*
 * DIR: what a new filesystem has for its metadata is a few megabytes. Moved once, it comes to lie in a chunk of full size, so
 * that there is room ahead.
 */
static int widen(struct request *request, struct reply *reply) {
  struct btrfs_ioctl_balance_args args = {.flags = BTRFS_BALANCE_METADATA};
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  int result = ioctl(directory, BTRFS_IOC_BALANCE_V2, &args);
  if (result < 0) fail(reply, "make room for the metadata of %s", request->fields[0].data);
  close(directory);
  return result;
}

/* DIR: gives back to the filesystem around it what the data at DIR no longer uses. Not of the metadata, whose room is kept. */
static int trim(struct request *request, struct reply *reply) {
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  struct chunk chunk = {0};
  int found = 1;
  syncfs(directory); /* what was deleted is free once it is written down; that what others wrote did not fit is theirs to hear */
  while (found > 0 && (found = next_chunk(directory, chunk.logical + chunk.length, &chunk)) > 0) {
    if (!(chunk.type & BTRFS_BLOCK_GROUP_DATA)) continue;
    struct fstrim_range range = {.start = chunk.logical, .len = chunk.length};
    /* A chunk may go at any moment. */
    if (ioctl(directory, FITRIM, &range) < 0 && errno != EINVAL && errno != EOPNOTSUPP) found = -1;
  }
  if (found < 0) fail(reply, "trim %s", request->fields[0].data);
  close(directory);
  return found;
}

const struct operation_entry space_operations[] = {
    {"space-state", 1, state}, {"space-reserve", 2, reserve}, {"space-secure", 2, secure},
    {"space-widen", 1, widen}, {"space-trim", 1, trim},       {NULL, 0, NULL},
};
