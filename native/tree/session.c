#define _GNU_SOURCE
#include "session.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "jobs.h"
#include "places.h"
#include "shut.h"

#define MADE_MAX 8
#define FORMAT_VERSION 1

struct session session;
bool notices_are_answers;
static struct buf paths;

char *path_of(const char *format, ...) {
  char *path;
  va_list args;
  va_start(args, format);
  if (vasprintf(&path, format, args) < 0) die("limit_reached", "out of memory");
  va_end(args);
  buf_add(&paths, &path, sizeof path);
  return path;
}

void forget_paths(void) {
  char **all = (char **)paths.data;
  for (size_t i = 0; i < paths.len / sizeof *all; i++) free(all[i]);
  paths.len = 0;
}

char *payload_of(const char *worktree) {
  return strcmp(worktree, "main") == 0 ? path_of("%s/main", session.root) : path_of("%s/worktrees/%s/main", session.root, worktree);
}

char *index_of(const char *worktree) { return path_of("%s/indexes/%s.index", session.control, worktree); }

static bool read_repository(char problem[256]) {
  char text[4096];
  const char *path = path_of("%s/repository.json", session.control);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno != ENOENT) die_errno("open", path);
  const ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof text);
  if (fd >= 0) close(fd);
  struct json record;
  uint64_t version;
  if (len > 0 && json_parse(text, (size_t)len, &record) && json_field_number(record, "format_version", &version) &&
      version == FORMAT_VERSION && json_field_string(record, "engine", session.engine, sizeof session.engine))
    return true;
  snprintf(problem, 256, "%.200s cannot be read", path);
  return false;
}

static void forget_session(void) {
  if (session.log.path) log_close(&session.log);
  free(session.control);
  free(session.root);
  free(session.by);
  memset(&session, 0, sizeof session);
}

bool session_open(const char *control, const char *by, char problem[256]) {
  if (session.control && strcmp(session.control, control) != 0) forget_session();
  if (!session.control) {
    session.control = must_strdup(control);
    session.root = must_strdup(control);
    session.by = must_strdup(by);
    *strrchr(session.root, '/') = 0;
  }
  if (!read_repository(problem)) return false;
  const bool good = session.log.path ? log_refresh(&session.log) : log_open(&session.log, path_of("%s/log.jsonl", control));
  if (!good) strcpy(problem, session.log.problem);
  return good;
}

void session_use(const char *control, const char *by) {
  char problem[256];
  if (!session_open(control, by, problem)) die("corrupt", "%s", problem);
}

bool user_name(char out[64]) {
  FILE *file = fopen("/etc/passwd", "re");
  if (!file) return false;
  const struct passwd *entry;
  while ((entry = fgetpwent(file)) && entry->pw_uid != geteuid());
  const bool found = entry && strlen(entry->pw_name) < 64;
  if (found) strcpy(out, entry->pw_name);
  fclose(file);
  return found;
}

int lock_file(const char *name, int kind) {
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

void notice(const char *format, ...) {
  char *text;
  va_list args;
  va_start(args, format);
  const int len = vasprintf(&text, format, args);
  va_end(args);
  if (len < 0) die("limit_reached", "out of memory");
  struct buf out = {0};
  if (notices_are_answers) {
    buf_text(&out, "{\"notice\":");
    buf_json(&out, text, (size_t)len);
    buf_text(&out, "}\n");
    write_all(1, out.data, out.len, "the answer");
  } else {
    buf_text(&out, "jvs: %s\n", text);
    /* A closed stderr must not end the command half way. */
    if (write(2, out.data, out.len) < 0) errno = 0;
  }
  free(out.data);
  free(text);
}

/* Taken by commit(), and for good by undo(): what the log names is never undone, and what was undone never gets a line. */
static pthread_mutex_t ending = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* Paths that are removed when this operation fails, the last one first. The intent is the first. */
static char *made[MADE_MAX];
static size_t made_count;
static char *intent_path;

char *making(char *path) {
  if (made_count == MADE_MAX) die("internal", "too much is made at once");
  return made[made_count++] = path;
}

void nothing_made(void) { made_count = 0; }

/* Removes temporary files that this process was writing when it failed. */
static void sweep_temporaries(void) {
  char prefix[32];
  snprintf(prefix, sizeof prefix, "new-%d-", getpid());
  DIR *dir = opendir(path_of("%s/tmp", session.control));
  for (struct dirent *entry; dir && (entry = readdir(dir));)
    if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0) unlinkat(dirfd(dir), entry->d_name, 0);
  if (dir) closedir(dir);
}

static char *for_now;

void only_for_now(const char *path) {
  end_of_now();
  for_now = must_strdup(path);
}

void end_of_now(void) {
  if (for_now) unlink(for_now);
  free(for_now);
  for_now = NULL;
}

void undo(void) {
  shut_again();
  if (!session.control) return;
  /* Other threads may still write to what is removed now. */
  jobs_abandon();
  pthread_mutex_lock(&ending);
  end_of_now();
  sweep_temporaries();
  /* A change that was begun in a worktree is finished by the next command, which needs the intent: keep it. */
  while (made_count > (workspace_touched ? 1 : 0)) remove_unseen(made[--made_count]);
}

void write_intent(const char *id, const struct buf *intent) {
  intent_path = making(path_of("%s/intents/%s.json", session.control, id));
  const int fd = open(intent_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) die_errno("create", intent_path);
  write_all(fd, intent->data, intent->len, intent_path);
  close(fd);
}

void clear_intent(void) {
  if (unlink(intent_path) != 0 && errno != ENOENT) die_errno("remove", intent_path);
}

void commit(const char *type, const struct buf *data, bool durable) {
  pthread_mutex_lock(&ending);
  const int held = lock_file("log", LOCK_EX);
  log_append(&session.log, session.by, type, data, durable);
  nothing_made();
  close(held);
  pthread_mutex_unlock(&ending);
}

uint64_t new_pack(void) {
  uint64_t pack;
  if (getrandom(&pack, sizeof pack, 0) != (ssize_t)sizeof pack) die_errno("ask for", "random bytes");
  /* Zero is no pack, and all ones is a blob. */
  const uint64_t first = pack >> 60;
  return first == 0 || first == 15 ? (pack & (UINT64_MAX >> 4)) | 1ull << 60 : pack;
}

void read_basis(const char *index, char out[33]) {
  memset(out, 0, 33);
  const int fd = open(index, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (pread(fd, out, 32, offsetof(struct index_header, basis)) != 32) *out = 0;
  close(fd);
}

void write_basis(const char *index, const char *basis) {
  char padded[32] = {0};
  strncpy(padded, basis, sizeof padded - 1);
  const int fd = open(index, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || pwrite(fd, padded, sizeof padded, offsetof(struct index_header, basis)) != (ssize_t)sizeof padded)
    die_errno("write", index);
  close(fd);
}

bool index_holds(const char *index) {
  char basis[33];
  read_basis(index, basis);
  return *basis && log_find(&session.log, basis);
}
