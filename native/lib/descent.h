#ifndef COPPICE_LIB_DESCENT_H
#define COPPICE_LIB_DESCENT_H

#include <stddef.h>

/* A walk over a tree of any depth, with few descriptors and no recursion. Where it is moved meanwhile, the walk fails. */
struct descent {
  struct descent_step *steps;
  size_t count, room;
  size_t filled, at;
  char entries[32768];
};
/* Takes the descriptor, also when it fails. */
int descent_begin(struct descent *descent, int directory);
/* The next name in the current directory, good until the next call; NULL at its end (errno is 0) or on error. */
const char *descent_next(struct descent *descent);
int descent_enter(struct descent *descent, const char *name);
int descent_leave(struct descent *descent);
/* The descriptor of the current directory, its name, and how far below the first one it is. */
int descent_here(const struct descent *descent);
const char *descent_name(const struct descent *descent);
size_t descent_depth(const struct descent *descent);
/* Of a name in the current directory, from the first directory on; to be freed. */
char *descent_path(const struct descent *descent, const char *name);
void descent_end(struct descent *descent);

/* Asked before each name, where it is set: nonzero with errno ends the walk. */
extern int (*descent_is_cancelled)(void);

#endif
