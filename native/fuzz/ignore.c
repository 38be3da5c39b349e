/* Rules of a .jvsignore, and a path: the input is the path, a NUL, and the rules. */
#include "../tree/ignore.h"
#include "harness.h"

#include <string.h>

static const uint8_t *rules;
static size_t rules_size;

/* In place of openat() in ignore.c. */
int fuzz_openat(int dir, const char *name, int flags);
int fuzz_openat(int dir, const char *name, int flags) {
  (void)dir, (void)name, (void)flags;
  return fuzz_file(rules, rules_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *end = memchr(data, 0, size);
  if (end == NULL || end == data) return 0;
  rules = end + 1;
  rules_size = (size_t)(data + size - rules);
  FUZZED {
    const char *path = fuzz_copy(data, (size_t)(end - data) + 1);
    struct ignore_list *list = ignore_load(-1, "", NULL);
    for (int is_directory = 0; is_directory < 2; is_directory++) ignored(list, path, is_directory);
    ignore_free(list);
  }
  fuzz_tidy();
  return 0;
}
