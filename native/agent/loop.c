#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

static int epoll_fd = -1;
static struct timer *timers;
static void **graveyard;
static size_t graveyard_length;
static size_t graveyard_capacity;

void *must_alloc(size_t size) {
  void *memory = calloc(1, size);
  if (memory == NULL) {
    fprintf(stderr, "coppice-agent: out of memory\n");
    _exit(70);
  }
  return memory;
}

void *must_realloc(void *memory, size_t size) {
  memory = realloc(memory, size);
  if (memory == NULL) {
    fprintf(stderr, "coppice-agent: out of memory\n");
    _exit(70);
  }
  return memory;
}

char *must_copy(const char *text) {
  size_t size = strlen(text) + 1;
  return memcpy(must_alloc(size), text, size);
}

uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void loop_init(void) {
  epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) {
    perror("coppice-agent: epoll");
    _exit(70);
  }
}

bool loop_add(struct item *item, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = item};
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, item->fd, &event) == 0;
}

void loop_change(struct item *item, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = item};
  if (events == 0) epoll_ctl(epoll_fd, EPOLL_CTL_DEL, item->fd, NULL);
  else if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, item->fd, &event) < 0 && errno == ENOENT)
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, item->fd, &event);
}

void loop_remove(struct item *item) {
  epoll_ctl(epoll_fd, EPOLL_CTL_DEL, item->fd, NULL);
  item->on_event = NULL;
}

void loop_close(struct item *item) {
  if (item->fd < 0) return;
  /* A child that is about to exec may still hold the description, so closing alone does not take it out of the set. */
  if (item->on_event != NULL) loop_remove(item);
  close(item->fd);
  item->fd = -1;
  item->ready = false;
}

void loop_free(void *memory) {
  if (graveyard_length == graveyard_capacity) {
    graveyard_capacity = graveyard_capacity == 0 ? 16 : graveyard_capacity * 2;
    graveyard = must_realloc(graveyard, graveyard_capacity * sizeof *graveyard);
  }
  graveyard[graveyard_length++] = memory;
}

void timer_arm(struct timer *timer, uint64_t delay_ms) {
  timer_disarm(timer);
  timer->at_ms = now_ms() + delay_ms;
  timer->armed = true;
  timer->next = timers;
  timers = timer;
}

void timer_disarm(struct timer *timer) {
  if (!timer->armed) return;
  timer->armed = false;
  for (struct timer **at = &timers; *at != NULL; at = &(*at)->next)
    if (*at == timer) {
      *at = timer->next;
      return;
    }
}

static int timers_wait_ms(void) {
  if (timers == NULL) return -1;
  uint64_t now = now_ms();
  uint64_t wait = 60000;
  for (struct timer *timer = timers; timer != NULL; timer = timer->next) {
    if (timer->at_ms <= now) return 0;
    if (timer->at_ms - now < wait) wait = timer->at_ms - now;
  }
  return (int)wait;
}

static void timers_run(void) {
  if (timers == NULL) return;
  uint64_t now = now_ms();
  /* A timer's function may arm and disarm others, so the search begins anew after each. */
  for (struct timer *timer = timers; timer != NULL;) {
    if (timer->at_ms > now) {
      timer = timer->next;
      continue;
    }
    timer_disarm(timer);
    timer->on_time(timer);
    timer = timers;
  }
}

void loop_run(void) {
  for (;;) {
    struct epoll_event events[64];
    int count = epoll_wait(epoll_fd, events, 64, connections_busy() ? 0 : timers_wait_ms());
    if (count < 0 && errno != EINTR) {
      perror("coppice-agent: epoll_wait");
      _exit(70);
    }
    for (int i = 0; i < count; i++) {
      struct item *item = events[i].data.ptr;
      if (item->fd >= 0 && item->on_event != NULL) item->on_event(item, events[i].events);
    }
    timers_run();
    jobs_settle();
    connections_service();
    machine_check_stopped();
    while (graveyard_length > 0) free(graveyard[--graveyard_length]);
  }
}
