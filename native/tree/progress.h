/* A progress line on the terminal for commands that take longer than a second. Nothing is printed elsewhere. */
#ifndef COPPICE_TREE_PROGRESS_H
#define COPPICE_TREE_PROGRESS_H

#include <stdint.h>

/* For commands only. */
void progress_watch(void);
/* Cheap: may be called for every directory and every piece of a file, by any thread. */
void progress_add(uint64_t files, uint64_t bytes);
/* Removes the line. */
void progress_clear(void);

#endif
