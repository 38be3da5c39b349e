#define _GNU_SOURCE
#include "owner.h"

#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common.h"

void make_files_for_owner_of(const char *directory) {
  struct stat found;
  if (geteuid() != 0 || stat(directory, &found) != 0 || found.st_uid == 0) return;
  setfsgid(found.st_gid);
  setfsuid(found.st_uid);
  /* This drops root's file capabilities from the effective set. They are still permitted, so they are raised again. */
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
  if (syscall(SYS_capget, &header, sets) != 0) die_errno("ask for", "capabilities");
  for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) sets[i].effective = sets[i].permitted;
  if (syscall(SYS_capset, &header, sets) != 0) die_errno("take back", "capabilities");
}
