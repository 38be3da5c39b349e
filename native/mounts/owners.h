#ifndef COPPICE_MOUNTS_OWNERS_H
#define COPPICE_MOUNTS_OWNERS_H

#include <sys/types.h>

/*
 * A user namespace to map a mount with: this owner and group on the disk are the host's ids `first_id`, and the 65,535 that
 * follow are ids on the disk that nobody of the host has, the same for every sandbox and every start. -1 with errno.
 */
int make_owner_map(uid_t uid, gid_t gid, uid_t first_id);

#endif
