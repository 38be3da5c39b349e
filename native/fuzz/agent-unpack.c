/* An archive that an agent unpacks. What is there already, which the archive may run into, is a directory, a file and two links. */
#include "../agent/unpack.c"
#include "tar.h"

/* The worker is no process here: its end comes back to the harness. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  current = NULL;
  FUZZED {
    const char *place = fuzz_directory();
    int fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || mkdirat(fd, "directory", 0755) < 0 || mknodat(fd, "file", S_IFREG | 0644, 0) < 0 ||
        symlinkat("directory", fd, "link") < 0 || symlinkat("/tmp", fd, "outside") < 0)
      abort();
    close(fd);
    fuzz_input(fuzz_tar(data, size), size);
    struct unpacking *unpacking = fuzz_malloc(sizeof *unpacking);
    *unpacking = (struct unpacking){.path = place, .replaces_attributes = size % 2 == 1, .target = -1, .stage = -1};
    unpack_worker(unpacking);
  }
  fuzz_tidy();
  return 0;
}
