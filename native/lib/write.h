#ifndef COPPICE_LIB_WRITE_H
#define COPPICE_LIB_WRITE_H

#include <stdbool.h>
#include <stddef.h>

/* All of the bytes, however many calls that takes. False with errno. */
bool write_fully(int fd, const void *bytes, size_t length);

#endif
