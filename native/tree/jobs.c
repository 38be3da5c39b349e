#include "jobs.h"

#include <pthread.h>
#include <unistd.h>

#define THREADS_MAX 8
#define ABANDON_WAIT_US 200
#define ABANDON_WAITS 5000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static struct content_memory own;
static unsigned helpers;
static unsigned sharing; /* Helpers that take items of the batch. */
static bool open_to_helpers;
static unsigned at_work; /* Threads inside an item of a batch that is shared. */
static bool abandoned;
static uint64_t round_number;
static struct {
  job work;
  void *context;
  size_t count, next;
} batch;

static void take_items(struct content_memory *memory) {
  __atomic_add_fetch(&at_work, 1, __ATOMIC_SEQ_CST);
  while (!__atomic_load_n(&abandoned, __ATOMIC_SEQ_CST)) {
    const size_t item = __atomic_fetch_add(&batch.next, 1, __ATOMIC_RELAXED);
    if (item >= batch.count) break;
    batch.work(batch.context, item, memory);
  }
  __atomic_sub_fetch(&at_work, 1, __ATOMIC_SEQ_CST);
}

static void *helper(void *unused) {
  (void)unused;
  struct content_memory memory;
  content_memory_init(&memory);
  uint64_t seen = 0;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!open_to_helpers || seen == round_number) pthread_cond_wait(&wake, &lock);
    seen = round_number;
    sharing++;
    pthread_mutex_unlock(&lock);
    take_items(&memory);
    pthread_mutex_lock(&lock);
    if (--sharing == 0) pthread_cond_signal(&done);
  }
  return NULL;
}

void jobs_run(job work, void *context, size_t count, bool worth_threads) {
  if (!own.bytes) content_memory_init(&own);
  if (count < 2 || !worth_threads) {
    for (size_t i = 0; i < count; i++) work(context, i, &own);
    return;
  }
  if (!helpers) {
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned wanted = processors > THREADS_MAX / 2 ? THREADS_MAX : processors > 0 ? 2 * (unsigned)processors : 2;
    for (; helpers < wanted - 1; helpers++) {
      pthread_t thread;
      if (pthread_create(&thread, NULL, helper, NULL) != 0) break;
    }
  }
  pthread_mutex_lock(&lock);
  batch.work = work;
  batch.context = context;
  batch.count = count;
  batch.next = 0;
  open_to_helpers = true;
  round_number++;
  pthread_cond_broadcast(&wake);
  pthread_mutex_unlock(&lock);
  take_items(&own);
  pthread_mutex_lock(&lock);
  /* A helper that wakes up after the last item was taken is not waited for: on a busy machine that can take long. */
  open_to_helpers = false;
  while (sharing) pthread_cond_wait(&done, &lock);
  pthread_mutex_unlock(&lock);
}

void jobs_abandon(void) {
  __atomic_store_n(&abandoned, true, __ATOMIC_SEQ_CST);
  /* Threads that failed too wait in die(). The wait is limited: a thread may wait for a lock that the failed thread holds. */
  for (unsigned waits = 0; waits < ABANDON_WAITS; waits++) {
    if (__atomic_load_n(&at_work, __ATOMIC_SEQ_CST) <= __atomic_load_n(&threads_failed, __ATOMIC_SEQ_CST)) return;
    usleep(ABANDON_WAIT_US);
  }
}
