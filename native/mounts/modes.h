/*
 * Set-id bits are worth nothing in a sandbox, where every mount is nosuid, but on the host a file of a workspace that has them
 * runs as the owner of the directory for anybody. A filter of system calls cannot tell files apart. So it stops a process that
 * gives a file such a mode, and somebody outside does it in its stead: as asked in the sandbox's own root, without these bits in
 * the workspace. A file that is made with such a mode is made without these bits everywhere; whoever wants them changes them then.
 */
#ifndef COPPICE_MOUNTS_MODES_H
#define COPPICE_MOUNTS_MODES_H

struct mode_watch {
  int listener; /* has something to read when a process was stopped, and hangs up when none is left */
  int userns;   /* that they live in; -1 for the host's */
  int proc;     /* the host's /proc */
};

/* For this process and all that it becomes or starts. Returns the listener; -1 with errno. */
int watch_modes(void);
/* Hands the listener to who started this process, and takes it there: -1 where none came. */
int send_listener(int socket, int listener);
int receive_listener(int socket);

/*
 * Does what one stopped process asked for, with no more rights than it has. Nothing that goes wrong here lets a process do it
 * by itself.
 */
void answer_mode(const struct mode_watch *watch);

#endif
