#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A sandbox decides how many files have several names, and how deep they lie. */
#define MAX_PATH_BYTES (512u << 20)

struct link_slot {
  ino_t inode;
  char *path; /* NULL: free */
};

/* The slot of that inode, or the free one where it belongs. */
static struct link_slot *find_slot(struct link_slot *slots, size_t room, ino_t inode) {
  for (size_t at = (size_t)(inode * 0x9e3779b97f4a7c15ull);; at++) {
    struct link_slot *slot = &slots[at & (room - 1)];
    if (slot->path == NULL || slot->inode == inode) return slot;
  }
}

static int grow(struct link_table *table) {
  size_t room = table->room == 0 ? 256 : table->room * 2;
  struct link_slot *slots = calloc(room, sizeof *slots);
  if (slots == NULL) return -1;
  for (size_t at = 0; at < table->room; at++)
    if (table->slots[at].path != NULL) *find_slot(slots, room, table->slots[at].inode) = table->slots[at];
  free(table->slots);
  table->slots = slots;
  table->room = room;
  return 0;
}

const char *find_link(const struct link_table *table, ino_t inode) {
  return table->room == 0 ? NULL : find_slot(table->slots, table->room, inode)->path;
}

int remember_link(struct link_table *table, ino_t inode, char *path) {
  if (path == NULL) return -1;
  table->path_bytes += strlen(path) + 1;
  if (table->path_bytes > MAX_PATH_BYTES) {
    errno = E2BIG;
  } else if (table->count * 2 < table->room || grow(table) == 0) {
    *find_slot(table->slots, table->room, inode) = (struct link_slot){inode, path};
    table->count++;
    return 0;
  }
  int saved = errno;
  free(path);
  errno = saved;
  return -1;
}

void forget_links(struct link_table *table) {
  for (size_t at = 0; at < table->room; at++) free(table->slots[at].path);
  free(table->slots);
  *table = (struct link_table){0};
}
