/*
 * Each pack ends with the record of its snapshot, so that a damaged log can be rebuilt. Only the very end of a pack counts: everything
 * before it may be content of files.
 */
#ifndef COPPICE_TREE_RECORDS_H
#define COPPICE_TREE_RECORDS_H

#include "log.h"

/* `data` is what the line of the log says. Nothing is added to the pack afterwards. */
void record_append(struct store *store, const struct buf *data);

/* All records that packs hold, as JSON objects, separated by commas; `log` says what became of their snapshots. */
void records_list(const char *control, const struct log *log, struct buf *out);

struct rebuilt {
  uint64_t kept, restored; /* lines */
  uint64_t lost;           /* of which nothing tells what they said; there may have been more */
};
/*
 * Writes the log anew: with every line that is as it was written, with what the packs say about other snapshots, and with the worktrees
 * that are there. The caller holds the store's lock alone. `kept` is where the old log goes.
 */
void log_rebuild(const char *control, const char *by, const char *repo_id, const char *engine, const char *kept, struct rebuilt *out);

#endif
