/* The key-value cache and attention of single rows over it.
 *
 * A page holds PAGE positions of every key-value head. Keys are [KV][Dim][PAGE],
 * so that a vector is one dimension of all the page's keys. Values are
 * [KV][PAGE][Dim]. */
#ifndef EASYRL_ATTENTION_CACHED_H
#define EASYRL_ATTENTION_CACHED_H

#include "device.h"
#include "easyrl_math.h"
#include "simd.h"

#define CACHE_PAGE EASYRL_PAGE_SIZE
_Static_assert(CACHE_PAGE == VL, "a page is one vector");

#if defined(SIMD_AVX512)
#define CACHE_HEADS 4 /* heads, pages and vectors of a register block */
#define CACHE_PAGES 4
#define CACHE_NV 4
#else
#define CACHE_HEADS 2
#define CACHE_PAGES 2
#define CACHE_NV 2
#endif
#define CACHE_ROWS 16 /* rows per task of cache_write */

typedef struct {
  float *cache_k, *cache_v;
  const float *k, *v;
  const int32_t *slots;
  int32_t t;
  easyrl_heads h;
} cache_rows;

static void cache_write_rows(void *arg, int64_t task, int32_t thread) {
  const cache_rows *a = arg;
  int32_t kv = a->h.kv, dim = a->h.dim;
  (void)thread;
  for (int64_t t = task * CACHE_ROWS; t < min64(a->t, (task + 1) * CACHE_ROWS); t++) {
    int64_t page = a->slots[t] / CACHE_PAGE, offset = a->slots[t] % CACHE_PAGE;
    for (int32_t c = 0; c < kv; c++) {
      float *base = a->cache_k + (page * kv + c) * CACHE_PAGE * dim + offset;
      const float *row = a->k + (t * kv + c) * dim;
      for (int32_t e = 0; e < dim; e++) base[(int64_t)e * CACHE_PAGE] = row[e];
      memcpy(a->cache_v + ((page * kv + c) * CACHE_PAGE + offset) * dim, a->v + (t * kv + c) * dim, (size_t)dim * 4);
    }
  }
}

static void kernel_cache_write(easyrl_device *d, float *cache_k, float *cache_v, const float *k, const float *v,
                               const int32_t *slots, int32_t t, easyrl_heads h) {
  cache_rows a = {cache_k, cache_v, k, v, slots, t, h};
  pool_run(d->pool, ceil_div(t, CACHE_ROWS), cache_write_rows, &a);
}

typedef struct {
  float *out;
  const float *q, *cache_k, *cache_v;
  easyrl_tables tables;
  easyrl_heads h;
  float scale;
  float *scratch;
  int64_t part; /* floats of scratch per thread: p of CACHE_HEADS heads */
} cache_attend;

/* The operands of one block of query heads that read the same key-value head: q [heads][dim],
 * p [heads][padded] and out [heads][dim]. k and v point to that key-value head in page 0 of
 * the cache. table lists the sequence's pages. */
typedef struct {
  const float *q, *k, *v;
  float *p, *out;
  const int32_t *table;
  int64_t page; /* floats in a page of all heads */
  int64_t len, padded;
  int32_t dim;
  float scale;
} cache_block;

/* Writes the scores of a number of pages, from page first on, to p, and raises max to their
 * maxima, lane by lane. */
SIMD_INLINE void cache_scores(const cache_block *a, int64_t first, vf *max, const int heads, const int pages) {
  vf acc[CACHE_HEADS][CACHE_PAGES], b[CACHE_PAGES];
  const float *k[CACHE_PAGES];
#pragma GCC unroll 4
  for (int i = 0; i < pages; i++) {
    k[i] = a->k + a->table[first + i] * a->page;
#pragma GCC unroll 4
    for (int r = 0; r < heads; r++) acc[r][i] = v_zero();
  }
  for (int32_t e = 0; e < a->dim; e++) {
#pragma GCC unroll 4
    for (int i = 0; i < pages; i++) b[i] = v_load(k[i] + (int64_t)e * CACHE_PAGE);
#pragma GCC unroll 4
    for (int r = 0; r < heads; r++) {
      vf x = v_set1(a->q[r * a->dim + e]);
#pragma GCC unroll 4
      for (int i = 0; i < pages; i++) acc[r][i] = v_fma(x, b[i], acc[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < pages; i++) {
    int64_t at = (first + i) * CACHE_PAGE;
#pragma GCC unroll 4
    for (int r = 0; r < heads; r++) {
      vf s = v_mul(acc[r][i], v_set1(a->scale));
      if (at + CACHE_PAGE > a->len) s = v_select_n((int)(a->len - at), s, v_set1(-INFINITY));
      max[r] = v_max(s, max[r]);
      v_store(a->p + r * a->padded + at, s);
    }
  }
}

/* out = (chain over positions of p and value) * (1 / (chain of p)) for nv vectors of Dim from
 * e on. full is nonzero if the vectors are whole; otherwise nv is 1 and width is the width of
 * the vector. Each block of Dim recomputes the chain of p in every lane, which costs little
 * compared with the products. */
SIMD_INLINE void cache_weigh(const cache_block *a, int32_t e, const int heads, const int nv, const int full, int width) {
  vf acc[CACHE_HEADS][CACHE_NV], b[CACHE_NV], sum[CACHE_HEADS];
#pragma GCC unroll 4
  for (int r = 0; r < heads; r++) {
    sum[r] = v_zero();
#pragma GCC unroll 4
    for (int i = 0; i < nv; i++) acc[r][i] = v_zero();
  }
  for (int64_t at = 0; at < a->len; at += CACHE_PAGE) {
    const float *x = a->v + a->table[at / CACHE_PAGE] * a->page + e, *p = a->p + at;
    int64_t n = min64(CACHE_PAGE, a->len - at);
    for (int64_t j = 0; j < n; j++, p++, x += a->dim) {
#pragma GCC unroll 4
      for (int i = 0; i < nv; i++) b[i] = v_keep(full ? v_load(x + i * VL) : v_load_n(x, width));
#pragma GCC unroll 4
      for (int r = 0; r < heads; r++) {
        vf c = v_set1(p[r * a->padded]);
        sum[r] = v_add(sum[r], c);
#pragma GCC unroll 4
        for (int i = 0; i < nv; i++) acc[r][i] = v_fma(c, b[i], acc[r][i]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < heads; r++) {
    vf il = v_div(v_set1(1.0f), sum[r]);
#pragma GCC unroll 4
    for (int i = 0; i < nv; i++) {
      vf y = v_mul(acc[r][i], il);
      float *to = a->out + (int64_t)r * a->dim + e + i * VL;
      if (full) v_store(to, y);
      else v_store_n(to, y, width);
    }
  }
}

/* The attention of one row's block of heads. */
SIMD_INLINE void cache_attend_block(const cache_block *a, const int heads) {
  vf max[CACHE_HEADS];
  int64_t pages = ceil_div(a->len, CACHE_PAGE), i = 0;
  int32_t e = 0;
#pragma GCC unroll 4
  for (int r = 0; r < heads; r++) max[r] = v_set1(-INFINITY);
  while (i < pages) {
    int64_t left = pages - i, n = min64(left, CACHE_PAGES);
    if (left == CACHE_PAGES + 1) n = CACHE_PAGES - 1; /* a single page has too few chains to fill the multipliers */
    switch (n) {
      case 1: cache_scores(a, i, max, heads, 1); break;
      case 2: cache_scores(a, i, max, heads, 2); break;
#if CACHE_PAGES == 4
      case 3: cache_scores(a, i, max, heads, 3); break;
      case 4: cache_scores(a, i, max, heads, 4); break;
#endif
    }
    i += n;
  }
#pragma GCC unroll 4
  for (int r = 0; r < heads; r++) {
    vf m = v_set1(v_hmax(max[r]));
    float *p = a->p + r * a->padded;
    for (int64_t j = 0; j < a->padded; j += VL) v_store(p + j, v_exp(v_sub(v_load(p + j), m)));
  }
  for (; e + CACHE_NV * VL <= a->dim; e += CACHE_NV * VL) cache_weigh(a, e, heads, CACHE_NV, 1, VL);
  for (; e + 2 * VL <= a->dim; e += 2 * VL) cache_weigh(a, e, heads, 2, 1, VL);
  for (; e + VL <= a->dim; e += VL) cache_weigh(a, e, heads, 1, 1, VL);
  if (e < a->dim) cache_weigh(a, e, heads, 1, 0, a->dim - e);
}

static void cache_attend_row(void *arg, int64_t task, int32_t thread) {
  const cache_attend *a = arg;
  int64_t t = task / a->h.kv, c = task % a->h.kv;
  int32_t dim = a->h.dim, group = a->h.q / a->h.kv;
  int64_t head = t * a->h.q + c * group, base = c * CACHE_PAGE * dim;
  cache_block b = {
      .q = a->q + head * dim, .k = a->cache_k + base, .v = a->cache_v + base,
      .p = a->scratch + thread * a->part, .out = a->out + head * dim, .table = a->tables.pages + (int64_t)a->tables.rows[t] * a->tables.stride,
      .page = (int64_t)CACHE_PAGE * a->h.kv * dim, .len = a->tables.lens[t], .padded = round_up(a->tables.lens[t], CACHE_PAGE),
      .dim = dim, .scale = a->scale,
  };
  while (group > 0) {
    int32_t heads = (int32_t)min64(group, CACHE_HEADS);
    switch (heads) {
      case 1: cache_attend_block(&b, 1); break;
      case 2: cache_attend_block(&b, 2); break;
#if CACHE_HEADS == 4
      case 3: cache_attend_block(&b, 3); break;
      case 4: cache_attend_block(&b, 4); break;
#endif
    }
    b.q += heads * dim, b.out += heads * dim, group -= heads;
  }
}

static void kernel_attention_cached(easyrl_device *d, float *out, const float *q, const float *cache_k,
                                    const float *cache_v, easyrl_tables tables, easyrl_heads h) {
  cache_attend a = {.out = out, .q = q, .cache_k = cache_k, .cache_v = cache_v, .tables = tables, .h = h};
  a.scale = (float)(1.0 / sqrt((double)h.dim));
  a.part = round_up(tables.longest, CACHE_PAGE) * CACHE_HEADS;
  a.scratch = device_scratch(d, pool_threads(d->pool) * a.part);
  if (!a.scratch) return;
  pool_run(d->pool, (int64_t)tables.n * h.kv, cache_attend_row, &a);
}

#endif
