/* Requests to coppice-pool, up to the point where one is carried out. */
#define main pool_main
#include "../pool/main.c"
#undef main
#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct job job = {.length = (uint32_t)size};
  job.frame = fuzz_malloc(size + 1);
  if (size > 0) memcpy(job.frame, data, size);
  job.frame[size] = 0;
  if (parse(&job, &job.request, &job.name) == 0) {
    job.entry = find_operation(job.name);
    is_slow(&job);
    cancel(&job);
    for (int index = 0; index < job.request.field_count; index++) {
      uint64_t number;
      parse_number(job.request.fields[index].data, &number);
      if (strlen(job.request.fields[index].data) != job.request.fields[index].length) abort();
    }
  }
  fuzz_tidy();
  return 0;
}
