/* The tar of a layer of an image, unpacked. The program is not locked in here, as many inputs follow each other in one process. */
#include "../layer/directories.c"
#include "../layer/reader.c"

#include <sys/prctl.h>
#include <sys/syscall.h>
#define chroot(directory) 0
#define prctl(...) 0
#undef SYS_capset
#define SYS_capset SYS_getpid
#include "../layer/unpack.c"
#include "tar.h"

static void start_anew(void) {
  buffered = taken = 0;
  content_left = padding_left = 0;
  extensions = (struct extensions){0};
  all = NULL;
  slots = NULL;
  count = room = slot_count = 0;
  bytes = entries = files = remembered = devices_dropped = attributes_dropped = 0;
  parent = -1;
  parent_path[0] = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  start_anew();
  FUZZED {
    fuzz_input(fuzz_tar(data, size), size);
    unpack(1 << 20, 1000, fuzz_directory());
  }
  fuzz_tidy();
  return 0;
}
