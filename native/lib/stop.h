/* For programs that do one thing and end: how they give up, and what they do before they begin. */
#ifndef COPPICE_LIB_STOP_H
#define COPPICE_LIB_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Says why on stderr and ends the program. `code` is the first word, one that the daemon knows. */
_Noreturn void stop(const char *code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for an error of the kernel: the code follows from errno. */
_Noreturn void stop_errno(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What an allocation gave, unless that is nothing. */
void *must(void *memory) __attribute__((returns_nonnull));

/* As many descriptors as this process may have: a walk holds one for every level. */
void allow_many_files(void);
/* Digits alone. */
bool parse_number(const char *text, uint64_t *number);

/* The names in a directory, sorted by their bytes; the caller frees each and the list. */
char **list_names(int directory, size_t *count);

#endif
