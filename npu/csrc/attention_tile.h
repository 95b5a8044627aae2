/* Tiles of attention in FP32, for the forward and the backward pass: their scores and their
 * weighted sums. Matrices of a tile are [keys][ATT_LANES]. */
#ifndef EASYRL_ATTENTION_TILE_H
#define EASYRL_ATTENTION_TILE_H

#include "attention_forest.h"

#define ATT_ROWS (ATT_LANES / 4) /* rows of a register block */
#define ATT_NV (ATT_LANES / VL)  /* vectors of a register block */
#define ATT_PASS 256             /* keys, whole tiles of a split, that the forward pass takes at a time */
#define ATT_TILES (ATT_PASS / ATT_KEYS)

/* Copies the lanes' rows of x [T, Q, Dim] to rows [ATT_LANES][dim_padded] and,
 * transposed, to columns [dim_padded][ATT_LANES]. The padding is zero. */
static void att_gather(float *restrict rows, float *restrict columns, const float *x, const int64_t *at,
                       const att_forest *f, const att_tile *t) {
  int32_t dim = f->h.dim, wide = f->dim_padded;
  int32_t filled = (int32_t)round_up(t->lanes, VL);
  for (int32_t i = 0; i < filled; i++)
    for (int32_t e = 0; e < wide; e += VL)
      v_store(rows + (int64_t)i * wide + e,
              i < t->lanes ? v_load_n(x + at[i] * dim + e, (int)min64(VL, dim - e)) : v_zero());
  for (int32_t i = 0; i < filled; i += VL)
    for (int32_t e = 0; e < wide; e += VL)
      v_transpose16(columns + (int64_t)e * ATT_LANES + i, ATT_LANES, rows + (int64_t)i * wide + e, wide);
}

/* s[r][lane] = chain over e of x[e][lane] and k[r][e]. */
SIMD_INLINE void att_scores_block(float *restrict s, const float *restrict x, const float *restrict k, int64_t stride,
                                  int32_t dim, const int rows, const int nv) {
  vf acc[ATT_ROWS][ATT_NV], a[ATT_NV];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) acc[r][v] = v_zero();
  for (int32_t e = 0; e < dim; e++) {
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) a[v] = v_load(x + (int64_t)e * ATT_LANES + v * VL);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      vf b = v_set1(k[r * stride + e]);
#pragma GCC unroll 2
      for (int v = 0; v < nv; v++) acc[r][v] = v_fma(a[v], b, acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) v_store(s + r * ATT_LANES + v * VL, acc[r][v]);
}

#define ATT_SCORES(rows) \
  case rows: \
    if (nv == 1) att_scores_block(s, x, k, stride, dim, rows, 1); \
    else att_scores_block(s, x, k, stride, dim, rows, ATT_NV); \
    break;

/* The products of all lanes, x [Dim][ATT_LANES], and the rows of spans of k. */
static void att_scores(float *s, const float *x, const float *base, const att_span *spans, int64_t n_spans, int64_t stride,
                       int32_t dim, int nv) {
  for (int64_t i = 0; i < n_spans; i++) {
    const float *k = base + spans[i].at;
    for (int64_t left = spans[i].n; left > 0; left -= ATT_ROWS) {
      int64_t n = min64(left, ATT_ROWS);
      switch (n) {
        ATT_SCORES(1)
        ATT_SCORES(2)
        ATT_SCORES(3)
        ATT_SCORES(4)
#if ATT_ROWS == 8
        ATT_SCORES(5)
        ATT_SCORES(6)
        ATT_SCORES(7)
        ATT_SCORES(8)
#endif
      }
      s += n * ATT_LANES, k += n * stride;
    }
  }
}

/* Sets x [n][ATT_LANES] to a value where a lane does not see a key. The keys' positions are [first, first + n). */
static void att_hide(float *x, float value, int64_t first, int64_t n, const att_forest *f, const att_lanes *l) {
  int64_t seen = l->position[0], last = l->position[ATT_LANES - 1];
  for (int64_t j = 0; j < n; j++) {
    int64_t key = first + j;
    if (key <= seen && key > last - f->window) continue; /* every lane sees it */
    for (int v = 0; v < ATT_NV; v++) {
      vi lane = vi_load(l->position + v * VL);
      vm later = vi_gt(vi_set1((int32_t)key), lane);
      vm older = vi_gt(lane, vi_set1((int32_t)min64(INT32_MAX, key + f->window - 1)));
      float *at = x + j * ATT_LANES + v * VL;
      v_store(at, v_select(later, v_set1(value), v_select(older, v_set1(value), v_load(at))));
    }
  }
}

SIMD_INLINE vf att_load(const float *p, const int full, int width) { return full ? v_load(p) : v_load_n(p, width); }

SIMD_INLINE void att_store(float *p, vf x, const int full, int width) {
  if (full) v_store(p, x);
  else v_store_n(p, x, width);
}

/* Rows of keys or values of a tile, n spans, and the factors [ATT_LANES] of the chains before it; NULL if all are 1. */
typedef struct {
  const att_span *spans;
  const float *factor;
  int64_t n;
} att_rows;

/* Continues the chains o[lane] with p[key][lane] value[key] over the first keys rows of tiles, for ATT_ROWS lanes
 * and nv vectors of Dim. The chains start from o[lane], or from zero if start is nonzero. width is the
 * width of the last vector; full is nonzero if that vector is whole. */
SIMD_INLINE void att_weigh_block(float *o, int start, const float *p, const float *base, const att_rows *tiles, int64_t keys,
                                 int first, int64_t stride, int32_t wide, const int nv, const int full, int width) {
  vf acc[ATT_ROWS][ATT_NV], b[ATT_NV];
#pragma GCC unroll 8
  for (int r = 0; r < ATT_ROWS; r++)
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) acc[r][v] = start ? v_zero() : v_load(o + r * wide + v * VL);
  for (const att_rows *t = tiles; keys > 0; t++) {
    if (t->factor) {
#pragma GCC unroll 8
      for (int r = 0; r < ATT_ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) acc[r][v] = v_mul(acc[r][v], v_set1(t->factor[first + r]));
    }
    for (const att_span *s = t->spans; s < t->spans + t->n && keys > 0; s++) {
      const float *x = base + s->at;
      int64_t n = min64(s->n, keys);
      keys -= n;
      for (int64_t j = 0; j < n; j++, p += ATT_LANES, x += stride) {
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) b[v] = att_load(x + v * VL, full || v < nv - 1, width);
#pragma GCC unroll 8
        for (int r = 0; r < ATT_ROWS; r++) {
          vf c = v_set1(p[r]);
#pragma GCC unroll 2
          for (int v = 0; v < nv; v++) acc[r][v] = v_fma(c, b[v], acc[r][v]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ATT_ROWS; r++)
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) v_store(o + r * wide + v * VL, acc[r][v]);
}

/* The weighted sums o [ATT_LANES][dim_padded] of a tile's lanes over the keys at positions [from, end). See
 * att_weigh_block. */
static void att_weigh(float *o, int start, const float *p, const float *base, const att_rows *tiles, int64_t from, int64_t end,
                      const att_forest *f, const att_lanes *l, int32_t lanes) {
  int32_t wide = f->dim_padded;
  for (int32_t e = 0; e < f->h.dim; e += ATT_LANES) {
    int32_t left = f->h.dim - e;
    for (int first = 0; first < lanes; first += ATT_ROWS) {
      int64_t keys = min64(end, l->position[first + ATT_ROWS - 1] + 1) - from; /* the others are hidden from these lanes */
#define ATT_WEIGH(nv, full, width) \
  att_weigh_block(o + (int64_t)first * wide + e, start, p + first, base + e, tiles, keys, first, f->stride, wide, nv, full, width)
      if (left >= ATT_LANES) ATT_WEIGH(ATT_NV, 1, VL);
      else if (left > VL) ATT_WEIGH(ATT_NV, 0, left - VL);
      else if (left == VL) ATT_WEIGH(1, 1, VL);
      else ATT_WEIGH(1, 0, left);
#undef ATT_WEIGH
    }
  }
}

/* Writes o[lane] factor[lane] + 0 of all lanes to y [T, Q, Dim]. */
static void att_write(float *y, const int64_t *at, const float *o, const float *factor, const att_forest *f, int32_t lanes) {
  int32_t dim = f->h.dim;
  for (int32_t i = 0; i < lanes; i++)
    for (int32_t e = 0; e < dim; e += VL) {
      vf x = v_add(v_mul(v_load(o + (int64_t)i * f->dim_padded + e), v_set1(factor[i])), v_zero());
      att_store(y + at[i] * dim + e, x, e + VL <= dim, dim - e);
    }
}

#endif
