/* The sandbox as a whole: its name, what it learns after a fork, its end. */
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

#define EVENT_DIRECTORY "/run/coppice"
#define EVENT_FILE EVENT_DIRECTORY "/fork.json"

static bool stopping;
static struct timer kill_timer;

void machine_hostname(struct channel *channel, struct reader *body) {
  const char *name = read_string(body);
  if (!read_finished(body) || *name == 0 || strlen(name) > 64) {
    channel_fail(channel, "invalid_argument", EINVAL, "a hostname has 1 to 64 characters");
    return;
  }
  if (sethostname(name, strlen(name)) < 0) {
    channel_fail_errno(channel, errno, "cannot set the hostname to %s", name);
    return;
  }
  channel_done(channel, NULL);
}

/* ---- after a fork ---- */

static bool stir_entropy(const uint8_t *bytes, size_t length) {
  int fd = open("/dev/urandom", O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  /* Credited where the kernel permits it; mixed in, without credit, in any case. */
  struct rand_pool_info *info = must_alloc(sizeof *info + length);
  info->entropy_count = (int)length * 8;
  info->buf_size = (int)length;
  memcpy(info->buf, bytes, length);
  bool credited = ioctl(fd, RNDADDENTROPY, info) == 0;
  free(info);
  bool mixed = credited || write(fd, bytes, length) == (ssize_t)length;
  close(fd);
  return mixed;
}

void print_json_string(FILE *file, const char *text) {
  fputc('"', file);
  for (const unsigned char *at = (const unsigned char *)text; *at != 0; at++) {
    if (*at == '"' || *at == '\\') fprintf(file, "\\%c", *at);
    else if (*at < 0x20) fprintf(file, "\\u%04x", *at);
    else fputc(*at, file);
  }
  fputc('"', file);
}

static bool write_event(const char *id, const char *name, const char *hostname) {
  char *text = NULL;
  size_t length = 0;
  FILE *file = open_memstream(&text, &length);
  if (file == NULL) return false;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  struct tm utc;
  gmtime_r(&now.tv_sec, &utc);
  char when[64];
  size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(when + n, sizeof when - n, ".%03ldZ", now.tv_nsec / 1000000);
  fputs("{\"sandbox_id\":", file);
  print_json_string(file, id);
  fputs(",\"name\":", file);
  print_json_string(file, name);
  fputs(",\"hostname\":", file);
  print_json_string(file, hostname);
  fprintf(file, ",\"forked_at\":\"%s\"}\n", when);
  fclose(file);
  bool written = false;
  if (make_parents(EVENT_FILE)) {
    unlink(EVENT_FILE ".new");
    int fd = open(EVENT_FILE ".new", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd >= 0) {
      written = write(fd, text, length) == (ssize_t)length;
      int error = errno;
      close(fd);
      errno = error;
      written = written && rename(EVENT_FILE ".new", EVENT_FILE) == 0;
    }
  }
  int error = errno;
  free(text);
  errno = error;
  return written;
}

void machine_fork(struct channel *channel, struct reader *body) {
  const char *id = read_string(body);
  const char *name = read_string(body);
  const char *hostname = read_string(body);
  size_t entropy_length;
  const uint8_t *entropy = read_bytes(body, &entropy_length);
  if (!read_finished(body) || strlen(hostname) > 64 || entropy_length > 4096) {
    channel_fail(channel, "invalid_argument", EINVAL, "the notice of a fork is malformed");
    return;
  }
  bool named = *hostname != 0 && sethostname(hostname, strlen(hostname)) == 0;
  bool stirred = entropy_length > 0 && stir_entropy(entropy, entropy_length);
  if (!write_event(id, name, hostname)) {
    channel_fail_errno(channel, errno, "cannot write %s", EVENT_FILE);
    return;
  }
  struct buffer reply = {0};
  put_u8(&reply, named);
  put_u8(&reply, stirred);
  channel_done(channel, &reply);
  buffer_free(&reply);
}

/* ---- the end ---- */

bool machine_is_stopping(void) { return stopping; }

static void on_grace_over(struct timer *timer) {
  (void)timer;
  processes_signal_all(SIGKILL);
}

void machine_stop(uint32_t grace_ms, int signal) {
  if (!stopping) {
    stopping = true;
    kill_timer = (struct timer){.on_time = on_grace_over};
    processes_signal_all(grace_ms == 0 ? SIGKILL : signal);
    /* A stopped process could not hear that it shall end. */
    processes_signal_all(SIGCONT);
  }
  timer_arm(&kill_timer, grace_ms);
}

void machine_check_stopped(void) {
  if (!stopping) return;
  processes_reap();
  if (processes_left()) return;
  connections_flush_and_close();
  _exit(0);
}

void machine_shutdown(struct channel *channel, struct reader *body) {
  uint32_t grace_ms = read_u32(body);
  int signal = body->at == body->end ? SIGTERM : read_u8(body);
  if (!read_finished(body) || signal < 1 || signal > SIGRTMAX) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request to shut down is malformed");
    return;
  }
  /* Accepted; that it is done is seen by the end of the connection, as PID 1 cannot say so afterwards. */
  struct buffer nothing = {0};
  channel_reply(channel, &nothing, false);
  machine_stop(grace_ms, signal);
}
