#define _GNU_SOURCE
#include "stop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static _Noreturn void say(const char *code, const char *format, va_list arguments, const char *reason) {
  fprintf(stderr, "%s ", code);
  vfprintf(stderr, format, arguments);
  if (reason != NULL) fprintf(stderr, ": %s", reason);
  fprintf(stderr, "\n");
  exit(1);
}

_Noreturn void stop(const char *code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(code, format, arguments, NULL);
}

_Noreturn void stop_errno(const char *format, ...) {
  const int error = errno;
  va_list arguments;
  va_start(arguments, format);
  say(error == ENOSPC || error == EDQUOT ? "no_space" : "internal", format, arguments, strerror(error));
}

void *must(void *memory) {
  if (memory == NULL) stop("internal", "out of memory");
  return memory;
}

void allow_many_files(void) {
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) < 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

bool parse_number(const char *text, uint64_t *number) {
  char *end;
  errno = 0;
  *number = strtoull(text, &end, 10);
  return errno == 0 && *text >= '0' && *text <= '9' && *end == 0;
}

static int compare_names(const void *one, const void *other) { return strcmp(*(char *const *)one, *(char *const *)other); }

char **list_names(int directory, size_t *count) {
  /* Opened anew, so that the stream owns its descriptor. */
  const int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = again < 0 ? NULL : fdopendir(again);
  if (stream == NULL) stop_errno("open a directory");
  char **names = NULL;
  size_t room = 0;
  struct dirent *entry;
  *count = 0;
  while ((errno = 0, entry = readdir(stream)) != NULL) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (*count == room) names = must(realloc(names, (room = room * 2 + 64) * sizeof *names));
    names[(*count)++] = must(strdup(entry->d_name));
  }
  if (errno != 0) stop_errno("list a directory");
  closedir(stream);
  if (*count > 0) qsort(names, *count, sizeof *names, compare_names);
  return names;
}
