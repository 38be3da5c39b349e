#define _GNU_SOURCE
#include "pool.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/loop.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOP_TRIES 64

/* Gives the image a free loop device that frees itself with its last user, so that a killed process leaves none. */
static int attach_loop(int image, char *path, size_t size) {
  int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control < 0) return -1;
  for (int attempt = 0; attempt < LOOP_TRIES; attempt++) {
    int number = ioctl(control, LOOP_CTL_GET_FREE);
    if (number < 0) break;
    snprintf(path, size, "/dev/loop%d", number);
    int device = open(path, O_RDWR | O_CLOEXEC);
    if (device < 0) break;
    struct loop_config config = {.fd = (uint32_t)image, .info.lo_flags = LO_FLAGS_AUTOCLEAR};
    if (ioctl(device, LOOP_CONFIGURE, &config) == 0) {
      close(control);
      return device;
    }
    int saved = errno;
    close(device);
    errno = saved;
    /* Another process took the same free device first. */
    if (errno != EBUSY) break;
  }
  int saved = errno;
  close(control);
  errno = saved;
  return -1;
}

/* IMAGE DIR TYPE OPTIONS -> the loop device */
static int mount_image(struct request *request, struct reply *reply) {
  const char *directory = request->fields[1].data;
  char device_path[64];
  int image = open(request->fields[0].data, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (image < 0) return fail(reply, "open the image %s", request->fields[0].data);
  int device = attach_loop(image, device_path, sizeof device_path);
  int saved = errno;
  close(image);
  errno = saved;
  if (device < 0) return fail(reply, "get a loop device");
  int result = mount(device_path, directory, request->fields[2].data, MS_NOATIME | MS_NOSUID | MS_NODEV, request->fields[3].data);
  saved = errno;
  close(device);
  errno = saved;
  if (result < 0) return fail(reply, "mount %s at %s", device_path, directory);
  reply_text(reply, device_path);
  return 0;
}

/* DEVICE DIR TYPE OPTIONS: a loop device that holds its image already */
static int mount_device(struct request *request, struct reply *reply) {
  if (mount(request->fields[0].data, request->fields[1].data, request->fields[2].data, MS_NOATIME | MS_NOSUID | MS_NODEV,
            request->fields[3].data) == 0)
    return 0;
  return fail(reply, "mount %s at %s", request->fields[0].data, request->fields[1].data);
}

/* DIR */
static int unmount(struct request *request, struct reply *reply) {
  if (umount2(request->fields[0].data, UMOUNT_NOFOLLOW) == 0) return 0;
  return fail(reply, "unmount %s", request->fields[0].data);
}

/* DEVICE DIR: the filesystem becomes as large as its image file is now. */
static int grow(struct request *request, struct reply *reply) {
  struct btrfs_ioctl_vol_args args = {.name = "max"};
  int device = open(request->fields[0].data, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (device < 0) return fail(reply, "open %s", request->fields[0].data);
  int result = ioctl(device, LOOP_SET_CAPACITY, 0);
  int saved = errno;
  close(device);
  errno = saved;
  if (result < 0) return fail(reply, "tell %s its new size", request->fields[0].data);
  int directory = open_directory(reply, request->fields[1].data);
  if (directory < 0) return -1;
  result = ioctl(directory, BTRFS_IOC_RESIZE, &args);
  if (result < 0) fail(reply, "grow the filesystem at %s", request->fields[1].data);
  close(directory);
  return result;
}

/* Mount points are written with octal escapes in mountinfo. */
static void unescape(char *text) {
  char *out = text;
  for (; *text != 0; text++) {
    if (text[0] == '\\' && isdigit(text[1]) && isdigit(text[2]) && isdigit(text[3])) {
      *out++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
      text += 3;
    } else {
      *out++ = *text;
    }
  }
  *out = 0;
}

static int is_filesystem(const char *point, const uint8_t *id) {
  struct btrfs_ioctl_fs_info_args info = {0};
  int directory = open(point, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return 0;
  int same = ioctl(directory, BTRFS_IOC_FS_INFO, &info) == 0 && memcmp(info.fsid, id, sizeof info.fsid) == 0;
  close(directory);
  return same;
}

/*
 * Unmounts one copy inside the mount namespace of another process, when it is what it is taken for: numbers of devices
 * are given to other filesystems as soon as they are free, ids of filesystems never. A child does it, as a thread may not
 * change its own namespace. Returns 0 when it is gone, 1 when it was something else, -1 when it could not.
 */
static int unmount_inside(const char *space_path, const char *point, const uint8_t *id) {
  pid_t child = fork();
  if (child < 0) return -1;
  if (child == 0) {
    int space = open(space_path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNS) < 0) _exit(2);
    if (!is_filesystem(point, id)) _exit(1);
    _exit(umount2(point, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 ? 0 : 2);
  }
  int status;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) return -1;
  return WEXITSTATUS(status);
}

/* The mount points of btrfs that a process sees, each given to unmount_inside. Returns -1 when one could not be unmounted. */
static int release_from(const char *pid, const char *space_path, const uint8_t *id) {
  char path[64], *line = NULL;
  size_t size = 0;
  int result = 0;
  snprintf(path, sizeof path, "/proc/%.20s/mountinfo", pid);
  FILE *mounts = fopen(path, "re");
  if (mounts == NULL) return 0; /* it has ended */
  while (getline(&line, &size, mounts) > 0) {
    char point[4096];
    if (strstr(line, " - btrfs ") == NULL || sscanf(line, "%*d %*d %*s %*s %4095s", point) != 1) continue;
    unescape(point);
    if (unmount_inside(space_path, point, id) < 0) result = -1;
  }
  fclose(mounts);
  free(line);
  return result;
}

/*
 * ID (hex) of a filesystem that was unmounted here -> pids that hold it still.
 * A process that made its own mount namespace meanwhile kept a copy of our mount, which would keep the loop device busy.
 */
static int release(struct request *request, struct reply *reply) {
  uint8_t id[BTRFS_FSID_SIZE];
  struct stat own, other;
  for (size_t index = 0; index < sizeof id; index++) {
    if (sscanf(request->fields[0].data + 2 * index, "%2hhx", &id[index]) != 1) {
      errno = EINVAL;
      return fail(reply, "read the id of a filesystem");
    }
  }
  if (stat("/proc/self/ns/mnt", &own) < 0) return fail(reply, "look at the own mount namespace");
  DIR *processes = opendir("/proc");
  if (processes == NULL) return fail(reply, "list processes");
  ino_t seen[1024];
  size_t seen_count = 0;
  struct dirent *process;
  while ((process = readdir(processes)) != NULL) {
    char space_path[64];
    size_t index = 0;
    if (!isdigit(process->d_name[0])) continue;
    snprintf(space_path, sizeof space_path, "/proc/%.20s/ns/mnt", process->d_name);
    if (stat(space_path, &other) < 0 || other.st_ino == own.st_ino) continue;
    while (index < seen_count && seen[index] != other.st_ino) index++;
    if (index < seen_count) continue;
    if (seen_count < sizeof seen / sizeof *seen) seen[seen_count++] = other.st_ino;
    if (release_from(process->d_name, space_path, id) < 0) reply_text(reply, process->d_name);
  }
  closedir(processes);
  return 0;
}

const struct operation_entry mount_operations[] = {
    {"mount-image", 4, mount_image}, {"mount-device", 4, mount_device}, {"unmount", 1, unmount},
    {"mount-grow", 2, grow},         {"mount-release", 1, release},     {NULL, 0, NULL},
};
