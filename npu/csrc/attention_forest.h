/* The forest that the forward and the backward pass of attention walk, in both numerics.
 *
 * A lane is a query row of one segment in one of the query heads that read the
 * same key-value head. Lanes count through the heads of a row first, then through
 * the rows. A tile is up to ATT_LANES lanes of one part of rows (see npu.AttentionKernels).
 * Its keys are those on its path that a lane attends to: of the segment's ancestors, root
 * first, then of its own rows. */
#ifndef EASYRL_ATTENTION_FOREST_H
#define EASYRL_ATTENTION_FOREST_H

#include "device.h"
#include "easyrl_math.h"
#include "simd.h"
#include "values.h"
#if defined(KERNELS_BF16)
#include "mma.h"
#endif

/* The lanes of a tile, and the columns that Dim is filled up to a multiple of. */
#if defined(KERNELS_BF16)
#define ATT_LANES 64
#define ATT_COLS MMA_COLS
#elif defined(SIMD_AVX512)
#define ATT_LANES (2 * VL)
#define ATT_COLS VL
#else
#define ATT_LANES VL
#define ATT_COLS VL
#endif
#define ATT_KEYS EASYRL_KEY_TILE
#define ATT_SPLIT EASYRL_KEY_SPLIT

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
  f->dim_padded = (int32_t)round_up(h.dim, ATT_COLS);
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

#endif
