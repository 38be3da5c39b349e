/* The log of a workspace, as far as a command that needs no Node must know it (event-log.ts, workspace-state.ts). */
#ifndef COPPICE_TREE_HISTORY_H
#define COPPICE_TREE_HISTORY_H

#include "json.h"
#include "scan.h"

#define ID_LEN 16

struct snapshot {
  char id[ID_LEN + 1];
  struct json record; /* in the text of the log */
};

struct history {
  const char *path, *worktree;
  char user[64];
  int fd;
  char *text; /* all lines that are whole */
  size_t len;
  uint64_t seq;
  char last_hash[65];
  struct snapshot *snapshots; /* oldest first */
  size_t count;
  bool has_worktree, collecting;
  char head[ID_LEN + 1], saved_hash[65]; /* of the worktree; empty: none */
};

/* False when something is in it that is for Node to understand, or to complain about. */
bool history_open(struct history *history, const char *path, const char *worktree);
const struct snapshot *history_find(const struct history *history, const char *id);
/* The newest with this tag. */
const struct snapshot *history_tagged(const struct history *history, const char *tag);
/* A name for a new snapshot or operation: its first eight characters tell it from all others. */
void history_new_id(const struct history *history, char out[ID_LEN + 1]);
/* One that this process has just added is known by its id only. */
void history_learn(struct history *history, const char id[ID_LEN + 1]);
/* Adds one line. The caller holds the lock of the log. */
void history_append(struct history *history, const char *type, const struct buf *data, bool durable);
/* As Date.toISOString() writes it. */
void now_text(char out[32]);

#endif
