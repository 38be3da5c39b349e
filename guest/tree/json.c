#include "json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64

static const char *skip_space(const char *at, const char *end) {
  while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) at++;
  return at;
}

static const char *skip_string(const char *at, const char *end) {
  for (at++; at < end && *at != '"'; at++) {
    if ((unsigned char)*at < 0x20) return NULL;
    if (*at != '\\') continue;
    if (++at == end || !strchr("\"\\/bfnrtu", *at)) return NULL;
    for (int digit = 0; *at == 'u' && digit < 4; digit++)
      if (end - at < 5 || !isxdigit((unsigned char)at[digit + 1])) return NULL;
  }
  return at < end ? at + 1 : NULL;
}

static const char *skip_digits(const char *at, const char *end) {
  const char *from = at;
  while (at < end && *at >= '0' && *at <= '9') at++;
  return at > from ? at : NULL;
}

static const char *skip_number(const char *at, const char *end) {
  if (*at == '-') at++;
  if (!(at = skip_digits(at, end))) return NULL;
  if (at < end && *at == '.' && !(at = skip_digits(at + 1, end))) return NULL;
  if (at < end && (*at == 'e' || *at == 'E')) {
    at++;
    if (at < end && (*at == '+' || *at == '-')) at++;
    at = skip_digits(at, end);
  }
  return at;
}

static const char *skip_word(const char *at, const char *end, const char *word) {
  const size_t len = strlen(word);
  return (size_t)(end - at) >= len && memcmp(at, word, len) == 0 ? at + len : NULL;
}

/* Behind the value that begins here; NULL when there is none. */
static const char *skip_value(const char *at, const char *end, int depth) {
  if (at == end || depth == DEPTH_MAX) return NULL;
  if (*at == '"') return skip_string(at, end);
  if (*at == 't') return skip_word(at, end, "true");
  if (*at == 'f') return skip_word(at, end, "false");
  if (*at == 'n') return skip_word(at, end, "null");
  if (*at != '{' && *at != '[') return skip_number(at, end);
  const bool object = *at == '{';
  const char close = object ? '}' : ']';
  at = skip_space(at + 1, end);
  if (at < end && *at == close) return at + 1;
  for (;;) {
    if (object) {
      if (at == end || *at != '"' || !(at = skip_string(at, end))) return NULL;
      at = skip_space(at, end);
      if (at == end || *at != ':') return NULL;
      at = skip_space(at + 1, end);
    }
    if (!(at = skip_value(at, end, depth + 1))) return NULL;
    at = skip_space(at, end);
    if (at == end) return NULL;
    if (*at == close) return at + 1;
    if (*at != ',') return NULL;
    at = skip_space(at + 1, end);
  }
}

bool json_parse(const char *text, size_t len, struct json *out) {
  out->at = skip_space(text, text + len);
  out->end = skip_value(out->at, text + len, 0);
  return out->end && skip_space(out->end, text + len) == text + len;
}

bool json_field(struct json object, const char *key, struct json *out) {
  if (*object.at != '{') return false;
  const size_t len = strlen(key);
  for (const char *at = skip_space(object.at + 1, object.end); *at != '}';) {
    const char *name = at + 1;
    at = skip_string(at, object.end);
    const bool found = (size_t)(at - 1 - name) == len && memcmp(name, key, len) == 0;
    out->at = skip_space(skip_space(at, object.end) + 1, object.end);
    out->end = skip_value(out->at, object.end, 0);
    if (found) return true;
    at = skip_space(out->end, object.end);
    if (*at == ',') at = skip_space(at + 1, object.end);
  }
  return false;
}

bool json_next(struct json *rest, struct json *element) {
  if (*rest->at != '[' && *rest->at != ',') return false;
  element->at = skip_space(rest->at + 1, rest->end);
  if (*element->at == ']') return false;
  element->end = skip_value(element->at, rest->end, 0);
  rest->at = skip_space(element->end, rest->end);
  return true;
}

bool json_is(struct json value, const char *text) {
  return (size_t)(value.end - value.at) == strlen(text) && memcmp(value.at, text, strlen(text)) == 0;
}

bool json_string(struct json value, char *out, size_t size) {
  if (*value.at != '"') return false;
  const size_t len = (size_t)(value.end - value.at) - 2;
  if (len >= size || memchr(value.at, '\\', len + 1)) return false;
  memcpy(out, value.at + 1, len);
  out[len] = 0;
  return true;
}

bool json_field_string(struct json object, const char *key, char *out, size_t size) {
  struct json value;
  return json_field(object, key, &value) && json_string(value, out, size);
}

bool json_field_number(struct json object, const char *key, uint64_t *out) {
  struct json value;
  if (!json_field(object, key, &value) || !isdigit((unsigned char)*value.at)) return false;
  *out = strtoull(value.at, NULL, 10);
  return true;
}
