/* Where content lives: packs (many small contents in a row, and directory nodes), and blobs (one large content each). */
#ifndef COPPICE_TREE_STORE_H
#define COPPICE_TREE_STORE_H

#include "common.h"

struct new_blob;

#define LARGE_FILE (256 * 1024)
#define IN_BLOB UINT64_MAX

/* `len` is the length of a node; for a file it is 1 when the file had holes. pack 0 means: not stored here.
   Packed, as it is read where it lies in nodes and in the index, at any address. */
struct __attribute__((packed)) location {
  uint64_t pack, offset, len;
};

struct store {
  int dir; /* the control directory: packs/, blobs/, tmp/ */
  bool reflink;
  uint64_t pack_id;
  int pack_fd;
  uint64_t pack_len;
  struct buf pending;
  bool pack_is_temporary;
  bool only_record;       /* the pack holds nothing but the record of its snapshot */
  struct new_blob *blobs; /* large contents that wait below tmp/ for the disk */
  size_t blob_count;
  struct map blobs_by_hash;
  bool shares_blobs;
  /* What this scan added. */
  uint64_t new_bytes, new_contents, new_nodes, reflinks_refused;
};

void store_open(struct store *store, const char *control_dir);
/* All that is added goes to this pack; `temporary` puts it below tmp/. The file appears with the first content. */
void store_begin_pack(struct store *store, uint64_t pack_id, bool temporary);
struct location store_append(struct store *store, const void *data, size_t len);
/* Ends what store_begin_pack() began. With `keep`, all that was added is on the disk when this returns. Without it, what was added to
   the pack can be read until the caller removes the pack, and large contents are dropped. */
void store_end_pack(struct store *store, bool keep);
/* False when it is not there. */
bool store_try_read(struct store *store, struct location at, void *out, size_t len);
void store_read(struct store *store, struct location at, void *out, size_t len);
/* Opens a blob; -1 when it is not there. */
int store_open_blob(struct store *store, const uint8_t hash[HASH_LEN]);
/* A fresh file below tmp/; its path relative to the control directory goes to `name`. */
int store_temporary(struct store *store, char name[64], int mode);
/*
 * Makes a temporary file a blob. It gets its name in store_end_pack(), when its bytes are on the disk: whatever has the name of a blob
 * is whole, and stays so when the power goes.
 */
void store_add_blob(struct store *store, const char *temporary, const uint8_t hash[HASH_LEN], uint64_t size);
/* Uses a blob that is there already. Another snapshot may have placed it a moment ago, so that it must be synced too. */
void store_share_blob(struct store *store);

#endif
