/* Included ahead of the sources of a program (-include): what belongs to the process goes to the harness instead. */
#ifndef COPPICE_FUZZ_REDIRECT_H
#define COPPICE_FUZZ_REDIRECT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void fuzz_exit(int code);
void *fuzz_malloc(size_t size);
void *fuzz_calloc(size_t count, size_t size);
void *fuzz_realloc(void *memory, size_t size);
char *fuzz_strdup(const char *text);
void fuzz_free(void *memory);
extern FILE *fuzz_stdin;

#undef stdin
#define stdin fuzz_stdin
#define getchar() getc(fuzz_stdin)
#define exit fuzz_exit
#define _exit fuzz_exit
#define malloc fuzz_malloc
#define calloc fuzz_calloc
#define realloc fuzz_realloc
#define strdup fuzz_strdup
#define free fuzz_free

#endif
