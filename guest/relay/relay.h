/*
 * coppice-relay: stands beside a gVisor sandbox for as long as it lives. A sandbox there has no socket of the host, only
 * the pipes that it was started with; the relay starts it, holds the other ends, and lets daemons come and go on a unix
 * socket. It starts in two steps: one command makes the sandbox, and the other lets it run once whoever asked says so. It forwards whole frames only, so that a daemon that dies in the middle of one leaves the sandbox in step.
 */
#ifndef COPPICE_RELAY_H
#define COPPICE_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct plan {
  const char *socket;
  const char *hold_socket;
  const char *netns;
  const char **cgroup_files;
  size_t cgroup_count;
  const char *layers; /* of the overlay, as options of its mount */
  const char *root;   /* where the overlay goes */
  char **make;        /* makes the sandbox; nothing inside runs yet */
  char **go;          /* lets it run */
};

/* start.c */
struct pipes {
  int to_guest;
  int from_guest;
};
void enter_cgroups(const struct plan *plan);
void enter_network(const char *netns);
/* Seen by what we start alone, so that it goes with the last of that. */
void mount_root(const struct plan *plan);
/* Both run the command to its end and return its exit code. What the first one makes has the pipes as its stdio. */
int make_sandbox(char **command, struct pipes *pipes);
int start_sandbox(char **command);

/* forward.c: until the guest's end of the pipe is closed. */
void forward(const struct pipes *pipes, int listener, int hold_listener);

/* main.c */
void die(const char *what) __attribute__((noreturn));

#endif
