/* How snapshots are stored, and what the filesystem supports. */
#ifndef COPPICE_TREE_ENGINE_H
#define COPPICE_TREE_ENGINE_H

#include "common.h"

/* Best first. */
enum { ENGINE_BTRFS, ENGINE_JUICEFS, ENGINE_REFLINK, ENGINE_COPY, ENGINES };
extern const char *const engine_names[ENGINES];

/* Where to look for what an engine needs. `scratch` is a directory on the same filesystem for test files. `mounts` is the table of mounts. */
struct engine_offer {
  const char *directory, *scratch, *mounts;
};
bool engine_works(const struct engine_offer *offer, int engine);
/* Why one does not. */
const char *engine_lack(int engine);
/* -1: there is none of this name. */
int engine_named(const char *name);

/* Clones a directory on JuiceFS; false with the reason. `to` must not exist: JuiceFS refuses one that does. */
bool juicefs_clone(const char *from, const char *to, char reason[512]);

#endif
