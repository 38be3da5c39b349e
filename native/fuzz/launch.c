/* What the daemon says to coppice-launch, and what a standby answers. Nothing is started and nobody is signalled. */
#include <errno.h>
#include <stdarg.h>
#include <sys/types.h>
#include <unistd.h>

static pid_t no_process(void) {
  errno = EAGAIN;
  return -1;
}
static long no_call(long number, ...) {
  (void)number;
  errno = ENOSYS;
  return -1;
}

#define fork no_process
#define syscall no_call
#include "../launch/serve.c"
#undef fork
#undef syscall
#include "harness.h"

void standby_main(const struct setup *setup, unsigned number, int channel) {
  (void)setup, (void)number, (void)channel;
  abort();
}
bool process_started(pid_t pid, unsigned long long *ticks) {
  *ticks = (unsigned long long)pid;
  return true;
}
bool same_program(pid_t one, pid_t other) { return one == other; }
bool set_hostname(pid_t pid, const char *hostname, char *reason) { return fail(reason, "%d is not named %s", (int)pid, hostname); }
int make_seccomp_program(void) { return -1; }
int make_bare_mounts(const struct setup *setup, char *reason) {
  (void)setup;
  fail(reason, "none");
  return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct setup setup;
  settings = &setup;
  heard.filled = 0;
  FUZZED {
    fuzz_input(data, size);
    while (hear_daemon()) continue;
    /* A standby that was told to say this. */
    struct message *reply = fuzz_malloc(sizeof *reply);
    reply->size = size < message_limit ? size : message_limit;
    memcpy(reply->data, data, reply->size);
    answer("1", reply, NULL);
  }
  fuzz_tidy();
  return 0;
}
