/*
 * coppice-tree: the part of versioned workspaces that touches files. It answers requests until its input ends; each is
 * a length (u32) and that many bytes of NUL-terminated words: the operation, then key=value. Each answer is one line of
 * JSON. Locks last as long as the process, so a caller that dies leaves none behind.
 *
 *   coppice-tree                    answers on its input and output
 *   coppice-tree for COMMAND ARG…   becomes COMMAND, with a coppice-tree behind it: COPPICE_TREE_HELPER names the pipe to
 *                                   read answers from, the one to write requests to, and the process
 *   coppice-tree jvs COMMAND ARG…   the same, unless COMMAND, which is Node with jvs, is not needed for what is asked
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "direct.h"
#include "places.h"
#include "progress.h"
#include "restore.h"
#include "verify.h"

#define REQUEST_MAX (16u << 20)
#define LOCKS_MAX 16

static char **words;
static size_t word_count;
static int64_t kept_moment;
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

static struct root root_of(const char *key) {
  struct root root;
  if (!root_parse(need(key), &root)) die("corrupt", "not a root: %s", need(key));
  return root;
}

static struct selection selection_of(void) {
  struct selection selection = {0};
  for (size_t i = 1; i < word_count; i++) {
    if (strncmp(words[i], "only=", 5) != 0) continue;
    selection.paths = must_realloc(selection.paths, (selection.count + 1) * sizeof *selection.paths);
    selection.paths[selection.count++] = words[i] + 5;
  }
  return selection;
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

static void say_scan(struct buf *out, const struct store *store, struct scan_result *result) {
  char root[ROOT_TEXT];
  root_text(&result->root, root);
  buf_text(out, "\"root\":\"%s\"", root);
  buf_text(out, ",\"files\":%" PRIu64 ",\"directories\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"hashed\":%" PRIu64, result->files,
           result->directories, result->bytes, result->hashed);
  buf_text(out, ",\"newBytes\":%" PRIu64 ",\"newContents\":%" PRIu64 ",\"newNodes\":%" PRIu64, store->new_bytes,
           store->new_contents, store->new_nodes);
  buf_text(out, ",\"sockets\":%" PRIu64 ",\"reflinksRefused\":%" PRIu64 ",\"indexChanged\":%s,\"packUsed\":%s,\"nested\":",
           result->sockets, store->reflinks_refused, result->index_changed ? "true" : "false",
           store->pack_len ? "true" : "false");
  if (result->nested) buf_json(out, result->nested, strlen(result->nested));
  else buf_text(out, "null");
  free(result->nested);
}

static void begin(struct store *store) {
  store_open(store, need("store"));
  store->reflink = yes("reflink");
  store_begin_pack(store, strtoull(need("pack"), NULL, 16), yes("temporary"));
}

static void do_scan(void) {
  struct store store;
  begin(&store);
  struct scan_options options = {.directory = need("dir"),
                                 .index_path = maybe("index"),
                                 .new_index_path = maybe("newIndex"),
                                 .basis = maybe("basis") ? maybe("basis") : "",
                                 .locations_hold = yes("locations"),
                                 .keep = yes("keep"),
                                 .whole_tree = yes("tree"),
                                 .live = maybe("live"),
                                 .selection = selection_of(),
                                 .moment_ns = kept_moment};
  kept_moment = 0;
  struct scan_result result;
  scan(&store, &options, &result);
  store_end_pack(&store, !yes("temporary"));
  kill_point("scan-stored");
  struct buf out = {0};
  buf_text(&out, "{");
  say_scan(&out, &store, &result);
  buf_text(&out, "}");
  close(store.dir);
  free(options.selection.paths);
  answer(&out);
}

static void do_restore(void) {
  struct store store;
  begin(&store);
  struct restore_options options = {.directory = need("dir"),
                                    .staging = need("staging"),
                                    .kept = need("kept"),
                                    .tree = maybe("tree"),
                                    .from_nothing = maybe("from") == NULL,
                                    .to = root_of("to"),
                                    .selection = selection_of()};
  if (!options.from_nothing) options.from = root_of("from");
  const struct scan_options again = {.index_path = maybe("index"),
                                     .new_index_path = maybe("newIndex"),
                                     .basis = need("basis"),
                                     .locations_hold = yes("locations")};
  struct restore_result restored;
  struct scan_result result;
  restore(&store, &options, &again, &restored, &result);
  store_end_pack(&store, false);
  struct buf out = {0};
  buf_text(&out, "{\"written\":%" PRIu64 ",\"removed\":%" PRIu64 ",\"adjusted\":%" PRIu64, restored.written, restored.removed,
           restored.adjusted);
  buf_text(&out, ",\"ownersRefused\":%" PRIu64 ",\"attributesRefused\":%" PRIu64 ",\"movedAside\":%" PRIu64 ",",
           restored.owners_refused, restored.attributes_refused, restored.moved_aside);
  say_scan(&out, &store, &result);
  buf_text(&out, "}");
  close(store.dir);
  free(options.selection.paths);
  answer(&out);
}

static void do_verify(void) {
  struct store store;
  store_open(&store, need("store"));
  const struct root root = root_of("root");
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
  const char *dir = need("dir");
  struct buf out = {0};
  buf_text(&out, "{\"filesystem\":\"%s\",\"reflink\":%s,\"subvolume\":%s}", filesystem_name(dir),
           maybe("scratch") && can_reflink(need("scratch")) ? "true" : "false", is_subvolume(dir) ? "true" : "false");
  answer(&out);
}

static void do_simple(void) {
  const char *name = words[0];
  if (strcmp(name, "moment") == 0) {
    struct store store;
    store_open(&store, need("store"));
    kept_moment = filesystem_moment(&store);
    close(store.dir);
  } else if (strcmp(name, "subvolume-create") == 0) subvolume_create(need("path"));
  else if (strcmp(name, "subvolume-snapshot") == 0) subvolume_snapshot(need("from"), need("to"), yes("readOnly"));
  else if (strcmp(name, "remove") == 0) remove_tree(need("path"));
  else if (strcmp(name, "punch") == 0)
    punch(need("path"), strtoull(need("offset"), NULL, 10), strtoull(need("len"), NULL, 10));
  else die("internal", "unknown request: %s", name);
  answer_text("{}");
}

static void handle(void) {
  const char *name = words[0];
  if (strcmp(name, "scan") == 0) do_scan();
  else if (strcmp(name, "restore") == 0) do_restore();
  else if (strcmp(name, "verify") == 0) do_verify();
  else if (strcmp(name, "lock") == 0) do_lock();
  else if (strcmp(name, "unlock") == 0) do_unlock();
  else if (strcmp(name, "probe") == 0) do_probe();
  else do_simple();
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

/* Answers in the child; the parent becomes the command. */
static void become(char **command) {
  const pid_t parent = getpid();
  int requests[2], answers[2];
  if (pipe(requests) != 0 || pipe(answers) != 0) die_errno("open", "a pipe");
  /* Nobody waits for the child, which would stay behind as a zombie where the first process waits for nobody either. */
  signal(SIGCHLD, SIG_IGN);
  const pid_t child = fork();
  if (child < 0) die_errno("start", "a process");
  if (child > 0) {
    close(requests[0]);
    close(answers[1]);
    char pipes[64];
    snprintf(pipes, sizeof pipes, "%d %d %d", answers[0], requests[1], (int)child);
    if (setenv("COPPICE_TREE_HELPER", pipes, 1) != 0) die_errno("set", "the environment");
    execvp(command[0], command);
    fprintf(stderr, "coppice-tree: cannot start %s: %s\n", command[0], strerror(errno));
    _exit(127);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  signal(SIGCHLD, SIG_DFL);
  dup2(requests[0], 0);
  dup2(answers[1], 1);
  close_range(3, ~0u, 0);
  /* Every path that comes is absolute; the directory of the command must not be held. */
  if (chdir("/") != 0) die_errno("enter", "/");
  progress_watch(command);
}

/* The output comes last: who sees it closed finds nothing of ours held any more. */
static int finish(void) {
  close_range(3, ~0u, 0);
  return 0;
}

/* What is opened next would take the place of one that is closed, and be written to as if it were that. */
static void have_stdio(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) _exit(70);
}

int main(int argc, char **argv) {
  have_stdio();
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  if (argc > 2 && strcmp(argv[1], "jvs") == 0) do_directly(argv + 2);
  if (argc > 2 && (strcmp(argv[1], "for") == 0 || strcmp(argv[1], "jvs") == 0)) become(argv + 2);
  else if (argc > 1) die("invalid_argument", "usage: coppice-tree [for | jvs COMMAND ARG ...]");
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  umask(0077);
  for (;;) {
    uint32_t len;
    if (!read_exactly(&len, sizeof len)) return finish();
    if (len == 0 || len > REQUEST_MAX) die("internal", "a request of %u bytes", len);
    char *request = must_alloc(len + 1);
    if (!read_exactly(request, len)) return 0;
    request[len] = 0;
    word_count = 0;
    for (size_t at = 0; at < len; at += strlen(request + at) + 1) {
      words = must_realloc(words, (word_count + 1) * sizeof *words);
      words[word_count++] = request + at;
    }
    handle();
    free(request);
  }
}
