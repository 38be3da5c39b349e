/* What is constant once the program has been moved to where it lies cannot be written to afterwards. glibc does this for static
   programs, musl only for those that it loads itself. */
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__PIE__) && !defined(__GLIBC__)
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

__attribute__((constructor)) static void protect_constants(void) {
  const char *base = (const char *)&__ehdr_start;
  const ElfW(Phdr) *header = (const ElfW(Phdr) *)(base + __ehdr_start.e_phoff);
  for (int i = 0; i < __ehdr_start.e_phnum; i++) {
    if (header[i].p_type != PT_GNU_RELRO) continue;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)(base + header[i].p_vaddr) & -page;
    uintptr_t to = (uintptr_t)(base + header[i].p_vaddr + header[i].p_memsz) & -page;
    if (to > from && mprotect((void *)from, to - from, PROT_READ) < 0) _exit(70);
  }
}
#endif
