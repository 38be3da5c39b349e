#define _GNU_SOURCE
#include "direct.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "owner.h"
#include "progress.h"
#include "restore-worktree.h"

#define TAGS_MAX 16
#define WORD_MAX 4096

static char **command;
static mode_t former_umask;

static void become_node(void) __attribute__((noreturn));
static void become_node(void) {
  umask(former_umask);
  signal(SIGPIPE, SIG_DFL);
  execvp(command[0], command);
  fprintf(stderr, "jvs: error: cannot start %s: %s\n", command[0], strerror(errno));
  _exit(70);
}

static void tell_node(const char *failure) {
  if (setenv("JVS_FAILURE", failure, 1) != 0) _exit(70);
  become_node();
}

/* A word that is safe to print on a terminal. Beyond ASCII, it excludes the ranges that contain control characters. */
static bool is_plain(const char *word) {
  const size_t len = strlen(word);
  if (*word == '-' || len >= WORD_MAX) return false;
  for (size_t at = 0, sign; at < len; at += sign) {
    const uint8_t first = (uint8_t)word[at];
    sign = utf8_len((const uint8_t *)word + at, len - at);
    if (!sign || first < ' ' || first == 0x7f || first == 0xc2 || first == 0xe2 || first == 0xef) return false;
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
  const char *word; /* the note, or the reference */
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

/* The workspace around the current directory, as findWorkspace() finds it: its control directory, and the name of the worktree. */
static const char *find_workspace(char worktree[256]) {
  char here[PATH_MAX];
  if (!getcwd(here, sizeof here) || here[0] != '/') return NULL;
  for (size_t len = strlen(here);; len--) {
    if (len > 1 && here[len] && here[len] != '/') continue;
    const size_t folder = len == 1 ? 0 : len;
    const char *control = path_of("%.*s/.jvs", (int)folder, here);
    if (is_there(path_of("%s/repository.json", control))) {
      if (sscanf(here + folder + (here[folder] == '/'), "worktrees/%255[^/]", worktree) != 1) strcpy(worktree, "main");
      return control;
    }
    if (len <= 1) return NULL;
  }
}

static bool nothing_intended(void) {
  DIR *dir = opendir(path_of("%s/intents", session.control));
  if (!dir) return false;
  bool empty = true;
  for (struct dirent *entry; (entry = readdir(dir));)
    if (entry->d_name[0] != '.') empty = false;
  closedir(dir);
  return empty;
}

static bool is_link(const char *path) {
  struct stat found;
  return lstat(path, &found) == 0 && S_ISLNK(found.st_mode);
}

/* As refuseLinks() in refuse-links.ts. */
static bool has_links(const char *control, const char *worktree) {
  static const char *const own[] = {"",     "/repository.json", "/log.jsonl", "/intents", "/packs", "/blobs", "/trees",
                                    "/tmp", "/indexes",         "/locks",     "/kept"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (is_link(path_of("%s%s", control, own[i]))) return true;
  const char *forks = path_of("%s/../worktrees", control);
  return is_link(path_of("%s/../main", control)) || is_link(forks) || is_link(path_of("%s/%s", forks, worktree)) ||
         is_link(path_of("%s/%s/main", forks, worktree));
}

/* Opens the workspace around the current directory, and locks its worktree. */
static void open_workspace(char worktree[256]) {
  char user[64], problem[256];
  const char *asked_engine = getenv("JVS_ENGINE"), *control = find_workspace(worktree);
  if ((asked_engine && *asked_engine) || !control || is_there(path_of("%s/config.json", control)) ||
      !is_there(path_of("%s/locks", control)) || !user_name(user) || has_links(control, worktree))
    become_node();
  make_files_for_owner_of(control);
  /* Lock first: everything read before that may still change. */
  session.control = must_strdup(control);
  if (lock_file("store", LOCK_SH | LOCK_NB) < 0 || lock_file(path_of("worktree-%s", worktree), LOCK_EX | LOCK_NB) < 0) become_node();
  free(session.control);
  session.control = NULL;
  if (!session_open(control, user, problem) || !nothing_intended() || session.log.collection.at ||
      !log_find_worktree(&session.log, worktree) || !is_there(payload_of(worktree)))
    become_node();
}

/* As sizeText() in snapshot-lines.ts. */
static void say_size(struct buf *out, uint64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)bytes;
  int unit = 0;
  for (; value >= 1024 && unit < 4; unit++) value /= 1024;
  /* Halves are rounded up, as they are there. */
  const uint64_t tenths = (uint64_t)(value * 10 + 0.5);
  if (unit == 0) buf_text(out, "%" PRIu64 " B", bytes);
  else buf_text(out, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, units[unit]);
}

/* A closed output is not an error. */
static void finish(const struct buf *answer) __attribute__((noreturn));
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

static void do_snapshot(const struct request *request, const char *worktree) {
  struct taken taken;
  take(&(struct take_request){.worktree = worktree, .note = request->word, .tags = request->tags, .tag_count = request->tag_count}, &taken);
  const char *no_colour = getenv("NO_COLOR");
  const bool colour = isatty(1) && !(no_colour && *no_colour);
  struct tm day;
  const time_t at = taken.at_s;
  char when[32];
  localtime_r(&at, &day);
  strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &day);
  struct buf out = {0};
  buf_text(&out, colour ? "\033[33m%.8s\033[0m %s  " : "%.8s %s  ", taken.id, when);
  if (*request->word) buf_text(&out, " %s", request->word);
  for (size_t i = 0; i < request->tag_count; i++) buf_text(&out, " [%s]", request->tags[i]);
  buf_text(&out, "\n  %" PRIu64 " file%s, ", taken.files, PLURAL(taken.files));
  say_size(&out, taken.bytes);
  buf_text(&out, "; ");
  say_size(&out, taken.new_bytes);
  buf_text(&out, " new (%s)\n", taken.engine);
  finish(&out);
}

static void do_restore(const struct request *request, const char *worktree) {
  const bool head = strcmp(request->word, "HEAD") == 0;
  const struct snapshot *target = log_find(&session.log, head ? log_find_worktree(&session.log, worktree)->head : request->word);
  if (!target && !head) target = log_find_tagged(&session.log, request->word);
  struct json note_field;
  char *note = target && json_field(target->record, "note", &note_field) ? json_text(note_field) : NULL;
  if (!note || (*note && !is_plain(note))) become_node();
  char id[ID_LEN + 1];
  strcpy(id, target->id);
  struct taken saved;
  struct restore_result restored;
  restore_worktree(&(struct restore_request){.worktree = worktree, .target = id}, &saved, &restored);
  struct buf out = {0};
  buf_text(&out, *note ? "Restored %.8s \"%s\"" : "Restored %.8s", id, note);
  buf_text(&out, ": %" PRIu64 " written, %" PRIu64 " removed, %" PRIu64 " adjusted\n", restored.written, restored.removed,
           restored.adjusted);
  finish(&out);
}

void do_directly(char **given) {
  command = given;
  char **words = command + 1, worktree[256];
  while (*words && **words == '-') words++;
  struct request request;
  former_umask = umask(0077);
  if (!*words || !understand(words + 1, &request)) become_node();
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  /* A closed stderr must not end the command half way. */
  signal(SIGPIPE, SIG_IGN);
  before_dying = undo;
  last_words = tell_node;
  is_command = true;
  open_workspace(worktree);
  progress_watch();
  if (request.restores) do_restore(&request, worktree);
  else do_snapshot(&request, worktree);
  _exit(70);
}
