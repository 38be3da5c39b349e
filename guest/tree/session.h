/* One command at work on one workspace, without Node: where everything is, what it holds, what is to be undone. */
#ifndef COPPICE_TREE_SESSION_H
#define COPPICE_TREE_SESSION_H

#include "history.h"

struct session {
  char *control, *payload, *index, *worktree;
  char engine[32];
  struct history history;
  char *kept_nodes; /* the pack of what a worktree holds, needed while it is restored; NULL: none */
};
extern struct session session;

char *path_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A word that is the same in JSON and on a terminal. */
bool is_plain(const char *word);
/* Opens the workspace around the current directory, alone on its worktree. Returns false, having done nothing, where that is not plain;
   gives up where it is not at hand. `command` is what give_up() starts instead. */
bool session_open(char **command);
/* Undoes what was made and starts the command for Node, in place of this process. Every die() ends here too. */
void give_up(void) __attribute__((noreturn));
/* Names what goes again when this gives up, before it is made. */
char *making(char *path);

uint64_t new_pack(void);
/* The snapshot that the places in the index are from; empty: there is no index. */
void read_basis(char out[33]);
/* Whether these places can be trusted: as long as that snapshot lives. */
bool index_holds(void);
/* The first that is made, and the last that goes. */
void write_intent(const char *id, const char *format, ...) __attribute__((format(printf, 2, 3)));
void clear_intent(void);
/* Adds a line to the log. From here on that says what happened, and what was made stays. */
void commit(const char *type, const struct buf *data, bool durable);
/* What was made is done with, one way or the other. */
void nothing_made(void);

#endif
