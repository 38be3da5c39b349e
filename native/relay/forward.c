#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "relay.h"

/* As in agent/wire.h: a header whose first word is the length of what follows it. */
#define HEADER 12u
#define MAX_PAYLOAD 65536u
#define FRAME_MAX (HEADER + MAX_PAYLOAD)
#define CHUNK (128u << 10)

static struct {
  int fd; /* -1: nobody is here */
  uint8_t frame[FRAME_MAX];
  size_t have;
} client = {.fd = -1};

/* To the guest: the whole frame under way, and how much of it has gone. */
static struct {
  uint8_t frame[FRAME_MAX];
  size_t length;
  size_t sent;
} down;

/* From the guest to whoever is here. */
static struct {
  uint8_t bytes[CHUNK];
  size_t length;
  size_t sent;
} up;

/* A caller that wants the sandbox to be given nothing while its memory is written. */
static struct {
  int fd;
  bool told;
} hold = {.fd = -1};

static void drop_client(void) {
  if (client.fd >= 0) close(client.fd);
  client.fd = -1;
  client.have = 0;
}

/* The newest wins: an older one is a daemon that is gone or going. */
static void accept_client(int listener) {
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  drop_client();
  client.fd = fd;
}

static void accept_hold(int listener) {
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  if (hold.fd >= 0) close(hold.fd);
  hold.fd = fd;
  hold.told = false;
}

static uint32_t payload_length(const uint8_t *header) {
  return (uint32_t)header[0] | (uint32_t)header[1] << 8 | (uint32_t)header[2] << 16 | (uint32_t)header[3] << 24;
}

static void read_client(void) {
  size_t want = client.have < HEADER ? HEADER - client.have : HEADER + payload_length(client.frame) - client.have;
  ssize_t got = want == 0 ? 0 : read(client.fd, client.frame + client.have, want);
  if (want != 0 && got <= 0) {
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    drop_client();
    return;
  }
  client.have += (size_t)got;
  if (client.have < HEADER) return;
  uint32_t payload = payload_length(client.frame);
  if (payload > MAX_PAYLOAD) {
    drop_client(); /* It speaks something else. */
    return;
  }
  if (client.have < HEADER + payload) return;
  memcpy(down.frame, client.frame, client.have);
  down.length = client.have;
  down.sent = 0;
  client.have = 0;
}

static bool write_guest(int fd) {
  ssize_t put = write(fd, down.frame + down.sent, down.length - down.sent);
  if (put < 0) return errno == EAGAIN || errno == EINTR;
  down.sent += (size_t)put;
  if (down.sent == down.length) down.length = down.sent = 0;
  return true;
}

static bool read_guest(int fd) {
  ssize_t got = read(fd, up.bytes, sizeof up.bytes);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  up.length = (size_t)got;
  up.sent = 0;
  return true;
}

static void write_client(void) {
  ssize_t put = write(client.fd, up.bytes + up.sent, up.length - up.sent);
  if (put < 0) {
    if (errno != EAGAIN && errno != EINTR) drop_client();
    return;
  }
  up.sent += (size_t)put;
  if (up.sent == up.length) up.length = up.sent = 0;
}

/* Held once the guest has taken every byte of every frame that it was given. */
static bool guest_has_all(int to_guest) {
  int waiting = 0;
  return down.length == 0 && ioctl(to_guest, FIONREAD, &waiting) == 0 && waiting == 0;
}

static void serve_hold(int to_guest) {
  if (hold.fd < 0) return;
  if (!hold.told && guest_has_all(to_guest)) {
    hold.told = true;
    if (write(hold.fd, "h", 1) != 1) hold.told = false;
  }
  char byte;
  ssize_t got = recv(hold.fd, &byte, 1, MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    close(hold.fd);
    hold.fd = -1;
  }
}

/* The processes of the sandbox are ours once who started them has ended; nobody else is in a hurry to bury them. */
static void reap(void) {
  while (waitpid(-1, NULL, WNOHANG) > 0) continue;
}

/* Made after the sandbox was started, which is waited for by name. */
static int open_child_signals(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, NULL);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

void forward(const struct pipes *pipes, const struct mode_watch *watch, int listener, int hold_listener) {
  int children = open_child_signals();
  reap();
  fcntl(pipes->to_guest, F_SETFL, O_NONBLOCK);
  fcntl(pipes->from_guest, F_SETFL, O_NONBLOCK);
  for (;;) {
    bool sending = down.length > 0;
    bool showing = up.length > 0;
    short client_events = 0;
    if (!sending && hold.fd < 0) client_events |= POLLIN;
    if (showing) client_events |= POLLOUT;
    struct pollfd fds[] = {
        {.fd = listener, .events = POLLIN},
        {.fd = hold_listener, .events = POLLIN},
        {.fd = client_events == 0 ? -1 : client.fd, .events = client_events},
        {.fd = sending ? pipes->to_guest : -1, .events = POLLOUT},
        /* With nobody here its output waits, and so does it: nothing is lost and nothing grows. */
        {.fd = pipes->from_guest, .events = showing || client.fd < 0 ? 0 : POLLIN},
        {.fd = hold.fd, .events = POLLIN},
        {.fd = children, .events = POLLIN},
        {.fd = watch->listener, .events = POLLIN},
    };
    bool waiting_for_guest = hold.fd >= 0 && !hold.told;
    if (poll(fds, sizeof fds / sizeof fds[0], waiting_for_guest ? 1 : -1) < 0 && errno != EINTR) return;
    if (fds[6].revents) {
      struct signalfd_siginfo info;
      while (read(children, &info, sizeof info) > 0) continue;
      reap();
    }
    if (fds[7].revents & POLLIN) answer_mode(watch);
    if (fds[0].revents) accept_client(listener);
    if (fds[1].revents) accept_hold(hold_listener);
    if (sending && fds[3].revents && !write_guest(pipes->to_guest)) return;
    if (fds[4].revents & POLLIN) {
      if (!read_guest(pipes->from_guest)) return;
    } else if (fds[4].revents & (POLLHUP | POLLERR)) {
      return;
    }
    if (client.fd >= 0 && fds[2].fd == client.fd && fds[2].revents) {
      if (fds[2].revents & POLLOUT) write_client();
      if (client.fd >= 0 && down.length == 0 && hold.fd < 0 && (fds[2].revents & (POLLIN | POLLHUP | POLLERR))) read_client();
    }
    serve_hold(pipes->to_guest);
  }
}
