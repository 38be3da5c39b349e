/* Names of errors, which the daemon looks for. The C library that the agent is linked with has none. */
#include <errno.h>

#include "agent.h"

#define NAME(error) [error] = #error,
static const char *const names[] = {
    NAME(EPERM) NAME(ENOENT) NAME(ESRCH) NAME(EINTR) NAME(EIO) NAME(ENXIO) NAME(E2BIG) NAME(ENOEXEC) NAME(EBADF) NAME(ECHILD) NAME(EAGAIN)
        NAME(ENOMEM) NAME(EACCES) NAME(EFAULT) NAME(ENOTBLK) NAME(EBUSY) NAME(EEXIST) NAME(EXDEV) NAME(ENODEV) NAME(ENOTDIR) NAME(EISDIR)
            NAME(EINVAL) NAME(ENFILE) NAME(EMFILE) NAME(ENOTTY) NAME(ETXTBSY) NAME(EFBIG) NAME(ENOSPC) NAME(ESPIPE) NAME(EROFS) NAME(EMLINK)
                NAME(EPIPE) NAME(EDOM) NAME(ERANGE) NAME(EDEADLK) NAME(ENAMETOOLONG) NAME(ENOLCK) NAME(ENOSYS) NAME(ENOTEMPTY) NAME(ELOOP)
                    NAME(ENOMSG) NAME(EIDRM) NAME(ECHRNG) NAME(EL2NSYNC) NAME(EL3HLT) NAME(EL3RST) NAME(ELNRNG) NAME(EUNATCH) NAME(ENOCSI)
                        NAME(EL2HLT) NAME(EBADE) NAME(EBADR) NAME(EXFULL) NAME(ENOANO) NAME(EBADRQC) NAME(EBADSLT) NAME(EBFONT) NAME(ENOSTR)
                            NAME(ENODATA) NAME(ETIME) NAME(ENOSR) NAME(ENONET) NAME(ENOPKG) NAME(EREMOTE) NAME(ENOLINK) NAME(EADV)
                                NAME(ESRMNT) NAME(ECOMM) NAME(EPROTO) NAME(EMULTIHOP) NAME(EDOTDOT) NAME(EBADMSG) NAME(EOVERFLOW)
                                    NAME(ENOTUNIQ) NAME(EBADFD) NAME(EREMCHG) NAME(ELIBACC) NAME(ELIBBAD) NAME(ELIBSCN) NAME(ELIBMAX)
                                        NAME(ELIBEXEC) NAME(EILSEQ) NAME(ERESTART) NAME(ESTRPIPE) NAME(EUSERS) NAME(ENOTSOCK)
                                            NAME(EDESTADDRREQ) NAME(EMSGSIZE) NAME(EPROTOTYPE) NAME(ENOPROTOOPT) NAME(EPROTONOSUPPORT)
                                                NAME(ESOCKTNOSUPPORT) NAME(EOPNOTSUPP) NAME(EPFNOSUPPORT) NAME(EAFNOSUPPORT)
                                                    NAME(EADDRINUSE) NAME(EADDRNOTAVAIL) NAME(ENETDOWN) NAME(ENETUNREACH) NAME(ENETRESET)
                                                        NAME(ECONNABORTED) NAME(ECONNRESET) NAME(ENOBUFS) NAME(EISCONN) NAME(ENOTCONN)
                                                            NAME(ESHUTDOWN) NAME(ETOOMANYREFS) NAME(ETIMEDOUT) NAME(ECONNREFUSED)
                                                                NAME(EHOSTDOWN) NAME(EHOSTUNREACH) NAME(EALREADY) NAME(EINPROGRESS)
                                                                    NAME(ESTALE) NAME(EUCLEAN) NAME(ENOTNAM) NAME(ENAVAIL) NAME(EISNAM)
                                                                        NAME(EREMOTEIO) NAME(EDQUOT) NAME(ENOMEDIUM) NAME(EMEDIUMTYPE)
                                                                            NAME(ECANCELED) NAME(ENOKEY) NAME(EKEYEXPIRED) NAME(EKEYREVOKED)
                                                                                NAME(EKEYREJECTED) NAME(EOWNERDEAD) NAME(ENOTRECOVERABLE)
                                                                                    NAME(ERFKILL) NAME(EHWPOISON)};

const char *name_of_errno(int error) {
  if (error < 0 || (unsigned)error >= sizeof names / sizeof *names || names[error] == 0) return "";
  return names[error];
}
