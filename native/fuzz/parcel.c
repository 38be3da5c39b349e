/* The stream of a tree from a stranger, looked at and unpacked. */
#include "../parcel/parcel.h"
#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  enum policy policy = (enum policy)(data[0] % 3);
  int writes = data[0] & 4;
  FUZZED {
    fuzz_input(data + 1, size - 1);
    unpack(policy, 1 << 20, writes ? fuzz_directory() : NULL);
  }
  fuzz_tidy();
  return 0;
}
