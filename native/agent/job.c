/* Background jobs: they belong to the agent, not to a connection, and keep the last 4 MiB of what they wrote. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

#define LOG_BLOCK_BYTES (32u << 10)
#define LOG_BLOCKS_MAX 128u
#define FINISHED_KEPT 64
#define READ_DEFAULT_BYTES (256u << 10)
#define READ_MAX_BYTES (1u << 20)

/* Records one after another: a byte that names the stream, four bytes of length, the bytes themselves. Offsets count only the
   bytes themselves, so a cursor is independent of how the log is kept. */
struct block {
  struct block *next;
  uint64_t start;
  uint32_t data_bytes;
  uint32_t used;
  /* Where the last record begins, to let it grow. */
  uint32_t last;
  uint8_t bytes[];
};

struct job {
  uint32_t id;
  struct process *process;
  struct exit_status status;
  pid_t pid;
  char **argv;
  uint64_t started_at_ms;
  bool keep_awake;
  bool running;
  bool dirty;
  struct item out[2];
  /* Its input, and how many bytes were ever taken for it. */
  bool takes_input;
  struct sink in;
  uint64_t in_end;
  struct block *first;
  struct block *last;
  uint32_t block_count;
  uint64_t log_start;
  uint64_t log_end;
  struct waiter *waiters;
  struct job *next;
};

struct waiter {
  struct channel *channel;
  struct job *job;
  uint64_t cursor;
  uint32_t max_bytes;
  struct timer timer;
  struct waiter *next;
};

static struct job *jobs;
static struct job **jobs_tail = &jobs;
static uint32_t last_id;
static bool any_dirty;

static void drop_oldest(struct job *job) {
  struct block *block = job->first;
  job->first = block->next;
  if (job->first == NULL) job->last = NULL;
  job->log_start = block->start + block->data_bytes;
  job->block_count--;
  free(block);
}

static void log_append(struct job *job, uint8_t stream, const uint8_t *bytes, size_t length) {
  while (length > 0) {
    struct block *block = job->last;
    if (block == NULL || LOG_BLOCK_BYTES - block->used < 6) {
      if (job->block_count == LOG_BLOCKS_MAX) drop_oldest(job);
      block = must_alloc(sizeof *block + LOG_BLOCK_BYTES);
      block->start = job->log_end;
      block->last = UINT32_MAX;
      if (job->last == NULL) job->first = block;
      else job->last->next = block; /* NOLINT(clang-analyzer-unix.Malloc): drop_oldest frees the first block, never the last */
      job->last = block;
      job->block_count++;
    }
    if (block->last == UINT32_MAX || block->bytes[block->last] != stream) {
      block->last = block->used;
      block->bytes[block->used] = stream;
      store_u32(block->bytes + block->used + 1, 0);
      block->used += 5;
    }
    size_t room = LOG_BLOCK_BYTES - block->used;
    size_t taken = length < room ? length : room;
    memcpy(block->bytes + block->used, bytes, taken);
    block->used += (uint32_t)taken;
    block->data_bytes += (uint32_t)taken;
    store_u32(block->bytes + block->last + 1, load_u32(block->bytes + block->last + 1) + (uint32_t)taken);
    job->log_end += taken;
    bytes += taken;
    length -= taken;
  }
  job->dirty = any_dirty = true;
}

/* Appends the records from the cursor on, at most max bytes of them, and gives the cursor after them. */
static uint64_t log_copy(const struct job *job, uint64_t cursor, uint32_t max_bytes, struct buffer *to) {
  for (const struct block *block = job->first; block != NULL && max_bytes > 0; block = block->next) {
    if (block->start + block->data_bytes <= cursor) continue;
    uint64_t offset = block->start;
    for (uint32_t at = 0; at < block->used && max_bytes > 0;) {
      uint32_t length = load_u32(block->bytes + at + 1);
      if (offset + length > cursor) {
        uint32_t skip = cursor > offset ? (uint32_t)(cursor - offset) : 0;
        uint32_t taken = length - skip < max_bytes ? length - skip : max_bytes;
        put_u8(to, block->bytes[at]);
        put_u32(to, taken);
        put_bytes(to, block->bytes + at + 5 + skip, taken);
        cursor += taken;
        max_bytes -= taken;
      }
      offset += length;
      at += 5 + length;
    }
  }
  return cursor;
}

static void answer(struct waiter *waiter) {
  struct job *job = waiter->job;
  struct channel *channel = waiter->channel;
  struct buffer reply = {0};
  uint64_t from = waiter->cursor > job->log_end ? job->log_end : waiter->cursor;
  uint64_t dropped = from < job->log_start ? job->log_start - from : 0;
  put_u64(&reply, 0);
  put_u64(&reply, dropped);
  put_exit_status(&reply, &job->status);
  uint64_t cursor = log_copy(job, from + dropped, waiter->max_bytes, &reply);
  store_u32(reply.bytes, (uint32_t)cursor);
  store_u32(reply.bytes + 4, (uint32_t)(cursor >> 32));
  for (struct waiter **at = &job->waiters; *at != NULL; at = &(*at)->next)
    if (*at == waiter) {
      *at = waiter->next;
      break;
    }
  timer_disarm(&waiter->timer);
  loop_free(waiter);
  channel_done_with_data(channel, &reply);
}

void jobs_settle(void) {
  if (!any_dirty) return;
  any_dirty = false;
  for (struct job *job = jobs; job != NULL; job = job->next) {
    if (!job->dirty) continue;
    job->dirty = false;
    for (struct waiter *waiter = job->waiters, *next; waiter != NULL; waiter = next) {
      next = waiter->next;
      if (job->log_end > waiter->cursor || !job->running) answer(waiter);
    }
  }
}

/* At most so much for each event, that one loud job leaves room for the others. */
static void read_output(struct job *job, int i, int rounds) {
  static uint8_t scratch[65536];
  struct item *item = &job->out[i];
  while (item->fd >= 0 && rounds-- > 0) {
    ssize_t n = read(item->fd, scratch, sizeof scratch);
    if (n > 0) {
      log_append(job, (uint8_t)i, scratch, (size_t)n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && errno == EAGAIN) {
      return;
    } else {
      loop_close(item);
    }
  }
}

static void on_output(struct item *item, uint32_t events) {
  (void)events;
  struct job *job = item->owner;
  read_output(job, item == &job->out[0] ? 0 : 1, 4);
}

static void job_forget(struct job *job) {
  for (struct job **at = &jobs; *at != NULL; at = &(*at)->next)
    if (*at == job) {
      *at = job->next;
      if (job->next == NULL) jobs_tail = at;
      break;
    }
  while (job->waiters != NULL) answer(job->waiters);
  for (int i = 0; i < 2; i++)
    if (job->out[i].fd >= 0) loop_close(&job->out[i]);
  if (job->takes_input) sink_free(&job->in);
  while (job->first != NULL) drop_oldest(job);
  for (char **argument = job->argv; *argument != NULL; argument++) free(*argument);
  free(job->argv);
  loop_free(job);
}

static void on_job_exit(struct process *process) {
  struct job *job = process->owner;
  /* What it wrote before it ended belongs before its end. A pipe holds at most 1 MiB, so this comes to an end even when a
     child of the job goes on writing; what such a child writes later is still logged. */
  for (int i = 0; i < 2; i++) read_output(job, i, 16);
  if (job->takes_input) sink_free(&job->in);
  job->takes_input = false;
  job->status = process->status;
  job->process = NULL;
  job->running = false;
  job->dirty = any_dirty = true;
  loop_free(process);
  int finished = 0;
  for (struct job *other = jobs; other != NULL; other = other->next) finished += !other->running;
  for (struct job *other = jobs, *next; other != NULL && finished > FINISHED_KEPT; other = next) {
    next = other->next;
    if (other->running || other == job) continue;
    job_forget(other);
    finished--;
  }
}

static struct job *job_find(struct channel *channel, uint32_t id) {
  for (struct job *job = jobs; job != NULL; job = job->next)
    if (job->id == id) return job;
  channel_fail(channel, "not_found", 0, "there is no job %u", id);
  return NULL;
}

static void put_job(struct buffer *b, const struct job *job) {
  put_u32(b, job->id);
  put_u32(b, (uint32_t)job->pid);
  put_u64(b, job->started_at_ms);
  put_u8(b, job->keep_awake);
  put_exit_status(b, &job->status);
  put_u64(b, job->log_end);
  put_u64(b, job->log_start);
  uint32_t count = 0;
  while (job->argv[count] != NULL) count++;
  put_u32(b, count);
  for (uint32_t i = 0; i < count; i++) put_string(b, job->argv[i]);
}

static char **copy_strings(char **strings) {
  size_t count = 0;
  while (strings[count] != NULL) count++;
  char **copy = must_alloc((count + 1) * sizeof *copy);
  for (size_t i = 0; i < count; i++) copy[i] = must_copy(strings[i]);
  return copy;
}

static struct job *job_create(const struct process_request *request, struct process *process, int out, int err) {
  struct job *job = must_alloc(sizeof *job);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  job->id = ++last_id;
  job->process = process;
  job->pid = process->pid;
  job->running = true;
  job->argv = copy_strings(request->argv);
  job->started_at_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
  job->out[0] = (struct item){.fd = out, .on_event = on_output, .owner = job};
  job->out[1] = (struct item){.fd = err, .on_event = on_output, .owner = job};
  process->owner = job;
  process->on_exit = on_job_exit;
  *jobs_tail = job;
  jobs_tail = &job->next;
  for (int i = 0; i < 2; i++) {
    fcntl(job->out[i].fd, F_SETFL, O_NONBLOCK);
    loop_add(&job->out[i], EPOLLIN);
  }
  return job;
}

#define JOB_KEEPS_AWAKE 1u
#define JOB_TAKES_INPUT 2u

void job_start(struct channel *channel, struct reader *body) {
  uint8_t flags = read_u8(body);
  struct process_request request;
  if (!process_request_read(body, &request)) {
    channel_fail(channel, "invalid_argument", 0, "the request to start a job is malformed");
    return;
  }
  bool takes_input = (flags & JOB_TAKES_INPUT) != 0;
  int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
  bool has_input = takes_input ? pipe2(in, O_CLOEXEC) == 0 : (in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;
  struct process *process = NULL;
  if (!has_input || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
    channel_fail_errno(channel, errno, "cannot make the descriptors of a job");
  else process = process_start(channel, &request, (int[]){in[0], out[1], err[1]}, false);
  bool failed = process == NULL;
  int ours[] = {in[0], out[1], err[1], failed ? in[1] : -1, failed ? out[0] : -1, failed ? err[0] : -1};
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
    if (ours[i] >= 0) close(ours[i]);
  if (process != NULL) {
    struct job *job = job_create(&request, process, out[0], err[0]);
    job->keep_awake = (flags & JOB_KEEPS_AWAKE) != 0;
    if (takes_input) {
      fcntl(in[1], F_SETFL, O_NONBLOCK);
      job->takes_input = true;
      job->in = (struct sink){.item = {.fd = in[1]}};
    }
    struct buffer reply = {0};
    put_job(&reply, job);
    channel_done_with_data(channel, &reply);
  }
  process_request_free(&request);
}

void job_list(struct channel *channel, struct reader *body) {
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", 0, "the request to list jobs is malformed");
    return;
  }
  struct buffer reply = {0};
  for (struct job *job = jobs; job != NULL; job = job->next) put_job(&reply, job);
  channel_done_with_data(channel, &reply);
}

static void on_wait_over(struct timer *timer) { answer(timer->owner); }

static void close_waiter(struct channel *channel) {
  struct waiter *waiter = channel->state;
  for (struct waiter **at = &waiter->job->waiters; *at != NULL; at = &(*at)->next)
    if (*at == waiter) {
      *at = waiter->next;
      break;
    }
  timer_disarm(&waiter->timer);
  loop_free(waiter);
}

static const struct channel_kind waiter_kind = {.on_close = close_waiter};

void job_read(struct channel *channel, struct reader *body) {
  uint32_t id = read_u32(body);
  uint64_t cursor = read_u64(body);
  uint32_t max_bytes = read_u32(body);
  uint32_t wait_ms = read_u32(body);
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", 0, "the request to read a job is malformed");
    return;
  }
  struct job *job = job_find(channel, id);
  if (job == NULL) return;
  struct waiter *waiter = must_alloc(sizeof *waiter);
  waiter->channel = channel;
  waiter->job = job;
  waiter->cursor = cursor > job->log_end ? job->log_end : cursor;
  waiter->max_bytes = max_bytes == 0 ? READ_DEFAULT_BYTES : max_bytes > READ_MAX_BYTES ? READ_MAX_BYTES : max_bytes;
  waiter->timer = (struct timer){.on_time = on_wait_over, .owner = waiter};
  waiter->next = job->waiters;
  job->waiters = waiter;
  channel->kind = &waiter_kind;
  channel->state = waiter;
  if (job->log_end > waiter->cursor || !job->running || wait_ms == 0) answer(waiter);
  else timer_arm(&waiter->timer, wait_ms);
}

void job_signal(struct channel *channel, struct reader *body) {
  uint32_t id = read_u32(body);
  uint32_t number = read_u32(body);
  if (!read_finished(body) || number > 64) {
    channel_fail(channel, "invalid_argument", EINVAL, "there is no signal %u", number);
    return;
  }
  struct job *job = job_find(channel, id);
  if (job == NULL) return;
  if (!job->running) {
    channel_fail(channel, "wrong_state", ESRCH, "job %u has ended", id);
    return;
  }
  process_signal(job->process, (int)number);
  channel_done(channel, NULL);
}

/* Each byte of the input has its place. What comes again is left out, so a host that died before it had the answer may repeat. */
void job_input(struct channel *channel, struct reader *body) {
  uint32_t id = read_u32(body);
  uint64_t start = read_u64(body);
  size_t length;
  const uint8_t *bytes = read_bytes(body, &length);
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", 0, "the input of a job is malformed");
    return;
  }
  struct job *job = job_find(channel, id);
  if (job == NULL) return;
  if (!job->takes_input || job->in.broken) {
    channel_fail(channel, "wrong_state", EPIPE, "job %u takes no input", id);
    return;
  }
  if (start > job->in_end) {
    channel_fail(channel, "invalid_argument", 0, "the input of job %u ends before that", id);
    return;
  }
  uint64_t had = job->in_end - start;
  if (had < length) {
    size_t room = RECEIVE_WINDOW - job->in.length;
    size_t taken = length - (size_t)had < room ? length - (size_t)had : room;
    sink_push(&job->in, bytes + had, taken);
    job->in_end += taken;
  }
  struct buffer reply = {0};
  put_u64(&reply, job->in_end);
  channel_done(channel, &reply);
  buffer_free(&reply);
}

/* The process of a job that runs; 0 after having failed the channel. */
pid_t job_pid(struct channel *channel, uint32_t id) {
  struct job *job = job_find(channel, id);
  if (job == NULL) return 0;
  if (job->running) return job->pid;
  channel_fail(channel, "wrong_state", ESRCH, "job %u has ended", id);
  return 0;
}
