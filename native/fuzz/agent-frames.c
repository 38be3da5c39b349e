/* What a host sends to an agent: frames, requests and their fields. Files are worked on; nothing is started. */
#include "../agent/loop.c"
#include "harness.h"

#include <sys/socket.h>

/* More turns than any input needs, unless the agent runs in circles. */
#define MAX_TURNS 10000

/* One turn after another, as loop_run() takes them, until there is nothing to do. */
static void settle(void) {
  for (int turn = 0;; turn++) {
    if (turn == MAX_TURNS) abort();
    struct epoll_event happened[64];
    int count = epoll_wait(epoll_fd, happened, 64, 0);
    bool busy = connections_busy();
    for (int i = 0; i < count; i++) {
      struct item *item = happened[i].data.ptr;
      if (item->fd >= 0 && item->on_event != NULL) item->on_event(item, happened[i].events);
    }
    timers_run();
    jobs_settle();
    connections_service();
    while (graveyard_length > 0) free(graveyard[--graveyard_length]);
    if (count <= 0 && !busy) return;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint8_t hello[] = {20,  0,   0,   0,   FRAME_HELLO, 0, 0, 0, 0, 0, 0, 0, 'C', 'O', 'P', 'P',
                                  'I', 'C', 'E', '1', 1,           0, 0, 0, 7, 7, 7, 7, 7,   7,   7,   7};
  if (size == 0 || size > (64 << 10)) return 0;
  graveyard = NULL;
  graveyard_length = graveyard_capacity = 0;
  timers = NULL;
  FUZZED {
    const char *place = fuzz_directory();
    if (chdir(place) < 0) abort();
    loop_init();
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) abort();
    if (connection_open(pair[1], pair[1]) == NULL) abort();
    /* Most inputs are about what comes after a greeting. */
    if (data[0] & 1 && write(pair[0], hello, sizeof hello) < 0) abort();
    settle();
    if (write(pair[0], data + 1, size - 1) < 0 && errno != EPIPE) abort();
    settle();
    close(pair[0]);
    settle();
  }
  fuzz_tidy();
  return 0;
}
