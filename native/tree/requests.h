/*
 * Answers requests until the input ends. Each is a length (u32) and that many bytes of words that end with NUL: the operation, then
 * key=value. Each answer is one line of JSON; lines {"notice":"…"} may come before it. The first failure is the last answer: the process
 * ends with it. Locks last as long as the process, so that whoever dies leaves none behind.
 */
#ifndef COPPICE_TREE_REQUESTS_H
#define COPPICE_TREE_REQUESTS_H

void answer_requests(void);

#endif
