/* Attention of rows of sequences over the key-value cache, in FP32.
 *
 * A lane is a row of a block, which has rows of one sequence, in one of the query heads that read
 * the same key-value head. Lanes count through the heads of a row first, then through the rows. */
#ifndef EASYRL_ATTENTION_CACHED_H
#define EASYRL_ATTENTION_CACHED_H

#include "attention_tile.h"
#include "cache.h"

#if defined(SIMD_AVX512)
#define CACHE_LANES 4 /* lanes, pages and vectors of a register block */
#define CACHE_PAGES 4
#define CACHE_NV 4
#else
#define CACHE_LANES 2
#define CACHE_PAGES 2
#define CACHE_NV 2
#endif
#define CACHE_ROWS 16 /* rows of a block that share a pass over the keys */

typedef struct {
  float *out;
  const float *q, *cache_k, *cache_v;
  easyrl_tables tables;
  easyrl_heads h;
  int64_t window;
  float *scratch;
  int64_t part, lanes; /* floats of scratch per thread; most lanes in a cache_block */
  float exponent;
} cache_attend;

/* The sums of a lane over a split, or over the splits so far. */
typedef struct { float m, l; } cache_sums;

/* A lane: the offset of its rows in q and out, and the positions that it sees, from seen to last. */
typedef struct {
  int64_t at, seen, last;
  cache_sums split, all;
} cache_lane;

/* Some rows of a block and a key-value head. k and v point to that key-value head in page 0 of the
 * cache. table lists the sequence's pages. */
typedef struct {
  const float *q, *k, *v;
  float *out;
  const int32_t *table;
  int64_t page; /* floats in a page of all heads */
  int32_t dim, wide, n; /* n lanes */
  float exponent;
  cache_lane *lanes;
  int64_t most;          /* keys, whole tiles of a split, that a pass takes at a time */
  float *p;              /* [CACHE_LANES][most] scores, then weights */
  float *split_o, *all_o; /* [n][wide] */
} cache_block;

/* Writes the products of some lanes, from lane on, and the keys of some pages, from page on, to p [lanes][most]. */
SIMD_INLINE void cache_scores(const cache_block *a, float *p, int32_t lane, int64_t page, const int lanes, const int pages) {
  vf acc[CACHE_LANES][CACHE_PAGES], b[CACHE_PAGES];
  const float *k[CACHE_PAGES], *q[CACHE_LANES];
#pragma GCC unroll 4
  for (int r = 0; r < lanes; r++) q[r] = a->q + a->lanes[lane + r].at;
#pragma GCC unroll 4
  for (int i = 0; i < pages; i++) {
    k[i] = a->k + a->table[page + i] * a->page;
#pragma GCC unroll 4
    for (int r = 0; r < lanes; r++) acc[r][i] = v_zero();
  }
  for (int32_t e = 0; e < a->dim; e++) {
#pragma GCC unroll 4
    for (int i = 0; i < pages; i++) b[i] = v_load(k[i] + (int64_t)e * CACHE_PAGE);
#pragma GCC unroll 4
    for (int r = 0; r < lanes; r++) {
      vf x = v_set1(q[r][e]);
#pragma GCC unroll 4
      for (int i = 0; i < pages; i++) acc[r][i] = v_fma(x, b[i], acc[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < lanes; r++)
#pragma GCC unroll 4
    for (int i = 0; i < pages; i++) v_store(p + r * a->most + i * CACHE_PAGE, acc[r][i]);
}

/* Adds a tile of keys, n positions from first on, to the sums of some lanes, from lane on, as att_softmax does. p has
 * the tile's scores, which weights replace. */
SIMD_INLINE unsigned cache_softmax(const cache_block *a, float *p, float *factors, int32_t lane, int64_t first, int64_t n,
                                   const int lanes) {
  int pages = (int)ceil_div(n, CACHE_PAGE);
  unsigned changed = 0;
  vf exponent = v_set1(a->exponent), top[CACHE_LANES], sum[CACHE_LANES];
#pragma GCC unroll 4
  for (int r = 0; r < lanes; r++) {
    int64_t seen = a->lanes[lane + r].seen - first, end = a->lanes[lane + r].last + 1 - first;
    float *x = p + r * a->most;
    for (int64_t at = end > 0 ? end / CACHE_PAGE * CACHE_PAGE : 0; at < pages * CACHE_PAGE; at += CACHE_PAGE)
      v_store(x + at, v_select_n((int)max64(0, end - at), v_load(x + at), v_set1(-INFINITY)));
    for (int64_t at = 0; at < min64(seen, pages * CACHE_PAGE); at += CACHE_PAGE)
      v_store(x + at, v_select_n((int)min64(VL, seen - at), v_set1(-INFINITY), v_load(x + at)));
    top[r] = v_load(x);
    for (int i = 1; i < pages; i++) top[r] = v_max(v_load(x + i * CACHE_PAGE), top[r]);
  }
  vf now[CACHE_LANES], factor[CACHE_LANES];
#pragma GCC unroll 4
  for (int r = 0; r < lanes; r++) {
    vf was = v_set1(a->lanes[lane + r].split.m);
    vf bounded = v_max(v_set1(-ATT_CLAMP), v_min(v_set1(ATT_CLAMP), v_mul(v_set1(v_hmax(top[r])), exponent)));
    now[r] = v_max(was, v_add(v_rint(bounded), v_set1(1.0f)));
    factor[r] = v_pow2(v_sub(was, now[r]));
    changed |= vm_bits(v_gt(now[r], was));
    sum[r] = v_zero();
  }
  for (int i = 0; i < pages; i++)
#pragma GCC unroll 4
    for (int r = 0; r < lanes; r++) {
      float *x = p + r * a->most + i * CACHE_PAGE;
      vf w = v_exp2(v_fma(v_load(x), exponent, v_sub(v_zero(), now[r])));
      v_store(x, w);
      sum[r] = v_add(sum[r], w);
    }
#pragma GCC unroll 4
  for (int r = 0; r < lanes; r++) {
    cache_sums *s = &a->lanes[lane + r].split;
    factors[r] = v_first(factor[r]);
    *s = (cache_sums){v_first(now[r]), fmaf(s->l, factors[r], v_fold(sum[r]))};
  }
  return changed;
}

/* Keys of a pass: n positions from first on. factors has those that the sums of some lanes take before each tile, and
 * changed says whether one of a tile's is not 1. The chains start from zero if start is nonzero. */
typedef struct {
  int64_t first, n;
  int start;
  unsigned changed[ATT_SPLIT / ATT_KEYS];
  float factors[ATT_SPLIT / ATT_KEYS][CACHE_LANES];
} cache_pass;

/* Continues the chains of some lanes, from lane on, with the weights and values of the keys of a pass, for nv vectors
 * of Dim from e on. full is nonzero if the vectors are whole; otherwise nv is 1 and width is the width of the vector. */
SIMD_INLINE void cache_weigh(const cache_block *a, const cache_pass *pass, int32_t lane, int32_t e, const int lanes, const int nv,
                             const int full, int width) {
  vf acc[CACHE_LANES][CACHE_NV], b[CACHE_NV];
  float *o = a->split_o + (int64_t)lane * a->wide + e;
  const float *p = a->p;
#pragma GCC unroll 4
  for (int r = 0; r < lanes; r++)
#pragma GCC unroll 4
    for (int i = 0; i < nv; i++) acc[r][i] = pass->start ? v_zero() : v_load(o + r * a->wide + i * VL);
  for (int64_t at = 0; at < pass->n; at += CACHE_PAGE) {
    if (at % ATT_KEYS == 0 && pass->changed[at / ATT_KEYS]) {
#pragma GCC unroll 4
      for (int r = 0; r < lanes; r++)
#pragma GCC unroll 4
        for (int i = 0; i < nv; i++) acc[r][i] = v_mul(acc[r][i], v_set1(pass->factors[at / ATT_KEYS][r]));
    }
    const float *x = a->v + a->table[(pass->first + at) / CACHE_PAGE] * a->page + e;
    int64_t rows = min64(CACHE_PAGE, pass->n - at);
    for (int64_t j = 0; j < rows; j++, p++, x += a->dim) {
#pragma GCC unroll 4
      for (int i = 0; i < nv; i++) b[i] = v_keep(full ? v_load(x + i * VL) : v_load_n(x, width));
#pragma GCC unroll 4
      for (int r = 0; r < lanes; r++) {
        vf c = v_set1(p[r * a->most]);
#pragma GCC unroll 4
        for (int i = 0; i < nv; i++) acc[r][i] = v_fma(c, b[i], acc[r][i]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < lanes; r++)
#pragma GCC unroll 4
    for (int i = 0; i < nv; i++) v_store(o + r * a->wide + i * VL, acc[r][i]);
}

/* Adds the keys of a pass to the sums of some lanes. */
SIMD_INLINE void cache_keys(const cache_block *a, cache_pass *pass, int32_t lane, const int lanes) {
  int64_t n = ceil_div(pass->n, CACHE_PAGE), page = pass->first / CACHE_PAGE;
  float *p = a->p;
  int32_t e = 0;
  while (n > 0) {
    int64_t take = min64(n, CACHE_PAGES);
    if (n == CACHE_PAGES + 1) take = CACHE_PAGES - 1; /* a single page has too few chains to fill the multipliers */
    switch (take) {
      case 1: cache_scores(a, p, lane, page, lanes, 1); break;
      case 2: cache_scores(a, p, lane, page, lanes, 2); break;
#if CACHE_PAGES == 4
      case 3: cache_scores(a, p, lane, page, lanes, 3); break;
      case 4: cache_scores(a, p, lane, page, lanes, 4); break;
#endif
    }
    n -= take, page += take, p += take * CACHE_PAGE;
  }
  for (int i = 0; i * ATT_KEYS < pass->n; i++) {
    int64_t at = i * ATT_KEYS, count = min64(ATT_KEYS, pass->n - at);
    pass->changed[i] = cache_softmax(a, a->p + at, pass->factors[i], lane, pass->first + at, count, lanes);
  }
  for (; e + CACHE_NV * VL <= a->dim; e += CACHE_NV * VL) cache_weigh(a, pass, lane, e, lanes, CACHE_NV, 1, VL);
#if CACHE_NV == 4
  for (; e + 2 * VL <= a->dim; e += 2 * VL) cache_weigh(a, pass, lane, e, lanes, 2, 1, VL);
#endif
  for (; e + VL <= a->dim; e += VL) cache_weigh(a, pass, lane, e, lanes, 1, 1, VL);
  if (e < a->dim) cache_weigh(a, pass, lane, e, lanes, 1, 0, a->dim - e);
}

/* Adds a split's sums to those of the splits before. */
static void cache_merge(const cache_block *a) {
  for (int32_t i = 0; i < a->n; i++) {
    cache_sums *all = &a->lanes[i].all, *split = &a->lanes[i].split;
    float *to = a->all_o + (int64_t)i * a->wide;
    const float *o = a->split_o + (int64_t)i * a->wide;
    float top = split->m > all->m ? split->m : all->m, x = s_pow2(all->m - top), y = s_pow2(split->m - top);
    *all = (cache_sums){top, fmaf(split->l, y, all->l * x)};
    for (int32_t e = 0; e < a->wide; e += VL)
      v_store(to + e, v_fma(v_load(o + e), v_set1(y), v_mul(v_load(to + e), v_set1(x))));
  }
}

static void cache_attend_block(cache_block *a) {
  int64_t first = a->lanes[0].seen / ATT_KEYS * ATT_KEYS, keys = a->lanes[a->n - 1].last + 1;
  for (int split = 0; first < keys; split++) {
    int64_t end = min64(keys, round_up(first + 1, ATT_SPLIT));
    for (int32_t i = 0; i < a->n; i++) a->lanes[i].split = (cache_sums){ATT_NO_MAXIMUM, 0.0f};
    for (int start = 1; first < end; start = 0) {
      cache_pass pass = {.first = first, .n = min64(a->most, end - first), .start = start};
      for (int32_t lane = 0; lane < a->n; lane += CACHE_LANES) {
        switch (min64(CACHE_LANES, a->n - lane)) {
          case 1: cache_keys(a, &pass, lane, 1); break;
          case 2: cache_keys(a, &pass, lane, 2); break;
#if CACHE_LANES == 4
          case 3: cache_keys(a, &pass, lane, 3); break;
          case 4: cache_keys(a, &pass, lane, 4); break;
#endif
        }
      }
      first += pass.n;
    }
    if (split) {
      cache_merge(a);
    } else { /* the first split's sums are those of all splits so far */
      float *o = a->all_o;
      a->all_o = a->split_o, a->split_o = o;
      for (int32_t i = 0; i < a->n; i++) a->lanes[i].all = a->lanes[i].split;
    }
  }
  for (int32_t i = 0; i < a->n; i++) {
    vf il = v_set1(1.0f / a->lanes[i].all.l);
    for (int32_t e = 0; e < a->dim; e += VL) {
      vf y = v_add(v_mul(v_load(a->all_o + (int64_t)i * a->wide + e), il), v_zero());
      att_store(a->out + a->lanes[i].at + e, y, e + VL <= a->dim, a->dim - e);
    }
  }
}

static void cache_attend_task(void *arg, int64_t task, int32_t thread) {
  const cache_attend *a = arg;
  int64_t block = task / a->h.kv, c = task % a->h.kv;
  int32_t dim = a->h.dim, group = a->h.q / a->h.kv, row = a->tables.blocks[block], end = a->tables.blocks[block + 1];
  if (row == end) return;
  int64_t base = c * CACHE_PAGE * dim;
  cache_block b = {
      .q = a->q, .k = a->cache_k + base, .v = a->cache_v + base, .out = a->out,
      .table = a->tables.pages + (int64_t)a->tables.rows[row] * a->tables.stride, .page = (int64_t)CACHE_PAGE * a->h.kv * dim,
      .dim = dim, .wide = (int32_t)round_up(dim, VL), .exponent = a->exponent,
  };
  b.p = a->scratch + thread * a->part;
  b.split_o = b.p + CACHE_LANES * ATT_SPLIT;
  b.all_o = b.split_o + a->lanes * b.wide;
  b.lanes = (cache_lane *)(b.all_o + a->lanes * b.wide);
  while (row < end) {
    for (b.n = 0; row < end && b.n < a->lanes; row++) {
      int64_t last = a->tables.lens[row] - 1;
      for (int32_t head = 0; head < group; head++)
        b.lanes[b.n++] = (cache_lane){.at = ((int64_t)row * a->h.q + c * group + head) * dim,
                                      .seen = max64(0, last + 1 - a->window), .last = last};
    }
    /* Many lanes read a tile from the nearest cache; few leave their sums in registers. */
    b.most = b.n <= 4 * CACHE_LANES ? ATT_SPLIT : ATT_KEYS;
    cache_attend_block(&b);
  }
}

static void kernel_attention_cached(easyrl_device *d, void *out, const void *q, const void *cache_k,
                                    const void *cache_v, easyrl_tables tables, easyrl_heads h) {
  cache_attend a = {.out = out, .q = q, .cache_k = cache_k, .cache_v = cache_v, .tables = tables, .h = h};
  a.window = h.window ? h.window : INT32_MAX;
  a.lanes = (int64_t)CACHE_ROWS * (h.q / h.kv);
  a.exponent = score_exponent(h.dim);
  a.part = CACHE_LANES * ATT_SPLIT + a.lanes * 2 * round_up(h.dim, VL) + round_up(a.lanes * (int64_t)sizeof(cache_lane) / 4, 16);
  a.scratch = device_scratch(d, pool_threads(d->pool) * a.part);
  if (!a.scratch) return;
  pool_run(d->pool, (int64_t)tables.n * h.kv, cache_attend_task, &a);
}

#endif
