/* A line on the terminal of a command that takes longer than a moment. Nothing where nobody looks on. */
#ifndef COPPICE_TREE_PROGRESS_H
#define COPPICE_TREE_PROGRESS_H

#include <stdint.h>

/* For commands only. */
void progress_watch(void);
/* Cheap: may be called for every directory and every piece of a file, by any thread. */
void progress_add(uint64_t files, uint64_t bytes);
/* What was counted is over: the line goes. */
void progress_clear(void);

#endif
