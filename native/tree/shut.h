/* Files and directories of ours that their mode keeps us from reading. They are opened up for as long as they are read. */
#ifndef COPPICE_TREE_SHUT_H
#define COPPICE_TREE_SHUT_H

/* As openat(), for reading. A directory that it has to open up stays so until shut_again(). -1 with errno. */
int open_own(int dir, const char *name, int flags);
/* Gives these directories their modes again. */
void shut_again(void);

#endif
