/* One workspace that is worked on: where everything is, its locks and intents, and what is to be undone when something fails. */
#ifndef COPPICE_TREE_SESSION_H
#define COPPICE_TREE_SESSION_H

#include "log.h"

struct session {
  char *root, *control; /* the workspace, and its .jvs */
  char engine[32];      /* that it was made with */
  char *by;             /* the user, as the log names them */
  struct log log;
};
extern struct session session;

/* A path that lives as long as the request. */
char *path_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
void forget_paths(void);
char *payload_of(const char *worktree);
char *index_of(const char *worktree);

/* Opens the workspace with this control directory, or looks again at the one that is open. Dies where it cannot be read. */
void session_use(const char *control, const char *by);
/* The same without dying. False where it cannot be read, with the `problem`. */
bool session_open(const char *control, const char *by, char problem[256]);
/* From /etc/passwd alone: other sources of names need libraries that a static program cannot load. False: it is not there. */
bool user_name(char out[64]);

/* -1 when somebody else holds it and `kind` says not to wait. Else it is held until the descriptor is closed. */
int lock_file(const char *name, int kind);

/* Something to tell whoever gave the command: on stderr, or as a line before the answer. */
void notice(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern bool notices_are_answers;

/* Names a path that will be made now, and is removed when this operation fails. */
char *making(char *path);
/* Forgets these paths: they stay, or are removed already. */
void nothing_made(void);
void undo(void);
/* Names a file that is removed when end_of_now() is called, or this process ends. */
void only_for_now(const char *path);
void end_of_now(void);

/* Comes before everything that is made, and is removed last. */
void write_intent(const char *id, const struct buf *intent);
void clear_intent(void);
/* Adds a line to the log. After that the operation has happened, and what was made stays. */
void commit(const char *type, const struct buf *data, bool durable);

uint64_t new_pack(void);
/* The snapshot whose places an index names; empty: there is no index. */
void read_basis(const char *index, char out[33]);
void write_basis(const char *index, const char *basis);
/* Whether these places are valid. They are as long as that snapshot exists. */
bool index_holds(const char *index);

#endif
