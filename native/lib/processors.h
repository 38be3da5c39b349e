#ifndef COPPICE_PROCESSORS_H
#define COPPICE_PROCESSORS_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Keeps a task (0: the caller) on the processors of a list such as `0,3`, and whatever it starts with it: programs count the processors
 * that they may run on. False with errno where the list is none, or the kernel refuses.
 */
bool keep_on_processors(pid_t task, const char *list);

/* The same for every task of a cgroup, as its file of tasks names them, until no other is found there. */
bool move_to_processors(const char *tasks, const char *list);

#endif
