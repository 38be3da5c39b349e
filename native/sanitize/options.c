/* Linked into every program that is built with sanitizers: what they find ends the program by a signal, which no test takes for
   an answer, and is written where the tests look for it at the end. Programs that are about to exit leave their memory to the
   kernel, so that is no finding. */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *__asan_default_options(void) { return "abort_on_error=1:detect_leaks=0:log_path=" REPORTS; }
const char *__ubsan_default_options(void) { return "abort_on_error=1:print_stacktrace=1:log_path=" REPORTS; }
