/* `jvs snapshot [NOTE] [--tag TAG]…` and `jvs restore HEAD | ID | TAG` without Node, which takes longer to start than they take. */
#ifndef COPPICE_TREE_DIRECT_H
#define COPPICE_TREE_DIRECT_H

/*
 * `command` is Node, its options, the bundle of jvs and what was given to jvs. Does it and ends, or becomes Node.
 *
 * What is more than plain is left to Node, which asks for the same work: other options and references, settings, waiting for another
 * command, recovery. A failure is left to Node too, so that there is one place that explains it (JVS_FAILURE in main.ts).
 */
void do_directly(char **command) __attribute__((noreturn));

#endif
