/*
 * The log of a workspace: one line of JSON for each thing that happened, each with the hash of the line before it. A change is true
 * when its line is on the disk. Nothing else reads or writes the log.
 */
#ifndef COPPICE_TREE_LOG_H
#define COPPICE_TREE_LOG_H

#include "json.h"
#include "scan.h"

#define ID_LEN 16

struct snapshot {
  char id[ID_LEN + 1];
  struct json record;         /* as it was written when the snapshot was taken */
  struct json worktree, tags; /* as they are now: a string, and an array of strings */
};

struct worktree {
  struct json name, created_at;                              /* strings */
  char base[ID_LEN + 1], head[ID_LEN + 1], latest[ID_LEN + 1]; /* snapshots; empty: none */
  char saved_hash[65]; /* of the worktree when all of it was last known to be stored; empty: never */
};

struct pin {
  char id[ID_LEN + 1];
  struct json reason;
};

struct log {
  char *path;
  int fd;
  size_t len; /* of all lines that are whole */
  uint64_t seq;
  char last_hash[65];
  struct snapshot *snapshots; /* oldest first */
  struct worktree *worktrees;
  struct pin *pins;
  size_t snapshot_count, worktree_count, pin_count;
  struct json collection; /* of the line that began a collection which has not ended; `at` is NULL: none */
  struct buf texts;       /* what all of these point into: char *, each to be freed */
  char problem[256];      /* why it cannot be read */
};

/* Opens and reads it; false with a `problem`. Dies where the file cannot be opened. */
bool log_open(struct log *log, const char *path);
/* Reads it again where others have added to it meanwhile; false with a `problem`. */
bool log_refresh(struct log *log);
void log_close(struct log *log);

const struct snapshot *log_find(const struct log *log, const char *id);
/* The newest that carries this tag. */
const struct snapshot *log_find_tagged(const struct log *log, const char *tag);
const struct worktree *log_find_worktree(const struct log *log, const char *name);
/* A name for a new snapshot or operation: its first eight characters tell it from all others. */
void log_new_id(const struct log *log, char out[ID_LEN + 1]);

/* Adds a line, and what it says. The caller holds the lock of the log. What is not `durable` may be lost with the power. */
void log_append(struct log *log, const char *by, const char *type, const struct buf *data, bool durable);

/* All that the log adds up to, as JSON. */
void log_state(const struct log *log, struct buf *out);
/* Compares every line with its hash and with the line before it. Adds objects with `line`, `problem` and `snapshot` (an id or null),
   separated by commas. */
void log_check(const char *path, struct buf *problems);

/* As Date.toISOString() writes it. */
void now_text(char out[32]);

#endif
