/* The part that the forward and the backward pass of attention share: tiles of queries,
 * their scores and their weighted sums.
 *
 * A lane is a query row of one segment in one of the query heads that read the
 * same key-value head. Lanes count through the heads of a row first, then through
 * the rows. A tile is up to ATT_LANES lanes. Its keys are those that its last lane
 * attends to: the segment's ancestors, root first, then its own rows. Matrices of
 * a tile are [keys][ATT_LANES]. Key j of the tile's own segment is hidden from the
 * lanes below j * group - lane. Hidden keys are skipped, never multiplied by zero. */
#ifndef EASYRL_ATTENTION_TILE_H
#define EASYRL_ATTENTION_TILE_H

#include "device.h"
#include "easyrl_math.h"
#include "simd.h"

#if defined(SIMD_AVX512)
#define ATT_ROWS 8 /* rows of a register block */
#define ATT_NV 2   /* vectors of a register block */
#else
#define ATT_ROWS 4
#define ATT_NV 1
#endif
#define ATT_LANES (ATT_NV * VL)
#define ATT_UNIT 64                    /* keys in a unit of work of the backward pass */
#define ATT_SEEN (-((int64_t)1 << 40)) /* value of hidden for keys that every lane attends to */

typedef struct {
  int32_t segment, kv, lane, lanes;
  int64_t keys; /* keys of the last lane */
  int64_t slot; /* offset of the backward pass's slot, in floats */
} att_tile;

/* Keys [first, first + n) of one segment and key-value head. */
typedef struct { int32_t segment, kv, first, n; } att_unit;

/* Keys or values of one segment on a tile's path, a constant stride apart. */
typedef struct { const float *rows; int64_t n; } att_span;

/* A forest in the form that the kernels walk. before is the number of rows in a
 * segment's ancestors. Tiles are ordered by tree, key-value head, segment and
 * lane. Group g of tiles, [groups[g], groups[g+1]), is one tree and one key-value
 * head. */
typedef struct {
  const easyrl_segment *segments;
  easyrl_heads h;
  int32_t n, group, dim_padded;
  float scale;
  int64_t depth, max_keys, n_tiles, n_units, n_groups;
  int64_t *before, *groups;
  att_tile *tiles;
  att_unit *units;
} att_forest;

/* Takes room for bytes from a scratch, rounded up to a multiple of a cache line. */
SIMD_INLINE void *att_take(float **cursor, int64_t bytes) {
  void *p = *cursor;
  *cursor += round_up(ceil_div(bytes, 4), 16);
  return p;
}

/* Returns the number of tiles of a segment for one key-value head. */
SIMD_INLINE int64_t att_tiles_of(const att_forest *f, int32_t s) {
  return ceil_div((int64_t)f->segments[s].len * f->group, ATT_LANES);
}

/* Measures a forest and returns the number of floats that att_forest_build takes. */
static int64_t att_forest_measure(att_forest *f, const easyrl_segment *segments, int32_t n, easyrl_heads h) {
  *f = (att_forest){.segments = segments, .h = h, .n = n, .group = h.q / h.kv};
  f->dim_padded = (int32_t)round_up(h.dim, VL);
  f->scale = (float)(1.0 / sqrt((double)h.dim));
  int64_t roots = 0;
  for (int32_t s = 0; s < n; s++) {
    int64_t keys = 0, depth = 0;
    for (int32_t a = s; a >= 0; a = segments[a].parent, depth++) keys += segments[a].len;
    f->max_keys = max64(f->max_keys, keys);
    f->depth = max64(f->depth, depth);
    f->n_tiles += h.kv * att_tiles_of(f, s);
    f->n_units += h.kv * ceil_div(segments[s].len, ATT_UNIT);
    roots += segments[s].parent < 0;
  }
  f->n_groups = roots * h.kv;
  return round_up(2 * n, 16) + round_up(2 * (f->n_groups + 1), 16) + 3 * round_up(n, 16) +
         round_up(f->n_tiles * (int64_t)sizeof(att_tile) / 4 + 1, 16) +
         round_up(f->n_units * (int64_t)sizeof(att_unit) / 4 + 1, 16);
}

/* Builds the arrays of a measured forest in scratch. */
static void att_forest_build(att_forest *f, float **cursor) {
  const easyrl_segment *segments = f->segments;
  f->before = att_take(cursor, f->n * (int64_t)sizeof(int64_t));
  f->groups = att_take(cursor, (f->n_groups + 1) * (int64_t)sizeof(int64_t));
  f->tiles = att_take(cursor, f->n_tiles * (int64_t)sizeof(att_tile));
  f->units = att_take(cursor, f->n_units * (int64_t)sizeof(att_unit));
  int32_t *root = att_take(cursor, f->n * 4), *next = att_take(cursor, f->n * 4), *last = att_take(cursor, f->n * 4);
  int64_t u = 0, t = 0, g = 0;
  for (int32_t s = 0; s < f->n; s++) {
    int32_t parent = segments[s].parent;
    f->before[s] = parent < 0 ? 0 : f->before[parent] + segments[parent].len;
    root[s] = parent < 0 ? s : root[parent];
    if (parent >= 0) next[last[root[s]]] = s;
    last[root[s]] = s;
    next[s] = -1;
    for (int32_t c = 0; c < f->h.kv; c++)
      for (int32_t j = 0; j < segments[s].len; j += ATT_UNIT)
        f->units[u++] = (att_unit){s, c, j, (int32_t)min64(ATT_UNIT, segments[s].len - j)};
  }
  for (int32_t r = 0; r < f->n; r++) {
    if (segments[r].parent >= 0) continue;
    for (int32_t c = 0; c < f->h.kv; c++) {
      f->groups[g++] = t;
      for (int32_t s = r; s >= 0; s = next[s]) {
        int32_t lanes = segments[s].len * f->group;
        for (int32_t lane = 0; lane < lanes; lane += ATT_LANES) {
          int32_t n = (int32_t)min64(ATT_LANES, lanes - lane);
          f->tiles[t++] = (att_tile){s, c, lane, n, f->before[s] + (lane + n - 1) / f->group + 1, 0};
        }
      }
    }
  }
  f->groups[g] = t;
}

/* The offset, in heads, of every lane of a tile in a tensor [T, Q]. */
SIMD_INLINE void att_lane_heads(int64_t *at, const att_forest *f, const att_tile *t) {
  int64_t row = f->segments[t->segment].start + t->lane / f->group;
  int32_t head = t->lane % f->group;
  for (int32_t i = 0; i < t->lanes; i++) {
    at[i] = row * f->h.q + t->kv * f->group + head;
    if (++head == f->group) head = 0, row++;
  }
}

/* Writes the spans of a tile in x [T, KV, Dim], root first, and returns their
 * number. The last span is the tile's own segment. */
SIMD_INLINE int64_t att_path(att_span *spans, const att_forest *f, const att_tile *t, const float *x) {
  int64_t depth = 0, i;
  for (int32_t s = t->segment; s >= 0; s = f->segments[s].parent) depth++;
  i = depth;
  for (int32_t s = t->segment; s >= 0; s = f->segments[s].parent)
    spans[--i] = (att_span){x + ((int64_t)f->segments[s].start * f->h.kv + t->kv) * f->h.dim, f->segments[s].len};
  spans[depth - 1].n = t->keys - f->before[t->segment];
  return depth;
}

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

/* s[r][lane] = (chain over e of x[e][lane] and k[r][e]) * scale, or -inf if key r is hidden
 * from the lane: if lane < hidden + r step. */
SIMD_INLINE void att_scores_block(float *restrict s, const float *restrict x, const float *restrict k, int64_t stride,
                                  int32_t dim, float scale, int64_t hidden, int64_t step, const int rows, const int nv) {
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
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) {
      vf y = v_mul(acc[r][v], v_set1(scale));
      int64_t n = hidden + r * step - v * VL;
      if (n > 0) y = v_select_n((int)min64(n, VL), v_set1(-INFINITY), y);
      v_store(s + r * ATT_LANES + v * VL, y);
    }
  }
}

#define ATT_SCORES(rows) \
  case rows: \
    if (nv == 1) att_scores_block(s, x, k, stride, dim, scale, hidden, step, rows, 1); \
    else att_scores_block(s, x, k, stride, dim, scale, hidden, step, rows, ATT_NV); \
    break;

/* The scores of n keys, a constant stride apart. */
static void att_scores_span(float *s, const float *x, const float *k, int64_t n, int64_t stride, int32_t dim,
                            float scale, int64_t hidden, int64_t step, int nv) {
  for (int64_t j = 0; j < n; j += ATT_ROWS) {
    switch (min64(n - j, ATT_ROWS)) {
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
    s += ATT_ROWS * ATT_LANES, k += ATT_ROWS * stride, hidden += ATT_ROWS * step;
  }
}

/* The scores of all keys on a tile's path. */
SIMD_INLINE void att_scores(float *s, const float *x, const att_span *spans, int64_t n_spans, const att_forest *f,
                            const att_tile *t, float scale, int nv) {
  int64_t stride = (int64_t)f->h.kv * f->h.dim;
  for (int64_t i = 0; i < n_spans; i++) {
    int own = i == n_spans - 1;
    att_scores_span(s, x, spans[i].rows, spans[i].n, stride, f->h.dim, scale, own ? -(int64_t)t->lane : ATT_SEEN,
                    own ? f->group : 0, nv);
    s += spans[i].n * ATT_LANES;
  }
}

SIMD_INLINE vf att_load(const float *p, const int full, int width) { return full ? v_load(p) : v_load_n(p, width); }

SIMD_INLINE void att_store(float *p, vf x, const int full, int width) {
  if (full) v_store(p, x);
  else v_store_n(p, x, width);
}

#define ATT_WEIGH_ROW(r) \
  case r: \
    for (int v = 0; v < nv; v++) acc[r][v] = v_fma(v_set1(p[r]), b[v], acc[r][v]); \
    __attribute__((fallthrough));

/* y[lane] = (chain over keys of p[key][lane] and value[key]) * factor[lane], for
 * the ATT_ROWS lanes from first on and nv vectors of Dim from e on. width is the
 * width of the last vector; full is nonzero if that vector is whole. */
SIMD_INLINE void att_weigh_block(float *y, const int64_t *at, const float *p, const float *factor, const att_span *spans,
                                 int64_t n_spans, const att_forest *f, const att_tile *t, int first, int32_t e,
                                 const int nv, const int full, int width) {
  int64_t stride = (int64_t)f->h.kv * f->h.dim;
  int lanes = (int)min64(ATT_ROWS, t->lanes - first);
  vf acc[ATT_ROWS][ATT_NV], b[ATT_NV];
#pragma GCC unroll 8
  for (int r = 0; r < ATT_ROWS; r++)
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) acc[r][v] = v_zero();
  p += first;
  const float *x = 0;
  int64_t j = 0;
  for (int64_t i = 0; i < n_spans; i++) {
    int64_t n = spans[i].n;
    if (i == n_spans - 1) n = min64(n, (t->lane + first) / f->group + 1);
    x = spans[i].rows + e;
    for (j = 0; j < n; j++, p += ATT_LANES, x += stride) {
#pragma GCC unroll 2
      for (int v = 0; v < nv; v++) b[v] = att_load(x + v * VL, full || v < nv - 1, width);
#pragma GCC unroll 8
      for (int r = 0; r < ATT_ROWS; r++) {
        vf a = v_set1(p[r]);
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) acc[r][v] = v_fma(a, b[v], acc[r][v]);
      }
    }
  }
  int64_t hidden = j * f->group - t->lane - first;
  for (; j < spans[n_spans - 1].n && hidden < lanes; j++, p += ATT_LANES, x += stride, hidden += f->group) {
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) b[v] = att_load(x + v * VL, full || v < nv - 1, width);
    switch (hidden) {
      ATT_WEIGH_ROW(1)
      ATT_WEIGH_ROW(2)
      ATT_WEIGH_ROW(3)
#if ATT_ROWS == 8
      ATT_WEIGH_ROW(4)
      ATT_WEIGH_ROW(5)
      ATT_WEIGH_ROW(6)
      ATT_WEIGH_ROW(7)
#endif
      default:;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ATT_ROWS; r++) {
    if (r >= lanes) break;
    float *to = y + at[first + r] * f->h.dim + e;
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++)
      att_store(to + v * VL, v_mul(acc[r][v], v_set1(factor[first + r])), full || v < nv - 1, width);
  }
}

/* The weighted sums of all lanes of a tile, written to y [T, Q, Dim]. */
static void att_weigh(float *y, const int64_t *at, const float *p, const float *factor, const att_span *spans,
                      int64_t n_spans, const att_forest *f, const att_tile *t) {
  for (int32_t e = 0; e < f->h.dim; e += ATT_LANES) {
    int32_t left = f->h.dim - e;
    int width = (int)min64(VL, left > VL && ATT_NV > 1 ? left - VL : left);
    for (int first = 0; first < t->lanes; first += ATT_ROWS) {
      if (left >= ATT_LANES) att_weigh_block(y, at, p, factor, spans, n_spans, f, t, first, e, ATT_NV, 1, VL);
      else if (left > VL) att_weigh_block(y, at, p, factor, spans, n_spans, f, t, first, e, ATT_NV, 0, width);
      else if (left == VL) att_weigh_block(y, at, p, factor, spans, n_spans, f, t, first, e, 1, 1, VL);
      else att_weigh_block(y, at, p, factor, spans, n_spans, f, t, first, e, 1, 0, width);
    }
  }
}

#endif
