/*
 * coppice-tree: everything of versioned workspaces that touches files, and the log that says what happened.
 *
 *   coppice-tree                    answers requests on its input and output (requests.c)
 *   coppice-tree --progress         the same, and counts on the terminal what it reads
 *   coppice-tree --owner-of=DIR     the same; what root makes belongs to the owner of DIR
 *   coppice-tree jvs COMMAND ARG…   does what is plain (direct.c), else becomes COMMAND, which is Node with jvs
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"
#include "direct.h"
#include "owner.h"
#include "progress.h"
#include "requests.h"

/* If standard input, output or error is closed, the next file that is opened would get its number and be written to by mistake. */
static void have_stdio(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) _exit(70);
}

int main(int argc, char **argv) {
  have_stdio();
  if (argc > 2 && strcmp(argv[1], "jvs") == 0) do_directly(argv + 2);
  static const char owner_of[] = "--owner-of=";
  bool progress = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--progress") == 0) progress = true;
    else if (strncmp(argv[i], owner_of, strlen(owner_of)) == 0) make_files_for_owner_of(argv[i] + strlen(owner_of));
    else die("invalid_argument", "usage: coppice-tree [--progress] [--owner-of=DIR] | jvs COMMAND ARG ...");
  }
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  if (progress) progress_watch();
  /* The caller may be dead before this takes effect. Then the input has ended, and reading it ends this process. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  umask(0077);
  answer_requests();
  return 0;
}
