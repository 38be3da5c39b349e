#define _GNU_SOURCE
#include "parcel.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const char usage[] =
    "usage: coppice-parcel pack disk|image|memory DIRECTORY > STREAM\n"
    "       coppice-parcel check disk|image|memory MAX_BYTES < STREAM\n"
    "       coppice-parcel unpack disk|image|memory MAX_BYTES EMPTY_DIRECTORY < STREAM\n";

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

int parse_policy(const char *name, enum policy *policy) {
  static const char *const names[] = {"disk", "image", "memory"};
  for (size_t index = 0; index < sizeof names / sizeof *names; index++)
    if (strcmp(names[index], name) == 0) {
      *policy = (enum policy)index;
      return 0;
    }
  return -1;
}

static int begins(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

int keeps_attribute(enum policy policy, const char *name) {
  if (policy == POLICY_MEMORY) return 0;
  if (begins(name, "user.overlay."))
    return policy == POLICY_DISK && (strcmp(name, "user.overlay.opaque") == 0 ||
                                     strcmp(name, "user.overlay.whiteout") == 0 ||
                                     begins(name, "user.overlay.overlay."));
  return begins(name, "user.") || strcmp(name, "security.capability") == 0 ||
         strcmp(name, "system.posix_acl_access") == 0 || strcmp(name, "system.posix_acl_default") == 0;
}

static int parse_size(const char *text, uint64_t *size) {
  char *end;
  errno = 0;
  *size = strtoull(text, &end, 10);
  return errno == 0 && end != text && *end == 0 ? 0 : -1;
}

int main(int count, char **arguments) {
  enum policy policy;
  uint64_t max_bytes;
  umask(0);
  /* A walk holds a descriptor for every level that it is deep. */
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  const char *verb = count > 1 ? arguments[1] : "";
  if (count == 4 && strcmp(verb, "pack") == 0 && parse_policy(arguments[2], &policy) == 0) {
    pack(policy, arguments[3]);
    return 0;
  }
  int checks = count == 4 && strcmp(verb, "check") == 0, unpacks = count == 5 && strcmp(verb, "unpack") == 0;
  if ((checks || unpacks) && parse_policy(arguments[2], &policy) == 0 && parse_size(arguments[3], &max_bytes) == 0) {
    unpack(policy, max_bytes, unpacks ? arguments[4] : NULL);
    return 0;
  }
  fputs(usage, stderr);
  return 2;
}
