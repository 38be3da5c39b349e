/*
 * Takes up to MOST of one thing of the kernel's and holds it: exhaust THING MOST. Prints how many it got, the error that
 * stopped it, and how many bytes wait in its sockets. Lets go when its input ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long taken;

/* Whether one more was had; errno says why not. */
typedef int (*take_one)(void);

static int take_inotify(void) { return inotify_init1(IN_CLOEXEC) >= 0; }

/* Many instances watch the same few files, because files cost more memory than watches. */
static int take_watch(void) {
  enum { files = 2000 };
  static int fd = -1;
  char path[64];
  if (taken % files == 0 && (fd = inotify_init1(IN_CLOEXEC)) < 0) return 0;
  snprintf(path, sizeof path, "/tmp/watched-%ld", taken % files);
  int file = taken < files ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (file >= 0) close(file);
  return inotify_add_watch(fd, path, IN_ALL_EVENTS) >= 0;
}

static int take_aio(void) {
  aio_context_t context = 0;
  return syscall(SYS_io_setup, 1, &context) == 0;
}

static int take_mqueue(void) {
  char name[64];
  snprintf(name, sizeof name, "/taken-%d-%ld", (int)getpid(), taken);
  struct mq_attr attributes = {.mq_maxmsg = 10, .mq_msgsize = 1024};
  mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, &attributes);
  if (queue == (mqd_t)-1) return 0;
  mq_unlink(name);
  return 1;
}

/* The kernel allocates and counts a pending signal that carries a value. */
static int take_signal(void) {
  static int blocked;
  if (!blocked) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    blocked = 1;
  }
  return sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 1}) == 0;
}

static int take_terminal(void) { return open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0; }

static int take_timer(void) {
  timer_t timer;
  struct sigevent none = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
  return timer_create(CLOCK_MONOTONIC, &none, &timer) == 0;
}

static char block[64 << 10];

static void widen(int fd) {
  int size = 64 << 20;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

/* The next few fill one socket after another, and count blocks of 64 KiB. */
static int filler = -1;

static int fill(int (*make)(void)) {
  for (int attempt = 0; attempt < 2; attempt++) {
    if (filler >= 0 && send(filler, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) return 1;
    if (filler >= 0 && errno != EAGAIN && errno != ENOBUFS && errno != EMSGSIZE) return 0;
    if ((filler = make()) < 0) return 0;
  }
  return 0;
}

static int make_unix(int type) {
  int pair[2];
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) < 0) return -1;
  widen(pair[0]), widen(pair[1]);
  return pair[0];
}
static int make_unix_stream(void) { return make_unix(SOCK_STREAM); }
static int make_unix_datagram(void) { return make_unix(SOCK_DGRAM); }
static int take_unix_stream(void) { return fill(make_unix_stream); }
static int take_unix_datagram(void) { return fill(make_unix_datagram); }

static int make_tcp(void) {
  static int listener = -1;
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof here;
  if (listener < 0) {
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    widen(listener);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) < 0 || listen(listener, 8) < 0) return -1;
  }
  getsockname(listener, (struct sockaddr *)&here, &length);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  widen(fd);
  struct timeval patience = {.tv_sec = 5};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (connect(fd, (struct sockaddr *)&here, sizeof here) < 0) return -1;
  return accept4(listener, NULL, NULL, SOCK_CLOEXEC) < 0 ? -1 : fd;
}
static int take_tcp(void) { return fill(make_tcp); }

/* The kernel drops datagrams that find no room without an error, so this goes on to the next receiver after a while. */
static int take_udp(void) {
  static int from = -1, sent;
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof here;
  if (from < 0 || sent == 128) {
    int to = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (to < 0) return 0;
    widen(to);
    if (bind(to, (struct sockaddr *)&here, sizeof here) < 0) return 0;
    getsockname(to, (struct sockaddr *)&here, &length);
    if (from >= 0) close(from);
    if ((from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0) return 0;
    widen(from);
    if (connect(from, (struct sockaddr *)&here, sizeof here) < 0) return 0;
    sent = 0;
  }
  sent++;
  return send(from, block, 60000, MSG_DONTWAIT) > 0 || errno == EAGAIN || errno == ENOBUFS;
}

/* To itself, which needs no privilege. */
static int take_netlink_user(void) {
  static int fd = -1, sent;
  static struct sockaddr_nl self;
  socklen_t length = sizeof self;
  if (fd < 0 || sent == 128) {
    if ((fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK)) < 0) return 0;
    widen(fd);
    self = (struct sockaddr_nl){.nl_family = AF_NETLINK};
    if (bind(fd, (struct sockaddr *)&self, sizeof self) < 0) return 0;
    getsockname(fd, (struct sockaddr *)&self, &length);
    sent = 0;
  }
  sent++;
  return sendto(fd, block, 60000, MSG_DONTWAIT, (struct sockaddr *)&self, sizeof self) > 0 || errno == EAGAIN;
}

static int take_pipe(void) {
  static int pair[2] = {-1, -1};
  for (int attempt = 0; attempt < 2; attempt++) {
    if (pair[1] >= 0 && write(pair[1], block, sizeof block) > 0) return 1;
    if (pipe2(pair, O_NONBLOCK | O_CLOEXEC) < 0) return 0;
    fcntl(pair[1], F_SETPIPE_SZ, 1 << 20);
  }
  return 0;
}

static int take_filter(void) {
  static struct sock_filter code[1000];
  for (size_t index = 0; index < 999; index++) code[index] = (struct sock_filter){BPF_LD | BPF_W | BPF_ABS, 0, 0, (unsigned)index};
  code[999] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, 0};
  struct sock_fprog program = {1000, code};
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  return fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

static int take_message(void) {
  static int queue = -1;
  struct { long type; char text[8000]; } message = {.type = 1};
  for (int attempt = 0; attempt < 2; attempt++) {
    if (queue >= 0 && msgsnd(queue, &message, sizeof message.text, IPC_NOWAIT) == 0) return 1;
    if (queue >= 0 && errno != EAGAIN) return 0;
    if ((queue = msgget(IPC_PRIVATE, 0600)) < 0) return 0;
  }
  return 0;
}

static int take_segment(void) {
  int id = shmget(IPC_PRIVATE, 1 << 20, 0600);
  void *at = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
  if (at == (void *)-1) return 0;
  memset(at, 1, 1 << 20);
  return shmdt(at) == 0;
}

static int take_semaphores(void) { return semget(IPC_PRIVATE, 32000, 0600) >= 0; }

static int take_epoll(void) {
  static int set = -1, target = -1;
  struct epoll_event event = {.events = EPOLLIN};
  if (target < 0 && (target = eventfd(0, EFD_CLOEXEC)) < 0) return 0;
  if (set < 0 && (set = epoll_create1(EPOLL_CLOEXEC)) < 0) return 0;
  int copy = fcntl(target, F_DUPFD_CLOEXEC, 0);
  if (copy < 0 && errno == EMFILE) {
    closefrom(set + 1);
    if ((set = epoll_create1(EPOLL_CLOEXEC)) < 0) return 0;
    copy = fcntl(target, F_DUPFD_CLOEXEC, 0);
  }
  return copy >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, copy, &event) == 0;
}

static int take_memory_file(void) {
  int fd = memfd_create("taken", MFD_CLOEXEC);
  return fd >= 0 && ftruncate(fd, 1 << 20) == 0 && fallocate(fd, 0, 0, 1 << 20) == 0;
}

/* Each of a size that the machine's default huge pages divide. */
static int take_huge_page(void) {
  const size_t size = 2 << 20;
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (at == MAP_FAILED) return 0;
  memset(at, 1, size);
  return 1;
}

static long socket_bytes(void) {
  long sum = 0;
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  for (int fd = 3; fd < (int)files.rlim_cur; fd++) {
    unsigned info[SK_MEMINFO_VARS] = {0};
    socklen_t size = sizeof info;
    if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size) == 0)
      sum += (long)info[SK_MEMINFO_RMEM_ALLOC] + info[SK_MEMINFO_WMEM_QUEUED] + info[SK_MEMINFO_WMEM_ALLOC];
  }
  return sum;
}

static const struct {
  const char *name;
  take_one take;
} things[] = {
    {"inotify", take_inotify},
    {"watch", take_watch},
    {"aio", take_aio},
    {"mqueue", take_mqueue},
    {"signal", take_signal},
    {"terminal", take_terminal},
    {"timer", take_timer},
    {"unix-stream", take_unix_stream},
    {"unix-datagram", take_unix_datagram},
    {"tcp", take_tcp},
    {"udp", take_udp},
    {"netlink-user", take_netlink_user},
    {"pipe", take_pipe},
    {"filter", take_filter},
    {"message", take_message},
    {"segment", take_segment},
    {"semaphores", take_semaphores},
    {"epoll", take_epoll},
    {"memory-file", take_memory_file},
    {"huge-page", take_huge_page},
};

int main(int count, char **words) {
  struct rlimit files;
  if (count != 3) return 2;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  for (size_t index = 0; index < sizeof things / sizeof *things; index++) {
    if (strcmp(words[1], things[index].name) != 0) continue;
    long most = atol(words[2]);
    const char *why = "enough";
    while (taken < most) {
      errno = 0;
      if (!things[index].take()) {
        why = strerrorname_np(errno);
        break;
      }
      taken++;
    }
    printf("%ld %s %ld\n", taken, why ? why : "?", socket_bytes());
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) continue;
    return 0;
  }
  return 2;
}
