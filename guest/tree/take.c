#define _GNU_SOURCE
#include "take.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "places.h"

/* As shareIndex() does it. */
static void share_index(const char *to) {
  if (link(session.index, to) == 0) return;
  const int from = open(session.index, O_RDONLY | O_CLOEXEC), fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (from < 0 || fd < 0) die_errno("copy the index to", to);
  ssize_t copied;
  while ((copied = copy_file_range(from, NULL, fd, NULL, 1 << 30, 0)) > 0);
  if (copied < 0) die_errno("copy the index to", to);
  close(from);
  close(fd);
}

void hash_text(const struct root *root, char out[65]) { hex_of(root->hash, HASH_LEN, out); }

bool is_known(const struct scan_result *found, const char *target_hash) {
  char hash[65];
  hash_text(&found->root, hash);
  return (found->files == 0 && found->directories == 1 && !*session.history.head) || strcmp(hash, session.history.saved_hash) == 0 ||
         strcmp(hash, target_hash) == 0;
}

static void append_snapshot(const struct taken *taken, const char *note, const char *const *tags, size_t tag_count, bool automatic,
                            bool whole_tree) {
  char root[ROOT_TEXT];
  root_text(&taken->root, root);
  struct buf data = {0};
  buf_text(&data, "{\"snapshot\":{\"snapshot_id\":\"%s\",\"parent_id\":", taken->id);
  buf_text(&data, *session.history.head ? "\"%s\"" : "null", session.history.head);
  buf_text(&data, ",\"worktree_name\":\"%s\",\"created_at\":\"%s\",\"note\":\"%s\",\"tags\":[", session.worktree, taken->at, note);
  for (size_t i = 0; i < tag_count; i++) buf_text(&data, "%s\"%s\"", i ? "," : "", tags[i]);
  buf_text(&data, "],\"engine\":\"%s\",\"requested_engine\":null,\"storage\":\"%s\",\"payload_root_hash\":\"%s\",\"root\":\"%s\"", session.engine,
           whole_tree ? "tree" : "objects", taken->hash, root);
  buf_text(&data, ",\"partial_paths\":null,\"automatic\":%s,\"files\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"new_bytes\":%" PRIu64,
           automatic ? "true" : "false", taken->files, taken->bytes, taken->new_bytes);
  buf_text(&data, "},\"saved_root_hash\":\"%s\"}", taken->hash);
  commit("snapshot", &data, true);
  history_learn(&session.history, taken->id);
  free(data.data);
}

static void adopt_index(const char *new_index, bool changed, const char *basis) {
  if (changed && rename(new_index, session.index) != 0) die_errno("replace", session.index);
  if (changed) return;
  char padded[32] = {0};
  strncpy(padded, basis, sizeof padded - 1);
  const int fd = open(session.index, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || pwrite(fd, padded, sizeof padded, offsetof(struct index_header, basis)) != (ssize_t)sizeof padded)
    die_errno("write", session.index);
  close(fd);
}

bool take(const char *note, const char *const *tags, size_t tag_count, const char *target_hash, struct taken *taken) {
  const bool whole_tree = strcmp(session.engine, "btrfs") == 0;
  const uint64_t pack = new_pack();
  history_new_id(&session.history, taken->id);
  write_intent(taken->id, "{\"operation\":\"snapshot\",\"worktree\":\"%s\",\"snapshotId\":\"%s\",\"pack\":\"%016" PRIx64 "\",\"pid\":%d}",
               session.worktree, taken->id, pack, (int)getpid());
  kill_point("snapshot-intent");
  char *pack_path = making(path_of("%s/packs/%016" PRIx64 ".pack", session.control, pack));
  /* Named as those of the store are: should it be made by a thread that outlives an error, it is swept with them. */
  char *new_index = making(path_of("%s/tmp/new-%d-0", session.control, (int)getpid()));
  char *tree = path_of("%s/trees/%s", session.control, taken->id);
  struct store store;
  store_open(&store, session.control);
  store.reflink = strcmp(session.engine, "reflink-copy") == 0;
  store_begin_pack(&store, pack, false);
  struct scan_options options = {.directory = session.payload,
                                 .index_path = session.index,
                                 .new_index_path = new_index,
                                 .basis = taken->id,
                                 .locations_hold = index_holds(),
                                 .keep = !whole_tree,
                                 .index_later = true};
  if (whole_tree) {
    options.moment_ns = filesystem_moment(&store);
    subvolume_snapshot(session.payload, making(tree), true);
    kill_point("snapshot-subvolume");
    options.directory = tree;
    options.live = session.payload;
    options.whole_tree = true;
  }
  struct scan_result found;
  scan(&store, &options, &found);
  /* Another engine must take it then, which Node says. */
  if (found.nested) give_up();
  const bool known = target_hash && is_known(&found, target_hash);
  store_end_pack(&store, !known);
  close(store.dir);
  kill_point("scan-stored");
  taken->root = found.root;
  hash_text(&found.root, taken->hash);
  kill_point("snapshot-stored");
  if (known) {
    index_settle();
    unlink(new_index);
    if (whole_tree) remove_tree(tree);
    clear_intent();
    nothing_made();
    session.kept_nodes = pack_path;
    return false;
  }
  if (store.reflinks_refused)
    fprintf(stderr, "jvs: %" PRIu64 " files could not share their blocks and were copied\n", store.reflinks_refused);
  if (found.sockets) fprintf(stderr, "jvs: %" PRIu64 " sockets were left out: they mean nothing without their process\n", found.sockets);
  now_text(taken->at);
  taken->files = found.files;
  taken->bytes = found.bytes;
  taken->new_bytes = store.new_bytes;
  append_snapshot(taken, note, tags, tag_count, target_hash != NULL, whole_tree);
  kill_point("snapshot-committed");
  index_settle();
  adopt_index(new_index, found.index_changed, taken->id);
  if (whole_tree) share_index(path_of("%s.index", tree));
  kill_point("snapshot-indexed");
  clear_intent();
  return true;
}
