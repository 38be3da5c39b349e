#include "tar.h"

#include <stdio.h>
#include <string.h>

#include "../lib/tar.h"

uint8_t *fuzz_tar(const uint8_t *data, size_t size) {
  uint8_t *copy = fuzz_copy(data, size);
  for (size_t at = 0; size - at >= TAR_BLOCK;) {
    struct tar_header *header = (struct tar_header *)(copy + at);
    unsigned sum = 0;
    memset(header->checksum, ' ', sizeof header->checksum);
    for (size_t i = 0; i < TAR_BLOCK; i++) sum += copy[at + i];
    /* A block of zeros stays one: it is the end. */
    if (sum == 8 * ' ') memset(header->checksum, 0, sizeof header->checksum);
    else snprintf(header->checksum, sizeof header->checksum, "%06o", sum);
    uint64_t content = 0;
    for (size_t i = 0; i < sizeof header->size; i++)
      if (header->size[i] >= '0' && header->size[i] <= '7') content = content << 3 | (uint64_t)(header->size[i] - '0');
    uint64_t blocks = (content + TAR_BLOCK - 1) / TAR_BLOCK + 1;
    if (blocks > (size - at) / TAR_BLOCK) break;
    at += blocks * TAR_BLOCK;
  }
  return copy;
}
