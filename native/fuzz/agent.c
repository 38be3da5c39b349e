/* The agent without what would reach beyond this process: nothing is started, named, signalled or shut down. */
#define process_start unused_process_start
#define process_fork unused_process_fork
#include "../agent/process.c"
#undef process_start
#undef process_fork

struct process *process_start(struct channel *channel, const struct process_request *request, const int fds[3], bool terminal) {
  (void)request, (void)fds, (void)terminal;
  channel_fail(channel, "unsupported", 0, "nothing is started here");
  return NULL;
}

struct process *process_fork(const int fds[3], void (*body)(void *argument), void *argument) {
  (void)fds, (void)body, (void)argument;
  errno = EAGAIN;
  return NULL;
}

void machine_hostname(struct channel *channel, struct reader *body) {
  read_string(body);
  channel_fail(channel, "unsupported", 0, "not here");
}
void machine_fork(struct channel *channel, struct reader *body) { machine_hostname(channel, body); }
void machine_shutdown(struct channel *channel, struct reader *body) { machine_hostname(channel, body); }
void accept_listen(struct channel *channel, struct reader *body) { machine_hostname(channel, body); }
void accept_next(struct channel *channel, struct reader *body) { machine_hostname(channel, body); }
bool machine_is_stopping(void) { return false; }
void machine_stop(uint32_t grace_ms, int signal) {
  (void)grace_ms;
  (void)signal;
}
void machine_check_stopped(void) {}
