/* Tries to leave a sandbox by system calls: escape-probe <pid of the host> <path of the host>. Prints what each one gave. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

static void show(const char *name, long result) {
  printf("%s %s\n", name, result >= 0 ? "allowed" : strerrorname_np(errno));
}

int main(int count, char **words) {
  if (count != 3) return 2;
  int host = atoi(words[1]);
  char byte;
  struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
  show("ptrace-host", ptrace(PTRACE_ATTACH, host, 0, 0));
  show("seize-host", ptrace(PTRACE_SEIZE, host, 0, 0));
  show("read-host-memory", process_vm_readv(host, &here, 1, &there, 1, 0));
  show("write-host-memory", process_vm_writev(host, &here, 1, &there, 1, 0));
  show("signal-host", kill(host, 0));
  show("pidfd-host", syscall(SYS_pidfd_open, host, 0));
  show("priority-host", syscall(SYS_setpriority, 0, host, 0));
  int space = open("/proc/1/ns/mnt", O_RDONLY);
  show("setns", syscall(SYS_setns, space, 0));
  show("keyctl-session", syscall(SYS_keyctl, 0, -3, 1));
  show("keyctl-join", syscall(SYS_keyctl, 1, 0));
  show("add-key", syscall(SYS_add_key, "user", "coppice", "x", 1, -4));
  show("raw-socket", socket(AF_INET, SOCK_RAW, 255));
  show("raw-socket-6", socket(AF_INET6, SOCK_RAW, 58));
  show("packet-socket", socket(AF_PACKET, SOCK_RAW, 0));
  show("block-device", mknod("/root/disk", S_IFBLK | 0600, makedev(254, 0)));
  show("char-device", mknod("/root/mem", S_IFCHR | 0600, makedev(1, 1)));
  show("mount", syscall(SYS_mount, "none", "/mnt", "tmpfs", 0, ""));
  show("open-by-handle", syscall(SYS_open_by_handle_at, -100, "", 0));
  show("chroot-then-out", chroot("/proc/1/root") ? -1 : open(words[2], O_RDONLY));
  return 0;
}
