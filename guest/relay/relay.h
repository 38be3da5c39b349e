/*
 * coppice-relay: stands beside a gVisor sandbox for as long as it lives. A sandbox there has no socket of the host, only
 * the pipes that it was started with; the relay starts it, holds the other ends, and lets daemons come and go on a unix
 * socket. It forwards whole frames only, so that a daemon that dies in the middle of one leaves the sandbox in step.
 */
#ifndef COPPICE_RELAY_H
#define COPPICE_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct plan {
  const char *socket;
  const char *hold_socket;
  const char *netns; /* NULL: stay where we are */
  const char **cgroup_files;
  size_t cgroup_count;
  char **command;
};

/* start.c */
struct pipes {
  int to_guest;
  int from_guest;
};
void enter_cgroups(const struct plan *plan);
void enter_network(const char *netns);
/* Runs the command with the pipes as its stdio and waits for its end; returns its exit code. */
int run_command(char **command, struct pipes *pipes);

/* forward.c: until the guest's end of the pipe is closed. */
void forward(const struct pipes *pipes, int listener, int hold_listener);

/* main.c */
void die(const char *what) __attribute__((noreturn));

#endif
