#include "layer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* In the order in which they were made, and found by their path. */
static struct directory *all;
static size_t count, room;
static size_t *slots; /* index + 1; zero is free */
static size_t slot_count;

/* With a number of its own in each run, so that no layer can be made of paths that all fall into one slot. */
static size_t hash(const char *path) {
  static uint64_t start;
  if (start == 0 && (getrandom(&start, sizeof start, 0) != sizeof start || start == 0)) start = 14695981039346656037u;
  uint64_t value = start;
  for (; *path != 0; path++) value = (value ^ (uint8_t)*path) * 1099511628211u;
  return (size_t)(value ^ value >> 29);
}

static size_t *slot_of(const char *path) {
  size_t at = hash(path) & (slot_count - 1);
  while (slots[at] != 0 && strcmp(all[slots[at] - 1].path, path) != 0) at = (at + 1) & (slot_count - 1);
  return &slots[at];
}

struct directory *find_directory(const char *path) {
  if (slot_count == 0) return NULL;
  const size_t found = *slot_of(path);
  return found == 0 ? NULL : &all[found - 1];
}

struct directory *add_directory(const char *path) {
  if (count * 2 >= slot_count) {
    slot_count = slot_count == 0 ? 1024 : slot_count * 2;
    free(slots);
    slots = must(calloc(slot_count, sizeof *slots));
    for (size_t index = 0; index < count; index++) *slot_of(all[index].path) = index + 1;
  }
  if (count == room) all = must(realloc(all, (room = room * 2 + 256) * sizeof *all));
  all[count] = (struct directory){.path = must(strdup(path))};
  *slot_of(path) = count + 1;
  return &all[count++];
}

size_t directory_count(void) { return count; }

struct directory *directory_at(size_t index) { return &all[index]; }
