#define _GNU_SOURCE
#include "direct.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "places.h"
#include "progress.h"
#include "restore.h"
#include "take.h"

#define TAGS_MAX 16
#define NOTE_MAX 4096

static bool is_tag(const char *word) {
  for (const char *at = word; *at; at++)
    if (*at == ' ' || *at == ',' || *at & 0x80) return false;
  return *word && strlen(word) <= 128 && strcmp(word, "HEAD") != 0 && is_plain(word);
}

struct request {
  bool restores;
  char *word;       /* the note, or the reference */
  const char *tags[TAGS_MAX];
  size_t tag_count;
};

static bool understand(char **words, struct request *out) {
  memset(out, 0, sizeof *out);
  if (!words[0]) return false;
  out->restores = strcmp(words[0], "restore") == 0;
  if (!out->restores && strcmp(words[0], "snapshot") != 0) return false;
  for (char **at = words + 1; *at; at++) {
    if (!out->restores && strcmp(*at, "--tag") == 0) {
      if (!at[1] || !is_tag(at[1]) || out->tag_count == TAGS_MAX) return false;
      at++;
      for (size_t i = 0; i < out->tag_count; i++)
        if (strcmp(out->tags[i], *at) == 0) return false;
      out->tags[out->tag_count++] = *at;
    } else if (out->word || !is_plain(*at)) return false;
    else out->word = *at;
  }
  if (!out->word && !out->restores) out->word = "";
  return out->word;
}

/* As sizeText() in snapshot-lines.ts. */
static void say_size(struct buf *out, uint64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)bytes;
  int unit = 0;
  for (; value >= 1024 && unit < 4; unit++) value /= 1024;
  /* Half a tenth goes up, as it does there. */
  const uint64_t tenths = (uint64_t)(value * 10 + 0.5);
  if (unit == 0) buf_text(out, "%" PRIu64 " B", bytes);
  else buf_text(out, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, units[unit]);
}

/* A reader that went away is no failure. */
static void finish(const struct buf *answer) {
  for (size_t at = 0; at < answer->len;) {
    const ssize_t wrote = write(1, answer->data + at, answer->len - at);
    if (wrote > 0) at += (size_t)wrote;
    else if (errno == EPIPE) break;
    else if (errno == EAGAIN || errno == EINTR) usleep(1000);
    else {
      fprintf(stderr, "jvs: error: it is done, but the answer cannot be written: %s\n", strerror(errno));
      _exit(70);
    }
  }
  _exit(0);
}

static void take_as_asked(const struct request *request) {
  struct taken taken;
  take(request->word, request->tags, request->tag_count, NULL, &taken);
  const char *no_colour = getenv("NO_COLOR");
  const bool colour = isatty(1) && !(no_colour && *no_colour);
  taken.at[10] = ' ';
  struct buf out = {0};
  buf_text(&out, colour ? "\033[33m%.8s\033[0m %.19s  " : "%.8s %.19s  ", taken.id, taken.at);
  if (*request->word) buf_text(&out, " %s", request->word);
  for (size_t i = 0; i < request->tag_count; i++) buf_text(&out, " [%s]", request->tags[i]);
  buf_text(&out, "\n  %" PRIu64 " files, ", taken.files);
  say_size(&out, taken.bytes);
  buf_text(&out, "; ");
  say_size(&out, taken.new_bytes);
  buf_text(&out, " new (%s)\n", session.engine);
  finish(&out);
}

struct target {
  char id[ID_LEN + 1], hash[65], note[NOTE_MAX];
  bool whole_tree;
  struct root root;
};

static bool find_target(const char *reference, struct target *out) {
  const bool head = strcmp(reference, "HEAD") == 0;
  const struct snapshot *found = history_find(&session.history, head ? session.history.head : reference);
  if (!found && !head) found = history_tagged(&session.history, reference);
  char storage[16], root[ROOT_TEXT];
  struct json partial;
  if (!found || !json_field(found->record, "partial_paths", &partial) || !json_is(partial, "null") ||
      !json_field_string(found->record, "payload_root_hash", out->hash, sizeof out->hash) ||
      !json_field_string(found->record, "note", out->note, sizeof out->note) || !is_plain(out->note) ||
      !json_field_string(found->record, "storage", storage, sizeof storage) ||
      !json_field_string(found->record, "root", root, sizeof root) || !root_parse(root, &out->root))
    return false;
  strcpy(out->id, found->id);
  out->whole_tree = strcmp(storage, "tree") == 0;
  return true;
}

/* What the worktree holds, which is stored when this returns, if only for now. */
static struct root save_changes(const struct target *target) {
  /* A clone of the whole directory costs more than to look whether one is needed. */
  if (strcmp(session.engine, "btrfs") == 0) {
    const uint64_t pack = new_pack();
    session.kept_nodes = path_of("%s/tmp/%016" PRIx64 ".pack", session.control, pack);
    struct store store;
    store_open(&store, session.control);
    store_begin_pack(&store, pack, true);
    const struct scan_options look = {
        .directory = session.payload, .index_path = session.index, .basis = "", .locations_hold = index_holds(), .until_change = true};
    struct scan_result found;
    scan(&store, &look, &found);
    store_end_pack(&store, false);
    close(store.dir);
    if (!found.stopped && is_known(&found, target->hash)) return found.root;
    unlink(session.kept_nodes);
    session.kept_nodes = NULL;
  }
  struct taken taken;
  char note[64];
  snprintf(note, sizeof note, "Unsaved changes before restore to %.8s", target->id);
  if (take(note, NULL, 0, target->hash, &taken))
    fprintf(stderr, "jvs: unsaved changes are kept as %.8s  %s  %s\n", taken.id, taken.at, note);
  return taken.root;
}

static void append_restore(const struct target *target, const char *hash) {
  struct buf data = {0};
  buf_text(&data, "{\"worktree\":\"%s\",\"snapshot_id\":\"%s\",\"root_hash\":\"%s\",\"paths\":null}", session.worktree, target->id, hash);
  commit("restore", &data, false);
  free(data.data);
}

static void restore_to(const struct target *target, const struct root *from, struct restore_result *restored) {
  char operation[ID_LEN + 1], hash[65];
  const uint64_t pack = new_pack();
  history_new_id(&session.history, operation);
  kill_point("restore-saved");
  hash_text(from, hash);
  write_intent(operation,
               "{\"operation\":\"restore\",\"worktree\":\"%s\",\"snapshotId\":\"%s\",\"fromHash\":\"%s\",\"pack\":\"%016" PRIx64
               "\",\"paths\":null,\"pid\":%d}",
               session.worktree, target->id, hash, pack, (int)getpid());
  char *staging = making(path_of("%s/tmp/restore-%s", session.control, operation));
  char *new_index = making(path_of("%s/tmp/%s.index", session.control, operation));
  char *pack_path = making(path_of("%s/tmp/%016" PRIx64 ".pack", session.control, pack));
  if (mkdir(staging, 0700) != 0) die_errno("create", staging);
  kill_point("restore-intent");
  struct store store;
  store_open(&store, session.control);
  store_begin_pack(&store, pack, true);
  const struct restore_options options = {.directory = session.payload,
                                          .staging = staging,
                                          .kept = path_of("%s/kept/%s", session.control, operation),
                                          .tree = target->whole_tree ? path_of("%s/trees/%s", session.control, target->id) : NULL,
                                          .from = *from,
                                          .to = target->root};
  const struct scan_options again = {.index_path = session.index, .new_index_path = new_index, .basis = target->id, .locations_hold = index_holds()};
  struct scan_result found;
  restore(&store, &options, &again, restored, &found);
  store_end_pack(&store, false);
  close(store.dir);
  kill_point("restore-done");
  hash_text(&found.root, hash);
  append_restore(target, restored->owners_refused || restored->attributes_refused ? hash : target->hash);
  kill_point("restore-committed");
  if (found.index_changed && rename(new_index, session.index) != 0) die_errno("replace", session.index);
  if (restored->owners_refused)
    fprintf(stderr, "jvs: the owners of %" PRIu64 " entries could not be restored: that takes root\n", restored->owners_refused);
  if (restored->attributes_refused)
    fprintf(stderr, "jvs: %" PRIu64 " extended attributes could not be restored on this filesystem or by this user\n",
            restored->attributes_refused);
  if (restored->moved_aside)
    fprintf(stderr, "jvs: %" PRIu64 " ignored or just changed entries stood in the way and are now %s%s\n", restored->moved_aside,
            access(options.kept, F_OK) == 0 ? "in " : "beside, with their names ending in .kept-by-restore-",
            access(options.kept, F_OK) == 0 ? options.kept : operation);
  clear_intent();
  remove_tree(staging);
  unlink(pack_path);
}

static void restore_as_asked(const struct target *target) {
  char hash[65], basis[33];
  const struct root from = save_changes(target);
  hash_text(&from, hash);
  read_basis(basis);
  struct restore_result restored = {0};
  /* Nothing differs, and the index is about this very snapshot: then only the log has something to learn. */
  if (strcmp(hash, target->hash) == 0 && strcmp(basis, target->id) == 0) append_restore(target, target->hash);
  else restore_to(target, &from, &restored);
  if (session.kept_nodes) unlink(session.kept_nodes);
  struct buf out = {0};
  buf_text(&out, "Restored %.8s", target->id);
  if (*target->note) buf_text(&out, " \"%s\"", target->note);
  buf_text(&out, ": %" PRIu64 " written, %" PRIu64 " removed, %" PRIu64 " adjusted\n", restored.written, restored.removed, restored.adjusted);
  finish(&out);
}

void do_directly(char **command) {
  char **words = command + 1;
  while (*words && **words == '-') words++;
  struct request request;
  if (!*words || !understand(words + 1, &request) || !session_open(command)) return;
  progress_watch(words);
  if (!request.restores) take_as_asked(&request);
  struct target target;
  if (!find_target(request.word, &target)) give_up();
  /* HEAD is another one when unsaved changes have been kept: should Node have to go on, it shall mean this one. */
  for (char **at = words; *at; at++)
    if (*at == request.word) *at = target.id;
  restore_as_asked(&target);
}
