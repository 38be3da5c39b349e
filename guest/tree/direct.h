/* `jvs snapshot [NOTE] [--tag TAG]…` and `jvs restore HEAD | ID | TAG` without Node, which takes longer to start than they take. */
#ifndef COPPICE_TREE_DIRECT_H
#define COPPICE_TREE_DIRECT_H

/*
 * `command` is Node, its options, the bundle of jvs and what was given to jvs. Does it and ends, or returns and has changed
 * nothing. Only what is plain is done here: no options but tags, default settings, nobody else at work, nothing to recover.
 * All else, every error included, is left to Node (take-snapshot.ts, restore-worktree.ts), so that there is one place that explains it.
 */
void do_directly(char **command);

#endif
