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
  int result = mount(device_path, directory, request->fields[2].data, MS_NOATIME | MS_NOSUID | MS_NODEV,
      request->fields[3].data);
  saved = errno;
  close(device);
  errno = saved;
  if (result < 0) return fail(reply, "mount %s at %s", device_path, directory);
  reply_text(reply, device_path);
  return 0;
}

/* DEVICE DIR TYPE OPTIONS: a loop device that holds its image already */
static int mount_device(struct request *request, struct reply *reply) {
  if (mount(request->fields[0].data, request->fields[1].data, request->fields[2].data,
          MS_NOATIME | MS_NOSUID | MS_NODEV, request->fields[3].data) == 0) return 0;
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

/* Unmounts one copy inside the mount namespace of another process; a child does it, as a thread may not change its own. */
static int unmount_inside(const char *pid, const char *point) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%.20s/ns/mnt", pid);
  pid_t child = fork();
  if (child < 0) return -1;
  if (child == 0) {
    int space = open(path, O_RDONLY | O_CLOEXEC);
    _exit(space >= 0 && setns(space, CLONE_NEWNS) == 0 && umount2(point, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 ? 0 : 1);
  }
  int status;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/*
 * MAJOR:MINOR of a filesystem that was unmounted here -> pids that hold it still.
 * A process that made its own mount namespace meanwhile kept a copy of our mount, which would keep the loop device busy.
 */
static int release(struct request *request, struct reply *reply) {
  DIR *processes = opendir("/proc");
  if (processes == NULL) return fail(reply, "list processes");
  struct dirent *process;
  while ((process = readdir(processes)) != NULL) {
    if (!isdigit(process->d_name[0])) continue;
    char path[64], *line = NULL, *held = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "/proc/%.20s/mountinfo", process->d_name);
    FILE *mounts = fopen(path, "re");
    if (mounts == NULL) continue; /* it has ended */
    while (held == NULL && getline(&line, &size, mounts) > 0) {
      char device[32], point[4096];
      if (sscanf(line, "%*d %*d %31s %*s %4095s", device, point) != 2) continue;
      if (strcmp(device, request->fields[0].data) != 0) continue;
      held = strdup(point);
    }
    fclose(mounts);
    free(line);
    if (held == NULL) continue;
    unescape(held);
    if (unmount_inside(process->d_name, held) < 0) reply_text(reply, process->d_name);
    free(held);
  }
  closedir(processes);
  return 0;
}

const struct operation_entry mount_operations[] = {
    {"mount-image", 4, mount_image},
    {"mount-device", 4, mount_device},
    {"unmount", 1, unmount},
    {"mount-grow", 2, grow},
    {"mount-release", 1, release},
    {NULL, 0, NULL},
};
