#define _GNU_SOURCE
#include "session.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "places.h"

#define WORD_MAX 4096
#define MADE_MAX 4

struct session session;
static char **command;
static mode_t former_umask;

char *path_of(const char *format, ...) {
  char *path;
  va_list args;
  va_start(args, format);
  if (vasprintf(&path, format, args) < 0) die("limit_reached", "out of memory");
  va_end(args);
  return path;
}

/* Held by who gives up, for good, and by who commits: what the log names is not undone, and what is undone gets no line. */
static pthread_mutex_t ending = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* What is on its way and goes when this gives up. The intent is the first, and goes last. */
static char *made[MADE_MAX];
static size_t made_count;

char *making(char *path) { return made[made_count++] = path; }

void nothing_made(void) { made_count = 0; }

/* Files that content was written to when it failed; their names are ours. */
static void sweep_temporaries(void) {
  char prefix[32];
  snprintf(prefix, sizeof prefix, "new-%d-", getpid());
  DIR *dir = opendir(path_of("%s/tmp", session.control));
  for (struct dirent *entry; dir && (entry = readdir(dir));)
    if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0) unlinkat(dirfd(dir), entry->d_name, 0);
  if (dir) closedir(dir);
}

/* Whatever went wrong: Node tries it again, and says what it is. A worktree that was touched is for it to finish. */
void give_up(void) {
  static bool undoing;
  pthread_mutex_lock(&ending);
  if (!undoing && !workspace_touched) {
    undoing = true;
    sweep_temporaries();
    while (made_count) remove_tree(made[--made_count]);
  }
  if (session.kept_nodes) unlink(session.kept_nodes);
  umask(former_umask);
  signal(SIGPIPE, SIG_DFL);
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
bool is_plain(const char *word) {
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

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* The workspace around the current directory, as findWorkspace() finds it. */
static bool find_workspace(void) {
  char here[PATH_MAX];
  if (!getcwd(here, sizeof here) || here[0] != '/') return false;
  size_t len = strlen(here);
  for (;; len--) {
    if (len > 1 && here[len] && here[len] != '/') continue;
    const size_t folder = len == 1 ? 0 : len;
    session.control = path_of("%.*s/.jvs", (int)folder, here);
    if (is_there(path_of("%s/repository.json", session.control))) {
      const char *inside = here + folder + (here[folder] == '/');
      char name[256];
      const bool own = sscanf(inside, "worktrees/%255[^/]", name) == 1;
      session.worktree = own ? must_strdup(name) : "main";
      session.payload = own ? path_of("%.*s/worktrees/%s/main", (int)folder, here, name) : path_of("%.*s/main", (int)folder, here);
      session.index = path_of("%s/indexes/%s.index", session.control, session.worktree);
      return is_plain(session.worktree) && is_plain(session.control) && is_there(session.payload);
    }
    if (len <= 1) return false;
  }
}

static bool read_repository(void) {
  char text[4096];
  const int fd = open(path_of("%s/repository.json", session.control), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t len = read(fd, text, sizeof text);
  close(fd);
  struct json record;
  uint64_t version;
  return len > 0 && json_parse(text, (size_t)len, &record) && json_field_number(record, "format_version", &version) && version == 1 &&
         json_field_string(record, "engine", session.engine, sizeof session.engine);
}

/* With or without waiting; the lock goes with the process, or with the answer. */
static int lock(const char *name, int kind) {
  const char *path = path_of("%s/locks/%s", session.control, name);
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
  DIR *dir = opendir(path_of("%s/intents", session.control));
  if (!dir) return false;
  bool empty = true;
  for (struct dirent *entry; (entry = readdir(dir));)
    if (entry->d_name[0] != '.') empty = false;
  closedir(dir);
  return empty;
}

static bool engine_is_here(void) {
  if (strcmp(session.engine, "copy") == 0) return true;
  if (strcmp(session.engine, "reflink-copy") == 0) return can_reflink(path_of("%s/tmp", session.control));
  return strcmp(session.engine, "btrfs") == 0 && is_subvolume(session.payload);
}

bool session_open(char **given) {
  command = given;
  const char *asked_engine = getenv("JVS_ENGINE");
  if ((asked_engine && *asked_engine) || !find_workspace() || !read_repository() || is_there(path_of("%s/config.json", session.control)))
    return false;
  former_umask = umask(0077);
  /* Nobody listening to a notice is no reason to stop halfway. */
  signal(SIGPIPE, SIG_IGN);
  instead_of_dying = give_up;
  is_command = true;
  if (lock("store", LOCK_SH | LOCK_NB) < 0 || lock(path_of("worktree-%s", session.worktree), LOCK_EX | LOCK_NB) < 0 ||
      !nothing_intended() || !history_open(&session.history, path_of("%s/log.jsonl", session.control), session.worktree) ||
      !engine_is_here())
    give_up();
  return true;
}

void read_basis(char out[33]) {
  memset(out, 0, 33);
  const int fd = open(session.index, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (pread(fd, out, 32, offsetof(struct index_header, basis)) != 32) *out = 0;
  close(fd);
}

bool index_holds(void) {
  char basis[33];
  read_basis(basis);
  return *basis && history_find(&session.history, basis);
}

uint64_t new_pack(void) {
  uint64_t pack;
  if (getrandom(&pack, sizeof pack, 0) != (ssize_t)sizeof pack) die_errno("ask for", "random bytes");
  const uint64_t first = pack >> 60;
  return first == 0 || first == 15 ? (pack & (UINT64_MAX >> 4)) | 1ull << 60 : pack;
}

void write_intent(const char *id, const char *format, ...) {
  const char *path = making(path_of("%s/intents/%s.json", session.control, id));
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) die_errno("create", path);
  va_list args;
  va_start(args, format);
  if (vdprintf(fd, format, args) < 0) die_errno("write", path);
  va_end(args);
  close(fd);
}

void commit(const char *type, const struct buf *data, bool durable) {
  pthread_mutex_lock(&ending);
  nothing_made();
  const int held = lock("log", LOCK_EX);
  history_append(&session.history, type, data, durable);
  close(held);
  pthread_mutex_unlock(&ending);
}

void clear_intent(void) {
  if (unlink(made[0]) != 0) die_errno("remove", made[0]);
}
