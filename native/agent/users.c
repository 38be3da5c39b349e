#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"

#define DATABASE_MAX_BYTES (1u << 20)

/* The files of the sandbox are its own to change: whatever stands there (a FIFO, a huge file) must not hold the agent up. */
static char *read_database(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return NULL;
  struct stat st;
  char *text = NULL;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= (off_t)DATABASE_MAX_BYTES) {
    text = must_alloc((size_t)st.st_size + 1);
    ssize_t n = read(fd, text, (size_t)st.st_size);
    text[n < 0 ? 0 : n] = 0;
  }
  close(fd);
  return text;
}

/* Splits a line of colon-separated fields in place; missing ones are "". */
static void split_fields(char *line, char **fields, int count) {
  static char empty[1];
  for (int i = 0; i < count; i++) {
    fields[i] = line == NULL ? empty : line;
    line = line == NULL ? NULL : strchr(line, ':');
    if (line != NULL) *line++ = 0;
  }
}

static bool parse_id(const char *text, uint32_t *id) {
  if (*text < '0' || *text > '9') return false;
  char *end;
  errno = 0;
  unsigned long value = strtoul(text, &end, 10);
  if (*end != 0 || errno != 0 || value >= 0xffffffffUL) return false;
  *id = (uint32_t)value;
  return true;
}

static void copy_text(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from); }

static void find_groups(struct user *user) {
  user->groups[0] = user->gid;
  user->group_count = 1;
  char *text = read_database("/etc/group");
  char *rest = text;
  for (char *line; text != NULL && (line = strsep(&rest, "\n")) != NULL;) {
    char *fields[4];
    split_fields(line, fields, 4);
    uint32_t gid;
    if (!parse_id(fields[2], &gid) || gid == user->gid) continue;
    char *members = fields[3];
    for (char *member; (member = strsep(&members, ",")) != NULL;)
      if (strcmp(member, user->name) == 0 && user->group_count < 64) user->groups[user->group_count++] = gid;
  }
  free(text);
}

static bool user_find_alone(const char *name, struct user *user) {
  uint32_t wanted = 0;
  bool by_id = *name == 0 || parse_id(name, &wanted);
  bool found = false;
  char *text = read_database("/etc/passwd");
  char *rest = text;
  for (char *line; !found && text != NULL && (line = strsep(&rest, "\n")) != NULL;) {
    char *fields[7];
    split_fields(line, fields, 7);
    uint32_t uid, gid;
    if (!parse_id(fields[2], &uid) || !parse_id(fields[3], &gid)) continue;
    if (by_id ? uid != wanted : strcmp(fields[0], name) != 0) continue;
    user->uid = uid;
    user->gid = gid;
    copy_text(user->name, sizeof user->name, fields[0]);
    copy_text(user->home, sizeof user->home, *fields[5] == 0 ? "/" : fields[5]);
    copy_text(user->shell, sizeof user->shell, *fields[6] == 0 ? "/bin/sh" : fields[6]);
    found = true;
  }
  free(text);
  if (!found && (by_id || strcmp(name, "root") == 0)) {
    /* A number needs no entry, and root is there even in an image without /etc/passwd. */
    user->uid = user->gid = wanted;
    if (wanted == 0) copy_text(user->name, sizeof user->name, "root");
    else snprintf(user->name, sizeof user->name, "%u", wanted);
    copy_text(user->home, sizeof user->home, wanted == 0 ? "/root" : "/");
    copy_text(user->shell, sizeof user->shell, "/bin/sh");
    found = true;
  }
  if (found) find_groups(user);
  return found;
}

static bool group_find(const char *name, gid_t *gid) {
  if (parse_id(name, gid)) return true;
  bool found = false;
  char *text = read_database("/etc/group");
  char *rest = text;
  for (char *line; !found && text != NULL && (line = strsep(&rest, "\n")) != NULL;) {
    char *fields[3];
    split_fields(line, fields, 3);
    found = strcmp(fields[0], name) == 0 && parse_id(fields[2], gid);
  }
  free(text);
  return found || (strcmp(name, "root") == 0 && (*gid = 0, true));
}

/* With a group after a colon it is in that group and in no other. */
bool user_find(const char *text, struct user *user) {
  const char *colon = strchr(text, ':');
  if (colon == NULL) return user_find_alone(text, user);
  char name[256];
  snprintf(name, sizeof name, "%.*s", (int)(colon - text), text);
  if (!user_find_alone(name, user) || !group_find(colon + 1, &user->gid)) return false;
  user->groups[0] = user->gid;
  user->group_count = 1;
  return true;
}

bool owner_find(const char *owner, uid_t *uid, gid_t *gid, const char **unknown) {
  static char part[256];
  const char *colon = strchr(owner, ':');
  size_t length = colon == NULL ? strlen(owner) : (size_t)(colon - owner);
  snprintf(part, sizeof part, "%.*s", (int)(length > 255 ? 255 : length), owner);
  *unknown = part;
  *uid = (uid_t)-1;
  *gid = (gid_t)-1;
  if (length > 0) {
    struct user user;
    if (!user_find(part, &user)) return false;
    *uid = user.uid;
    *gid = user.gid;
  }
  if (colon == NULL) return length > 0;
  *unknown = colon + 1;
  return group_find(colon + 1, gid);
}
