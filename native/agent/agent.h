/* What the parts of the agent share. One thread, one epoll loop; nothing here blocks. */
#ifndef COPPICE_AGENT_H
#define COPPICE_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "wire.h"

/* ---- loop.c ---- */

/* A descriptor in the epoll set. Its owner is freed through loop_free only, as events of the same batch may
   still point to it. */
struct item {
  int fd;
  /* For edge-triggered ones: set by an event, cleared by whoever reads until EAGAIN. */
  bool ready;
  void (*on_event)(struct item *item, uint32_t events);
  void *owner;
};

struct timer {
  uint64_t at_ms;
  bool armed;
  void (*on_time)(struct timer *timer);
  void *owner;
  struct timer *next;
};

void loop_init(void);
bool loop_add(struct item *item, uint32_t events);
/* Asks for other events; for none it leaves the set until it is asked again. */
void loop_change(struct item *item, uint32_t events);
void loop_remove(struct item *item);
/* Removes it from the set and closes it. */
void loop_close(struct item *item);
/* Frees the memory when the batch of events is through. */
void loop_free(void *memory);
void loop_run(void);
void timer_arm(struct timer *timer, uint64_t delay_ms);
void timer_disarm(struct timer *timer);
uint64_t now_ms(void);

void *must_alloc(size_t size);
void *must_realloc(void *memory, size_t size);
char *must_copy(const char *text);

/* ---- connection.c, channel.c ---- */

struct channel;
struct connection;

enum pump { PUMP_IDLE, PUMP_MORE };

struct channel_kind {
  /* Sends at most one frame of data. Called while the channel is active and its connection has room. */
  enum pump (*pump)(struct channel *channel);
  void (*on_data)(struct channel *channel, const uint8_t *bytes, size_t length);
  void (*on_end)(struct channel *channel);
  void (*on_signal)(struct channel *channel, int signal);
  /* The channel is going away, whoever ended it: let go of all that belongs to it. */
  void (*on_close)(struct channel *channel);
};

struct channel {
  struct connection *connection;
  uint32_t id;
  uint32_t credit;
  uint32_t receive_window;
  uint32_t grant;
  bool ended;
  bool closed;
  bool active;
  const struct channel_kind *kind;
  void *state;
  /* The step of starting a process that failed: "program" where it was the execution itself. NULL: no such step. */
  const char *failed_step;
  struct channel *next_in_bucket;
  struct channel *next_active;
  struct channel *previous_active;
};

void channel_open(struct connection *connection, uint32_t id, uint8_t operation, uint32_t window, struct reader *body);
struct channel *channel_find(struct connection *connection, uint32_t id);
/* Something may be there to send. */
void channel_activate(struct channel *channel);
/* Room for a data frame, at most `wanted` bytes and never more than the credit; NULL without credit. */
uint8_t *channel_reserve(struct channel *channel, size_t wanted, size_t *granted);
void channel_commit(struct channel *channel, uint8_t stream, size_t length);
void channel_reply(struct channel *channel, const struct buffer *body, bool may_wait);
void channel_end(struct channel *channel);
/* The peer may send that much more. */
void channel_grant(struct channel *channel, size_t bytes);
void channel_done(struct channel *channel, const struct buffer *body);
/* A result of any size: sent as data under the credit, then done. Takes the buffer. */
void channel_done_with_data(struct channel *channel, struct buffer *data);
void channel_fail(struct channel *channel, const char *code, int error, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The code follows from the errno. */
void channel_fail_errno(struct channel *channel, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
void channel_close(struct channel *channel);

const char *code_of_errno(int error);
const char *name_of_errno(int error);
/* Files that are on no disk, as those of /proc, answer EIO to what they do not do; of any other it is the disk that failed. */
int errno_of_read(int fd, int error);

struct connection *connection_open(int in_fd, int out_fd);
void connection_fail(struct connection *connection, const char *message);
void connections_service(void);
bool connections_busy(void);
void connections_flush_and_close(void);
/* The descriptors of all connections, as many as there is room for, and how many there are. */
size_t connections_lend(int *fds, size_t room);
/* All of them were given away in that order: they are closed here, and wait. */
void connections_part(void);
/* The how-manieth of those that were lent comes back; false: it has ended meanwhile. */
bool connection_return(size_t number, int fd);
/* Those that are still lent do not come back. */
void connections_end_lent(void);

/* ---- lend.c ---- */

/* Opens the control socket, on which the listener and all that reaches outside can be asked for. */
bool lend_init(struct item *listening);

/* ---- users.c ---- */

struct user {
  uid_t uid;
  gid_t gid;
  char name[256];
  char home[1024];
  char shell[1024];
  gid_t groups[64];
  int group_count;
};

/* A name or a number; "" is root. False when the sandbox has no such user. */
bool user_find(const char *name, struct user *user);
/* `user`, `user:group` or `:group`. False with the part that is unknown. */
bool owner_find(const char *owner, uid_t *uid, gid_t *gid, const char **unknown);

/* ---- meminfo.c ---- */

/* Does nothing where the launcher made no file for it, as in gVisor. */
void meminfo_init(void);
void meminfo_refresh(void);

/* ---- hosts.c ---- */

/* Cheap where nothing changed. */
void hosts_refresh(void);

/* ---- process.c ---- */

struct exit_status {
  bool exited;
  bool timed_out;
  int wait_status;
};

struct process {
  pid_t pid;
  struct exit_status status;
  struct timer timeout;
  /* NULL: nobody asks any more; the process is forgotten when it is reaped. */
  void (*on_exit)(struct process *process);
  void *owner;
  struct process *next;
};

struct process_request {
  uint32_t timeout_ms;
  char *user;
  char *cwd;
  char **argv;
  char **envp;
};

void processes_init(void);
/* The agent may name the machine anew; from now on nothing that it starts may. */
void processes_withhold_admin(void);
/* False: the request is malformed. Free with process_request_free. */
bool process_request_read(struct reader *body, struct process_request *request);
void process_request_free(struct process_request *request);
/* Starts it with these descriptors as 0, 1, 2 in a session of its own. NULL after having failed the channel. */
struct process *process_start(struct channel *channel, const struct process_request *request, const int fds[3], bool terminal);
/* Runs a function in a child of the agent; its 0, 1, 2 are these descriptors, all others are closed. */
struct process *process_fork(const int fds[3], void (*body)(void *argument), void *argument);
void process_signal(struct process *process, int signal);
/* Forgets it, and kills its group if asked to. */
void process_abandon(struct process *process, bool kill);
void processes_reap(void);
/* True while the agent has children. */
bool processes_left(void);
void processes_signal_all(int signal);
void put_exit_status(struct buffer *b, const struct exit_status *status);

/* ---- sink.c: bytes of a peer on their way into a descriptor that may be full ---- */

struct sink {
  struct item item;
  struct channel *channel;
  uint8_t *queue;
  size_t start;
  size_t length;
  bool registered;
  bool ending;
  bool broken;
  /* Closes the write side when all was written. */
  void (*finish)(struct sink *sink);
};

void sink_push(struct sink *sink, const uint8_t *bytes, size_t length);
void sink_end(struct sink *sink);
void sink_flush(struct sink *sink);
void sink_free(struct sink *sink);

/* ---- run.c: foreground processes and workers, with their pipes ---- */

/* Keeps reading a pipe whose foreground process is gone and drops what comes, so that what that process left running in the
   background is not killed by SIGPIPE. Takes the descriptor. */
void drain_orphan(int fd);
void exec_open(struct channel *channel, struct reader *body);
/* Runs the function in a worker: it reads the channel's data from 0, writes data to 1, and ends with worker_done or worker_fail.
   When its channel is closed before that, it is killed, unless it tidies up: then it sees the end of its pipes instead. */
void worker_open(struct channel *channel, void (*body)(void *argument), void *argument, bool tidies_up);
void worker_ready(void);
void worker_done(const struct buffer *body) __attribute__((noreturn));
void worker_fail(const char *code, int error, const char *format, ...) __attribute__((noreturn, format(printf, 3, 4)));
void worker_fail_errno(int error, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
void worker_write(const void *bytes, size_t length);

/* ---- job.c, terminal.c ---- */

void job_start(struct channel *channel, struct reader *body);
void job_list(struct channel *channel, struct reader *body);
void job_read(struct channel *channel, struct reader *body);
void job_signal(struct channel *channel, struct reader *body);
void job_input(struct channel *channel, struct reader *body);
pid_t job_pid(struct channel *channel, uint32_t id);
void jobs_settle(void);

/* ---- sweep.c ---- */

void job_sweep(struct channel *channel, struct reader *body);

void terminal_open(struct channel *channel, struct reader *body);
void terminal_list(struct channel *channel, struct reader *body);
void terminal_attach(struct channel *channel, struct reader *body);
void terminal_resize(struct channel *channel, struct reader *body);
void terminal_signal(struct channel *channel, struct reader *body);

/* ---- files.c, attributes.c, tree.c, watch.c, pack.c, unpack.c ---- */

void file_stat(struct channel *channel, struct reader *body);
void file_read(struct channel *channel, struct reader *body);
void file_write(struct channel *channel, struct reader *body);
void file_write_stretches(struct channel *channel, struct reader *body);
void file_move(struct channel *channel, struct reader *body);
void file_mkdir(struct channel *channel, struct reader *body);
void file_link(struct channel *channel, struct reader *body);
void file_attributes(struct channel *channel, struct reader *body);
bool path_is_absolute(struct channel *channel, const char *path);
/* Makes every missing directory of the path (not its last part unless it ends in a slash). */
bool make_parents(const char *path);
struct stat;
void put_stat(struct buffer *b, const char *path, const struct stat *st, const char *target);

void tree_list(struct channel *channel, struct reader *body);
void tree_remove(struct channel *channel, struct reader *body);
void tree_watch(struct channel *channel, struct reader *body);
void tree_pack(struct channel *channel, struct reader *body);
void tree_unpack(struct channel *channel, struct reader *body);
void tree_sync(struct channel *channel, struct reader *body);

/* ---- dial.c, accept.c, helper.c, machine.c ---- */

void dial_open(struct channel *channel, struct reader *body);
/* cover.c */
int cover(char **pairs, int count);

/* The channel becomes a connection that stands already. Takes the descriptor. */
void dial_adopt(struct channel *channel, int fd);
/* Opens the socket through which programs inside reach the daemon, and puts the helper for it beside it. */
void accept_listen(struct channel *channel, struct reader *body);
/* Waits for the next program that connects to that socket. */
void accept_next(struct channel *channel, struct reader *body);
/* `coppice-agent event|inbox|heartbeat|done`: what a program runs to speak of its run. Returns the exit code. */
int helper_main(int argc, char **argv);
void print_json_string(FILE *file, const char *text);
void machine_hostname(struct channel *channel, struct reader *body);
void machine_fork(struct channel *channel, struct reader *body);
void machine_shutdown(struct channel *channel, struct reader *body);
bool machine_is_stopping(void);
void machine_stop(uint32_t grace_ms, int signal);
/* Ends the agent when it is stopping and no process is left. */
void machine_check_stopped(void);

#endif
