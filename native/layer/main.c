#define _GNU_SOURCE
#include "layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] = "usage: coppice-layer unpack MAX_BYTES MAX_ENTRIES EMPTY_DIRECTORY < TAR\n"
                            "       coppice-layer pack MAX_BYTES DIRECTORY > TAR\n";

bool keeps_attribute(const char *name) {
  if (strncmp(name, "user.overlay.", 13) == 0) return false;
  return strncmp(name, "user.", 5) == 0 || strcmp(name, "security.capability") == 0 || strcmp(name, "system.posix_acl_access") == 0 ||
         strcmp(name, "system.posix_acl_default") == 0;
}

int main(int count, char **arguments) {
  uint64_t max_bytes, max_entries;
  umask(0);
  allow_many_files();
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
