#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../lib/architecture.h"

#define REFUSE (SECCOMP_RET_ERRNO | EPERM)
#define UNKNOWN (SECCOMP_RET_ERRNO | ENOSYS)
/* Nothing is done, and the caller sees success. */
#define PRETEND (SECCOMP_RET_ERRNO | 0)
#define LOW_WORD(n) ((uint32_t)(offsetof(struct seccomp_data, args) + 8 * (n)))

enum { program_limit = 2000, numbers_limit = 1024 };

static const int allowed[] = {
#include "allowed.inc"
};
static const int refused[] = {
#include "refused.inc"
};

static struct sock_filter program[program_limit];
static unsigned short used;

static void add(uint16_t code, uint32_t k, uint8_t if_true, uint8_t if_false) {
  if (used == program_limit) abort();
  program[used++] = (struct sock_filter){code, if_true, if_false, k};
}
static void load(uint32_t offset) { add(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0); }
static void answer(uint32_t action) { add(BPF_RET | BPF_K, action, 0, 0); }
static void answer_if_equal(uint32_t value, uint32_t action) {
  add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
  answer(action);
}
/* Opens a block for one call; close_block makes the jump over it reach its end. */
static unsigned short open_block(uint32_t number) {
  add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 0);
  return (unsigned short)(used - 1);
}
static void close_block(unsigned short opened) { program[opened].jf = (uint8_t)(used - opened - 1); }

static void judge_clone(void) {
  unsigned short block = open_block(__NR_clone);
  load(LOW_WORD(0));
  add(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET,
      0, 1);
  answer(REFUSE);
  answer(SECCOMP_RET_ALLOW);
  close_block(block);
  /* Its flags lie in memory, out of a filter's sight; with ENOSYS C libraries use clone. */
  answer_if_equal(__NR_clone3, UNKNOWN);
}

static void judge_personality(void) {
  static const uint32_t harmless[] = {0x0, 0x0008, 0x20000, 0x20008, 0x40000, 0xffffffff};
  unsigned short block = open_block(__NR_personality);
  load(LOW_WORD(0));
  for (size_t index = 0; index < sizeof harmless / sizeof *harmless; index++) answer_if_equal(harmless[index], SECCOMP_RET_ALLOW);
  answer(REFUSE);
  close_block(block);
}

/*
 * Other families reach past the namespaces (vsock the hypervisor, AF_ALG the kernel's crypto) or load rarely used modules. Of
 * netlink, programs need what tells about links, sockets and devices. The kernel charges no cgroup for messages that wait in netlink
 * sockets, so processes may not use them to talk to each other.
 */
static void judge_sockets(void) {
  static const uint32_t families[] = {AF_UNIX, AF_INET, AF_INET6};
  static const uint32_t protocols[] = {NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT};
  static const uint32_t calls[] = {__NR_socket, __NR_socketpair};
  for (size_t call = 0; call < sizeof calls / sizeof *calls; call++) {
    unsigned short block = open_block(calls[call]);
    load(LOW_WORD(0));
    for (size_t index = 0; index < sizeof families / sizeof *families; index++) answer_if_equal(families[index], SECCOMP_RET_ALLOW);
    add(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 1, 0);
    answer(SECCOMP_RET_ERRNO | EAFNOSUPPORT);
    load(LOW_WORD(2));
    for (size_t index = 0; index < sizeof protocols / sizeof *protocols; index++) answer_if_equal(protocols[index], SECCOMP_RET_ALLOW);
    answer(SECCOMP_RET_ERRNO | EPROTONOSUPPORT);
    close_block(block);
  }
}

/* Packet filters are compiled into memory that the whole machine shares. When it is used up, no sandbox can start. */
static void judge_setsockopt(void) {
  static const uint32_t options[] = {SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF};
  unsigned short block = open_block(__NR_setsockopt);
  load(LOW_WORD(1));
  add(BPF_JMP | BPF_JEQ | BPF_K, SOL_SOCKET, 1, 0);
  answer(SECCOMP_RET_ALLOW);
  load(LOW_WORD(2));
  for (size_t index = 0; index < sizeof options / sizeof *options; index++) answer_if_equal(options[index], REFUSE);
  answer(SECCOMP_RET_ALLOW);
  close_block(block);
}

/* TIOCSTI and TIOCLINUX type into someone else's terminal. The kernel looks at the low word alone, so does this. */
static void judge_ioctl(void) {
  unsigned short block = open_block(__NR_ioctl);
  load(LOW_WORD(1));
  answer_if_equal(0x5412, REFUSE);
  answer_if_equal(0x541c, REFUSE);
  answer(SECCOMP_RET_ALLOW);
  close_block(block);
}

/*
 * The limit of core dumps stays as it was set, see start.c. Programs that lower it are told that it was done: they want no core
 * dumps, and there are none. Reading it is allowed: setrlimit has no such form, and the third argument of prlimit64 is then null.
 */
static void judge_core_limit(void) {
#ifdef __NR_setrlimit
  unsigned short set = open_block(__NR_setrlimit);
  load(LOW_WORD(0));
  answer_if_equal(RLIMIT_CORE, PRETEND);
  answer(SECCOMP_RET_ALLOW);
  close_block(set);
#endif
  unsigned short block = open_block(__NR_prlimit64);
  load(LOW_WORD(1));
  add(BPF_JMP | BPF_JEQ | BPF_K, RLIMIT_CORE, 1, 0);
  answer(SECCOMP_RET_ALLOW);
  load(LOW_WORD(2));
  add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
  answer(PRETEND);
  load(LOW_WORD(2) + 4);
  answer_if_equal(0, SECCOMP_RET_ALLOW);
  answer(PRETEND);
  close_block(block);
}

/* Runs of numbers with the same answer become one comparison, as the kernel walks the filter once per number to cache it. */
static void judge_lists(void) {
  static uint32_t actions[numbers_limit];
  for (size_t number = 0; number < numbers_limit; number++) actions[number] = UNKNOWN;
  for (size_t index = 0; index < sizeof allowed / sizeof *allowed; index++) actions[allowed[index]] = SECCOMP_RET_ALLOW;
  for (size_t index = 0; index < sizeof refused / sizeof *refused; index++) actions[refused[index]] = REFUSE;
  for (size_t number = 1; number < numbers_limit; number++) {
    if (actions[number] == actions[number - 1]) continue;
    add(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)number, 1, 0);
    answer(actions[number - 1]);
  }
  answer(UNKNOWN);
}

/* A file with the filter in the form that bubblewrap reads, or -1. */
int make_seccomp_program(void) {
  used = 0;
  load(offsetof(struct seccomp_data, arch));
  add(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0);
  answer(UNKNOWN);
  load(offsetof(struct seccomp_data, nr));
  judge_clone();
  judge_personality();
  judge_sockets();
  judge_setsockopt();
  judge_ioctl();
  judge_core_limit();
  judge_lists();
  int fd = memfd_create("coppice-seccomp", MFD_CLOEXEC);
  if (fd < 0) return -1;
  size_t size = used * sizeof *program;
  if (write(fd, program, size) != (ssize_t)size) {
    close(fd);
    return -1;
  }
  return fd;
}
