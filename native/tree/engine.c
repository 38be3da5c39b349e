#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "places.h"

const char *const engine_names[ENGINES] = {"btrfs", "juicefs-clone", "reflink-copy", "copy"};

int engine_named(const char *name) {
  for (int engine = 0; engine < ENGINES; engine++)
    if (strcmp(engine_names[engine], name) == 0) return engine;
  return -1;
}

static bool on_path(const char *program) {
  const char *all = getenv("PATH");
  for (const char *at = all, *end; at && *at; at = *end ? end + 1 : end) {
    end = strchrnul(at, ':');
    char path[4096];
    if (snprintf(path, sizeof path, "%.*s/%s", (int)(end - at), at, program) < (int)sizeof path && access(path, X_OK) == 0) return true;
  }
  return false;
}

/* Undoes the octal escapes of the table of mounts. */
static void unescape(char *text) {
  char *to = text;
  for (const char *at = text; *at; to++) {
    if (at[0] == '\\' && at[1] && at[2] && at[3]) *to = (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0')), at += 4;
    else *to = *at++;
  }
  *to = 0;
}

/* Whether the mount that holds a directory is a JuiceFS. */
static bool on_juicefs(const char *directory, const char *mounts) {
  FILE *file = fopen(mounts, "re");
  if (!file) return false;
  char *line = NULL;
  size_t cap = 0, longest = 0;
  bool found = false;
  while (getline(&line, &cap, file) > 0) {
    char *rest = line;
    strsep(&rest, " ");
    char *point = strsep(&rest, " "), *type = strsep(&rest, " ");
    if (!point || !type) continue;
    unescape(point);
    const size_t len = strcmp(point, "/") == 0 ? 0 : strlen(point);
    if (strncmp(directory, point, len) != 0 || (directory[len] && directory[len] != '/') || len < longest) continue;
    longest = len;
    found = strstr(type, "juicefs");
  }
  free(line);
  fclose(file);
  return found;
}

bool engine_works(const struct engine_offer *offer, int engine) {
  if (engine == ENGINE_BTRFS) return strcmp(filesystem_name(offer->directory), "btrfs") == 0;
  if (engine == ENGINE_JUICEFS) return on_juicefs(offer->directory, offer->mounts) && on_path("juicefs");
  if (engine == ENGINE_REFLINK) return can_reflink(offer->scratch);
  return true;
}

const char *engine_lack(int engine) {
  static const char *const lacks[ENGINES] = {"the directory is not on btrfs",
                                             "the directory is not on a JuiceFS mount with the `juicefs` command on PATH",
                                             "the filesystem cannot share blocks between files", ""};
  return lacks[engine];
}

bool juicefs_clone(const char *from, const char *to, char reason[512]) {
  extern char **environ;
  int said[2];
  if (pipe2(said, O_CLOEXEC) != 0) die_errno("open", "a pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, said[1], 2);
  char *const words[] = {"juicefs", "clone", "-p", (char *)from, (char *)to, NULL};
  pid_t child;
  const int failed = posix_spawnp(&child, "juicefs", &actions, NULL, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(said[1]);
  size_t len = 0;
  while (!failed) {
    char beyond[512];
    const ssize_t got = len < 511 ? read(said[0], reason + len, 511 - len) : read(said[0], beyond, sizeof beyond);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (len < 511) len += (size_t)got;
  }
  close(said[0]);
  reason[len] = 0;
  while (len && (reason[len - 1] == '\n' || reason[len - 1] == ' ')) reason[--len] = 0;
  int status = 0;
  if (failed) {
    snprintf(reason, 512, "%s", strerror(failed));
    return false;
  }
  while (waitpid(child, &status, 0) < 0 && errno == EINTR);
  if (!len) snprintf(reason, 512, "it ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
