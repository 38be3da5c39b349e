#define _GNU_SOURCE
#include "ignore.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct rule {
  char *pattern;
  bool negated, directories_only, anchored;
};

struct ignore_list {
  struct ignore_list *above;
  size_t base_len;
  char *text;
  struct rule *rules;
  size_t count;
};

static bool class_matches(const char **pattern, char c) {
  const char *p = *pattern + 1;
  bool negated = false, found = false, first = true;
  if (*p == '!' || *p == '^') {
    negated = true;
    p++;
  }
  for (; *p && (*p != ']' || first); first = false) {
    char from = *p;
    if (from == '\\' && p[1]) from = *++p;
    char to = from;
    p++;
    if (*p == '-' && p[1] && p[1] != ']') {
      p++;
      if (*p == '\\' && p[1]) p++;
      to = *p++;
    }
    if ((unsigned char)c >= (unsigned char)from && (unsigned char)c <= (unsigned char)to) found = true;
  }
  if (*p != ']') return false;
  *pattern = p;
  return found != negated && c != '/';
}

/* `start` says whether the pattern is at the beginning of a path component, where ** has its meaning. */
static bool glob(const char *p, const char *text, bool start) {
  for (; *p; p++, text++) {
    if (*p == '*') {
      if (p[1] == '*' && start && (p[2] == '/' || p[2] == 0)) {
        if (p[2] == 0) return *text != 0;
        for (const char *t = text;; t++) {
          if (glob(p + 3, t, true)) return true;
          t = strchr(t, '/');
          if (!t) return false;
        }
      }
      while (*p == '*') p++;
      for (;; text++) {
        if (glob(p, text, false)) return true;
        if (*text == 0 || *text == '/') return false;
      }
    }
    if (*text == 0) return false;
    if (*p == '?') {
      if (*text == '/') return false;
    } else if (*p == '[') {
      if (!class_matches(&p, *text)) return false;
    } else {
      if (*p == '\\' && p[1]) p++;
      if (*p != *text) return false;
    }
    start = *p == '/';
  }
  return *text == 0;
}

static bool parse_rule(char *line, struct rule *rule) {
  size_t len = strlen(line);
  if (len && line[len - 1] == '\r') line[--len] = 0;
  while (len && line[len - 1] == ' ' && !(len > 1 && line[len - 2] == '\\')) line[--len] = 0;
  if (!len || *line == '#') return false;
  memset(rule, 0, sizeof *rule);
  if (*line == '!') {
    rule->negated = true;
    line++;
    len--;
  }
  if (len && line[len - 1] == '/') {
    rule->directories_only = true;
    line[--len] = 0;
  }
  if (!len) return false;
  rule->anchored = strchr(line, '/') != NULL;
  rule->pattern = *line == '/' ? line + 1 : line;
  return true;
}

struct ignore_list *ignore_load(int dir, const char *base, struct ignore_list *above) {
  const int fd = openat(dir, IGNORE_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return above;
  struct stat stat;
  if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode) || stat.st_size > (1 << 20)) {
    close(fd);
    return above;
  }
  struct ignore_list *list = must_alloc(sizeof *list);
  memset(list, 0, sizeof *list);
  list->above = above;
  list->base_len = *base ? strlen(base) + 1 : 0;
  list->text = must_alloc((size_t)stat.st_size + 1);
  const ssize_t len = read(fd, list->text, (size_t)stat.st_size);
  close(fd);
  list->text[len > 0 ? len : 0] = 0;
  char *rest = list->text;
  for (char *line; (line = strsep(&rest, "\n"));) {
    struct rule rule;
    if (!parse_rule(line, &rule)) continue;
    list->rules = must_realloc(list->rules, (list->count + 1) * sizeof rule);
    list->rules[list->count++] = rule;
  }
  return list;
}

void ignore_free(struct ignore_list *list) {
  free(list->rules);
  free(list->text);
  free(list);
}

bool ignored(const struct ignore_list *list, const char *path, bool is_directory) {
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  for (; list; list = list->above)
    for (size_t i = list->count; i-- > 0;) {
      const struct rule *rule = &list->rules[i];
      if (rule->directories_only && !is_directory) continue;
      if (glob(rule->pattern, rule->anchored ? path + list->base_len : name, true)) return !rule->negated;
    }
  return false;
}
