#include "write.h"

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

bool write_fully(int fd, const void *bytes, size_t length) {
  for (const uint8_t *at = bytes; length > 0;) {
    const ssize_t wrote = write(fd, at, length);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote == 0) errno = EIO;
    if (wrote <= 0) return false;
    at += wrote;
    length -= (size_t)wrote;
  }
  return true;
}
