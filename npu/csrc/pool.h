/* A pool of threads that belongs to one device. The caller of pool_run takes part in the
 * work and counts as one of the threads, so a pool of one thread starts none. Idle threads
 * spin for some microseconds and then sleep. Devices in one process share its cores by
 * limiting their pools. */
#ifndef EASYRL_POOL_H
#define EASYRL_POOL_H

#include <stdint.h>

#if defined(__GNUC__)
#define EASYRL_INTERNAL __attribute__((visibility("hidden")))
#else
#define EASYRL_INTERNAL
#endif

typedef struct pool pool;

/* Runs one task; task is in [0, tasks), thread in [0, threads). */
typedef void (*pool_fn)(void *arg, int64_t task, int32_t thread);

/* Opens a pool of a number of threads, the caller's included. Returns NULL if it cannot
 * start them. */
EASYRL_INTERNAL pool *pool_open(int32_t threads);
EASYRL_INTERNAL void pool_close(pool *);
EASYRL_INTERNAL int32_t pool_threads(const pool *);

/* Limits the pool to n threads, the caller's included, until the next call of pool_limit.
 * Threads above the limit finish their task and sleep. Any thread may call it at any
 * time. */
EASYRL_INTERNAL void pool_limit(pool *, int32_t n);
/* Returns the limit of pool_limit, initially pool_threads. */
EASYRL_INTERNAL int32_t pool_limited(pool *);

/* Calls fn for every task and returns when all are done. Tasks start in ascending order. Any
 * of the threads may run a task, so its result must not depend on the thread. Only one
 * thread at a time may call pool_run. */
EASYRL_INTERNAL void pool_run(pool *, int64_t tasks, pool_fn fn, void *arg);

#endif
