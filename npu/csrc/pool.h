/* A pool of threads that belongs to one device. The caller of pool_run takes part
 * in the work, so a pool of one thread has no threads of its own and costs
 * nothing. Idle threads spin for some microseconds and then sleep. Devices in one
 * process share its cores by limiting their pools. */
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

/* Returns NULL if threads cannot be started. */
EASYRL_INTERNAL pool *pool_open(int32_t threads);
EASYRL_INTERNAL void pool_close(pool *);
EASYRL_INTERNAL int32_t pool_threads(const pool *);

/* Limits the pool to n threads, including the caller's, until the next call. The
 * other threads finish their task and sleep. Any thread may call it at any time. */
EASYRL_INTERNAL void pool_limit(pool *, int32_t n);
/* Returns the limit of pool_limit, initially pool_threads. */
EASYRL_INTERNAL int32_t pool_limited(pool *);

/* Calls fn for every task and returns when all are done. Tasks start in ascending
 * order. The thread that runs a task is not determined, so a task's result must
 * not depend on it. */
EASYRL_INTERNAL void pool_run(pool *, int64_t tasks, pool_fn fn, void *arg);

#endif
