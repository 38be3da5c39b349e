/* JSON of a workspace's own records, which whoever owns the workspace can write. */
#include "../tree/json.h"
#include "harness.h"

#include <stdlib.h>

static void read_all(struct json value, int depth) {
  struct json found;
  char text[16];
  uint64_t number;
  json_string(value, text, sizeof text);
  json_is(value, "null");
  if (depth > 8) return;
  static const char *const keys[] = {"", "a", "snapshot", "snapshot_id"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    json_field_string(value, keys[i], text, sizeof text);
    json_field_number(value, keys[i], &number);
    if (json_field(value, keys[i], &found)) read_all(found, depth + 1);
  }
  for (struct json rest = value, element; json_next(&rest, &element);) read_all(element, depth + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct json value;
  if (json_parse(fuzz_copy(data, size), size, &value)) read_all(value, 0);
  fuzz_tidy();
  return 0;
}
