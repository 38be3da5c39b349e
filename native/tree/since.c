#define _GNU_SOURCE
#include "since.h"

#include <endian.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define ANSWER_MAX (256 * 1024)

bool moment_of_clone(int clone, struct moment *out) {
  struct btrfs_ioctl_get_subvol_info_args info;
  memset(out, 0, sizeof *out);
  /* It answers 0 or 1 on success. */
  if (ioctl(clone, BTRFS_IOC_GET_SUBVOL_INFO, &info) < 0) return false;
  static const uint8_t none[BTRFS_UUID_SIZE];
  if (!(info.flags & BTRFS_ROOT_SUBVOL_RDONLY) || memcmp(info.parent_uuid, none, sizeof none) == 0) return false;
  memcpy(out->subvolume, info.parent_uuid, sizeof out->subvolume);
  out->transaction = info.otransid;
  return true;
}

static char rewritten; /* the value of an inode whose content changed */

bool rewritten_since(const struct map *inodes, uint64_t ino) { return map_get(inodes, ino, 0) == &rewritten; }

/* The inodes among what was found; false when they become too many. */
static bool sift(const struct btrfs_ioctl_search_args_v2 *found, uint64_t since, size_t most, struct map *inodes,
                 struct btrfs_ioctl_search_header *last) {
  const uint8_t *at = (const uint8_t *)found->buf;
  for (uint32_t i = 0; i < found->key.nr_items; i++) {
    memcpy(last, at, sizeof *last);
    at += sizeof *last;
    struct btrfs_inode_item inode;
    struct btrfs_file_extent_item extent;
    const size_t extent_len = offsetof(struct btrfs_file_extent_item, disk_bytenr);
    if (last->type == BTRFS_INODE_ITEM_KEY && last->len >= sizeof inode) {
      memcpy(&inode, at, sizeof inode);
      /* A leaf that changed also holds inodes that did not. */
      if (le64toh(inode.transid) > since) *map_at(inodes, last->objectid, 0) = inodes;
    } else if (last->type == BTRFS_EXTENT_DATA_KEY && last->len >= extent_len) {
      memcpy(&extent, at, extent_len);
      if (le64toh(extent.generation) > since) *map_at(inodes, last->objectid, 0) = &rewritten;
    }
    at += last->len;
  }
  return inodes->used <= most;
}

bool changed_since(int clone, const struct moment *before, size_t most, struct map *inodes) {
  struct btrfs_ioctl_search_args_v2 *search = must_alloc(sizeof *search + ANSWER_MAX);
  memset(search, 0, sizeof *search);
  struct btrfs_ioctl_search_key *key = &search->key;
  key->min_objectid = BTRFS_FIRST_FREE_OBJECTID;
  key->max_objectid = BTRFS_LAST_FREE_OBJECTID;
  key->max_type = UINT8_MAX;
  key->max_offset = UINT64_MAX;
  key->min_transid = before->transaction + 1;
  key->max_transid = UINT64_MAX;
  bool known = true, more = true;
  while (known && more) {
    key->nr_items = UINT32_MAX;
    search->buf_size = ANSWER_MAX;
    struct btrfs_ioctl_search_header last;
    known = ioctl(clone, BTRFS_IOC_TREE_SEARCH_V2, search) >= 0;
    more = known && key->nr_items;
    if (!more) break;
    known = sift(search, before->transaction, most, inodes, &last);
    /* Continue after the last key. Object id, type and offset are one number of 17 bytes. */
    key->min_objectid = last.objectid;
    key->min_type = last.type;
    key->min_offset = last.offset + 1;
    if (!key->min_offset && ++key->min_type > UINT8_MAX) key->min_type = 0, key->min_objectid++;
  }
  free(search);
  return known;
}
