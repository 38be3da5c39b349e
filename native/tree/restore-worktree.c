#define _GNU_SOURCE
#include "restore-worktree.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "places.h"
#include "retire.h"

struct target {
  char id[ID_LEN + 1], hash[65];
  bool whole_tree;
  struct root root;
  struct selection paths; /* that are restored; none: all */
};

static void find_target(const struct restore_request *request, struct target *out) {
  const struct snapshot *found = log_find(&session.log, request->target);
  if (!found) die("not_found", "there is no snapshot %s", request->target);
  char storage[16], root[ROOT_TEXT];
  struct json paths, path;
  strcpy(out->id, found->id);
  json_field_string(found->record, "payload_root_hash", out->hash, sizeof out->hash);
  json_field_string(found->record, "storage", storage, sizeof storage);
  json_field_string(found->record, "root", root, sizeof root);
  root_parse(root, &out->root);
  out->whole_tree = strcmp(storage, "tree") == 0;
  out->paths = request->only;
  if (request->only.count || !json_field(found->record, "partial_paths", &paths)) return;
  /* A snapshot of some paths restores these and no others. */
  while (*paths.at != 'n' && json_next(&paths, &path)) {
    char *text = json_text(path);
    if (!text) die("corrupt", "the record of the snapshot %s cannot be read", out->id);
    out->paths.paths = must_realloc(out->paths.paths, (out->paths.count + 1) * sizeof text);
    out->paths.paths[out->paths.count++] = path_of("%s", text);
    free(text);
  }
}

void peek(const char *worktree, const struct selection *only, bool until_change, struct scan_result *found) {
  const uint64_t pack = new_pack();
  only_for_now(path_of("%s/tmp/%016" PRIx64 ".pack", session.control, pack));
  struct store store;
  store_open(&store, session.control);
  store_begin_pack(&store, pack, true);
  struct scan_options look = {.directory = payload_of(worktree),
                              .index_path = index_of(worktree),
                              .basis = "",
                              .locations_hold = index_holds(index_of(worktree)),
                              .until_change = until_change};
  if (only) look.selection = *only;
  scan(&store, &look, found);
  store_end_pack(&store, false);
  close(store.dir);
  free(found->nested);
  found->nested = NULL;
}

/* What the worktree holds. All of it is in a snapshot when this returns, unless it is to be discarded. */
static struct root save_changes(const struct restore_request *request, const struct target *target, struct taken *saved) {
  memset(saved, 0, sizeof *saved);
  struct scan_result found;
  /* Cloning the whole directory costs more than checking first whether anything changed. */
  if (request->discard || clones_first(request->engine)) {
    const struct worktree *worktree = log_find_worktree(&session.log, request->worktree);
    peek(request->worktree, NULL, !request->discard, &found);
    if (request->discard || (!found.stopped && is_known(worktree, &found, target->hash))) return found.root;
    end_of_now();
  }
  char note[64];
  snprintf(note, sizeof note, "Unsaved changes before restore to %.8s", target->id);
  const struct take_request keep = {.worktree = request->worktree,
                                    .note = note,
                                    .engine = request->engine,
                                    .mounts = request->mounts,
                                    .automatic = true,
                                    .target_hash = target->hash};
  take(&keep, saved);
  if (saved->record) notice("unsaved changes are kept as %.8s  %s", saved->id, note);
  return saved->root;
}

static void add_paths(struct buf *out, const struct selection *paths) {
  buf_text(out, paths->count ? "[" : "null");
  for (size_t i = 0; i < paths->count; i++) {
    buf_text(out, i ? "," : "");
    buf_json_path(out, paths->paths[i]);
  }
  if (paths->count) buf_text(out, "]");
}

static uint64_t device_of(const char *path) {
  struct stat found;
  if (stat(path, &found) != 0) die_errno("stat", path);
  return found.st_dev;
}

/*
 * Makes the directory in which new files are written before they take their places, on the filesystem of the worktree: it may be a
 * subvolume or a mount of its own, into which nothing can be renamed from .jvs. Where the worktree may not be changed yet, it is in .jvs all
 * the same, and the new files are copied.
 */
static char *make_staging(const char *payload, const char *operation, bool *inside) {
  const char *temporary = path_of("%s/tmp", session.control);
  char *staging = path_of("%s/" STAGING_PREFIX "%s", payload, operation);
  *inside = device_of(payload) != device_of(temporary) && make_unseen(making(staging));
  if (*inside) return staging;
  staging = making(path_of("%s/restore-%s", temporary, operation));
  if (mkdir(staging, 0700) != 0) die_errno("create", staging);
  return staging;
}

static void append_restore(const struct restore_request *request, const struct target *target, const char *hash) {
  const char *worktree = request->worktree;
  struct buf data = {0};
  buf_text(&data, "{\"worktree\":\"%s\",\"snapshot_id\":\"%s\",\"root_hash\":\"%s\",\"paths\":", worktree, target->id, hash);
  add_paths(&data, &target->paths);
  if (request->step) buf_text(&data, ",\"step\":\"%s\"", request->step);
  buf_text(&data, "}");
  commit("restore", &data, !request->loose);
  free(data.data);
}

void tell_refused(const struct refused *refused) {
  if (refused->owners)
    notice("only root can restore owners: %" PRIu64 " entr%s another one now", refused->owners,
           refused->owners == 1 ? "y has" : "ies have");
  if (refused->attributes)
    notice("%" PRIu64 " extended attribute%s could not be restored on this filesystem or by this user", refused->attributes,
           PLURAL(refused->attributes));
}

static void tell(const struct restore_result *restored, const char *kept, const char *operation) {
  tell_refused(&restored->refused);
  if (!restored->moved_aside) return;
  const bool one = restored->moved_aside == 1;
  const char *what = one ? "entry that was ignored or had just changed was in the way and is"
                         : "entries that were ignored or had just changed were in the way and are";
  if (access(kept, F_OK) == 0) notice("%" PRIu64 " %s now in %s", restored->moved_aside, what, kept);
  else
    notice("%" PRIu64 " %s now in the same directory, with %s ending in .kept-by-restore-%s", restored->moved_aside, what,
           one ? "a name" : "names", operation);
}

static void apply_target(const struct restore_request *request, const struct target *target, const struct root *from,
                         struct restore_result *restored) {
  char operation[ID_LEN + 1], hash[65];
  const uint64_t pack = new_pack();
  const bool partial = target->paths.count > 0;
  const char *index = index_of(request->worktree);
  log_new_id(&session.log, operation);
  hash_text(from, hash);
  kill_point("restore-saved");
  struct buf intent = {0};
  buf_text(&intent,
           "{\"operation\":\"restore\",\"worktree\":\"%s\",\"snapshotId\":\"%s\",\"fromHash\":\"%s\",\"pack\":\"%016" PRIx64
           "\",\"pid\":%d,\"paths\":",
           request->worktree, target->id, hash, pack, (int)getpid());
  add_paths(&intent, &target->paths);
  buf_text(&intent, "}");
  write_intent(operation, &intent);
  free(intent.data);
  char *new_index = making(path_of("%s/tmp/%s.index", session.control, operation));
  char *pack_path = making(path_of("%s/tmp/%016" PRIx64 ".pack", session.control, pack));
  bool inside;
  const char *payload = payload_of(request->worktree), *staging = make_staging(payload, operation, &inside);
  kill_point("restore-intent");
  struct store store;
  store_open(&store, session.control);
  store_begin_pack(&store, pack, true);
  const struct restore_options options = {.directory = payload,
                                          .staging = staging,
                                          .staged_inside = inside,
                                          .kept = path_of("%s/kept/%s", session.control, operation),
                                          .tree = target->whole_tree ? path_of("%s/trees/%s", session.control, target->id) : NULL,
                                          .from = *from,
                                          .to = target->root,
                                          .selection = target->paths,
                                          .durable = !request->loose};
  const struct scan_options again = {
      .index_path = index, .new_index_path = partial ? NULL : new_index, .basis = target->id, .locations_hold = index_holds(index)};
  struct scan_result found;
  restore(&store, &options, &again, restored, &found);
  store_end_pack(&store, false);
  close(store.dir);
  free(found.nested);
  kill_point("restore-done");
  /* From now on the snapshot counts as saved. Files that are no longer ignored are not part of it, so that the next restore keeps them.
     Owners and attributes that could not be restored do not count as changes. */
  hash_text(&found.root, hash);
  append_restore(request, target, partial || restored->refused.owners || restored->refused.attributes ? hash : target->hash);
  retire_settle();
  remove_tree(staging);
  kill_point("restore-committed");
  if (!partial && found.index_changed && rename(new_index, index) != 0) die_errno("replace", index);
  tell(restored, options.kept, operation);
  clear_intent();
  unlink(new_index);
  unlink(pack_path);
}

void restore_worktree(const struct restore_request *request, struct taken *saved, struct restore_result *restored) {
  struct target target;
  char hash[65], basis[33];
  find_target(request, &target);
  memset(restored, 0, sizeof *restored);
  const struct root from = save_changes(request, &target, saved);
  hash_text(&from, hash);
  read_basis(index_of(request->worktree), basis);
  /* Nothing differs and the index belongs to this snapshot: only the log needs a line. */
  if (!target.paths.count && strcmp(hash, target.hash) == 0 && strcmp(basis, target.id) == 0) {
    if (!request->loose) sync_filesystem(payload_of(request->worktree));
    append_restore(request, &target, target.hash);
  } else apply_target(request, &target, &from, restored);
  workspace_touched = false;
  end_of_now();
  if (!request->only.count) free(target.paths.paths);
}
