/* Does the same work on many items, with two threads for each processor, since some wait for the disk. */
#ifndef COPPICE_TREE_JOBS_H
#define COPPICE_TREE_JOBS_H

#include "content.h"

typedef void (*job)(void *context, size_t item, struct content_memory *memory);
void jobs_run(job work, void *context, size_t count, bool worth_threads);

/* Called by the first thread that fails: no thread begins another item. Waits up to a second for those that are inside one. */
void jobs_abandon(void);

#endif
