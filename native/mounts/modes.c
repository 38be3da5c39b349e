#define _GNU_SOURCE
#include "modes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../lib/architecture.h"

#define ARGUMENT(n) ((uint32_t)(offsetof(struct seccomp_data, args) + 8 * (unsigned)(n)))
#define UNKNOWN (SECCOMP_RET_ERRNO | ENOSYS)
#define SET_ID (S_ISUID | S_ISGID)
/* Of the flags of an open: those with which it looks at the mode. */
#define MAKES (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))

enum { program_limit = 100 };

static struct sock_filter program[program_limit];
static unsigned short used;

static void add(uint16_t code, uint32_t k, uint8_t if_true, uint8_t if_false) {
  if (used == program_limit) abort();
  program[used++] = (struct sock_filter){code, if_true, if_false, k};
}

/* One call: stopped when the mode has a set-id bit. `flags` is -1, or the argument that says whether the mode counts. */
static void judge(int number, int mode, int flags) {
  uint8_t length = flags < 0 ? 4 : 6;
  add(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, length);
  if (flags >= 0) {
    add(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(flags), 0, 0);
    add(BPF_JMP | BPF_JSET | BPF_K, MAKES, 0, 3);
  }
  add(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(mode), 0, 0);
  add(BPF_JMP | BPF_JSET | BPF_K, SET_ID, 0, 1);
  add(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF, 0, 0);
  add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

static void write_program(void) {
  used = 0;
  /* Calls of another architecture are refused by the filters beside this one. */
  add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
  add(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0);
  add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
  add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
#ifdef __NR_chmod
  judge(__NR_chmod, 1, -1);
  judge(__NR_mknod, 1, -1);
  judge(__NR_creat, 1, -1);
  judge(__NR_open, 2, 1);
#endif
  judge(__NR_fchmod, 1, -1);
  judge(__NR_fchmodat, 2, -1);
  judge(452 /* fchmodat2 */, 2, -1);
  judge(__NR_mknodat, 2, -1);
  judge(__NR_openat, 3, 2);
  /* Its mode lies in memory, out of a filter's sight; who gets this uses openat. */
  add(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat2, 0, 1);
  add(BPF_RET | BPF_K, UNKNOWN, 0, 0);
  add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

int watch_modes(void) {
  write_program();
  struct sock_fprog written = {.len = used, .filter = program};
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &written);
}

union rights {
  char bytes[CMSG_SPACE(sizeof(int))];
  struct cmsghdr align;
};

int send_listener(int socket, int listener) {
  union rights space;
  char byte = 'w';
  struct iovec text = {&byte, 1};
  struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = space.bytes, .msg_controllen = sizeof space.bytes};
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof listener);
  memcpy(CMSG_DATA(rights), &listener, sizeof listener);
  return sendmsg(socket, &message, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

int receive_listener(int socket) {
  union rights space;
  char byte;
  int listener = -1;
  struct iovec text = {&byte, 1};
  struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = space.bytes, .msg_controllen = sizeof space.bytes};
  ssize_t got;
  while ((got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) continue;
  struct cmsghdr *rights = got == 1 ? CMSG_FIRSTHDR(&message) : NULL;
  if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) memcpy(&listener, CMSG_DATA(rights), sizeof listener);
  return listener;
}
