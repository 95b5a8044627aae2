//go:build unix

#define _GNU_SOURCE
#include "../csrc/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SPINS 2000         /* polls before a thread sleeps */
#define CLOSED 0xffffffffu /* lower half of word between jobs */

/* A job is one call of pool_run. word holds the job's number in its upper half. Its lower half
 * is the job's next task, or CLOSED between jobs. To claim a task, a thread reads word and then
 * replaces it by word + 1 with a compare-and-swap. If that succeeds, the fn, arg and tasks that
 * the thread read in between belong to the same job, because they change only while word is
 * CLOSED. */
struct pool {
  int32_t threads, started;
  _Atomic uint64_t word;
  _Atomic int64_t tasks, done;
  _Atomic(pool_fn) fn;
  _Atomic(void *) arg;
  _Atomic int32_t limit, sleepers, waiting, stop;
  pthread_mutex_t mutex;
  pthread_cond_t work, allowed, finished;
  struct worker { pool *pool; int32_t index; pthread_t thread; } *workers;
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Runs one task of the current job, if a task is left. Returns whether it did. */
static int run_one(pool *p, int32_t thread) {
  uint64_t word = atomic_load(&p->word);
  for (;;) {
    uint32_t task = (uint32_t)word;
    if (task == CLOSED) return 0;
    int64_t tasks = atomic_load(&p->tasks);
    pool_fn fn = atomic_load(&p->fn);
    void *arg = atomic_load(&p->arg);
    if ((int64_t)task >= tasks) return 0;
    if (!atomic_compare_exchange_weak(&p->word, &word, word + 1)) continue;
    fn(arg, task, thread);
    if (atomic_fetch_add(&p->done, 1) + 1 == tasks && atomic_load(&p->waiting)) {
      pthread_mutex_lock(&p->mutex);
      pthread_cond_signal(&p->finished);
      pthread_mutex_unlock(&p->mutex);
    }
    return 1;
  }
}

/* Returns whether the current job has a task left. */
static int has_task(pool *p) {
  uint32_t task = (uint32_t)atomic_load(&p->word);
  return task != CLOSED && (int64_t)task < atomic_load(&p->tasks);
}

/* The body of a worker thread. A thread is barred while its index is at or above the limit. */
static void *work(void *arg) {
  struct worker *self = arg;
  pool *p = self->pool;
  int spins = 0;
  while (!atomic_load(&p->stop)) {
    int barred = self->index >= atomic_load(&p->limit);
    if (!barred && run_one(p, self->index)) {
      spins = 0;
      continue;
    }
    if (!barred && ++spins < SPINS) {
      relax();
      continue;
    }
    spins = 0;
    pthread_mutex_lock(&p->mutex);
    if (barred) { /* no job wakes this thread, so it is not among the sleepers */
      while (self->index >= atomic_load(&p->limit) && !atomic_load(&p->stop)) pthread_cond_wait(&p->allowed, &p->mutex);
    } else {
      atomic_fetch_add(&p->sleepers, 1);
      while (!has_task(p) && self->index < atomic_load(&p->limit) && !atomic_load(&p->stop)) pthread_cond_wait(&p->work, &p->mutex);
      atomic_fetch_sub(&p->sleepers, 1);
    }
    pthread_mutex_unlock(&p->mutex);
  }
  return 0;
}

pool *pool_open(int32_t threads) {
  pool *p = calloc(1, sizeof *p);
  if (!p) return 0;
  p->threads = threads < 1 ? 1 : threads;
  atomic_store(&p->limit, p->threads);
  atomic_store(&p->word, CLOSED);
  pthread_mutex_init(&p->mutex, 0);
  pthread_cond_init(&p->work, 0);
  pthread_cond_init(&p->allowed, 0);
  pthread_cond_init(&p->finished, 0);
  p->workers = calloc((size_t)p->threads, sizeof *p->workers);
  if (!p->workers) {
    pool_close(p);
    return 0;
  }
  /* The workers block all signals, so that the program's own threads receive them. */
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int32_t failed = 0;
  for (int32_t i = 1; i < p->threads && !failed; i++) {
    struct worker *w = &p->workers[p->started];
    w->pool = p;
    w->index = i;
    failed = pthread_create(&w->thread, 0, work, w) != 0;
    p->started += !failed;
  }
  pthread_sigmask(SIG_SETMASK, &old, 0);
  if (failed) {
    pool_close(p);
    return 0;
  }
  return p;
}

void pool_close(pool *p) {
  if (!p) return;
  pthread_mutex_lock(&p->mutex);
  atomic_store(&p->stop, 1);
  pthread_cond_broadcast(&p->work);
  pthread_cond_broadcast(&p->allowed);
  pthread_mutex_unlock(&p->mutex);
  for (int32_t i = 0; i < p->started; i++) pthread_join(p->workers[i].thread, 0);
  pthread_cond_destroy(&p->work);
  pthread_cond_destroy(&p->allowed);
  pthread_cond_destroy(&p->finished);
  pthread_mutex_destroy(&p->mutex);
  free(p->workers);
  free(p);
}

int32_t pool_threads(const pool *p) { return p->threads; }

int32_t pool_limited(pool *p) { return atomic_load(&p->limit); }

void pool_limit(pool *p, int32_t n) {
  pthread_mutex_lock(&p->mutex);
  atomic_store(&p->limit, n < 1 ? 1 : n > p->threads ? p->threads : n);
  pthread_cond_broadcast(&p->work); /* threads that sleep on work may be barred now */
  pthread_cond_broadcast(&p->allowed);
  pthread_mutex_unlock(&p->mutex);
}

void pool_run(pool *p, int64_t tasks, pool_fn fn, void *arg) {
  if (tasks <= 1 || atomic_load(&p->limit) == 1) {
    for (int64_t i = 0; i < tasks; i++) fn(arg, i, 0);
    return;
  }
  atomic_store(&p->tasks, tasks);
  atomic_store(&p->done, 0);
  atomic_store(&p->fn, fn);
  atomic_store(&p->arg, arg);
  uint64_t job = (atomic_load(&p->word) >> 32) + 1;
  atomic_store(&p->word, job << 32);
  if (atomic_load(&p->sleepers) > 0) {
    pthread_mutex_lock(&p->mutex);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->mutex);
  }
  while (run_one(p, 0)) {
  }
  for (int spins = 0; spins < SPINS && atomic_load(&p->done) < tasks; spins++) relax();
  if (atomic_load(&p->done) < tasks) {
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->waiting, 1);
    while (atomic_load(&p->done) < tasks) pthread_cond_wait(&p->finished, &p->mutex);
    atomic_store(&p->waiting, 0);
    pthread_mutex_unlock(&p->mutex);
  }
  atomic_store(&p->word, (job << 32) | CLOSED);
}
