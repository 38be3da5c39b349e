/* Reads JSON in place, and refuses text that is not JSON. */
#ifndef COPPICE_TREE_JSON_H
#define COPPICE_TREE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text of one value. */
struct json {
  const char *at, *end;
};

/* False when the text is not one whole value. */
bool json_parse(const char *text, size_t len, struct json *out);
/* The functions below are for values that were parsed. False when the object has no such field, or it is no object. */
bool json_field(struct json object, const char *key, struct json *out);
/* Several at once, in one pass over the object. False when one is not there. */
bool json_fields(struct json object, const char *const *keys, struct json *out, size_t count);
/* The elements of an array, one after the other; `rest` is the array first. False after the last one. */
bool json_next(struct json *rest, struct json *element);
bool json_is(struct json value, const char *text);
/* A string without escapes, no longer than `size` with its NUL. */
bool json_string(struct json value, char *out, size_t size);
/* Any string as UTF-8, for the caller to free; NULL: it is none, or holds a NUL. A lone surrogate from U+DC80 to U+DCFF is the byte
   that it stands for in a name that is not UTF-8. */
char *json_text(struct json value);
bool json_field_string(struct json object, const char *key, char *out, size_t size);
bool json_field_number(struct json object, const char *key, uint64_t *out);

#endif
