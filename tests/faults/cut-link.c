/* Shuts down the connection of a process to the socket whose path ends so: cut-link PID PATH-END. Prints how many there were. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc != 3) return 64;
  int process = (int)syscall(SYS_pidfd_open, atoi(argv[1]), 0);
  if (process < 0) return 1;
  int cut = 0;
  for (int number = 0; number < 1024; number++) {
    int fd = (int)syscall(SYS_pidfd_getfd, process, number, 0);
    if (fd < 0) continue;
    struct sockaddr_un peer = {0};
    socklen_t length = sizeof peer - 1;
    if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && peer.sun_family == AF_UNIX) {
      size_t have = strlen(peer.sun_path), want = strlen(argv[2]);
      if (have >= want && strcmp(peer.sun_path + have - want, argv[2]) == 0 && shutdown(fd, SHUT_RDWR) == 0) cut++;
    }
    close(fd);
  }
  printf("%d\n", cut);
  return 0;
}
