#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../lib/descent.h"
#include "../lib/write.h"

/*
 * Frames, both ways: a length (u32, little endian, as all numbers here), then as many bytes. A request is an id and a row
 * of fields, each with its own length: first the operation, then its arguments. An answer is the id, a status and fields. The
 * operation `cancel` with the id of a request has no answer itself: that request ends soon, with ECANCELED or as it would have.
 */
#define MAX_REQUEST (1024 * 1024)
#define PART_BYTES (256 * 1024)
#define WORKERS 8
/* As many may be busy with what takes long (a tree, a large file), so that there are always some for what is quick. */
#define LONG_WORKERS 4

enum status { STATUS_DONE = 0, STATUS_FAILED = 1, STATUS_PART = 2 };

struct job {
  struct job *next;
  char *frame;
  uint32_t length;
  struct request request;
  const struct operation_entry *entry;
  const char *name;
  _Atomic int cancelled;
};

struct queue {
  struct job *head, **tail;
};

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_filled = PTHREAD_COND_INITIALIZER;
static struct queue quick = {.tail = &quick.head}, slow = {.tail = &slow.head};
static struct job *running[WORKERS];
static int slow_running;
static pthread_mutex_t output_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread struct job *current;

static void *must(void *memory) {
  if (memory == NULL) abort();
  return memory;
}

static void write_all(const void *data, size_t length) {
  if (!write_fully(STDOUT_FILENO, data, length)) _exit(0); /* nobody reads any more */
}

static void send_frame(uint32_t id, enum status status, const char *data, size_t length) {
  char head[9];
  uint32_t total = (uint32_t)(length + 5);
  memcpy(head, &total, 4);
  memcpy(head + 4, &id, 4);
  head[8] = (char)status;
  pthread_mutex_lock(&output_lock);
  write_all(head, sizeof head);
  write_all(data, length);
  pthread_mutex_unlock(&output_lock);
}

void reply_bytes(struct reply *reply, const void *data, size_t length) {
  size_t needed = reply->length + 4 + length;
  if (needed > reply->capacity) {
    reply->capacity = needed * 2;
    reply->data = must(realloc(reply->data, reply->capacity));
  }
  uint32_t prefix = (uint32_t)length;
  memcpy(reply->data + reply->length, &prefix, 4);
  if (length > 0) memcpy(reply->data + reply->length + 4, data, length);
  reply->length = needed;
}

void reply_text(struct reply *reply, const char *text) { reply_bytes(reply, text, strlen(text)); }

void reply_number(struct reply *reply, uint64_t number) {
  char text[32];
  snprintf(text, sizeof text, "%llu", (unsigned long long)number);
  reply_text(reply, text);
}

void reply_flush(struct reply *reply) {
  if (reply->length < PART_BYTES) return;
  send_frame(reply->id, STATUS_PART, reply->data, reply->length);
  reply->length = 0;
}

int fail(struct reply *reply, const char *format, ...) {
  int saved = errno;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reply->message, sizeof reply->message, format, arguments);
  va_end(arguments);
  errno = saved;
  return -1;
}

static const struct operation_entry *find_operation(const char *name) {
  const struct operation_entry *tables[] = {btrfs_operations,     mount_operations, tree_operations, copy_operations,
                                            attribute_operations, share_operations, space_operations};
  for (size_t table = 0; table < sizeof tables / sizeof *tables; table++)
    for (const struct operation_entry *entry = tables[table]; entry->name != NULL; entry++)
      if (strcmp(entry->name, name) == 0) return entry;
  return NULL;
}

/* Takes the frame apart in place. Each field's length is overwritten by the NUL that ends the field before it. */
static int parse(struct job *job, struct request *request, const char **operation_name) {
  struct field all[MAX_FIELDS + 1];
  int count = 0;
  uint32_t at = 4;
  if (job->length < 4) return -1;
  memcpy(&request->id, job->frame, 4);
  while (at < job->length) {
    uint32_t length;
    if (count > MAX_FIELDS || job->length - at < 4) return -1;
    memcpy(&length, job->frame + at, 4);
    if (length > job->length - at - 4) return -1;
    job->frame[at] = 0;
    all[count].data = job->frame + at + 4;
    all[count].length = length;
    if (memchr(all[count].data, 0, length) != NULL) return -1;
    at += 4 + length;
    count++;
  }
  if (count == 0) return -1;
  *operation_name = all[0].data;
  request->field_count = count - 1;
  for (int index = 1; index < count; index++) request->fields[index - 1] = all[index];
  return 0;
}

int is_cancelled(void) {
  if (current == NULL || !current->cancelled) return 0;
  errno = ECANCELED;
  return 1;
}

static void run_job(struct job *job) {
  struct reply reply = {.id = job->request.id};
  int result = -1;
  current = job;
  if (job->name == NULL) {
    errno = EBADMSG;
    fail(&reply, "read a request");
  } else if (job->entry == NULL || job->entry->arguments != job->request.field_count) {
    errno = ENOSYS;
    fail(&reply, "run %s with %d arguments", job->name, job->request.field_count);
  } else {
    snprintf(reply.message, sizeof reply.message, "%s", job->name);
    result = is_cancelled() ? -1 : (errno = 0, job->entry->run(&job->request, &reply));
  }
  if (result < 0) {
    int error = errno;
    const char *error_name = strerrorname_np(error);
    reply.length = 0;
    reply_text(&reply, error_name != NULL ? error_name : "UNKNOWN");
    reply_text(&reply, reply.message);
    send_frame(job->request.id, STATUS_FAILED, reply.data, reply.length);
  } else {
    send_frame(job->request.id, STATUS_DONE, reply.data, reply.length);
  }
  free(reply.data);
}

static struct job *take(struct queue *queue) {
  struct job *job = queue->head;
  if (job == NULL) return NULL;
  queue->head = job->next;
  if (queue->head == NULL) queue->tail = &queue->head;
  return job;
}

static void put(struct queue *queue, struct job *job) {
  *queue->tail = job;
  queue->tail = &job->next;
}

/* What takes as long as a sandbox makes it. */
static int is_slow(const struct job *job) {
  static const char *const names[] = {"compare", "copy",    "copy-content", "extents",     "filesystem-sync",
                                      "list",    "measure", "remove",       "share-pages", "subvolume-delete"};
  for (size_t index = 0; job->name != NULL && index < sizeof names / sizeof *names; index++)
    if (strcmp(job->name, names[index]) == 0) return 1;
  return 0;
}

static void *work(void *place) {
  struct job **own = place;
  pthread_mutex_lock(&queue_lock);
  for (;;) {
    struct job *job = take(&quick);
    if (job == NULL && slow_running < LONG_WORKERS) job = take(&slow);
    if (job == NULL) {
      pthread_cond_wait(&queue_filled, &queue_lock);
      continue;
    }
    slow_running += is_slow(job);
    *own = job;
    pthread_mutex_unlock(&queue_lock);
    run_job(job);
    pthread_mutex_lock(&queue_lock);
    *own = NULL;
    slow_running -= is_slow(job);
    free(job->frame);
    free(job);
  }
  return NULL;
}

/* A request that runs notices by itself; one that waits is answered when its turn comes. */
static void cancel(const struct job *order) {
  uint64_t id;
  if (order->request.field_count != 1 || parse_number(order->request.fields[0].data, &id) < 0) return;
  for (int index = 0; index < WORKERS; index++)
    if (running[index] != NULL && running[index]->request.id == id) running[index]->cancelled = 1;
  struct job *heads[] = {quick.head, slow.head};
  for (size_t queue = 0; queue < sizeof heads / sizeof *heads; queue++)
    for (struct job *job = heads[queue]; job != NULL; job = job->next)
      if (job->request.id == id) job->cancelled = 1;
}

static void read_all(void *data, size_t length) {
  char *bytes = data;
  while (length > 0) {
    ssize_t got = read(STDIN_FILENO, bytes, length);
    if (got < 0 && errno == EINTR) continue;
    /* The daemon is gone: what is half done carries a temporary name, and whoever opens the pool next removes it. */
    if (got <= 0) _exit(0);
    bytes += got;
    length -= (size_t)got;
  }
}

/* A killed daemon's server may be inside a last ioctl still: the next one waits for it before it touches the pool. */
static void take_lock(const char *path, const char *wait_text) {
  uint64_t wait_ms;
  if (parse_number(wait_text, &wait_ms) < 0) {
    fprintf(stderr, "%s is not a number of milliseconds\n", wait_text);
    _exit(2);
  }
  int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) {
    fprintf(stderr, "cannot open the lock %s: %s\n", path, strerror(errno));
    _exit(2);
  }
  for (uint64_t waited = 0; flock(file, LOCK_EX | LOCK_NB) < 0; waited += 5) {
    if (errno != EWOULDBLOCK || waited >= wait_ms) {
      fprintf(stderr, "cannot lock %s: %s\n", path, strerror(errno));
      _exit(3);
    }
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
}

static int serve(void) {
  signal(SIGPIPE, SIG_IGN);
  umask(0);
  /* A walk holds descriptors for every level that it is deep. */
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  for (int index = 0; index < WORKERS; index++) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, work, &running[index]);
    if (error != 0) {
      fprintf(stderr, "cannot start a thread: %s\n", strerror(error));
      return 2;
    }
  }
  for (;;) {
    uint32_t length;
    read_all(&length, 4);
    if (length > MAX_REQUEST) {
      fprintf(stderr, "a request of %u bytes is too large\n", length);
      return 2;
    }
    struct job *job = must(calloc(1, sizeof *job));
    job->frame = must(malloc(length + 1));
    job->length = length;
    read_all(job->frame, length);
    job->frame[length] = 0;
    if (parse(job, &job->request, &job->name) == 0) job->entry = find_operation(job->name);
    else job->name = NULL;
    pthread_mutex_lock(&queue_lock);
    if (job->name != NULL && strcmp(job->name, "cancel") == 0) {
      cancel(job);
      free(job->frame);
      free(job);
    } else {
      put(is_slow(job) ? &slow : &quick, job);
      pthread_cond_signal(&queue_filled);
    }
    pthread_mutex_unlock(&queue_lock);
  }
}

int main(int count, char **arguments) {
  descent_is_cancelled = is_cancelled;
  if (count >= 2 && strcmp(arguments[1], "serve") == 0 && (count == 2 || count == 4)) {
    if (count == 4) take_lock(arguments[2], arguments[3]);
    return serve();
  }
  fprintf(stderr, "usage: coppice-pool serve [LOCKFILE WAIT_MS]\n");
  return 2;
}
