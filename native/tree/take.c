#define _GNU_SOURCE
#include "take.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"
#include "places.h"
#include "records.h"

#define CLONE_ATTEMPTS 3
#define INSTANT_ATTEMPTS 10

struct taking {
  const struct take_request *request;
  struct taken *taken;
  const struct worktree *worktree;
  const char *payload, *index;
  char *tree, *new_index, *pack_path;
  uint64_t pack;
  struct store store;
  struct scan_result found;
  int engine;            /* that stores it */
  const char *requested; /* the one that was asked for, where that could not be had; NULL: it could */
  bool whole_tree;
};

void hash_text(const struct root *root, char out[65]) { hex_of(root->hash, HASH_LEN, out); }

bool is_known(const struct worktree *worktree, const struct scan_result *found, const char *target_hash) {
  char hash[65];
  hash_text(&found->root, hash);
  return (found->files == 0 && found->directories == 1 && !*worktree->head) || strcmp(hash, worktree->saved_hash) == 0 ||
         strcmp(hash, target_hash) == 0;
}

bool clones_first(const char *engine) {
  const int asked = engine_named(engine ? engine : session.engine);
  return asked == ENGINE_BTRFS || asked == ENGINE_JUICEFS;
}

/* The engine that was asked for, or, with a notice, the best one that works here. */
static void choose_engine(struct taking *taking) {
  const char *asked_name = taking->request->engine ? taking->request->engine : session.engine;
  const int asked = engine_named(asked_name);
  if (asked < 0) die("corrupt", "there is no engine %s", asked_name);
  const char *mounts = taking->request->mounts ? taking->request->mounts : "/proc/mounts";
  const struct engine_offer offer = {taking->payload, path_of("%s/tmp", session.control), mounts};
  const bool is_btrfs = engine_works(&offer, ENGINE_BTRFS), subvolume = is_btrfs && is_subvolume(taking->payload);
  taking->engine = asked;
  if (asked == ENGINE_BTRFS ? subvolume : engine_works(&offer, asked)) return;
  taking->requested = engine_names[asked];
  for (taking->engine = subvolume ? ENGINE_BTRFS : ENGINE_JUICEFS; !engine_works(&offer, taking->engine);) taking->engine++;
  notice("the engine %s cannot be used here (%s): using %s instead", engine_names[asked],
         asked == ENGINE_BTRFS && is_btrfs ? "the worktree is not a btrfs subvolume" : engine_lack(asked), engine_names[taking->engine]);
}

static struct scan_options options_of(const struct taking *taking) {
  const bool partial = taking->request->only.count > 0;
  return (struct scan_options){.directory = taking->payload,
                               .index_path = taking->index,
                               .new_index_path = partial ? NULL : taking->new_index,
                               .basis = taking->taken->id,
                               .locations_hold = index_holds(taking->index),
                               .selection = taking->request->only,
                               .index_later = true};
}

/* Drops what was scanned so far, to start again. */
static void begin_again(struct taking *taking) {
  index_settle();
  unlink(taking->new_index);
  remove_tree(taking->tree);
  store_end_pack(&taking->store, false);
  unlink(taking->pack_path);
  store_begin_pack(&taking->store, taking->pack, false);
  free(taking->found.nested);
  free(taking->found.caught);
  free(taking->found.refused);
  taking->found.nested = taking->found.caught = taking->found.refused = NULL;
}

/*
 * Clones the whole directory at one instant, then hashes the clone, which cannot change. False when that is not possible.
 *
 * The kernel first writes out dirty files and then clones. A file that is written and renamed in between has its name in the clone, but not
 * its bytes. A sync just before makes that rare, and the scan finds the files for which it happened all the same.
 */
static bool take_subvolume(struct taking *taking) {
  struct scan_options options = options_of(taking);
  options.directory = taking->tree;
  options.live = taking->payload;
  options.whole_tree = true;
  for (int attempt = 1; attempt <= INSTANT_ATTEMPTS; attempt++) {
    if (syncfs(taking->store.dir) != 0) die_errno("sync", session.root);
    options.caught_from = options.moment_ns = filesystem_moment(&taking->store);
    subvolume_snapshot(taking->payload, taking->tree, true);
    kill_point("snapshot-subvolume");
    scan(&taking->store, &options, &taking->found);
    if (!taking->found.nested && !taking->found.caught && !taking->found.refused) return true;
    if (taking->found.refused) {
      notice("%s cannot be read in a clone: using reflink-copy instead", taking->found.refused);
      attempt = INSTANT_ATTEMPTS;
    } else if (taking->found.nested) {
      notice("%s is a btrfs subvolume of its own, which a snapshot would leave out: using reflink-copy instead", taking->found.nested);
      attempt = INSTANT_ATTEMPTS;
    } else if (attempt == INSTANT_ATTEMPTS)
      notice("%s and maybe others are written all the time, and no clone has all of them whole: using reflink-copy instead",
             taking->found.caught);
    begin_again(taking);
  }
  return false;
}

/* What a worktree holds now, by its hash alone. */
static void look_again(struct taking *taking, char hash[65]) {
  struct store aside;
  store_open(&aside, session.control);
  const uint64_t pack = new_pack();
  store_begin_pack(&aside, pack, true);
  const bool indexed = access(taking->new_index, F_OK) == 0;
  const struct scan_options options = {
      .directory = taking->payload, .index_path = indexed ? taking->new_index : taking->index, .basis = ""};
  struct scan_result again;
  scan(&aside, &options, &again);
  store_end_pack(&aside, false);
  close(aside.dir);
  free(again.nested);
  unlink(path_of("%s/tmp/%016" PRIx64 ".pack", session.control, pack));
  hash_text(&again.root, hash);
}

/* A clone is not made at one instant, so it only counts when nothing has changed meanwhile. False when that did not succeed. */
static bool take_juicefs(struct taking *taking) {
  const struct scan_options options = options_of(taking);
  scan(&taking->store, &options, &taking->found);
  index_settle();
  char before[65], after[65], reason[512];
  hash_text(&taking->found.root, before);
  for (int attempt = 1; attempt <= CLONE_ATTEMPTS; attempt++) {
    if (!juicefs_clone(taking->payload, taking->tree, reason)) {
      notice("`juicefs clone` failed: %s: using copy instead", reason);
      break;
    }
    look_again(taking, after);
    if (strcmp(before, after) == 0) return true;
    remove_tree(taking->tree);
    if (attempt == CLONE_ATTEMPTS) notice("the worktree changed during each attempt to clone it: using copy instead");
  }
  begin_again(taking);
  return false;
}

static void take_files(struct taking *taking) {
  if (!taking->requested && taking->engine < ENGINE_REFLINK) taking->requested = engine_names[taking->engine];
  taking->engine = taking->engine == ENGINE_BTRFS || taking->engine == ENGINE_REFLINK ? ENGINE_REFLINK : ENGINE_COPY;
  taking->store.reflink = taking->engine == ENGINE_REFLINK;
  struct scan_options options = options_of(taking);
  options.keep = true;
  scan(&taking->store, &options, &taking->found);
  if (taking->store.reflinks_refused)
    notice("%" PRIu64 " file%s could not share blocks with the store, so the store has a copy", taking->store.reflinks_refused,
           PLURAL(taking->store.reflinks_refused));
}

static void record_of(const struct taking *taking, struct buf *out) {
  const struct taken *taken = taking->taken;
  const struct take_request *request = taking->request;
  char root[ROOT_TEXT];
  root_text(&taken->root, root);
  buf_text(out, "{\"snapshot_id\":\"%s\",\"parent_id\":", taken->id);
  buf_text(out, *taking->worktree->head ? "\"%s\"" : "null", taking->worktree->head);
  buf_text(out, ",\"worktree_name\":\"%s\",\"created_at\":\"%s\",\"note\":", request->worktree, taken->at);
  buf_json(out, request->note, strlen(request->note));
  buf_text(out, ",\"tags\":[");
  for (size_t i = 0; i < request->tag_count; i++) {
    buf_text(out, i ? "," : "");
    buf_json(out, request->tags[i], strlen(request->tags[i]));
  }
  buf_text(out, "],\"engine\":\"%s\",\"requested_engine\":", taken->engine);
  buf_text(out, taking->requested ? "\"%s\"" : "null", taking->requested);
  buf_text(out,
           ",\"storage\":\"%s\",\"payload_root_hash\":\"%s\",\"root\":\"%s\",\"partial_paths\":", taking->whole_tree ? "tree" : "objects",
           taken->hash, root);
  for (size_t i = 0; i < request->only.count; i++) {
    buf_text(out, i ? "," : "[");
    buf_json_path(out, request->only.paths[i]);
  }
  buf_text(out, request->only.count ? "]" : "null");
  buf_text(out, ",\"automatic\":%s,\"files\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"new_bytes\":%" PRIu64 "}",
           request->automatic ? "true" : "false", taken->files, taken->bytes, taken->new_bytes);
}

/* Makes the record of the snapshot, for the log and for the end of the pack. */
static void write_record(struct taking *taking, struct buf *data) {
  struct taken *taken = taking->taken;
  struct buf record = {0};
  taken->at_s = now_text(taken->at);
  taken->files = taking->found.files;
  taken->bytes = taking->found.bytes;
  taken->new_bytes = taking->store.new_bytes;
  record_of(taking, &record);
  buf_text(data, "{\"snapshot\":%.*s,\"saved_root_hash\":", (int)record.len, (char *)record.data);
  buf_text(data, taking->request->only.count ? "null}" : "\"%s\"}", taken->hash);
  record_append(&taking->store, data);
  buf_add(&record, "", 1);
  taken->record = (char *)record.data;
}

/* A second name for an index, which is only ever replaced; but for its basis, which then is a snapshot of the same tree and keeps the
   same places alive. A copy would have to be written to the disk before it can share anything. */
static void share_index(const char *index, const char *to) {
  if (link(index, to) != 0) copy_file(index, to);
}

static void adopt_index(const struct taking *taking) {
  index_settle();
  if (taking->request->only.count) return;
  if (!taking->found.index_changed) write_basis(taking->index, taking->taken->id);
  else if (rename(taking->new_index, taking->index) != 0) die_errno("replace", taking->index);
  if (taking->whole_tree) share_index(taking->index, path_of("%s.index", taking->tree));
}

static void begin(struct taking *taking) {
  struct buf intent = {0};
  log_new_id(&session.log, taking->taken->id);
  taking->pack = new_pack();
  buf_text(&intent, "{\"operation\":\"snapshot\",\"worktree\":\"%s\",\"snapshotId\":\"%s\",\"pack\":\"%016" PRIx64 "\",\"pid\":%d}",
           taking->request->worktree, taking->taken->id, taking->pack, (int)getpid());
  write_intent(taking->taken->id, &intent);
  free(intent.data);
  kill_point("snapshot-intent");
  taking->pack_path = making(path_of("%s/packs/%016" PRIx64 ".pack", session.control, taking->pack));
  /* Has the name of a temporary file of the store, so that it is swept if a thread still writes it after an error. */
  taking->new_index = making(path_of("%s/tmp/new-%d-0", session.control, (int)getpid()));
  taking->tree = making(path_of("%s/trees/%s", session.control, taking->taken->id));
  store_open(&taking->store, session.control);
  store_begin_pack(&taking->store, taking->pack, false);
}

/* Removes everything but the nodes, which the caller needs to compare the worktree with a snapshot. */
static void drop(const struct taking *taking) {
  index_settle();
  unlink(taking->new_index);
  remove_tree(taking->tree);
  clear_intent();
  nothing_made();
  only_for_now(taking->pack_path);
}

void take(const struct take_request *request, struct taken *taken) {
  memset(taken, 0, sizeof *taken);
  struct taking taking = {.request = request,
                          .taken = taken,
                          .worktree = log_find_worktree(&session.log, request->worktree),
                          .payload = payload_of(request->worktree),
                          .index = index_of(request->worktree)};
  if (!taking.worktree) die("not_found", "there is no worktree \"%s\"", request->worktree);
  begin(&taking);
  choose_engine(&taking);
  taking.whole_tree = !request->only.count && ((taking.engine == ENGINE_BTRFS && take_subvolume(&taking)) ||
                                               (taking.engine == ENGINE_JUICEFS && take_juicefs(&taking)));
  if (!taking.whole_tree) take_files(&taking);
  strcpy(taken->engine, engine_names[taking.engine]);
  const bool known = request->automatic && is_known(taking.worktree, &taking.found, request->target_hash);
  taken->root = taking.found.root;
  hash_text(&taken->root, taken->hash);
  struct buf data = {0};
  if (!known) write_record(&taking, &data);
  store_end_pack(&taking.store, !known);
  close(taking.store.dir);
  kill_point("scan-stored");
  kill_point("snapshot-stored");
  if (known) {
    drop(&taking);
    return;
  }
  if (taking.found.sockets)
    notice("left out %" PRIu64 " socket%s: a socket works only while its process runs", taking.found.sockets, PLURAL(taking.found.sockets));
  commit("snapshot", &data, true);
  free(data.data);
  kill_point("snapshot-committed");
  adopt_index(&taking);
  kill_point("snapshot-indexed");
  clear_intent();
}
