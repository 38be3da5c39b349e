/*
 * coppice-pool: what the store needs of the kernel and Node does not offer (btrfs ioctls, loop devices, faithful copies
 * of trees, extended attributes, openat2). It holds no state: every request names all that it works on.
 */
#ifndef COPPICE_POOL_H
#define COPPICE_POOL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define MAX_FIELDS 8

struct field {
  char *data; /* always followed by a NUL that is not counted */
  uint32_t length;
};

struct request {
  uint32_t id;
  int field_count; /* the operation's name not counted */
  struct field fields[MAX_FIELDS];
};

/* A growing answer: a row of length-prefixed fields. */
struct reply {
  uint32_t id;
  char *data;
  size_t length;
  size_t capacity;
  char message[512]; /* what was being done when it failed */
};

void reply_bytes(struct reply *reply, const void *data, size_t length);
void reply_text(struct reply *reply, const char *text);
void reply_number(struct reply *reply, uint64_t number);
/* Sends what was gathered so far when it has grown large, as a part of an answer that goes on. */
void reply_flush(struct reply *reply);
/* Remembers what failed and returns -1 with errno as it is. */
int fail(struct reply *reply, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An operation returns 0, or -1 with errno set. */
typedef int (*operation)(struct request *request, struct reply *reply);
struct operation_entry {
  const char *name;
  int arguments;
  operation run;
};
extern const struct operation_entry btrfs_operations[];
extern const struct operation_entry mount_operations[];
extern const struct operation_entry tree_operations[];
extern const struct operation_entry copy_operations[];
extern const struct operation_entry attribute_operations[];
extern const struct operation_entry share_operations[];
extern const struct operation_entry space_operations[];

/* main.c: nobody wants the answer of this request any more; errno says so then. Asked often by whatever may take long. */
int is_cancelled(void);

/* links.c: of files with several names, by inode, what was remembered of the first. */
struct link_table {
  struct link_slot *slots;
  size_t count, room;
  size_t path_bytes;
};
/* NULL: not seen yet. */
const char *find_link(const struct link_table *table, ino_t inode);
/* Takes the path, also when it fails. */
int remember_link(struct link_table *table, ino_t inode, char *path);
void forget_links(struct link_table *table);

/* paths.c: safe ways to name things */
int open_directory(struct reply *reply, const char *path);
int open_parent(struct reply *reply, const char *path, const char **name);
int open_beneath(int root, const char *relative, int flags);
/* Opens the directory that holds `relative` without following any link; *name is its last component. */
int open_parent_beneath(int root, const char *relative, const char **name);
int parse_number(const char *text, uint64_t *number);

/* attributes.c: of the extended attributes that count as part of a file, 32 bytes. 1: there are some; 0: none; -1: error. */
int attributes_digest(int directory, const char *name, uint8_t digest[32]);

#endif
