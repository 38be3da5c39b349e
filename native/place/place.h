/*
 * The places of a sandbox's root that something is mounted on. The sandbox, its image or a stranger's file decides what stands
 * there, so a path through the root may lead anywhere on the host. These functions never follow it out of the root.
 */
#ifndef COPPICE_PLACE_H
#define COPPICE_PLACE_H

#include <sys/types.h>

enum place_kind {
  place_directory, /* a real directory */
  place_file,      /* a real file */
  place_led_to,    /* a directory that a link may lead to, as the sandbox follows it: inside its root, and to no other place */
};

/*
 * Opens a place by an O_PATH descriptor. What is missing is made, with this mode. Anything else than what is asked for is
 * renamed to NAME.set-aside, and a new one is made: a start never fails for what a sandbox did to its own root, and nothing
 * that it had is lost. Directories above it are made too; a link among them is an error. Call it before the root is in use. -1 with errno.
 */
int open_place(int root, const char *name, enum place_kind kind, mode_t mode);

/* As a mount that stands nowhere yet: for move_mount. -1 with errno. */
int clone_place(int place);

#endif
