/*
 * coppice-layer: a layer of an OCI image as a directory that overlayfs takes as a lower, and back.
 *
 * In the tar a deletion is a file `.wh.NAME`, and a directory that hides the one below holds `.wh..wh..opq`. In the directory a
 * deletion is a character device 0/0, and the hiding directory carries user.overlay.opaque: an overlay that is mounted inside a
 * user namespace reads no trusted.* attributes.
 */
#ifndef COPPICE_LAYER_H
#define COPPICE_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "../lib/stop.h"

#define MAX_PATH 4095
#define MAX_ENTRY_PATH 3000 /* the daemon removes layers by path, so home and entry together must fit */
#define MAX_NAME 255
#define MAX_EXTENSION (1u << 20)
#define MAX_VALUE 65536
#define COPY_BYTES (256 * 1024)
#define OPAQUE "user.overlay.opaque"
#define WHITEOUT_PREFIX ".wh."
#define OPAQUE_MARK ".wh..wh..opq"

/* Attributes that mean the same wherever the layer goes. */
bool keeps_attribute(const char *name);

/* reader.c: the entries of a tar on stdin. Every byte of it may be hostile. */
struct attribute {
  char *name;
  char *value;
  size_t length;
};

struct entry {
  char path[MAX_PATH + 1]; /* without leading, double or trailing slashes and dots; empty for the root */
  char link[MAX_PATH + 1]; /* of a hard link normalised like the path; of a symbolic link as it stands */
  uint64_t size;           /* of the content that follows, only for files */
  uid_t uid;
  gid_t gid;
  mode_t mode;
  struct timespec changed;
  char type; /* '0' file, '1' hard link, '2' symbolic link, '3' or '4' device, '5' directory, '6' FIFO */
  struct attribute *attributes;
  size_t attribute_count;
  size_t attributes_dropped;
};
bool next_entry(struct entry *entry);
/* Some of the content of the entry that came last, straight from the buffer; zero at its end. */
size_t next_content(const uint8_t **bytes);

/* directories.c: what is known of the directories of the layer while it is unpacked. */
struct directory {
  char *path;
  struct timespec changed;
  bool named;     /* an entry of the tar names it; else its owner and mode are those of the layer below */
  bool whiteouts; /* something in it hides what lies below */
  bool opaque;    /* it hides the whole of the one below */
};
struct directory *find_directory(const char *path);
struct directory *add_directory(const char *path);
size_t directory_count(void);
struct directory *directory_at(size_t index);

void unpack(uint64_t max_bytes, uint64_t max_entries, const char *directory);
void pack(uint64_t max_bytes, const char *directory);

#endif
