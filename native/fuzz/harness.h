/*
 * What every fuzzer here needs. A fuzzer gives one input after another to a part of a program, in one process. Programs that do
 * one thing and end leave their memory and descriptors to the kernel: fuzz_tidy() takes those back. Where a program ends, it
 * comes back to the harness.
 */
#ifndef COPPICE_FUZZ_HARNESS_H
#define COPPICE_FUZZ_HARNESS_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern jmp_buf fuzz_over;
/* What follows is done until the program ends. */
#define FUZZED if (setjmp(fuzz_over) == 0)

/* After each input: frees what was allocated, closes what was opened. */
void fuzz_tidy(void);
/* A file of exactly these bytes as standard input, for read() and as a stream. */
void fuzz_input(const uint8_t *data, size_t size);
/* An empty directory, the same for every input; fuzz_tidy() removes it. */
const char *fuzz_directory(void);
/* A descriptor of a file of exactly these bytes. */
int fuzz_file(const uint8_t *data, size_t size);
/* Memory of exactly these bytes, so that one too many is noticed. */
void *fuzz_copy(const void *data, size_t size);

#endif
