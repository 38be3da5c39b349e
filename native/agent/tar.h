/* The header of an entry of a tar archive: ustar, as POSIX has it. */
#ifndef COPPICE_TAR_H
#define COPPICE_TAR_H

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

#endif
