/* Attention of rows of sequences over the key-value cache, in BF16.
 *
 * A lane is a row of a block, which has rows of one sequence, in one of the query heads that read
 * the same key-value head. Lanes count through the heads of a row first, then through the rows. The
 * positions of a page are one step of a product. */
#ifndef EASYRL_ATTENTION_CACHED_BF16_H
#define EASYRL_ATTENTION_CACHED_BF16_H

#include "cache.h"

_Static_assert(CACHE_PAGE == MMA_STEP, "a page is one step");

typedef struct {
  value *out;
  const value *q, *cache_k, *cache_v;
  easyrl_tables tables;
  easyrl_heads h;
  int64_t window;
  float *scratch;
  int64_t part; /* floats of scratch per thread */
  float exponent;
} cache_attend;

/* Some lanes of the block that begins with a row, from lane on. */
static void cache_attend_lanes(const cache_attend *a, int32_t row, int64_t lane, int32_t lanes, int64_t kv, float *scratch) {
  int32_t dim = a->h.dim, group = a->h.q / a->h.kv;
  const int32_t *table = a->tables.pages + (int64_t)a->tables.rows[row] * a->tables.stride;
  int64_t at[ATT_LANES], base = kv * CACHE_PAGE * dim, page = (int64_t)CACHE_PAGE * a->h.kv * dim;
  float il[ATT_LANES];
  att_query x = {.exponent = a->exponent, .window = a->window};
  for (int32_t i = 0; i < lanes; i++) {
    int64_t r = row + (lane + i) / group;
    x.position[i] = a->tables.lens[r] - 1;
    at[i] = r * a->h.q + kv * group + (lane + i) % group;
  }
  att_query_begin(&x, a->q, at, lanes, dim, scratch);
  int64_t first = max64(0, x.position[0] + 1 - a->window) / ATT_KEYS * ATT_KEYS, keys = x.position[lanes - 1] + 1;
  while (first < keys) {
    att_split_begin(&x);
    for (int64_t end = min64(keys, round_up(first + 1, ATT_SPLIT)), n; first < end; first += n) {
      att_tile_keys tile = {.paged = 1};
      n = min64(ATT_KEYS, end - first);
      for (int64_t j = 0; j < n; j += CACHE_PAGE) {
        int64_t from = table[(first + j) / CACHE_PAGE] * page + base;
        tile.k[j / CACHE_PAGE] = a->cache_k + from;
        for (int64_t i = j; i < min64(n, j + CACHE_PAGE); i++) tile.v[i] = a->cache_v + from + (i - j) * dim;
      }
      att_attend(&x, first, n, &tile);
    }
    att_split_end(&x);
  }
  att_query_end(&x, a->out, at, il);
}

static void cache_attend_task(void *arg, int64_t task, int32_t thread) {
  const cache_attend *a = arg;
  int64_t block = task / a->h.kv, kv = task % a->h.kv;
  int32_t row = a->tables.blocks[block];
  int64_t lanes = (int64_t)(a->tables.blocks[block + 1] - row) * (a->h.q / a->h.kv);
  for (int64_t lane = 0; lane < lanes; lane += ATT_LANES)
    cache_attend_lanes(a, row, lane, (int32_t)min64(ATT_LANES, lanes - lane), kv, a->scratch + thread * a->part);
}

static void kernel_attention_cached(easyrl_device *d, void *out, const void *q, const void *cache_k,
                                    const void *cache_v, easyrl_tables tables, easyrl_heads h) {
  cache_attend a = {.out = out, .q = q, .cache_k = cache_k, .cache_v = cache_v, .tables = tables, .h = h};
  a.window = h.window ? h.window : INT32_MAX;
  a.exponent = score_exponent(h.dim);
  a.part = round_up(att_query_floats(h.dim), 16);
  a.scratch = device_scratch(d, pool_threads(d->pool) * a.part);
  if (!a.scratch) return;
  pool_run(d->pool, (int64_t)tables.n * h.kv, cache_attend_task, &a);
}

#endif
