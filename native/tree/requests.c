#define _GNU_SOURCE
#include "requests.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "content.h"
#include "engine.h"
#include "fork.h"
#include "places.h"
#include "records.h"
#include "restore-worktree.h"
#include "verify.h"

#define REQUEST_MAX (16u << 20)
#define LOCKS_MAX 16

static char **words;
static size_t word_count;
static struct {
  char *path;
  int fd;
} locks[LOCKS_MAX];

static const char *maybe(const char *key) {
  const size_t len = strlen(key);
  for (size_t i = 1; i < word_count; i++)
    if (strncmp(words[i], key, len) == 0 && words[i][len] == '=') return words[i] + len + 1;
  return NULL;
}

static const char *need(const char *key) {
  const char *value = maybe(key);
  if (!value) die("internal", "the request %s lacks %s", words[0], key);
  return value;
}

static bool yes(const char *key) {
  const char *value = maybe(key);
  return value && strcmp(value, "1") == 0;
}

/* All words with this key. */
static struct selection all_of(const char *key) {
  struct selection found = {0};
  const size_t len = strlen(key);
  for (size_t i = 1; i < word_count; i++) {
    if (strncmp(words[i], key, len) != 0 || words[i][len] != '=') continue;
    found.paths = must_realloc(found.paths, (found.count + 1) * sizeof *found.paths);
    found.paths[found.count++] = words[i] + len + 1;
  }
  return found;
}

static void answer(struct buf *out) {
  buf_text(out, "\n");
  write_all(1, out->data, out->len, "the answer");
  free(out->data);
}

static void answer_text(const char *json) {
  struct buf out = {0};
  buf_text(&out, "%s", json);
  answer(&out);
}

static void say_scan(struct buf *out, struct scan_result *result) {
  char root[ROOT_TEXT];
  root_text(&result->root, root);
  buf_text(out, "{\"root\":\"%s\",\"files\":%" PRIu64 ",\"directories\":%" PRIu64 ",\"bytes\":%" PRIu64, root, result->files,
           result->directories, result->bytes);
  buf_text(out, ",\"hashed\":%" PRIu64 ",\"indexChanged\":%s}", result->hashed, result->index_changed ? "true" : "false");
  free(result->nested);
}

static void use_session(void) { session_use(need("store"), need("by")); }

/* A damaged workspace is an answer and not an error: the caller may hold locks and want to repair it. */
static void do_state(void) {
  char problem[256];
  struct buf out = {0};
  if (!session_open(need("store"), need("by"), problem)) {
    buf_text(&out, "{\"problem\":");
    buf_json(&out, problem, strlen(problem));
    buf_text(&out, "}");
    answer(&out);
    return;
  }
  buf_text(&out, "{");
  log_state(&session.log, &out);
  buf_text(&out, "}");
  answer(&out);
}

static void do_append(void) {
  use_session();
  struct buf data = {0};
  buf_text(&data, "%s", need("data"));
  commit(need("type"), &data, true);
  free(data.data);
  answer_text("{}");
}

/* The log of a workspace that is being made. */
static void do_begin_log(void) {
  const char *path = need("path");
  const struct selection types = all_of("type"), data = all_of("data");
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) die_errno("create", path);
  close(fd);
  struct log log;
  if (!log_open(&log, path)) die("internal", "%s", log.problem);
  for (size_t i = 0; i < types.count && i < data.count; i++) {
    struct buf line = {0};
    buf_text(&line, "%s", data.paths[i]);
    log_append(&log, need("by"), types.paths[i], &line, true);
    free(line.data);
  }
  log_close(&log);
  free(types.paths);
  free(data.paths);
  answer_text("{}");
}

static void do_check_log(void) {
  struct buf problems = {0}, out = {0};
  log_check(need("path"), &problems);
  buf_text(&out, "{\"problems\":[%.*s]}", (int)problems.len, problems.len ? (char *)problems.data : "");
  free(problems.data);
  answer(&out);
}

/* The content of one stored file, checked against its hash, in a file that is not there yet. */
static void do_give(void) {
  struct store store;
  store_open(&store, need("store"));
  const char *path = need("path"), *to = need("to"), *tree = maybe("tree");
  struct record record = {.type = 'f', .size = strtoull(need("size"), NULL, 10)};
  const struct location at = {strtoull(need("pack"), NULL, 16), strtoull(need("offset"), NULL, 10), 0};
  if (!hash_from_hex(need("hash"), record.hash)) die("corrupt", "not a hash: %s", need("hash"));
  const int fd = open(to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), dir = tree ? open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (fd < 0) die_errno("create", to);
  if (tree && dir < 0) die_errno("open", tree);
  struct content_memory memory;
  content_memory_init(&memory);
  making(path_of("%s", to));
  struct near_below near = {.dir = -1};
  content_give(&store, &near, dir, &record, at, path, fd, &memory);
  near_forget(&near);
  nothing_made();
  free(memory.bytes);
  close(fd);
  if (dir >= 0) close(dir);
  close(store.dir);
  answer_text("{}");
}

static void do_records(void) {
  use_session();
  struct buf records = {0}, out = {0};
  records_list(need("store"), &session.log, &records);
  buf_text(&out, "{\"records\":[");
  buf_add(&out, records.data, records.len);
  buf_text(&out, "]}");
  free(records.data);
  answer(&out);
}

static void do_rebuild_log(void) {
  struct rebuilt rebuilt;
  log_rebuild(need("store"), need("by"), need("repoId"), need("engine"), need("kept"), &rebuilt);
  struct buf out = {0};
  buf_text(&out, "{\"kept\":%" PRIu64 ",\"restored\":%" PRIu64 ",\"lost\":%" PRIu64 "}", rebuilt.kept, rebuilt.restored, rebuilt.lost);
  answer(&out);
}

static void do_snapshot(void) {
  use_session();
  const struct selection tags = all_of("tag");
  const struct take_request request = {.worktree = need("worktree"),
                                       .note = need("note"),
                                       .tags = (const char *const *)tags.paths,
                                       .tag_count = tags.count,
                                       .only = all_of("only"),
                                       .engine = maybe("engine"),
                                       .mounts = maybe("mounts")};
  struct taken taken;
  take(&request, &taken);
  struct buf out = {0};
  buf_text(&out, "%s", taken.record);
  free(taken.record);
  free(tags.paths);
  free(request.only.paths);
  answer(&out);
}

static void do_restore(void) {
  use_session();
  const char *step = maybe("step");
  if (step && strcmp(step, "undo") != 0 && strcmp(step, "redo") != 0) die("invalid_argument", "unknown step %s", step);
  const struct restore_request request = {.worktree = need("worktree"),
                                          .target = need("snapshot"),
                                          .only = all_of("only"),
                                          .loose = yes("loose"),
                                          .step = step,
                                          .discard = yes("discard"),
                                          .engine = maybe("engine"),
                                          .mounts = maybe("mounts")};
  struct taken saved;
  struct restore_result restored;
  restore_worktree(&request, &saved, &restored);
  struct buf out = {0};
  buf_text(&out, "{\"saved\":%s,\"written\":%" PRIu64 ",\"removed\":%" PRIu64 ",\"adjusted\":%" PRIu64 "}",
           saved.record ? saved.record : "null", restored.written, restored.removed, restored.adjusted);
  free(saved.record);
  free(request.only.paths);
  answer(&out);
}

static void do_peek(void) {
  use_session();
  struct scan_result found;
  peek(need("worktree"), NULL, false, &found);
  struct buf out = {0};
  say_scan(&out, &found);
  answer(&out);
}

/* Scans any directory, which need not belong to a workspace. */
static void do_scan(void) {
  struct store store;
  store_open(&store, need("store"));
  store_begin_pack(&store, strtoull(need("pack"), NULL, 16), yes("temporary"));
  const struct scan_options options = {.directory = need("dir"),
                                       .index_path = maybe("index"),
                                       .new_index_path = maybe("newIndex"),
                                       .basis = "",
                                       .locations_hold = yes("locations"),
                                       .keep = yes("keep"),
                                       .from_disk = !maybe("index")};
  struct scan_result result;
  scan(&store, &options, &result);
  store_end_pack(&store, !yes("temporary"));
  close(store.dir);
  struct buf out = {0};
  say_scan(&out, &result);
  answer(&out);
}

static void do_verify(void) {
  struct store store;
  store_open(&store, need("store"));
  struct root root;
  if (!root_parse(need("root"), &root)) die("corrupt", "not a root: %s", need("root"));
  struct verify_result result;
  verify(&store, &root, yes("contents"), &result);
  struct buf out = {0};
  buf_text(&out, "{\"contents\":%" PRIu64 ",\"nodes\":%" PRIu64 ",\"problems\":[", result.contents, result.nodes);
  buf_add(&out, result.problems.data, result.problems.len);
  buf_text(&out, "]}");
  free(result.problems.data);
  close(store.dir);
  answer(&out);
}

static void do_lock(void) {
  const char *path = need("path");
  const int64_t deadline = now_ns() + strtoll(need("waitMs"), NULL, 10) * 1000000;
  size_t slot = 0;
  while (slot < LOCKS_MAX && locks[slot].path) slot++;
  if (slot == LOCKS_MAX) die("internal", "too many locks");
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) die_errno("open the lock", path);
  const int kind = yes("shared") ? LOCK_SH : LOCK_EX;
  for (;;) {
    if (flock(fd, kind | LOCK_NB) == 0) break;
    if (errno != EWOULDBLOCK && errno != EINTR) die_errno("lock", path);
    if (now_ns() >= deadline) {
      close(fd);
      answer_text("{\"locked\":false}");
      return;
    }
    usleep(5000);
  }
  locks[slot].path = must_strdup(path);
  locks[slot].fd = fd;
  answer_text("{\"locked\":true}");
}

static void do_unlock(void) {
  const char *path = need("path");
  for (size_t i = 0; i < LOCKS_MAX; i++) {
    if (!locks[i].path || strcmp(locks[i].path, path) != 0) continue;
    close(locks[i].fd);
    free(locks[i].path);
    locks[i].path = NULL;
  }
  answer_text("{}");
}

static void do_probe(void) {
  const struct engine_offer offer = {need("dir"), need("scratch"), maybe("mounts") ? maybe("mounts") : "/proc/mounts"};
  struct buf out = {0}, lacks = {0};
  buf_text(&out, "{\"filesystem\":\"%s\",\"engines\":[", filesystem_name(offer.directory));
  size_t count = 0;
  for (int engine = 0; engine < ENGINES; engine++) {
    if (engine_works(&offer, engine)) buf_text(&out, "%s\"%s\"", count++ ? "," : "", engine_names[engine]);
    else buf_text(&lacks, "%s\"%s\":\"%s\"", lacks.len ? "," : "", engine_names[engine], engine_lack(engine));
  }
  buf_text(&out, "],\"lacks\":{%.*s}}", (int)lacks.len, lacks.len ? (char *)lacks.data : "");
  free(lacks.data);
  answer(&out);
}

static void do_simple(void) {
  const char *name = words[0];
  if (strcmp(name, "fork") == 0) {
    use_session();
    fork_worktree(need("worktree"), maybe("base"), (unsigned)strtoul(need("mode"), NULL, 8));
  } else if (strcmp(name, "export") == 0) {
    use_session();
    const struct selection only = all_of("only");
    export_snapshot(need("snapshot"), need("dir"), (unsigned)strtoul(need("mode"), NULL, 8), &only);
    free(only.paths);
  } else if (strcmp(name, "make-payload") == 0) {
    use_session();
    make_payload(payload_of(need("worktree")), (unsigned)strtoul(need("mode"), NULL, 8));
  } else if (strcmp(name, "drop") == 0) end_of_now();
  else if (strcmp(name, "subvolume-create") == 0) subvolume_create(need("path"));
  else if (strcmp(name, "remove") == 0) remove_unseen(need("path"));
  else if (strcmp(name, "punch") == 0)
    punch(need("path"), strtoull(need("offset"), NULL, 10), strtoull(need("len"), NULL, 10), yes("erase"));
  else die("internal", "unknown request: %s", name);
  answer_text("{}");
}

static void handle(void) {
  static const struct {
    const char *name;
    void (*work)(void);
  } kinds[] = {{"state", do_state},       {"append", do_append},   {"check-log", do_check_log},
               {"snapshot", do_snapshot}, {"restore", do_restore}, {"peek", do_peek},
               {"scan", do_scan},         {"verify", do_verify},   {"lock", do_lock},
               {"unlock", do_unlock},     {"probe", do_probe},     {"begin-log", do_begin_log},
               {"give", do_give},         {"records", do_records}, {"rebuild-log", do_rebuild_log}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(kinds[i].name, words[0]) != 0) continue;
    kinds[i].work();
    return;
  }
  do_simple();
}

static bool read_exactly(void *out, size_t len) {
  uint8_t *bytes = out;
  while (len) {
    const ssize_t got = read(0, bytes, len);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    len -= (size_t)got;
  }
  return true;
}

void answer_requests(void) {
  before_dying = undo;
  notices_are_answers = true;
  for (;;) {
    uint32_t len;
    if (!read_exactly(&len, sizeof len)) break;
    if (len == 0 || len > REQUEST_MAX) die("internal", "a request of %u bytes", len);
    char *request = must_alloc(len + 1);
    if (!read_exactly(request, len)) break;
    request[len] = 0;
    word_count = 0;
    for (size_t at = 0; at < len; at += strlen(request + at) + 1) {
      words = must_realloc(words, (word_count + 1) * sizeof *words);
      words[word_count++] = request + at;
    }
    workspace_touched = false;
    handle();
    nothing_made();
    forget_paths();
    free(request);
  }
  end_of_now();
  /* The output is closed last: when the caller sees that, all locks are free. */
  close_range(3, ~0u, 0);
}
