#define _GNU_SOURCE
#include "parcel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] = "usage: coppice-parcel pack disk|image|memory DIRECTORY > STREAM\n"
                            "       coppice-parcel measure disk|image|memory DIRECTORY\n"
                            "       coppice-parcel check disk|image|memory MAX_BYTES < STREAM\n"
                            "       coppice-parcel unpack disk|image|memory MAX_BYTES EMPTY_DIRECTORY < STREAM\n";

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
    return policy == POLICY_DISK && (strcmp(name, "user.overlay.opaque") == 0 || strcmp(name, "user.overlay.whiteout") == 0 ||
                                     begins(name, "user.overlay.overlay."));
  return begins(name, "user.") || strcmp(name, "security.capability") == 0 || strcmp(name, "system.posix_acl_access") == 0 ||
         strcmp(name, "system.posix_acl_default") == 0;
}

int main(int count, char **arguments) {
  enum policy policy;
  uint64_t max_bytes;
  umask(0);
  allow_many_files();
  const char *verb = count > 1 ? arguments[1] : "";
  if (count == 4 && strcmp(verb, "pack") == 0 && parse_policy(arguments[2], &policy) == 0) {
    pack(policy, arguments[3]);
    return 0;
  }
  if (count == 4 && strcmp(verb, "measure") == 0 && parse_policy(arguments[2], &policy) == 0) {
    measure(policy, arguments[3]);
    return 0;
  }
  int checks = count == 4 && strcmp(verb, "check") == 0, unpacks = count == 5 && strcmp(verb, "unpack") == 0;
  if ((checks || unpacks) && parse_policy(arguments[2], &policy) == 0 && parse_number(arguments[3], &max_bytes)) {
    unpack(policy, max_bytes, unpacks ? arguments[4] : NULL);
    return 0;
  }
  fputs(usage, stderr);
  return 2;
}
