/* The types and functions that the parts of the device for tests share (see far.c). */
#ifndef EASYRL_FAR_H
#define EASYRL_FAR_H

#define _GNU_SOURCE
#include "easyrl_device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The bits that distinguish a device address from the host address of the same memory. No host
 * address has them. */
#define FAR_TAG ((uintptr_t)0x0055 << 48)
/* NaN as a float32. As an int32 it is the largest one, which is no valid index. */
#define FAR_POISON 0x7fffffff
#define FAR_QUARANTINE 2048                       /* most freed blocks in quarantine */
#define FAR_QUARANTINE_BYTES ((int64_t)256 << 20) /* most bytes of these blocks */

typedef enum { FAR_LIVE, FAR_FREED, FAR_PINNED } far_state;

/* One allocation, of device memory or of pinned host memory. */
typedef struct far_block {
  char *base;
  int64_t bytes;
  far_state state;
  int32_t used; /* whether it counts as live memory, see far_unuse */
  easyrl_device *owner;
  struct far_block *next; /* in quarantine */
} far_block;

/* The memory that a device shares with its forks. */
typedef struct {
  pthread_mutex_t running; /* recursive; held while calls of any queue run */
  pthread_mutex_t mutex;   /* guards the following */
  far_block **blocks;      /* sorted by base */
  int64_t n, room;
  far_block *oldest, **newest; /* the quarantine: its first block, and where to append */
  int64_t freed, freed_bytes;
  int32_t queues;
} far_memory;

/* One recorded call. run replaces the device addresses in args by host addresses, and then runs
 * the CPU's kernel. */
typedef struct far_command {
  struct far_command *next;
  const char *name;
  void (*run)(easyrl_device *, void *args);
  size_t bytes; /* of args and the list that follows them */
  _Alignas(16) char args[];
} far_command;

/* Calls in order. */
typedef struct {
  far_command *first, **last;
} far_list;

struct easyrl_graph {
  far_list calls;
  easyrl_graph *next; /* the device's next graph */
};

/* A point in a queue, counted by references: the caller of record has one, and so has each
 * queued command that names the event. */
struct easyrl_event {
  easyrl_device *device;
  _Atomic int32_t passed, holders;
};

struct easyrl_device {
  far_memory *memory;
  const easyrl_device_api *api; /* the CPU's kernels */
  easyrl_device *cpu;
  pthread_mutex_t mutex; /* guards queue */
  far_list queue;
  easyrl_graph *capture; /* the graph being recorded, or NULL */
  easyrl_graph *graphs;
  const char *running; /* name of the running command */
  int32_t valid;       /* whether all arguments of the running command checked so far are valid */
  int32_t failed;
  char name[64], failure[256];
};

enum { FAR_WAITS, FAR_UPLOADS, FAR_DOWNLOADS, FAR_BYTES_UP, FAR_BYTES_DOWN, FAR_KERNELS, FAR_CAPTURES, FAR_REPLAYS, FAR_COUNTERS };

static void far_count(int counter, int64_t n);

/* Counts a packed matrix and reports whether it fails. */
static int far_breaks(void);

/* Records a failure of the running command. */
static void far_fail(easyrl_device *, const char *operand, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Adds a command to the queue or, during a capture, to the graph. The command has copies of the
 * arguments and, after them, of a list. */
static void far_push(easyrl_device *, const char *name, void (*run)(easyrl_device *, void *args), const void *args, size_t bytes,
                     const void *list, size_t list_bytes);

/* Runs all commands in the queue or, if end is not NULL, those up to that event. */
static void far_flush(easyrl_device *, const easyrl_event *end);

/* Runs all commands in the queue. Counts this as a wait of the host if there are any. */
static void far_wait(easyrl_device *);

/* Returns the host address of an operand of the running command, a device address of a number of
 * bytes. Records a failure and returns NULL if these are not live memory of the device. Returns
 * NULL for 0 bytes. */
static void *far_near(easyrl_device *, const char *operand, const void *address, int64_t bytes);

/* Returns address if a number of bytes from there on are pinned memory. Otherwise records a
 * failure and returns NULL. */
static void *far_pinned(easyrl_device *, const char *operand, const void *address, int64_t bytes);

/* Records a failure unless all n indices are in [lo, hi). Does nothing if p is NULL. */
static void far_indices(easyrl_device *, const char *operand, const int32_t *p, int64_t n, int64_t lo, int64_t hi);

/* Returns the largest of n indices, or -1 if p is NULL or n is 0. */
static inline int64_t far_most(const int32_t *p, int64_t n) {
  int64_t most = -1;
  for (int64_t i = 0; p && i < n; i++) most = p[i] > most ? p[i] : most;
  return most;
}

#endif
