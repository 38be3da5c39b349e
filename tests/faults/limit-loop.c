/* limit-loop DEVICE BYTES: from here on the loop device gives errors beyond so many bytes, as a disk does that fails. */
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

int main(int count, char **arguments) {
  struct loop_info64 info;
  int device = count == 3 ? open(arguments[1], O_RDWR) : -1;
  if (device < 0 || ioctl(device, LOOP_GET_STATUS64, &info) < 0) return perror("limit-loop"), 1;
  info.lo_sizelimit = strtoull(arguments[2], NULL, 10);
  if (ioctl(device, LOOP_SET_STATUS64, &info) < 0) return perror("limit-loop"), 1;
  return 0;
}
