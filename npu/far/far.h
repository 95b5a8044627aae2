/* A queue on memory that the host cannot address. */
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

/* Set in every address of the device. No address of the host has these bits. */
#define FAR_TAG ((uintptr_t)0x0055 << 48)
/* NaN as float32, the greatest int32: no index. */
#define FAR_POISON 0x7fffffff
#define FAR_QUARANTINE 2048 /* freed blocks that are kept */
#define FAR_QUARANTINE_BYTES ((int64_t)256 << 20) /* their bytes, at most */

typedef enum { FAR_LIVE, FAR_FREED, FAR_PINNED } far_state;

/* One allocation, of device memory or of pinned host memory. */
typedef struct far_block {
  char *base;
  int64_t bytes;
  far_state state;
  int32_t used; /* counts as live: it is not being freed */
  easyrl_device *owner;
  struct far_block *next; /* in quarantine */
} far_block;

/* The memory that a device shares with its forks. */
typedef struct {
  pthread_mutex_t running; /* recursive; held while calls of any queue run */
  pthread_mutex_t mutex;   /* of what follows */
  far_block **blocks;      /* by base */
  int64_t n, room;
  far_block *oldest, **newest; /* the quarantine */
  int64_t freed, freed_bytes;
  int32_t queues;
} far_memory;

/* One call. run changes its arguments and runs the kernel. */
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
  easyrl_graph *next; /* of the device's */
};

/* A point in a queue. Reference-counted: the owner and each queued command hold one. */
struct easyrl_event {
  easyrl_device *device;
  _Atomic int32_t passed, holders;
};

struct easyrl_device {
  far_memory *memory;
  const easyrl_device_api *api; /* the CPU's kernels */
  easyrl_device *cpu;
  pthread_mutex_t mutex; /* of the queue */
  far_list queue;
  easyrl_graph *capture; /* the graph being recorded, or NULL */
  easyrl_graph *graphs;
  const char *running;
  int32_t valid; /* whether the running command's arguments are, so far */
  int32_t failed;
  char name[64], failure[256];
};

enum { FAR_WAITS, FAR_UPLOADS, FAR_DOWNLOADS, FAR_BYTES_UP, FAR_BYTES_DOWN, FAR_KERNELS, FAR_CAPTURES, FAR_REPLAYS, FAR_COUNTERS };

static void far_count(int counter, int64_t n);

/* Counts a packed matrix and reports whether it fails. */
static int far_breaks(void);

/* Records a failure of the running command. */
static void far_fail(easyrl_device *, const char *operand, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Adds a command to the queue, or to what is captured, with its arguments and a list that
 * follows them. */
static void far_push(easyrl_device *, const char *name, void (*run)(easyrl_device *, void *args), const void *args, size_t bytes,
                     const void *list, size_t list_bytes);

/* Runs all commands, or those before an event. */
static void far_flush(easyrl_device *, const easyrl_event *end);

/* Counts a wait of the host, if there is anything to wait for, and runs all commands. */
static void far_wait(easyrl_device *);

/* Returns the host's address of an operand of the running command, NULL if it is not
 * bytes of live memory. */
static void *far_near(easyrl_device *, const char *operand, const void *address, int64_t bytes);

/* Returns pinned memory, NULL if it is not pinned. */
static void *far_pinned(easyrl_device *, const char *operand, const void *address, int64_t bytes);

/* Requires indices to be in [lo, hi). p may be NULL. */
static void far_indices(easyrl_device *, const char *operand, const int32_t *p, int64_t n, int64_t lo, int64_t hi);

/* Returns the greatest of n indices, -1 of none. */
static inline int64_t far_most(const int32_t *p, int64_t n) {
  int64_t most = -1;
  for (int64_t i = 0; p && i < n; i++) most = p[i] > most ? p[i] : most;
  return most;
}

#endif
