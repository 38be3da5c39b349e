#ifndef COPPICE_FUZZ_TAR_H
#define COPPICE_FUZZ_TAR_H

#include "harness.h"

/* A copy of a tar in which the checksum of every header is right: no fuzzer finds one that is. */
uint8_t *fuzz_tar(const uint8_t *data, size_t size);

#endif
