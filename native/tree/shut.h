/* Files and directories of this user whose mode forbids reading. Their modes are changed for as long as they are read. */
#ifndef COPPICE_TREE_SHUT_H
#define COPPICE_TREE_SHUT_H

/* As openat(), for reading. A directory whose mode had to change keeps the new mode until shut_again(). -1 with errno. */
int open_own(int dir, const char *name, int flags);
/* Gives these directories their modes again. */
void shut_again(void);

#endif
