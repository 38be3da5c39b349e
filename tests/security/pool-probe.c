/* Asks every file that it is given about the btrfs filesystem that it may be on; says which answered. */
#include <fcntl.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static union {
  char room[8192];
  struct btrfs_ioctl_ino_lookup_args lookup;
  struct btrfs_ioctl_get_subvol_info_args subvolume;
  struct btrfs_ioctl_fs_info_args filesystem;
} answer;

static void ask(const char *path, int fd, const char *what, unsigned long request) {
  memset(&answer, 0, sizeof answer);
  answer.lookup.objectid = request == BTRFS_IOC_INO_LOOKUP ? 256 : 0;
  if (ioctl(fd, request, &answer) == 0) printf("%s told %s\n", path, what);
}

int main(int count, char **paths) {
  for (int index = 1; index < count; index++) {
    int fd = open(paths[index], O_RDONLY | O_NONBLOCK);
    if (fd < 0) continue;
    printf("%s asked\n", paths[index]);
    ask(paths[index], fd, "the filesystem", BTRFS_IOC_FS_INFO);
    ask(paths[index], fd, "the subvolume", BTRFS_IOC_GET_SUBVOL_INFO);
    ask(paths[index], fd, "a name", BTRFS_IOC_INO_LOOKUP);
    close(fd);
  }
  return 0;
}
