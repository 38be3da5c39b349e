/* What the parts of the log share: reading and writing it (log.c), what each line adds (log-lines.c), what all lines add up to, as JSON
   (log-state.c), and finding damage (log-check.c). */
#ifndef COPPICE_TREE_LOG_LINES_H
#define COPPICE_TREE_LOG_LINES_H

#include "log.h"

/* The line before the first one has this hash. */
#define FIRST_HASH "0000000000000000000000000000000000000000000000000000000000000000"

/* An id as the key of a map: both have the same length. */
struct id_key {
  uint64_t a, b;
};
struct id_key id_key(const char *id);

/* Whether a JSON string has this value. */
bool says(struct json value, const char *text);
/* Frees `text` with the log. */
char *keep_text(struct log *log, char *text);
/* Adds what a line says. False when it is not a line of a log. */
bool add_line(struct log *log, struct json line);
/* Forgets all lines. */
void forget_all(struct log *log);

#endif
