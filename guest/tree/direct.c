#define _GNU_SOURCE
#include "direct.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "history.h"
#include "places.h"
#include "restore.h"

#define TAGS_MAX 16
#define WORD_MAX 4096
#define MADE_MAX 4

static char **command;
static mode_t former_umask;
static char *control, *payload, *index_path, *worktree;
static char engine[32];
static struct history history;

static char *path_of(const char *format, ...) {
  char *path;
  va_list args;
  va_start(args, format);
  if (vasprintf(&path, format, args) < 0) die("limit_reached", "out of memory");
  va_end(args);
  return path;
}

/* What is on its way and goes when this gives up. The intent is the first, and goes last. */
static char *made[MADE_MAX];
static size_t made_count;

/* Nodes of what a worktree holds, needed while it is restored. */
static char *kept_nodes;

static char *making(char *path) { return made[made_count++] = path; }

/* Files that content was written to when it failed; their names are ours. */
static void sweep_temporaries(void) {
  char prefix[32];
  snprintf(prefix, sizeof prefix, "new-%d-", getpid());
  DIR *dir = opendir(path_of("%s/tmp", control));
  for (struct dirent *entry; dir && (entry = readdir(dir));)
    if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0) unlinkat(dirfd(dir), entry->d_name, 0);
  if (dir) closedir(dir);
}

/* Whatever went wrong: Node tries it again, and says what it is. A worktree that was touched is for it to finish. */
static void give_up(void) {
  static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  static bool undoing;
  pthread_mutex_lock(&lock);
  if (!undoing && !workspace_touched) {
    undoing = true;
    sweep_temporaries();
    while (made_count) remove_tree(made[--made_count]);
  }
  if (kept_nodes) unlink(kept_nodes);
  umask(former_umask);
  size_t count = 0;
  while (command[count]) count++;
  char **arguments = calloc(count + 3, sizeof *arguments);
  if (!arguments) _exit(70);
  arguments[0] = "coppice-tree";
  arguments[1] = "for";
  memcpy(arguments + 2, command, count * sizeof *arguments);
  execv("/proc/self/exe", arguments);
  fprintf(stderr, "jvs: error: cannot start Node: %s\n", strerror(errno));
  _exit(70);
}

/* A word that is the same in JSON and on a terminal: of the signs beyond ASCII not those that some control characters are among. */
static bool is_plain(const char *word) {
  const size_t len = strlen(word);
  if (*word == '-' || len >= WORD_MAX) return false;
  for (size_t at = 0, sign; at < len; at += sign) {
    const uint8_t first = (uint8_t)word[at];
    sign = utf8_len((const uint8_t *)word + at, len - at);
    if (!sign || first < ' ' || first == 0x7f || first == '"' || first == '\\' || first == 0xc2 || first == 0xe2 || first == 0xef)
      return false;
  }
  return true;
}

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

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* The workspace around the current directory, as findWorkspace() finds it. */
static bool find_workspace(void) {
  char here[PATH_MAX];
  if (!getcwd(here, sizeof here) || here[0] != '/') return false;
  size_t len = strlen(here);
  for (;; len--) {
    if (len > 1 && here[len] && here[len] != '/') continue;
    const size_t folder = len == 1 ? 0 : len;
    control = path_of("%.*s/.jvs", (int)folder, here);
    if (is_there(path_of("%s/repository.json", control))) {
      const char *inside = here + folder + (here[folder] == '/');
      char name[256];
      const bool own = sscanf(inside, "worktrees/%255[^/]", name) == 1;
      worktree = own ? must_strdup(name) : "main";
      payload = own ? path_of("%.*s/worktrees/%s/main", (int)folder, here, name) : path_of("%.*s/main", (int)folder, here);
      index_path = path_of("%s/indexes/%s.index", control, worktree);
      return is_plain(worktree) && is_plain(control) && is_there(payload);
    }
    if (len <= 1) return false;
  }
}

static bool read_repository(void) {
  char text[4096];
  const int fd = open(path_of("%s/repository.json", control), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t len = read(fd, text, sizeof text);
  close(fd);
  struct json record;
  uint64_t version;
  return len > 0 && json_parse(text, (size_t)len, &record) && json_field_number(record, "format_version", &version) && version == 1 &&
         json_field_string(record, "engine", engine, sizeof engine);
}

/* With or without waiting; the lock goes with the process, or with the answer. */
static int lock(const char *name, int kind) {
  const char *path = path_of("%s/locks/%s", control, name);
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) die_errno("open the lock", path);
  while (flock(fd, kind) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) die_errno("lock", path);
    close(fd);
    return -1;
  }
  return fd;
}

static bool nothing_intended(void) {
  DIR *dir = opendir(path_of("%s/intents", control));
  if (!dir) return false;
  bool empty = true;
  for (struct dirent *entry; (entry = readdir(dir));)
    if (entry->d_name[0] != '.') empty = false;
  closedir(dir);
  return empty;
}

static bool engine_is_here(void) {
  if (strcmp(engine, "copy") == 0) return true;
  if (strcmp(engine, "reflink-copy") == 0) return can_reflink(path_of("%s/tmp", control));
  return strcmp(engine, "btrfs") == 0 && is_subvolume(payload);
}

/* The snapshot that the places in the index are from; empty: there is no index. */
static void read_basis(char out[33]) {
  memset(out, 0, 33);
  const int fd = open(index_path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (pread(fd, out, 32, offsetof(struct index_header, basis)) != 32) *out = 0;
  close(fd);
}

static bool index_holds(void) {
  char basis[33];
  read_basis(basis);
  return *basis && history_find(&history, basis);
}

static uint64_t new_pack(void) {
  uint64_t pack;
  if (getrandom(&pack, sizeof pack, 0) != (ssize_t)sizeof pack) die_errno("ask for", "random bytes");
  const uint64_t first = pack >> 60;
  return first == 0 || first == 15 ? (pack & (UINT64_MAX >> 4)) | 1ull << 60 : pack;
}

static void write_intent(const char *id, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void write_intent(const char *id, const char *format, ...) {
  const char *path = making(path_of("%s/intents/%s.json", control, id));
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) die_errno("create", path);
  va_list args;
  va_start(args, format);
  if (vdprintf(fd, format, args) < 0) die_errno("write", path);
  va_end(args);
  close(fd);
}

/* From here on the log says what happened, and what is made stays. */
static void commit(const char *type, const struct buf *data, bool durable) {
  const char *intent = made[0];
  made_count = 0;
  const int held = lock("log", LOCK_EX);
  history_append(&history, type, data, durable);
  close(held);
  made[0] = (char *)intent;
}

static void clear_intent(void) {
  if (unlink(made[0]) != 0) die_errno("remove", made[0]);
}

static void copy_index(const char *to) {
  const int from = open(index_path, O_RDONLY | O_CLOEXEC), fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (from < 0 || fd < 0) die_errno("copy the index to", to);
  if (ioctl(fd, FICLONE, from) != 0) {
    ssize_t sent;
    while ((sent = copy_file_range(from, NULL, fd, NULL, 1 << 30, 0)) > 0);
    if (sent < 0) die_errno("copy the index to", to);
  }
  close(from);
  close(fd);
}

struct taken {
  char id[ID_LEN + 1], at[32], hash[65];
  struct root root;
  uint64_t files, bytes, new_bytes;
};

static void hash_text(const struct root *root, char out[65]) { hex_of(root->hash, HASH_LEN, out); }

/* Whether a worktree holds nothing that no snapshot has. */
static bool is_known(const struct scan_result *found, const char *target_hash) {
  char hash[65];
  hash_text(&found->root, hash);
  return (found->files == 0 && found->directories == 1 && !*history.head) || strcmp(hash, history.saved_hash) == 0 ||
         strcmp(hash, target_hash) == 0;
}

static void append_snapshot(const struct taken *taken, const char *note, const char *const *tags, size_t tag_count, bool automatic,
                            bool whole_tree) {
  char root[ROOT_TEXT];
  root_text(&taken->root, root);
  struct buf data = {0};
  buf_text(&data, "{\"snapshot\":{\"snapshot_id\":\"%s\",\"parent_id\":", taken->id);
  buf_text(&data, *history.head ? "\"%s\"" : "null", history.head);
  buf_text(&data, ",\"worktree_name\":\"%s\",\"created_at\":\"%s\",\"note\":\"%s\",\"tags\":[", worktree, taken->at, note);
  for (size_t i = 0; i < tag_count; i++) buf_text(&data, "%s\"%s\"", i ? "," : "", tags[i]);
  buf_text(&data, "],\"engine\":\"%s\",\"requested_engine\":null,\"storage\":\"%s\",\"payload_root_hash\":\"%s\",\"root\":\"%s\"", engine,
           whole_tree ? "tree" : "objects", taken->hash, root);
  buf_text(&data, ",\"partial_paths\":null,\"automatic\":%s,\"files\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"new_bytes\":%" PRIu64,
           automatic ? "true" : "false", taken->files, taken->bytes, taken->new_bytes);
  buf_text(&data, "},\"saved_root_hash\":\"%s\"}", taken->hash);
  commit("snapshot", &data, true);
  history_learn(&history, taken->id);
  free(data.data);
}

static void adopt_index(const char *new_index, const char *basis) {
  if (rename(new_index, index_path) == 0) return;
  if (errno != ENOENT) die_errno("replace", index_path);
  char padded[32] = {0};
  strncpy(padded, basis, sizeof padded - 1);
  const int fd = open(index_path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || pwrite(fd, padded, sizeof padded, offsetof(struct index_header, basis)) != (ssize_t)sizeof padded)
    die_errno("write", index_path);
  close(fd);
}

/* False when `target_hash` is given and the worktree holds nothing new; then the pack with its nodes is there until it is dropped. */
static bool take(const char *note, const char *const *tags, size_t tag_count, const char *target_hash, struct taken *taken) {
  const bool whole_tree = strcmp(engine, "btrfs") == 0;
  const uint64_t pack = new_pack();
  history_new_id(&history, taken->id);
  write_intent(taken->id, "{\"operation\":\"snapshot\",\"worktree\":\"%s\",\"snapshotId\":\"%s\",\"pack\":\"%016" PRIx64 "\",\"pid\":%d}",
               worktree, taken->id, pack, (int)getpid());
  kill_point("snapshot-intent");
  char *pack_path = making(path_of("%s/packs/%016" PRIx64 ".pack", control, pack));
  char *new_index = making(path_of("%s/tmp/%s.index", control, taken->id));
  char *tree = path_of("%s/trees/%s", control, taken->id);
  struct store store;
  store_open(&store, control);
  store.reflink = strcmp(engine, "reflink-copy") == 0;
  store_begin_pack(&store, pack, false);
  struct scan_options options = {.directory = payload,
                                 .index_path = index_path,
                                 .new_index_path = new_index,
                                 .basis = taken->id,
                                 .locations_hold = index_holds(),
                                 .keep = !whole_tree};
  if (whole_tree) {
    options.moment_ns = filesystem_moment(&store);
    subvolume_snapshot(payload, making(tree), true);
    kill_point("snapshot-subvolume");
    options.directory = tree;
    options.live = payload;
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
    unlink(new_index);
    clear_intent();
    made_count = 0;
    kept_nodes = pack_path;
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
  adopt_index(new_index, taken->id);
  if (whole_tree) copy_index(path_of("%s.index", tree));
  kill_point("snapshot-indexed");
  clear_intent();
  return true;
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
  signal(SIGPIPE, SIG_IGN);
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
  buf_text(&out, " new (%s)\n", engine);
  finish(&out);
}

struct target {
  char id[ID_LEN + 1], hash[65], note[WORD_MAX];
  bool whole_tree;
  struct root root;
};

static bool find_target(const char *reference, struct target *out) {
  const bool head = strcmp(reference, "HEAD") == 0;
  const struct snapshot *found = history_find(&history, head ? history.head : reference);
  if (!found && !head) found = history_tagged(&history, reference);
  char storage[16], root[ROOT_TEXT];
  struct json partial;
  if (!found || !json_field(found->record, "partial_paths", &partial) || !json_is(partial, "null") ||
      !json_field_string(found->record, "payload_root_hash", out->hash, sizeof out->hash) ||
      !json_field_string(found->record, "note", out->note, sizeof out->note) ||
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
  if (strcmp(engine, "btrfs") == 0) {
    const uint64_t pack = new_pack();
    kept_nodes = path_of("%s/tmp/%016" PRIx64 ".pack", control, pack);
    struct store store;
    store_open(&store, control);
    store_begin_pack(&store, pack, true);
    const struct scan_options look = {.directory = payload, .index_path = index_path, .basis = "", .locations_hold = index_holds()};
    struct scan_result found;
    scan(&store, &look, &found);
    store_end_pack(&store, false);
    close(store.dir);
    if (is_known(&found, target->hash)) return found.root;
    unlink(kept_nodes);
    kept_nodes = NULL;
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
  buf_text(&data, "{\"worktree\":\"%s\",\"snapshot_id\":\"%s\",\"root_hash\":\"%s\",\"paths\":null}", worktree, target->id, hash);
  commit("restore", &data, false);
  free(data.data);
}

static void restore_to(const struct target *target, const struct root *from, struct restore_result *restored) {
  char operation[ID_LEN + 1], hash[65];
  const uint64_t pack = new_pack();
  history_new_id(&history, operation);
  kill_point("restore-saved");
  hash_text(from, hash);
  write_intent(operation,
               "{\"operation\":\"restore\",\"worktree\":\"%s\",\"snapshotId\":\"%s\",\"fromHash\":\"%s\",\"pack\":\"%016" PRIx64
               "\",\"paths\":null,\"pid\":%d}",
               worktree, target->id, hash, pack, (int)getpid());
  char *staging = making(path_of("%s/tmp/restore-%s", control, operation));
  char *new_index = making(path_of("%s/tmp/%s.index", control, operation));
  char *pack_path = making(path_of("%s/tmp/%016" PRIx64 ".pack", control, pack));
  if (mkdir(staging, 0700) != 0) die_errno("create", staging);
  kill_point("restore-intent");
  struct store store;
  store_open(&store, control);
  store_begin_pack(&store, pack, true);
  const struct restore_options options = {.directory = payload,
                                          .staging = staging,
                                          .kept = path_of("%s/kept/%s", control, operation),
                                          .tree = target->whole_tree ? path_of("%s/trees/%s", control, target->id) : NULL,
                                          .from = *from,
                                          .to = target->root};
  const struct scan_options again = {.index_path = index_path, .new_index_path = new_index, .basis = target->id, .locations_hold = index_holds()};
  struct scan_result found;
  restore(&store, &options, &again, restored, &found);
  store_end_pack(&store, false);
  close(store.dir);
  kill_point("restore-done");
  hash_text(&found.root, hash);
  append_restore(target, restored->owners_refused || restored->attributes_refused ? hash : target->hash);
  kill_point("restore-committed");
  if (found.index_changed && rename(new_index, index_path) != 0) die_errno("replace", index_path);
  if (restored->owners_refused)
    fprintf(stderr, "jvs: the owners of %" PRIu64 " entries could not be restored: that takes root\n", restored->owners_refused);
  if (restored->attributes_refused)
    fprintf(stderr, "jvs: %" PRIu64 " extended attributes could not be restored on this filesystem or by this user\n",
            restored->attributes_refused);
  if (restored->moved_aside)
    fprintf(stderr, "jvs: %" PRIu64 " ignored entries stood in the way and are now in %s\n", restored->moved_aside, options.kept);
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
  if (kept_nodes) unlink(kept_nodes);
  struct buf out = {0};
  buf_text(&out, "Restored %.8s", target->id);
  if (*target->note) buf_text(&out, " \"%s\"", target->note);
  buf_text(&out, ": %" PRIu64 " written, %" PRIu64 " removed, %" PRIu64 " adjusted\n", restored.written, restored.removed, restored.adjusted);
  finish(&out);
}

void do_directly(char **given) {
  command = given;
  char **words = given + 1;
  while (*words && **words == '-') words++;
  struct request request;
  const char *asked_engine = getenv("JVS_ENGINE");
  if (!*words || !understand(words + 1, &request) || (asked_engine && *asked_engine) || !find_workspace() || !read_repository() ||
      is_there(path_of("%s/config.json", control)))
    return;
  former_umask = umask(0077);
  instead_of_dying = give_up;
  is_command = true;
  struct target target;
  if (lock("store", LOCK_SH | LOCK_NB) < 0 || lock(path_of("worktree-%s", worktree), LOCK_EX | LOCK_NB) < 0 || !nothing_intended() ||
      !history_open(&history, path_of("%s/log.jsonl", control), worktree) || !engine_is_here() ||
      (request.restores && !find_target(request.word, &target)))
    give_up();
  /* HEAD is another one when unsaved changes have been kept: should Node have to go on, it shall mean this one. */
  for (char **at = words; request.restores && *at; at++)
    if (*at == request.word) *at = target.id;
  if (request.restores) restore_as_asked(&target);
  take_as_asked(&request);
}
