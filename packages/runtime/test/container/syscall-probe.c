/* Makes system calls that a sandbox must be refused, and prints the error of each. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static void show(const char *name, long result) {
  const char *error = result >= 0 ? "allowed" : strerrorname_np(errno);
  printf("%s %s\n", name, error ? error : "unknown");
}

static long try_clone(unsigned long flags) {
  long pid = syscall(SYS_clone, flags | 17 /* SIGCHLD */, 0, 0, 0, 0);
  if (pid == 0) _exit(0);
  return pid;
}

int main(void) {
  int own = open("/proc/self/ns/net", O_RDONLY), tcp = socket(AF_INET, SOCK_STREAM, 0), on = 1, pair[2];
  struct sock_filter code = {BPF_RET | BPF_K, 0, 0, 0};
  struct sock_fprog filter = {1, &code};
  aio_context_t context = 0;
  show("mount", syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, ""));
  show("umount2", syscall(SYS_umount2, "/proc/sys", 2));
  show("pivot_root", syscall(SYS_pivot_root, "/", "/"));
  show("open_tree", syscall(SYS_open_tree, -100, "/", 1));
  show("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
  show("mount_setattr", syscall(SYS_mount_setattr, -100, "/sys", 0, "", 32));
  show("unshare", syscall(SYS_unshare, CLONE_NEWUSER));
  show("setns", syscall(SYS_setns, own, 0));
  show("clone-user", try_clone(CLONE_NEWUSER));
  show("clone-net", try_clone(CLONE_NEWNET));
  show("clone3", syscall(SYS_clone3, 0, 0));
  show("mknod-device", mknod("/tmp/device", S_IFBLK | 0600, makedev(254, 0)));
  show("mknod-fifo", mknod("/tmp/fifo", S_IFIFO | 0600, 0));
  show("keyctl", syscall(SYS_keyctl, 0, -3, 0));
  show("add_key", syscall(SYS_add_key, "user", "name", "x", 1, -3));
  show("request_key", syscall(SYS_request_key, "user", "name", 0, -3));
  show("bpf", syscall(SYS_bpf, 0, 0, 0));
  show("perf_event_open", syscall(SYS_perf_event_open, 0, 0, -1, -1, 0));
  show("userfaultfd", syscall(SYS_userfaultfd, 0));
  show("io_uring_setup", syscall(SYS_io_uring_setup, 1, 0));
  show("open_by_handle_at", syscall(SYS_open_by_handle_at, -100, 0, 0));
  show("kexec_load", syscall(SYS_kexec_load, 0, 0, 0, 0));
  show("init_module", syscall(SYS_init_module, 0, 0, ""));
  show("reboot", syscall(SYS_reboot, 0, 0, 0, 0));
  show("swapon", syscall(SYS_swapon, "/tmp/x", 0));
  show("syslog", syscall(SYS_syslog, 10, 0, 0));
  show("sethostname", syscall(SYS_sethostname, "x", 1));
  show("settimeofday", syscall(SYS_settimeofday, 0, 0));
  show("quotactl", syscall(SYS_quotactl, 0, 0, 0, 0));
  show("personality", syscall(SYS_personality, 0x0400000));
  show("personality-read", syscall(SYS_personality, 0xffffffff));
  show("raw-socket", socket(AF_INET, SOCK_RAW, 1));
  show("packet-socket", socket(AF_PACKET, SOCK_RAW, 0));
  show("vsock", socket(AF_VSOCK, SOCK_STREAM, 0));
  show("crypto-socket", socket(AF_ALG, SOCK_SEQPACKET, 0));
  show("tipc-pair", socketpair(AF_TIPC, SOCK_STREAM, 0, pair));
  show("audit-netlink", socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT));
  show("process-netlink", socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK));
  show("link-netlink", socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
  show("unix-pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  show("tcp-socket", tcp);
  show("socket-option", setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
  show("socket-filter", setsockopt(tcp, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter));
  show("port-filter", setsockopt(tcp, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter, sizeof filter));
  show("io_setup", syscall(SYS_io_setup, 1, &context));
  show("memfd_secret", syscall(447, 0));
  show("terminal-input", syscall(SYS_ioctl, 0, 0x5412, "x"));
  show("terminal-input-wide", syscall(SYS_ioctl, 0, 0x100005412UL, "x"));
  show("unknown", syscall(1000));
  return 0;
}
