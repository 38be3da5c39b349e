/*
 * Holds every descriptor that a process has open, as a child that it has just forked does. Says `held` once it does, and
 * ends with its input.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **arguments) {
  char path[64], byte;
  if (count != 2) return 2;
  pid_t pid = (pid_t)atoi(arguments[1]);
  int process = (int)syscall(SYS_pidfd_open, pid, 0);
  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  DIR *open = opendir(path);
  if (process < 0 || !open) return perror(path), 1;
  for (struct dirent *entry; (entry = readdir(open));)
    if (entry->d_name[0] != '.' && syscall(SYS_pidfd_getfd, process, atoi(entry->d_name), 0) < 0) return perror(path), 1;
  puts("held");
  fflush(stdout);
  return read(0, &byte, 1) < 0;
}
