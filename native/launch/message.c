#include "launch.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool message_valid(const struct message *message) {
  return message->size > 0 && message->size <= message_limit && message->data[message->size - 1] == '\0';
}

const char *message_next(const struct message *message, const char *key, const char **at) {
  size_t length = strlen(key);
  const char *end = message->data + message->size;
  const char *entry = *at ? *at + strlen(*at) + 1 : message->data;
  for (; entry < end; entry += strlen(entry) + 1) {
    if (strncmp(entry, key, length) == 0 && entry[length] == '=') {
      *at = entry;
      return entry + length + 1;
    }
  }
  *at = end;
  return NULL;
}

const char *message_get(const struct message *message, const char *key) {
  const char *at = NULL;
  return message_next(message, key, &at);
}

void message_put(struct message *message, const char *key, const char *format, ...) {
  size_t room = message_limit - message->size;
  int name = snprintf(message->data + message->size, room, "%s=", key);
  if (name < 0 || (size_t)name + 1 >= room) return;
  va_list arguments;
  va_start(arguments, format);
  int value = vsnprintf(message->data + message->size + name, room - (size_t)name, format, arguments);
  va_end(arguments);
  if (value < 0) return;
  size_t whole = (size_t)name + (size_t)value + 1;
  message->size += whole < room ? whole : room;
}
