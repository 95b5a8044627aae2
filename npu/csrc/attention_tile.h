/* The part that the forward and the backward pass of attention share: tiles of queries,
 * their scores and their weighted sums.
 *
 * A lane is a query row of one segment in one of the query heads that read the
 * same key-value head. Lanes count through the heads of a row first, then through
 * the rows. A tile is up to ATT_LANES lanes of one part of rows (see npu.AttentionKernels).
 * Its keys are those on its path that a lane attends to: of the segment's ancestors, root
 * first, then of its own rows. Matrices of a tile are [keys][ATT_LANES]. */
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
#define ATT_KEYS EASYRL_KEY_TILE
#define ATT_SPLIT EASYRL_KEY_SPLIT
#define ATT_PASS 256 /* keys, whole tiles of a split, that the forward pass takes at a time */
#define ATT_TILES (ATT_PASS / ATT_KEYS)

#define ATT_NO_MAXIMUM -0x1p20f /* maximum of a lane before its first key */
#define ATT_CLAMP 0x1p19f       /* largest magnitude of a scaled score that maxima count */

/* The positions of a tile's keys are [from, keys). In the part's sums, the chains of the keys
 * from fresh on start with this tile, and those of the keys below done end with it. */
typedef struct {
  int32_t segment, kv, lane, lanes;
  int64_t from, keys, fresh, done;
  int64_t slot; /* offset of the backward pass's slot, in floats */
} att_tile;

/* n rows of keys or values on a tile's path, a constant stride apart. at is the offset of the
 * first one in [T, KV, Dim]. */
typedef struct { int64_t at, n; } att_span;

/* A forest in the form that the kernels walk. A block is one of the host's tiles of rows. max_keys is the largest
 * number of rows on a path, and max_span that of a tile's keys. The backward pass lists all tiles, ordered by tree,
 * key-value head, segment and lane. Group g of tiles, [groups[g], groups[g+1]), is one tree and one key-value head. */
typedef struct {
  const easyrl_segment *segments;
  const easyrl_tile *blocks;
  easyrl_heads h;
  int32_t n_blocks, group, dim_padded;
  int64_t stride, window;
  float exponent, scale; /* of scores in exponents of 2, and 1/sqrt(Dim) */
  int64_t depth, max_keys, max_span, n_tiles, n_groups;
  int64_t *groups;
  att_tile *tiles;
} att_forest;

/* Takes room for bytes from a scratch, rounded up to a multiple of a cache line. */
SIMD_INLINE void *att_take(float **cursor, int64_t bytes) {
  void *p = *cursor;
  *cursor += round_up(ceil_div(bytes, 4), 16);
  return p;
}

/* log2(e)/sqrt(dim): scores times it are exponents of 2. */
SIMD_INLINE float score_exponent(int32_t dim) { return (float)(0x1.71547652b82fep+0 / sqrt((double)dim)); }

_Static_assert(EASYRL_ROW_TILE % ATT_LANES == 0 && EASYRL_PART_ROWS % EASYRL_ROW_TILE == 0, "blocks and parts have whole tiles");

/* Returns the number of rows of a block. */
SIMD_INLINE int32_t att_block_rows(const att_forest *f, int64_t block) {
  const easyrl_tile *b = &f->blocks[block];
  return (int32_t)min64(EASYRL_ROW_TILE, f->segments[b->segment].len - b->first);
}

/* Returns the number of tiles of a block for one key-value head. */
SIMD_INLINE int64_t att_block_tiles(const att_forest *f, int64_t block) {
  return ceil_div((int64_t)att_block_rows(f, block) * f->group, ATT_LANES);
}

/* Returns the root of a segment. */
SIMD_INLINE int32_t att_root(const att_forest *f, int32_t s) {
  while (f->segments[s].parent >= 0) s = f->segments[s].parent;
  return s;
}

/* Returns whether a block is the first one of its tree. */
SIMD_INLINE int att_starts_tree(const att_forest *f, int64_t block) {
  return block == 0 || (f->blocks[block].segment != f->blocks[block - 1].segment &&
                        att_root(f, f->blocks[block].segment) != att_root(f, f->blocks[block - 1].segment));
}

static void att_forest_measure(att_forest *f, easyrl_segments segments, easyrl_heads h) {
  *f = (att_forest){.segments = segments.list, .blocks = segments.tiles, .n_blocks = segments.n_tiles};
  f->h = h;
  f->group = h.q / h.kv;
  f->dim_padded = (int32_t)round_up(h.dim, VL);
  f->stride = (int64_t)h.kv * h.dim;
  f->window = h.window ? h.window : INT32_MAX;
  f->exponent = score_exponent(h.dim);
  f->scale = (float)(1.0 / sqrt((double)h.dim));
  while (f->n_blocks > 0 && f->blocks[f->n_blocks - 1].segment < 0) f->n_blocks--; /* empty ones */
  for (int32_t b = 0; b < f->n_blocks; b++) {
    int32_t s = f->blocks[b].segment;
    f->n_tiles += h.kv * att_block_tiles(f, b);
    f->n_groups += h.kv * att_starts_tree(f, b);
    if (f->blocks[b].first > 0) continue;
    int64_t depth = 0;
    for (int32_t a = s; a >= 0; a = f->segments[a].parent) depth++;
    f->depth = max64(f->depth, depth);
    f->max_keys = max64(f->max_keys, (int64_t)f->segments[s].before + f->segments[s].len);
  }
  f->max_span = min64(f->max_keys, f->window + ATT_LANES); /* a tile has at most ATT_LANES rows */
}

/* The position of a lane of a segment. */
SIMD_INLINE int64_t att_position(const att_forest *f, int32_t segment, int64_t lane) {
  return f->segments[segment].before + lane / f->group;
}

/* Returns tile number i of a block and key-value head. */
SIMD_INLINE att_tile att_tile_of(const att_forest *f, int64_t block, int32_t kv, int64_t i) {
  int32_t segment = f->blocks[block].segment;
  int64_t first = (int64_t)f->blocks[block].first * f->group, end = first + (int64_t)att_block_rows(f, block) * f->group;
  int64_t lane = first + i * ATT_LANES, lanes = min64(ATT_LANES, end - lane);
  return (att_tile){.segment = segment, .kv = kv, .lane = (int32_t)lane, .lanes = (int32_t)lanes,
                    .from = max64(0, att_position(f, segment, lane) - f->window + 1),
                    .keys = att_position(f, segment, lane + lanes - 1) + 1};
}

/* Returns the number of floats that att_forest_build takes. */
static int64_t att_forest_floats(const att_forest *f) {
  return round_up(2 * (f->n_groups + 1), 16) + round_up(f->n_tiles * (int64_t)sizeof(att_tile) / 4 + 1, 16);
}

/* Lists the tiles of a measured forest in scratch. */
static void att_forest_build(att_forest *f, float **cursor) {
  f->groups = att_take(cursor, (f->n_groups + 1) * (int64_t)sizeof(int64_t));
  f->tiles = att_take(cursor, f->n_tiles * (int64_t)sizeof(att_tile));
  int64_t part = (int64_t)EASYRL_PART_ROWS * f->group, n = 0, g = 0;
  for (int32_t first = 0, end; first < f->n_blocks; first = end) {
    for (end = first + 1; end < f->n_blocks && !att_starts_tree(f, end);) end++;
    for (int32_t c = 0; c < f->h.kv; c++) {
      f->groups[g++] = n;
      for (int32_t b = first; b < end; b++)
        for (int64_t i = 0; i < att_block_tiles(f, b); i++, n++) {
          att_tile *t = &f->tiles[n];
          *t = att_tile_of(f, b, c, i);
          t->fresh = t->from, t->done = t->keys;
          if (t->lane % part) t->fresh = t[-1].keys, t[-1].done = t->from; /* in the part of the tile before */
        }
    }
  }
  f->groups[g] = n;
}

/* The lanes of a tile: their offsets, in heads, in a tensor [T, Q], and their positions. Lanes beyond the tile's have the
 * last one's. */
typedef struct {
  int64_t at[ATT_LANES];
  int32_t position[ATT_LANES];
} att_lanes;

SIMD_INLINE void att_lanes_of(att_lanes *l, const att_forest *f, const att_tile *t) {
  int64_t row = t->lane / f->group;
  int32_t head = t->lane % f->group;
  for (int32_t i = 0; i < ATT_LANES; i++) {
    l->at[i] = (f->segments[t->segment].start + row) * f->h.q + t->kv * f->group + head;
    l->position[i] = (int32_t)(f->segments[t->segment].before + row);
    if (i < t->lanes - 1 && ++head == f->group) head = 0, row++;
  }
}

/* The rows of a tile's path from a position on, a span for each segment, root first. spans has
 * room for the forest's depth. Returns their number. */
SIMD_INLINE int64_t att_path(att_span *spans, const att_forest *f, const att_tile *t, int64_t from) {
  int64_t depth = 0, i;
  for (int32_t s = t->segment; s >= 0; s = f->segments[s].parent) depth++;
  i = depth;
  for (int32_t s = t->segment; s >= 0; s = f->segments[s].parent) {
    int64_t len = s == t->segment ? t->keys - f->segments[s].before : f->segments[s].len;
    int64_t skip = max64(0, min64(len, from - f->segments[s].before));
    spans[--i] = (att_span){(f->segments[s].start + skip) * f->stride + (int64_t)t->kv * f->h.dim, len - skip};
  }
  return depth;
}

/* Takes the next n rows off a path. Returns the number of spans, at most n. */
SIMD_INLINE int64_t att_next(att_span *tile, att_span **path, int64_t n, int64_t stride) {
  int64_t spans = 0;
  while (n > 0) {
    att_span *s = *path;
    int64_t take = min64(n, s->n);
    if (take) tile[spans++] = (att_span){s->at, take};
    s->at += take * stride, s->n -= take, n -= take;
    if (!s->n) ++*path;
  }
  return spans;
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
