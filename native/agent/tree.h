/* What the workers that walk trees share. */
#ifndef COPPICE_TREE_H
#define COPPICE_TREE_H

#include <stddef.h>

/* The sorted names in a directory, without . and ..; NULL when it cannot be read. */
char **directory_names(int fd, size_t *count);
void free_names(char **names, size_t count);
char *join_path(const char *directory, const char *name);
/* Removes a directory and all below it. Fails the worker when it cannot. */
void remove_tree(int parent, const char *name, const char *shown);

#endif
