#include "launch.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Keeps what failed, with errno where it is set, for the one who asked. */
bool fail(char *reason, const char *format, ...) {
  int number = errno;
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(reason, reason_limit, format, arguments);
  va_end(arguments);
  if (number != 0 && length > 0 && length < reason_limit)
    snprintf(reason + length, (size_t)(reason_limit - length), ": %s", strerror(number));
  return false;
}
