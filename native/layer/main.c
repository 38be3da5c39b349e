#define _GNU_SOURCE
#include "layer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const char usage[] =
    "usage: coppice-layer unpack MAX_BYTES MAX_ENTRIES EMPTY_DIRECTORY < TAR\n"
    "       coppice-layer pack MAX_BYTES DIRECTORY > TAR\n";

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
  int error = errno;
  va_list arguments;
  va_start(arguments, format);
  say(error == ENOSPC || error == EDQUOT ? "no_space" : "internal", format, arguments, strerror(error));
}

void *must(void *memory) {
  if (memory == NULL) stop("internal", "out of memory");
  return memory;
}

bool keeps_attribute(const char *name) {
  if (strncmp(name, "user.overlay.", 13) == 0) return false;
  return strncmp(name, "user.", 5) == 0 || strcmp(name, "security.capability") == 0 ||
         strcmp(name, "system.posix_acl_access") == 0 || strcmp(name, "system.posix_acl_default") == 0;
}

static bool parse_number(const char *text, uint64_t *number) {
  char *end;
  errno = 0;
  *number = strtoull(text, &end, 10);
  return errno == 0 && *text >= '0' && *text <= '9' && *end == 0;
}

int main(int count, char **arguments) {
  uint64_t max_bytes, max_entries;
  umask(0);
  /* A walk holds a descriptor for every level that it is deep. */
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  const char *verb = count > 2 && parse_number(arguments[2], &max_bytes) ? arguments[1] : "";
  if (count == 5 && strcmp(verb, "unpack") == 0 && parse_number(arguments[3], &max_entries)) {
    unpack(max_bytes, max_entries, arguments[4]);
    return 0;
  }
  if (count == 4 && strcmp(verb, "pack") == 0) {
    pack(max_bytes, arguments[3]);
    return 0;
  }
  fputs(usage, stderr);
  return 2;
}
