#include "harness.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Below these are the fuzzer's own. */
#define FIRST_FD 100
/* What one input may make a program hold at once. */
#define MAX_HELD (1u << 16)
#define DIRECTORY "/tmp/fuzzed"

jmp_buf fuzz_over;
FILE *fuzz_stdin;

/* Open addressing. An entry that was taken out leaves a mark behind; `used` says which places are to be emptied again. */
static void *held[MAX_HELD];
static uint32_t used[MAX_HELD];
static size_t used_count;
static char gone;
static bool has_files;

_Noreturn void fuzz_exit(int code);
_Noreturn void fuzz_exit(int code) {
  (void)code;
  longjmp(fuzz_over, 1);
}

static size_t place_of(const void *memory) { return (size_t)((uintptr_t)memory >> 4) * 0x9e3779b97f4a7c15u >> 48; }

static void *hold(void *memory) {
  if (memory == NULL) return NULL;
  size_t at = place_of(memory);
  while (held[at] != NULL && held[at] != &gone) at = (at + 1) % MAX_HELD;
  if (held[at] == NULL) used[used_count++] = (uint32_t)at;
  if (used_count > MAX_HELD / 2) {
    fprintf(stderr, "one input makes the program hold more than %u pieces of memory\n", MAX_HELD / 2);
    abort();
  }
  held[at] = memory;
  return memory;
}

static void release(const void *memory) {
  for (size_t at = place_of(memory); held[at] != NULL; at = (at + 1) % MAX_HELD)
    if (held[at] == memory) {
      held[at] = &gone;
      return;
    }
}

void *fuzz_malloc(size_t size);
void *fuzz_calloc(size_t count, size_t size);
void *fuzz_realloc(void *memory, size_t size);
char *fuzz_strdup(const char *text);
void fuzz_free(void *memory);

void *fuzz_malloc(size_t size) { return hold(malloc(size)); }
void *fuzz_calloc(size_t count, size_t size) { return hold(calloc(count, size)); }
char *fuzz_strdup(const char *text) { return hold(strdup(text)); }

void *fuzz_realloc(void *memory, size_t size) {
  if (memory != NULL) release(memory);
  return hold(realloc(memory, size));
}

void fuzz_free(void *memory) {
  if (memory != NULL) release(memory);
  free(memory);
}

void *fuzz_copy(const void *data, size_t size) {
  void *copy = fuzz_malloc(size);
  return size == 0 ? copy : memcpy(copy, data, size);
}

int fuzz_file(const uint8_t *data, size_t size) {
  has_files = true;
  int made = memfd_create("fuzzed", MFD_CLOEXEC);
  int fd = made < 0 ? -1 : fcntl(made, F_DUPFD_CLOEXEC, FIRST_FD);
  if (fd < 0 || (size > 0 && write(fd, data, size) != (ssize_t)size) || lseek(fd, 0, SEEK_SET) != 0) abort();
  close(made);
  return fd;
}

void fuzz_input(const uint8_t *data, size_t size) {
  int fd = fuzz_file(data, size);
  if (dup2(fd, 0) < 0) abort();
  fuzz_stdin = fdopen(fd, "r");
  if (fuzz_stdin == NULL) abort();
}

const char *fuzz_directory(void) {
  has_files = true;
  if (mkdir(DIRECTORY, 0700) < 0) abort();
  return DIRECTORY;
}

static int take_away(const char *path, const struct stat *status, int type, struct FTW *walk) {
  (void)status, (void)walk;
  if (type == FTW_DNR && chmod(path, 0700) < 0) return -1;
  return remove(path);
}

/* The next descriptors of a program are the lowest: all but those that the fuzzer has from its start are closed. */
static void tidy_files(void) {
  static int first;
  if (first == 0) {
    first = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(first);
  }
  if (fuzz_stdin != NULL) fclose(fuzz_stdin);
  fuzz_stdin = NULL;
  syscall(SYS_close_range, (unsigned)first, ~0U, 0);
  if (chdir("/") < 0) abort();
  if (access(DIRECTORY, F_OK) == 0 && nftw(DIRECTORY, take_away, 64, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0) abort();
}

void fuzz_tidy(void) {
  for (size_t i = 0; i < used_count; i++) {
    if (held[used[i]] != &gone) free(held[used[i]]);
    held[used[i]] = NULL;
  }
  used_count = 0;
  if (has_files) tidy_files();
  has_files = false;
}
