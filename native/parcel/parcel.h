/*
 * coppice-parcel: a directory tree as a stream of bytes, and back. What it keeps: names of any bytes, owners, modes, times to the
 * nanosecond, hard links, holes, FIFOs, sockets, attributes, and the whiteouts and opaque marks of an overlay's upper layer.
 *
 * The stream (all numbers little endian): MAGIC, then a ROOT record, then the entries of the root, depth first, each directory's
 * in the order of their bytes, and END. There are no paths in it: an entry has one name, and UP leaves the directory that was
 * entered last. So nothing can be named that lies outside of the tree, and no name can come twice.
 *
 *   ROOT attributes                          FILE name attributes size(u64) { offset(u64) length(u64) bytes }* size(u64) 0(u64)
 *   DIRECTORY name attributes                SYMLINK name attributes length(u16) target
 *   FIFO, SOCKET, WHITEOUT name attributes   LINK name number(u32): another name of the entry that was the number-th with
 *   UP, END                                  the flag FLAG_LINKED, counted from zero
 *
 *   name: length(u8) bytes      attributes: flags(u8) mode(u32) uid(u32) gid(u32) seconds(i64) nanoseconds(u32) count(u16)
 *                               { name-length(u8) value-length(u32) name value }*
 */
#ifndef COPPICE_PARCEL_H
#define COPPICE_PARCEL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../lib/stop.h"

#define MAGIC "CPTREE1\n"
#define MAGIC_LENGTH 8

enum record {
  RECORD_ROOT = 'R',
  RECORD_DIRECTORY = 'D',
  RECORD_UP = 'U',
  RECORD_FILE = 'F',
  RECORD_SYMLINK = 'L',
  RECORD_LINK = 'H',
  RECORD_FIFO = 'P',
  RECORD_SOCKET = 'S',
  RECORD_WHITEOUT = 'W',
  RECORD_END = 'E',
};

#define FLAG_LINKED 1 /* more names of it may follow */

#define MAX_NAME 255
#define MAX_TARGET 4095
#define MAX_ATTRIBUTES 1024
#define MAX_VALUE 65536
#define MAX_DEPTH 8000
#define MAX_IMAGE_PATH 3000 /* the daemon reads and removes images by path; archives have the same bound */
#define COPY_BYTES (256 * 1024)

/* What a tree is for decides what may be in it. */
enum policy {
  POLICY_DISK,   /* the upper layer of an overlay: whiteouts and opaque marks too */
  POLICY_IMAGE,  /* a root filesystem: no devices of any kind, no marks of an overlay */
  POLICY_MEMORY, /* plain files in one directory, without attributes */
};

int parse_policy(const char *name, enum policy *policy);
/* Attributes that mean the same wherever the tree goes. Of an overlay's own marks only what changes what one sees. */
int keeps_attribute(enum policy policy, const char *name);

/* pack writes a tree as a stream; measure says how long that stream would be. */
void pack(enum policy policy, const char *directory);
void measure(enum policy policy, const char *directory);
/* Without a directory nothing is written: the stream is only looked at. */
void unpack(enum policy policy, uint64_t max_bytes, const char *directory);

#endif
