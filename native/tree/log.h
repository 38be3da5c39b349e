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

/* Head and saved_hash before each of the last restores, the newest last. */
#define STEPS_MAX 16
struct steps {
  struct step {
    char id[ID_LEN + 1], hash[65];
  } at[STEPS_MAX];
  size_t count;
};

struct worktree {
  struct json name, created_at;                                /* strings */
  char base[ID_LEN + 1], head[ID_LEN + 1], latest[ID_LEN + 1]; /* snapshots; empty: none */
  struct steps undo, redo;                                     /* what undo and redo bring back */
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
  struct map collected;   /* ids of snapshots that collections took */
  struct json collection; /* of the line that began a collection which has not ended; `at` is NULL: none */
  struct buf texts;       /* what all of these point into: char *, each to be freed */
  char problem[256];      /* why it cannot be read */
};

/* Opens and reads it; false with a `problem`. Dies where the file is there and cannot be opened. */
bool log_open(struct log *log, const char *path);
/* Reads it again where others have added to it meanwhile; false with a `problem`. */
bool log_refresh(struct log *log);
void log_close(struct log *log);

const struct snapshot *log_find(const struct log *log, const char *id);
/* Whether a collection took it. */
bool log_collected(const struct log *log, const char *id);
/* The newest that carries this tag. */
const struct snapshot *log_find_tagged(const struct log *log, const char *tag);
const struct worktree *log_find_worktree(const struct log *log, const char *name);
/* A name for a new snapshot or operation: its first eight characters tell it from all others. */
void log_new_id(const struct log *log, char out[ID_LEN + 1]);

/* Adds a line, and what it says. The caller holds the lock of the log. What is not `durable` may be lost with the power. */
void log_append(struct log *log, const char *by, const char *type, const struct buf *data, bool durable);

/* Adds lines that say what happened at another time, for a log that is written anew: `at` and `by` are JSON strings. */
void log_add(struct log *log, struct json at, struct json by, const char *type, struct json data);

/* All that the log adds up to, as JSON. */
void log_state(const struct log *log, struct buf *out);
/* Compares every line with its hash and with the line before it. Adds objects with `line`, `problem` and `snapshot` (an id or null),
   separated by commas. */
void log_check(const char *path, struct buf *problems);

/* One line of a log that may be damaged. */
struct log_line {
  struct json at, by, data; /* where it `parses` */
  char type[32], prev[65], hash[65];
  uint64_t seq;
  bool parses, is_whole;     /* is_whole: it is as it was written */
  char snapshot[ID_LEN + 1]; /* that it took; empty: none */
};
/* Reads the lines of a log one by one, from `*at` to `end`. False after the last one, and for one that does not end. */
bool log_next_line(const char **at, const char *end, struct log_line *out);
/* All of a file, with a NUL after it, for the caller to free; NULL when it cannot be read. */
char *read_whole(int fd, size_t *len);
/* Whether this is the record of a snapshot; `out` points into it. */
bool is_record(struct json record, struct snapshot *out);

/* As Date.toISOString() writes it. Answers the seconds since 1970. */
int64_t now_text(char out[32]);

#endif
