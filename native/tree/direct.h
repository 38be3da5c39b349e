/* `jvs snapshot [NOTE] [--tag TAG]…` and `jvs restore HEAD | ID | TAG` without Node, which takes longer to start than they take. */
#ifndef COPPICE_TREE_DIRECT_H
#define COPPICE_TREE_DIRECT_H

/*
 * `command` is Node, its options, the bundle of jvs and what was given to jvs. Does it and ends, or becomes Node.
 *
 * Node does everything else, through the same code: other options and references, settings, waiting for another command, recovery. Node
 * also reports failures, so that one place explains them (JVS_FAILURE in main.ts).
 */
void do_directly(char **command) __attribute__((noreturn));

#endif
