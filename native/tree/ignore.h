/* .jvsignore files, with the rules of gitignore. */
#ifndef COPPICE_TREE_IGNORE_H
#define COPPICE_TREE_IGNORE_H

#include "common.h"

#define IGNORE_FILE ".jvsignore"

/* The rules of one directory, and of those above it. */
struct ignore_list;

/* Reads the file in `dir`; `base` is the directory's path from the root ("" or "a/b"). */
struct ignore_list *ignore_load(int dir, const char *base, struct ignore_list *above);
void ignore_free(struct ignore_list *list);
bool ignored(const struct ignore_list *list, const char *path, bool is_directory);

#endif
