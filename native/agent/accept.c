/* The door that programs inside have to the daemon: a socket in the sandbox, whose connections the daemon takes one by one. It needs no
   network. While no daemon is there, who connects waits. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"

#define BACKLOG 64

struct waiting {
  struct channel *channel;
  struct waiting *next;
};

static struct item listener = {.fd = -1};
static struct waiting *first;

static void close_waiting(struct channel *channel) {
  for (struct waiting **at = &first; *at != NULL; at = &(*at)->next)
    if ((*at)->channel == channel) {
      struct waiting *gone = *at;
      *at = gone->next;
      free(gone);
      return;
    }
}

static const struct channel_kind waiting_kind = {.on_close = close_waiting};

/* Level-triggered, and out of the set while nobody waits: what nobody takes stays in the queue of the socket. */
static void look(void) {
  if (listener.fd >= 0) loop_change(&listener, first == NULL ? 0 : EPOLLIN);
}

static void on_connect(struct item *item, uint32_t events) {
  (void)events;
  if (first != NULL) {
    int fd = accept4(item->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      struct channel *channel = first->channel;
      close_waiting(channel);
      dial_adopt(channel, fd);
    }
  }
  look();
}

/* Under its name from the start: a socket that was renamed cannot be part of a checkpoint. */
static int bind_socket(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int length = snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  if (length < 0 || (size_t)length >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  unlink(path);
  /* Any user of the sandbox may connect; what they may do is for their token to say. */
  if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && chmod(path, 0666) == 0 && listen(fd, BACKLOG) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

/* The helper is this program under a name of its own. */
static bool link_helper(const char *path) {
  char self[4096];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length < 0 || !make_parents(path)) return false;
  self[length] = 0;
  char link[4096];
  if ((size_t)snprintf(link, sizeof link, "%s~", path) >= sizeof link) return false;
  unlink(link);
  return symlink(self, link) == 0 && rename(link, path) == 0;
}

static bool is_listening(const char *path) {
  static char known[sizeof(struct sockaddr_un)];
  struct stat st;
  if (listener.fd >= 0 && strcmp(known, path) == 0 && lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) return true;
  snprintf(known, sizeof known, "%s", path);
  return false;
}

void accept_listen(struct channel *channel, struct reader *body) {
  const char *socket_path = read_string(body);
  const char *helper_path = read_string(body);
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request is malformed");
    return;
  }
  if (!path_is_absolute(channel, socket_path) || !path_is_absolute(channel, helper_path)) return;
  if (!make_parents(socket_path) || !link_helper(helper_path)) {
    channel_fail_errno(channel, errno, "cannot make %s", helper_path);
    return;
  }
  if (!is_listening(socket_path)) {
    int fd = bind_socket(socket_path);
    if (fd < 0) {
      channel_fail_errno(channel, errno, "cannot listen at %s", socket_path);
      return;
    }
    if (listener.fd >= 0) loop_close(&listener);
    listener = (struct item){.fd = fd, .on_event = on_connect};
    if (!loop_add(&listener, first == NULL ? 0 : EPOLLIN)) {
      int error = errno;
      close(fd);
      listener.fd = -1;
      channel_fail_errno(channel, error, "cannot listen at %s", socket_path);
      return;
    }
    look();
  }
  channel_done(channel, NULL);
}

void accept_next(struct channel *channel, struct reader *body) {
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request is malformed");
    return;
  }
  if (listener.fd < 0) {
    channel_fail(channel, "wrong_state", 0, "the sandbox does not listen for its programs");
    return;
  }
  struct waiting *waiting = must_alloc(sizeof *waiting);
  *waiting = (struct waiting){.channel = channel};
  channel->kind = &waiting_kind;
  struct waiting **at = &first;
  while (*at != NULL) at = &(*at)->next;
  *at = waiting;
  look();
}
