/* The header of an entry of a tar archive: ustar, as POSIX has it. */
#ifndef COPPICE_TAR_H
#define COPPICE_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TAR_BLOCK 512u

struct tar_header {
  char name[100];
  char mode[8];
  char uid[8];
  char gid[8];
  char size[12];
  char mtime[12];
  char checksum[8];
  char type;
  char link[100];
  char magic[6];
  char version[2];
  char user[32];
  char group[32];
  char major[8];
  char minor[8];
  char prefix[155];
  char padding[12];
};

_Static_assert(sizeof(struct tar_header) == TAR_BLOCK, "a tar header is one block");

/* The sum of all bytes, with spaces for the checksum itself. */
static inline unsigned tar_checksum(const struct tar_header *header) {
  const uint8_t *bytes = (const uint8_t *)header;
  unsigned sum = 0;
  for (size_t i = 0; i < TAR_BLOCK; i++)
    sum += i >= offsetof(struct tar_header, checksum) && i < offsetof(struct tar_header, type) ? ' ' : bytes[i];
  return sum;
}

/* The last that is written of a header: what it is, and its checksum. */
static inline void tar_seal(struct tar_header *header) {
  memcpy(header->magic, "ustar", 6);
  memcpy(header->version, "00", 2);
  memset(header->checksum, ' ', sizeof header->checksum);
  snprintf(header->checksum, sizeof header->checksum, "%06o", tar_checksum(header));
}

#endif
