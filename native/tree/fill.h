/* Fills a new, empty directory with a stored tree, in one walk: nothing in it needs to be compared or kept. */
#ifndef COPPICE_TREE_FILL_H
#define COPPICE_TREE_FILL_H

#include "metadata.h"
#include "scan.h"

struct fill_options {
  const char *directory; /* empty, and nobody else works in it yet */
  const char *tree;      /* the snapshot as a whole directory, or NULL */
  struct root from;
  struct selection selection;
  const char *index_path; /* where the index of the new directory goes; NULL: it needs none */
  const char *basis;
};

/*
 * Dies when something stored is damaged; the caller removes the directory then. Answers whether the directory is what the snapshot
 * holds and its index was written. When false, owners or attributes were refused, or hard links changed the times of files: a scan
 * must find out what is there.
 */
bool fill_directory(struct store *store, const struct fill_options *options, struct refused *refused);

#endif
