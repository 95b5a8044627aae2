/* The key-value cache, in both numerics.
 *
 * A page holds PAGE positions of every key-value head. Keys are [KV][Dim][PAGE], so that a vector is one
 * dimension of all the page's keys. Values are [KV][PAGE][Dim]. */
#ifndef EASYRL_CACHE_H
#define EASYRL_CACHE_H

#include "device.h"
#include "simd.h"
#include "values.h"

#define CACHE_PAGE EASYRL_PAGE_SIZE
#define CACHE_WRITES 16 /* rows per task of cache_write */
_Static_assert(CACHE_PAGE == VL, "a page is one vector");

typedef struct {
  value *cache_k, *cache_v;
  const value *k, *v;
  const int32_t *slots;
  int32_t t;
  easyrl_heads h;
} cache_rows;

static void cache_write_rows(void *arg, int64_t task, int32_t thread) {
  const cache_rows *a = arg;
  int32_t kv = a->h.kv, dim = a->h.dim;
  (void)thread;
  for (int64_t t = task * CACHE_WRITES; t < min64(a->t, (task + 1) * CACHE_WRITES); t++) {
    int64_t page = a->slots[t] / CACHE_PAGE, offset = a->slots[t] % CACHE_PAGE;
    for (int32_t c = 0; c < kv; c++) {
      value *base = a->cache_k + (page * kv + c) * CACHE_PAGE * dim + offset;
      const value *row = a->k + (t * kv + c) * dim;
      for (int32_t e = 0; e < dim; e++) base[(int64_t)e * CACHE_PAGE] = row[e];
      memcpy(a->cache_v + ((page * kv + c) * CACHE_PAGE + offset) * dim, a->v + (t * kv + c) * dim,
             (size_t)dim * sizeof(value));
    }
  }
}

static void kernel_cache_write(easyrl_device *d, void *cache_k, void *cache_v, const void *k, const void *v,
                               const int32_t *slots, int32_t t, easyrl_heads h) {
  cache_rows a = {cache_k, cache_v, k, v, slots, t, h};
  pool_run(d->pool, ceil_div(t, CACHE_WRITES), cache_write_rows, &a);
}

#endif
