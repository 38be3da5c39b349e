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
    if (++at == end || !*at || !strchr("\"\\/bfnrtu", *at)) return NULL;
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

/* Goes through an object: `rest` is the object first. False after the last field. */
static bool next_field(struct json *rest, struct json *key, struct json *value) {
  const char *at = skip_space(rest->at + 1, rest->end);
  if (*at == '}') return false;
  key->at = at;
  key->end = skip_string(at, rest->end);
  value->at = skip_space(skip_space(key->end, rest->end) + 1, rest->end);
  value->end = skip_value(value->at, rest->end, 0);
  rest->at = skip_space(value->end, rest->end);
  if (*rest->at == '}') rest->at--;
  return true;
}

bool json_fields(struct json object, const char *const *keys, struct json *out, size_t count) {
  if (*object.at != '{') return false;
  size_t found = 0;
  for (size_t i = 0; i < count; i++) out[i].at = NULL;
  struct json key, value;
  while (found < count && next_field(&object, &key, &value)) {
    const size_t len = (size_t)(key.end - key.at) - 2;
    for (size_t i = 0; i < count; i++) {
      if (out[i].at || strncmp(keys[i], key.at + 1, len) != 0 || keys[i][len]) continue;
      out[i] = value;
      found++;
      break;
    }
  }
  return found == count;
}

bool json_field(struct json object, const char *key, struct json *out) { return json_fields(object, &key, out, 1); }

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

static uint32_t hex_digits(const char *at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; i++) value = value << 4 | (uint32_t)(at[i] <= '9' ? at[i] - '0' : (at[i] | 0x20) - 'a' + 10);
  return value;
}

/* Writes a sign as UTF-8; answers where the next one goes. */
static char *put_sign(char *to, uint32_t sign) {
  if (sign < 0x80) *to++ = (char)sign;
  else if (sign >= 0xdc80 && sign <= 0xdcff) *to++ = (char)(sign & 0xff);
  else if (sign < 0x800) *to++ = (char)(0xc0 | sign >> 6), *to++ = (char)(0x80 | (sign & 0x3f));
  else if (sign < 0x10000) {
    *to++ = (char)(0xe0 | sign >> 12);
    *to++ = (char)(0x80 | (sign >> 6 & 0x3f));
    *to++ = (char)(0x80 | (sign & 0x3f));
  } else {
    *to++ = (char)(0xf0 | sign >> 18);
    *to++ = (char)(0x80 | (sign >> 12 & 0x3f));
    *to++ = (char)(0x80 | (sign >> 6 & 0x3f));
    *to++ = (char)(0x80 | (sign & 0x3f));
  }
  return to;
}

char *json_text(struct json value) {
  if (*value.at != '"') return NULL;
  const char *at = value.at + 1, *end = value.end - 1;
  /* No escape is shorter than what it stands for. */
  char *text = malloc((size_t)(end - at) + 1), *to = text;
  if (!text) return NULL;
  static const char letters[] = "bfnrt", meanings[] = "\b\f\n\r\t";
  while (at < end) {
    if (*at != '\\') {
      *to++ = *at++;
      continue;
    }
    const char kind = at[1];
    at += 2;
    const char *letter = strchr(letters, kind);
    if (letter) *to++ = meanings[letter - letters];
    else if (kind != 'u') *to++ = kind;
    else {
      uint32_t sign = hex_digits(at);
      at += 4;
      if (sign >= 0xd800 && sign < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
        const uint32_t low = hex_digits(at + 2);
        if (low >= 0xdc00 && low < 0xe000) sign = 0x10000 + ((sign - 0xd800) << 10) + (low - 0xdc00), at += 6;
      }
      if (!sign) {
        free(text);
        return NULL;
      }
      to = put_sign(to, sign);
    }
  }
  *to = 0;
  return text;
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
