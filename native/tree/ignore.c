#define _GNU_SOURCE
#include "ignore.h"

#include <ctype.h>
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

static bool in_named_class(const char *name, size_t len, unsigned char c, bool *known) {
  static const struct {
    const char *name;
    int (*holds)(int);
  } classes[] = {{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl}, {"digit", isdigit}, {"graph", isgraph},
                 {"lower", islower}, {"print", isprint}, {"punct", ispunct}, {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit}};
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    if (strlen(classes[i].name) == len && memcmp(classes[i].name, name, len) == 0) return classes[i].holds(c);
  *known = false;
  return false;
}

/* One sign after [, or after a backslash there. 0 at the end of the pattern. */
static unsigned char class_sign(const char **p) {
  if (**p == '\\') ++*p;
  const unsigned char sign = (unsigned char)**p;
  if (sign) ++*p;
  return sign;
}

/* Whether c is in the class that begins at *pattern, which is then behind it. A class that is not closed holds nothing. */
static bool class_matches(const char **pattern, unsigned char c) {
  const char *p = *pattern + 1;
  const bool negated = *p == '!' || *p == '^';
  if (negated) p++;
  bool found = false, known = true;
  unsigned char from = 0; /* what a dash would go on from */
  for (const char *first = p; *p && (*p != ']' || p == first);) {
    if (*p == '-' && from && p[1] && p[1] != ']') {
      p++;
      const unsigned char to = class_sign(&p);
      if (c >= from && c <= to) found = true;
      from = 0;
      continue;
    }
    const char *close = *p == '[' && p[1] == ':' ? strchr(p + 2, ']') : NULL;
    if (close && close > p + 2 && close[-1] == ':') {
      if (in_named_class(p + 2, (size_t)(close - p) - 3, c, &known)) found = true;
      p = close + 1;
      from = 0;
      continue;
    }
    from = class_sign(&p);
    if (c == from) found = true;
  }
  if (*p != ']' || !known) return false;
  *pattern = p + 1;
  return found != negated && c != '/';
}

/* Whether one sign of the text matches what is at *pattern, which is then behind that. */
static bool sign_matches(const char **pattern, char c) {
  if (**pattern == '[') return class_matches(pattern, (unsigned char)c);
  if (**pattern == '\\') ++*pattern;
  else if (**pattern == '?') return ++*pattern, c != '/';
  return *(*pattern)++ == c;
}

/*
 * Whether the whole text matches. A star that took too little is tried again with more. Only the last star is: one before it
 * in the same component could only leave less to what follows, and the same holds for double stars. So the time is bounded by
 * the product of both lengths.
 */
static bool glob(const char *p, const char *text) {
  const char *star = NULL, *star_text = NULL; /* behind the last * of this component, and what it has not taken yet */
  const char *deep = NULL, *deep_text = NULL; /* the same for the last double star and its slash, which take whole components */
  bool start = true;                          /* of a component, where a double star has its meaning */
  for (;;) {
    if (*p == '*') {
      const char *behind = p + strspn(p, "*");
      const bool is_deep = start && behind - p > 1;
      if (is_deep && *behind == 0) return *text != 0;
      if (is_deep && *behind == '/') {
        deep = p = behind + 1;
        deep_text = text;
        star = NULL;
      } else {
        star = p = behind;
        star_text = text;
        start = false;
      }
      continue;
    }
    if (*p == 0 && *text == 0) return true;
    const char *next = p;
    if (*p && *text && sign_matches(&next, *text)) {
      p = next;
      start = *text++ == '/';
      if (start) star = NULL;
    } else if (star && *star_text && *star_text != '/') {
      p = star;
      text = ++star_text;
      start = false;
    } else if (deep && (deep_text = strchr(deep_text, '/'))) {
      p = deep;
      text = ++deep_text;
      star = NULL;
      start = true;
    } else return false;
  }
}

/* Without the spaces at its end; one behind a backslash stays. */
static size_t trimmed(const char *line) {
  size_t len = 0;
  for (size_t i = 0; line[i]; i++) {
    if (line[i] == '\\' && line[i + 1]) i++;
    else if (line[i] == ' ') continue;
    len = i + 1;
  }
  return len;
}

static bool parse_rule(char *line, struct rule *rule) {
  size_t len = strlen(line);
  if (len && line[len - 1] == '\r') line[--len] = 0;
  line[len = trimmed(line)] = 0;
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
      if (glob(rule->pattern, rule->anchored ? path + list->base_len : name)) return !rule->negated;
    }
  return false;
}
