/* What seccomp calls this processor. */
#ifndef COPPICE_LIB_ARCHITECTURE_H
#define COPPICE_LIB_ARCHITECTURE_H

#include <linux/audit.h>

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "no system call filter for this architecture"
#endif

#endif
