/*
 * coppice-relay: stands beside a gVisor sandbox for as long as it lives. A sandbox there has no socket of the host, only
 * the pipes that it was started with; the relay starts it, holds the other ends, and lets daemons come and go on a unix
 * socket. The command that starts it stops at a gate once the sandbox is made, and goes on when whoever asked says so. It
 * forwards whole frames only, so that a daemon that dies in the middle of one leaves the sandbox in step.
 */
#ifndef COPPICE_RELAY_H
#define COPPICE_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/un.h>

#include "../mounts/modes.h"
#include "../mounts/mounts.h"

struct plan {
  const char *socket;
  const char *hold_socket;
  const char *gate_socket;
  const char *netns;
  const char **cgroup_files;
  size_t cgroup_count;
  const char *image;                      /* the directory that the paths of its layers begin at */
  const char *layers;                     /* of the overlay, as options of its mount */
  const char *root;                       /* where the overlay goes */
  const char *tmp;                        /* where its /tmp is shown once more, outside of what the sandbox can change */
  struct host_mount mounts[mounts_limit]; /* directories of the host; one without a host path is the sandbox's own directory there */
  const char *mount_places[mounts_limit]; /* where they are shown, likewise */
  size_t mount_count;
  const char *processors; /* the only ones that it runs on, or NULL for all */
  const char *memory;     /* how much the sandbox is told that it has, or NULL for all */
  char **command;         /* starts the sandbox, by way of the gate */
};

/* start.c */
struct pipes {
  int to_guest;
  int from_guest;
};
void enter_cgroups(const struct plan *plan);
void limit_resources(const struct plan *plan);
void enter_network(const char *netns);
/* To runsc, which tells the sandbox that it has as much memory as the machine. */
void show_memory(const char *bytes);
/* Seen by what we start alone, so that it goes with the last of that. */
void mount_root(const struct plan *plan);
/*
 * Makes sure of every place that runsc mounts on. What runsc binds there it finds by a path, on the host and through any
 * link: so the sandbox's own /tmp and directories of the host are shown at places of ours, where nobody else can put one.
 */
void prepare_root(const struct plan *plan);
/* What it starts has the pipes as its stdio. With a directory of the host the modes that it gives to files are watched. */
pid_t start_sandbox(const struct plan *plan, struct pipes *pipes, struct mode_watch *watch);
/* Its exit code, once it has one. */
int wait_for(pid_t command);

/*
 * gate.c: runsc calls `coppice-relay --gate SOCKET` when the sandbox is made and nothing inside it runs yet, and goes on
 * only if that ends well.
 */
int stand_at_gate(const char *socket);
/* Waits until the command stands at the gate: the process of the sandbox, or 0 when the command has ended before. */
pid_t await_gate(int listener, pid_t command, int *visitor);
/* Lets it go on; closing the visitor instead sends it back. */
bool open_gate(int visitor);

/* forward.c: until the guest's end of the pipe is closed. A watch without a listener is none. */
void forward(const struct pipes *pipes, const struct mode_watch *watch, int listener, int hold_listener);

/* main.c */
int enter_directory_of(const char *path, struct sockaddr_un *address);
void die(const char *what) __attribute__((noreturn));

#endif
