/*
 * Writes as careful programs do, for ever: a file aside, closed, then renamed; the newest forty stay. After each, the number of it goes to
 * `first` and then to `second` in the same way. safe-writer DIRECTORY.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { pieces = 16, piece_size = 4096, kept = 40 };

static int put(const char *name, const char *piece, size_t size, int times) {
  int fd = open("aside", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) return -1;
  for (int index = 0; index < times; index++)
    if (write(fd, piece, size) != (ssize_t)size) return -1;
  return close(fd) < 0 ? -1 : rename("aside", name);
}

int main(int argc, char **argv) {
  static char piece[piece_size];
  char name[32], number[32];
  if (argc != 2 || chdir(argv[1]) < 0) return 64;
  memset(piece, 'x', sizeof piece);
  for (long round = 1;; round++) {
    snprintf(name, sizeof name, "file-%ld", round);
    if (put(name, piece, sizeof piece, pieces) < 0) return 1;
    int length = snprintf(number, sizeof number, "%ld\n", round);
    if (put("first", number, (size_t)length, 1) < 0 || put("second", number, (size_t)length, 1) < 0) return 1;
    snprintf(name, sizeof name, "file-%ld", round - kept);
    unlink(name);
  }
}
