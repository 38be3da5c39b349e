#define _GNU_SOURCE
#include "fork.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine.h"
#include "fill.h"
#include "places.h"
#include "restore-worktree.h"
#include "take.h"

/* Clones the snapshot as a whole, where it is stored as a whole directory. */
static bool clone_whole(const struct snapshot *base, const char *payload, const char *index) {
  char storage[16], engine[32], reason[512];
  struct json partial;
  json_field_string(base->record, "storage", storage, sizeof storage);
  if (strcmp(storage, "tree") != 0 || !json_field(base->record, "partial_paths", &partial) || !json_is(partial, "null")) return false;
  const char *tree = path_of("%s/trees/%s", session.control, base->id), *tree_index = path_of("%s.index", tree);
  if (json_field_string(base->record, "engine", engine, sizeof engine) && strcmp(engine, engine_names[ENGINE_JUICEFS]) == 0) {
    if (juicefs_clone(tree, payload, reason)) return true;
    notice("`juicefs clone` failed: %s: copying instead", reason);
    remove_tree(payload);
    return false;
  }
  if (!is_subvolume(tree)) return false;
  subvolume_snapshot(tree, payload, false);
  if (access(tree_index, F_OK) == 0) {
    copy_file(tree_index, index);
    write_basis(index, base->id);
  }
  return true;
}

/* Finds out what is in a new worktree that differs from its snapshot, because owners could not be set for example. */
static void scan_filled(struct store *store, const struct snapshot *base, const char *payload, const char *index, struct root *out) {
  const uint64_t pack = new_pack();
  char *pack_path = making(path_of("%s/tmp/%016" PRIx64 ".pack", session.control, pack));
  const struct scan_options options = {.directory = payload, .new_index_path = index, .basis = base->id};
  struct scan_result found;
  store_begin_pack(store, pack, true);
  scan(store, &options, &found);
  store_end_pack(store, false);
  free(found.nested);
  unlink(pack_path);
  *out = found.root;
}

/* File by file. The hash of what is there then goes to `hash`. `index` is where its index goes; NULL: neither is needed. */
static void fill(const struct snapshot *base, const char *payload, const char *index, const struct selection *only, char hash[65]) {
  char storage[16], root[ROOT_TEXT];
  json_field_string(base->record, "storage", storage, sizeof storage);
  json_field_string(base->record, "root", root, sizeof root);
  struct fill_options options = {.directory = payload,
                                 .tree = strcmp(storage, "tree") == 0 ? path_of("%s/trees/%s", session.control, base->id) : NULL,
                                 .index_path = index,
                                 .basis = base->id};
  if (only) options.selection = *only;
  root_parse(root, &options.from);
  struct store store;
  struct refused refused;
  store_open(&store, session.control);
  struct root filled = options.from;
  if (!fill_directory(&store, &options, &refused) && index) scan_filled(&store, base, payload, index, &filled);
  close(store.dir);
  tell_refused(&refused);
  if (index) hash_text(&filled, hash);
}

/* With exactly this mode, whatever the umask is. */
static void make_directory(const char *path, unsigned mode, bool may_exist) {
  if (mkdir(path, 0700) == 0) {
    if (chmod(path, mode) != 0) die_errno("change the mode of", path);
  } else if (errno != EEXIST || !may_exist) die_errno("create", path);
}

void make_payload(const char *path, unsigned mode) {
  /* A workspace that was made on btrfs may have been copied elsewhere. */
  if (strcmp(session.engine, engine_names[ENGINE_BTRFS]) == 0 && strcmp(filesystem_name(session.root), "btrfs") == 0) {
    subvolume_create(path);
    if (chmod(path, mode) != 0) die_errno("change the mode of", path);
  } else make_directory(path, mode, false);
}

void fork_worktree(const char *name, const char *base, unsigned mode) {
  const struct snapshot *from = base ? log_find(&session.log, base) : NULL;
  if (base && !from) die("not_found", "there is no snapshot %s", base);
  char *folder = path_of("%s/worktrees/%s", session.root, name), *payload = payload_of(name), *index = index_of(name);
  char id[ID_LEN + 1], hash[65] = "";
  struct buf intent = {0}, data = {0};
  log_new_id(&session.log, id);
  buf_text(&intent, "{\"operation\":\"fork\",\"worktree\":\"%s\",\"pid\":%d}", name, (int)getpid());
  write_intent(id, &intent);
  free(intent.data);
  kill_point("fork-intent");
  make_directory(path_of("%s/worktrees", session.root), mode, true);
  make_directory(making(folder), mode, false);
  /* A subvolume is not removed with the directory that holds it. */
  making(payload);
  making(index);
  unlink(index);
  if (from && clone_whole(from, payload, index)) json_field_string(from->record, "payload_root_hash", hash, sizeof hash);
  else {
    make_payload(payload, mode);
    if (from) fill(from, payload, index, NULL, hash);
  }
  kill_point("fork-filled");
  buf_text(&data, "{\"name\":\"%s\",\"base\":", name);
  buf_text(&data, base ? "\"%s\"" : "null", base);
  buf_text(&data, *hash ? ",\"root_hash\":\"%s\"}" : ",\"root_hash\":null}", hash);
  commit("worktree_create", &data, true);
  free(data.data);
  kill_point("fork-committed");
  clear_intent();
}

void export_snapshot(const char *id, const char *directory, unsigned mode, const struct selection *only) {
  const struct snapshot *from = log_find(&session.log, id);
  if (!from) die("not_found", "there is no snapshot %s", id);
  /* An empty directory may be there. It is made anew, so that all of it is removed when this fails. */
  if (rmdir(directory) != 0 && errno != ENOENT) die_errno("replace", directory);
  make_directory(making(path_of("%s", directory)), mode, false);
  fill(from, directory, NULL, only, NULL);
  nothing_made();
}
