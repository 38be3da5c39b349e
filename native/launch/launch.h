/*
 * coppice-launch: makes containers for the daemon. It runs as root; what it starts does not.
 *
 * `serve` reads requests on stdin and answers on stdout. A message is a 32-bit little-endian length and that
 * many bytes of NUL-terminated `key=value` strings. Containers outlive it: they hold no descriptor of it.
 */
#ifndef COPPICE_LAUNCH_H
#define COPPICE_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../mounts/mounts.h"

enum { message_limit = 60000, hierarchies_limit = 16 };

/* message.c */
struct message {
  size_t size;
  char data[message_limit];
};
bool message_valid(const struct message *message);
const char *message_get(const struct message *message, const char *key);
/* The next value of a key that may stand more than once; start with *at == NULL. */
const char *message_next(const struct message *message, const char *key, const char **at);
void message_put(struct message *message, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* What serve was started with, and what every standby inherits. */
struct setup {
  const char *bwrap;
  const char *agent;
  /* The home's own directory in each cgroup v1 hierarchy that is used. */
  const char *v1_parents[hierarchies_limit];
  size_t v1_count;
  unsigned standbys;
  /* The user id that creates the user namespace. Each sandbox has its own. */
  uid_t owner;
  int seccomp_fd;
  int mounts_fd;
};

/* serve.c */
int serve(struct setup *setup);

/* standby.c: a process that waits inside cgroups of its own until it is told what to start. */
void standby_main(const struct setup *setup, unsigned number, int channel) __attribute__((noreturn));
bool write_value(const char *path, const char *value);

/* start.c: runs in a standby; returns false with the reason in `reason`. */
enum { reason_limit = 1000 };
struct namespaces;
bool start_container(const struct setup *setup, const struct namespaces *ahead, const struct message *request, struct message *reply,
                     char *reason);

/* The steps of it that a restore shares. */
struct trees;
int clone_tree(const char *path);
bool open_trees(const struct setup *setup, const struct message *request, struct trees *trees, char *reason);
int listen_in(const char *directory);
bool map_ids(const struct namespaces *ahead, const struct message *request, char *reason);
bool enter_namespaces(const struct namespaces *ahead, char *reason);
pid_t clone_into(int cgroup);

/* restore.c: runs in a standby like a start. */
bool restore_container(const struct setup *setup, const struct namespaces *ahead, const struct message *request, struct message *reply,
                       char *reason);

/* hook.c: what CRIU calls in the middle of a restore. */
int hook(const char *action);

/* lend.c: what the agent holds of the host, while its memory is kept and afterwards. */
int lend(pid_t init);
int renew(pid_t init, const char *run);
bool renew_listener(pid_t init, int listener, char *reason);

/* cover.c: puts files of /run over files of the root of a sandbox that runs. */
int cover(pid_t init, char **pairs, size_t count);

/* own.c: the user id that owns the user namespace of a sandbox. */
bool become_owner(uid_t owner, char *reason);
int dump(pid_t init, char **given, size_t count);
bool limit_watches(pid_t init, char *reason);

/* namespaces.c: those that need to know nothing of the sandbox, and are made before it is asked for. */
struct namespaces {
  int user; /* without a map of ids yet */
  int network;
  int uid_map;
  int gid_map;
};
bool make_namespaces(const struct setup *setup, struct namespaces *made, char *reason);
bool raise_loopback(char *reason);
/* The host's mounts without those that no sandbox needs, for all of them to start from; -1 with the reason. */
int make_bare_mounts(const struct setup *setup, char *reason);

/*
 * agents.c: sandboxes get the agent from a filesystem in memory. On that of the home, which holds all disks, whoever opens the
 * file could ask about the others. It lies in the bare mounts, and every sandbox shares its pages.
 */
bool make_agents(int program, const char *path, char *reason);
int clone_agent(const struct setup *setup, const char *path, char *reason);

/* root.c: runs in the new user and mount namespace; makes the root that bubblewrap is given. */
struct trees {
  int image;
  int disk;
  int agent;
  struct host_mount mounts[mounts_limit];
  int mount_trees[mounts_limit]; /* with their owners mapped */
  size_t mount_count;
};
bool idmap_tree(int tree, int userns, uint64_t more);
bool idmap_trees(const struct trees *trees, int userns, char *reason);
/* At `root` below the scratch, which is covered. */
bool build_root(const char *scratch, const struct trees *trees, const struct message *request, char *reason);
#define start_scratch "/tmp"
#define start_root start_scratch "/root"

/* furnish.c: what the root holds besides image and disk: /dev, /run, /sys. */
bool furnish_root(const char *root, int agent, const struct message *request, char *reason);

/*
 * guard.c: for sandboxes with mounts of the host. What becomes the sandbox begins it, and hands the rest over a socket to who started
 * it; from then on a process beside the sandbox, and in its cgroups, decides about set-id bits. See mounts/modes.h.
 */
bool begin_guard(int socket, char *reason);
bool start_guard(int socket, int userns, pid_t init, int cgroup, char *reason);

/* bubblewrap.c */
struct inherited {
  int listen;
  int seccomp;
  int info;
  int log;
  int console; /* the same to read, for the launcher alone */
};
void exec_bubblewrap(const struct setup *setup, const struct message *request, const struct inherited *fds, char *reason);

/* seccomp.c */
int make_seccomp_program(void);

/* process.c */
bool process_started(pid_t pid, unsigned long long *ticks);
bool same_program(pid_t one, pid_t other);
bool set_hostname(pid_t pid, const char *hostname, char *reason);
/* Until this parent kills us, or has died without doing so. */
void wait_to_be_killed(pid_t parent) __attribute__((noreturn));

/* reason.c */
bool fail(char *reason, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
