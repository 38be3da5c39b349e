/* Reads JSON where it stands. What is not JSON is found; strings are only handed out when they need no unescaping. */
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
/* The elements of an array, one after the other; `rest` is the array first. False after the last one. */
bool json_next(struct json *rest, struct json *element);
bool json_is(struct json value, const char *text);
/* A string without escapes, no longer than `size` with its NUL. */
bool json_string(struct json value, char *out, size_t size);
bool json_field_string(struct json object, const char *key, char *out, size_t size);
bool json_field_number(struct json object, const char *key, uint64_t *out);

#endif
