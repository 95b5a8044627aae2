/* Attention over a forest of segments and its backward pass. The order of every
 * sum is that of npu.Device and of cpu/attention_purego.go. */
#ifndef EASYRL_ATTENTION_H
#define EASYRL_ATTENTION_H

#include "attention_tile.h"

typedef struct {
  att_forest f;
  float *out, *stats;
  const float *q, *k, *v;
  float *scratch;
  int64_t part; /* floats of scratch per thread */
} att_forward;

/* Raises the lanes' maxima m to those of the scores s of a tile of keys, replaces s by weights,
 * adds the weights to the sums l, and stores in a the factors that the maxima's change gives the sums
 * before. Returns whether a factor is not 1. */
SIMD_INLINE int att_softmax(float *s, int64_t keys, float exponent, float *m, float *l, float *a, const int nv) {
  unsigned changed = 0;
  for (int v = 0; v < nv; v++) {
    float *x = s + v * VL;
    vf none = v_set1(-INFINITY), tops[4] = {none, none, none, none}, was = v_load(m + v * VL), part[VL];
    int64_t j = 0;
    for (; j + 4 <= keys; j += 4) /* four chains hide latency */
      for (int i = 0; i < 4; i++) tops[i] = v_max(v_load(x + (j + i) * ATT_LANES), tops[i]);
    for (; j < keys; j++) tops[0] = v_max(v_load(x + j * ATT_LANES), tops[0]);
    vf top = v_max(v_max(tops[0], tops[1]), v_max(tops[2], tops[3]));
    vf bounded = v_max(v_set1(-ATT_CLAMP), v_min(v_set1(ATT_CLAMP), v_mul(top, v_set1(exponent))));
    vf now = v_max(was, v_add(v_rint(bounded), v_set1(1.0f)));
    changed |= vm_bits(v_gt(now, was));
    vf factor = v_pow2(v_sub(was, now)), minus = v_sub(v_zero(), now);
    for (int i = 0; i < VL; i++) part[i] = v_zero();
    for (j = 0; j < keys; j++) {
      vf w = v_exp2(v_fma(v_load(x + j * ATT_LANES), v_set1(exponent), minus));
      v_store(x + j * ATT_LANES, w);
      part[j % VL] = v_add(part[j % VL], w);
    }
    for (int half = VL / 2; half; half /= 2)
      for (int i = 0; i < half; i++) part[i] = v_add(part[i], part[i + half]);
    v_store(m + v * VL, now);
    v_store(a + v * VL, factor);
    v_store(l + v * VL, v_fma(v_load(l + v * VL), factor, part[0]));
  }
  return changed != 0;
}

/* The sums of some lanes over a split, or over the splits so far. */
typedef struct {
  float m[ATT_LANES], l[ATT_LANES];
  float *o; /* [ATT_LANES][dim_padded] */
} att_sums;

/* Adds a split's sums to those of the splits before. */
static void att_merge(att_sums *all, const att_sums *split, int32_t lanes, int32_t wide) {
  float x[ATT_LANES], y[ATT_LANES];
  for (int v = 0; v < ATT_LANES; v += VL) {
    vf before = v_load(all->m + v), now = v_load(split->m + v), top = v_max(before, now);
    vf from = v_pow2(v_sub(before, top)), to = v_pow2(v_sub(now, top));
    v_store(x + v, from);
    v_store(y + v, to);
    v_store(all->m + v, top);
    v_store(all->l + v, v_fma(v_load(split->l + v), to, v_mul(v_load(all->l + v), from)));
  }
  for (int32_t i = 0; i < lanes; i++)
    for (int32_t e = 0; e < wide; e += VL) {
      float *o = all->o + (int64_t)i * wide + e;
      v_store(o, v_fma(v_load(split->o + (int64_t)i * wide + e), v_set1(y[i]), v_mul(v_load(o), v_set1(x[i]))));
    }
}

static void att_forward_tile(const att_forward *a, const att_tile *t, int32_t thread) {
  const att_forest *f = &a->f;
  float *cursor = a->scratch + thread * a->part;
  int64_t floats = (int64_t)ATT_LANES * f->dim_padded;
  float *rows = att_take(&cursor, floats * 4), *columns = att_take(&cursor, floats * 4);
  float *s = att_take(&cursor, ATT_PASS * ATT_LANES * 4);
  att_span *path = att_take(&cursor, f->depth * (int64_t)sizeof(att_span)), spans[ATT_PASS];
  att_sums sums[2] = {{.o = att_take(&cursor, floats * 4)}, {.o = att_take(&cursor, floats * 4)}};
  att_sums *split = &sums[0], *all = &sums[1];
  int64_t first = t->from / ATT_KEYS * ATT_KEYS;
  att_lanes lanes;
  float factors[ATT_TILES][ATT_LANES];
  att_rows tiles[ATT_TILES];
  int nv = t->lanes > VL ? ATT_NV : 1, splits = 0;

  att_lanes_of(&lanes, f, t);
  att_gather(rows, columns, a->q, lanes.at, f, t);
  att_path(path, f, t, first);
  while (first < t->keys) {
    for (int i = 0; i < ATT_LANES; i++) split->m[i] = ATT_NO_MAXIMUM, split->l[i] = 0.0f;
    int64_t end = min64(t->keys, round_up(first + 1, ATT_SPLIT));
    for (int start = 1; first < end; start = 0) {
      int64_t keys = min64(ATT_PASS, end - first), n_spans = 0;
      int n = (int)ceil_div(keys, ATT_KEYS);
      for (int i = 0; i < n; i++) {
        tiles[i] = (att_rows){.spans = spans + n_spans};
        tiles[i].n = att_next(spans + n_spans, &path, min64(ATT_KEYS, keys - i * ATT_KEYS), f->stride);
        n_spans += tiles[i].n;
      }
      att_scores(s, columns, a->k, spans, n_spans, f->stride, f->h.dim, nv);
      att_hide(s, -INFINITY, first, keys, f, &lanes);
      for (int i = 0; i < n; i++) {
        float *x = s + i * ATT_KEYS * ATT_LANES, *factor = factors[i];
        int64_t own = min64(ATT_KEYS, keys - i * ATT_KEYS);
        int changed = nv == 1 ? att_softmax(x, own, f->exponent, split->m, split->l, factor, 1)
                              : att_softmax(x, own, f->exponent, split->m, split->l, factor, ATT_NV);
        if (changed && !(start && i == 0)) tiles[i].factor = factor;
      }
      att_weigh(split->o, start, s, a->v, tiles, first, first + keys, f, &lanes, t->lanes);
      first += keys;
    }
    if (splits++) att_merge(all, split, t->lanes, f->dim_padded);
    else split = &sums[1], all = &sums[0];
  }
  float il[ATT_LANES];
  for (int v = 0; v < ATT_LANES; v += VL) v_store(il + v, v_div(v_set1(1.0f), v_load(all->l + v)));
  for (int32_t i = 0; a->stats && i < t->lanes; i++) a->stats[2 * lanes.at[i]] = all->m[i], a->stats[2 * lanes.at[i] + 1] = il[i];
  att_write(a->out, lanes.at, all->o, il, f, t->lanes);
}

static void att_forward_block(void *arg, int64_t task, int32_t thread) {
  const att_forward *a = arg;
  int64_t block = a->f.n_blocks - 1 - task / a->f.h.kv; /* longest first: later blocks of a sequence */
  for (int64_t i = 0; i < att_block_tiles(&a->f, block); i++) {
    att_tile t = att_tile_of(&a->f, block, (int32_t)(task % a->f.h.kv), i);
    att_forward_tile(a, &t, thread);
  }
}

static void kernel_attention(easyrl_device *d, void *out, float *stats, const void *q, const void *k, const void *v,
                             easyrl_segments segments, easyrl_heads h) {
  att_forward a = {.out = out, .stats = stats, .q = q, .k = k, .v = v};
  att_forest_measure(&a.f, segments, h);
  a.part = 4 * ATT_LANES * a.f.dim_padded + ATT_PASS * ATT_LANES + round_up(a.f.depth * (int64_t)sizeof(att_span) / 4, 16);
  a.scratch = device_scratch(d, pool_threads(d->pool) * a.part);
  if (!a.scratch) return;
  pool_run(d->pool, (int64_t)a.f.n_blocks * h.kv, att_forward_block, &a);
}

/* The backward pass processes a tile in two halves. The first half writes dq, and stores the
 * tile's p and dS [keys][ATT_LANES] and its rows of q and dOut in a slot. The second half
 * adds dS q to the chains of dk and p dOut to those of dv, for the keys on the tile's path. Memory
 * holds the chains of a part's keys between its tiles; the last tile adds them to dk and dv. If
 * there are enough trees to keep the threads busy, one thread takes a tree through both halves.
 * Otherwise the threads take a run of tiles through the first half in parallel, and then the
 * blocks of keys through the second half. */
typedef struct {
  att_forest f;
  float *dq, *dk, *dv;
  const float *d_out, *out, *stats, *q, *k, *v;
  float *scratch, *slots;
  int64_t part, slot; /* floats of scratch per thread; floats per slot */
  int64_t first, last; /* current run of tiles */
  /* Chains of dk and dv, [2][max_keys][dim_padded] each. In a run, opened has those of the part that continues from
   * the run before, and open takes those of the part that the next run continues. */
  float *chains, *opened, *open;
} att_backward;

/* Returns the floats in the slot of a tile with a number of keys. */
SIMD_INLINE int64_t att_slot_floats(const att_forest *f, int64_t keys) {
  return 2 * (keys + ATT_ROWS) * ATT_LANES + 2 * ATT_LANES * f->dim_padded;
}

typedef struct { float *p, *ds, *q, *d_out; } att_slot;

SIMD_INLINE att_slot att_slot_at(float *at, const att_forest *f, const att_tile *t) {
  int64_t matrix = (t->keys - t->from + ATT_ROWS) * ATT_LANES, rows = (int64_t)ATT_LANES * f->dim_padded;
  return (att_slot){at, at + matrix, at + 2 * matrix, at + 2 * matrix + rows};
}

/* Replaces the scores s in the slot's p by p = 2^(s - m) il, and dP in the slot's ds by
 * dS = p (dP - dot). */
SIMD_INLINE void att_softmax_backward(att_slot s, int64_t keys, const float *m, const float *il, const float *dot,
                                      float exponent, const int nv) {
  for (int v = 0; v < nv; v++) {
    vf mv = v_sub(v_zero(), v_load(m + v * VL)), iv = v_load(il + v * VL), dv = v_load(dot + v * VL);
    for (int64_t j = 0; j < keys; j++) {
      int64_t i = j * ATT_LANES + v * VL;
      vf p = v_mul(v_exp2(v_fma(v_load(s.p + i), v_set1(exponent), mv)), iv);
      v_store(s.p + i, p);
      v_store(s.ds + i, v_mul(p, v_sub(v_load(s.ds + i), dv)));
    }
  }
}

/* The first half of a tile. */
static void att_backward_tile(const att_backward *a, const att_tile *t, att_slot s, int32_t thread) {
  const att_forest *f = &a->f;
  float *cursor = a->scratch + thread * a->part;
  int64_t tile_bytes = (int64_t)ATT_LANES * f->dim_padded * 4, keys = t->keys - t->from;
  float *o = att_take(&cursor, tile_bytes), *qs = att_take(&cursor, tile_bytes), *d_outs = att_take(&cursor, tile_bytes);
  att_span *spans = att_take(&cursor, f->depth * (int64_t)sizeof(att_span));
  att_lanes lanes;
  float m[ATT_LANES] = {0}, il[ATT_LANES] = {0}, dot[ATT_LANES] = {0}, scale[ATT_LANES];
  int nv = t->lanes > VL ? ATT_NV : 1;

  att_lanes_of(&lanes, f, t);
  const int64_t *at = lanes.at;
  att_gather(s.q, qs, a->q, at, f, t);
  att_gather(s.d_out, d_outs, a->d_out, at, f, t);
  for (int32_t i = 0; i < t->lanes; i++) {
    const float *out = a->out + at[i] * f->h.dim;
    vf sum = v_zero();
    for (int32_t e = 0; e < f->h.dim; e += VL)
      sum = v_fma(v_load(s.d_out + (int64_t)i * f->dim_padded + e), v_load_n(out + e, (int)min64(VL, f->h.dim - e)), sum);
    m[i] = a->stats[2 * at[i]], il[i] = a->stats[2 * at[i] + 1], dot[i] = v_fold(sum);
  }
  for (int i = 0; i < ATT_LANES; i++) scale[i] = f->scale;
  int64_t n_spans = att_path(spans, f, t, t->from);
  att_scores(s.ds, d_outs, a->v, spans, n_spans, f->stride, f->h.dim, nv);
  att_scores(s.p, qs, a->k, spans, n_spans, f->stride, f->h.dim, nv);
  if (nv == 1) att_softmax_backward(s, keys, m, il, dot, f->exponent, 1);
  else att_softmax_backward(s, keys, m, il, dot, f->exponent, ATT_NV);
  att_hide(s.p, 0.0f, t->from, keys, f, &lanes);
  att_hide(s.ds, 0.0f, t->from, keys, f, &lanes);
  att_weigh(o, 1, s.ds, a->k, &(att_rows){.spans = spans, .n = n_spans}, t->from, t->keys, f, &lanes, t->lanes);
  att_write(a->dq, at, o, scale, f, t->lanes);
}

/* Continues the chains of a block of at most rows keys with p[r][lane] x[lane] over the lanes from first to
 * lanes, for nv vectors of Dim. The chains start from those in src, or from zero if src is NULL. They go to dst
 * or, if dst is NULL, are added to y. Rows of src and dst have wide floats. */
SIMD_INLINE void att_spread_block(float *y, int64_t stride, const float *src, float *dst, int keys, const float *p,
                                  const float *x, int32_t wide, int32_t first, int32_t lanes, const int rows,
                                  const int nv, const int full, int width) {
  vf acc[ATT_ROWS][ATT_NV], b[ATT_NV];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) acc[r][v] = src && r < keys ? v_load(src + r * wide + v * VL) : v_zero();
  p += first, x += first * wide;
  for (int32_t lane = first; lane < lanes; lane++, p++, x += wide) {
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) b[v] = v_load(x + v * VL);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      vf c = v_set1(p[r * ATT_LANES]);
#pragma GCC unroll 2
      for (int v = 0; v < nv; v++) acc[r][v] = v_fma(c, b[v], acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
    if (r >= keys) break;
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) {
      float *to = y + r * stride + v * VL;
      int whole = full || v < nv - 1;
      if (dst) v_store(dst + r * wide + v * VL, acc[r][v]);
      else att_store(to, v_add(att_load(to, whole, width), acc[r][v]), whole, width);
    }
  }
}

/* Continues the chains of n keys of one segment. Key j is hidden from the lanes below hidden + j group if own is
 * nonzero. See att_spread_block. */
static void att_spread(float *y, const float *src, float *dst, const float *p, const float *x, int64_t n, int own, int64_t hidden,
                       const att_forest *f, int32_t lanes) {
  int32_t wide = f->dim_padded;
  for (int64_t j = 0; j < n; j += ATT_ROWS) {
    int keys = (int)min64(ATT_ROWS, n - j);
    int32_t first = own ? (int32_t)max64(0, hidden + j * f->group) : 0;
    for (int32_t e = 0; e < f->h.dim; e += ATT_LANES) {
      int32_t left = f->h.dim - e;
#define ATT_SPREAD(rows, nv, full, width) \
  att_spread_block(y + j * f->stride + e, f->stride, src ? src + j * wide + e : 0, dst ? dst + j * wide + e : 0, keys, \
                   p + j * ATT_LANES, x + e, wide, first, lanes, rows, nv, full, width)
#define ATT_SPREAD_ANY(nv, full, width) \
  if (keys > ATT_ROWS / 2) ATT_SPREAD(ATT_ROWS, nv, full, width); \
  else ATT_SPREAD(ATT_ROWS / 2, nv, full, width)
      if (left >= ATT_LANES) {
        ATT_SPREAD_ANY(ATT_NV, 1, VL);
      } else if (left > VL) {
        ATT_SPREAD_ANY(ATT_NV, 0, left - VL);
      } else {
        ATT_SPREAD_ANY(1, 0, left);
      }
    }
  }
}

/* Chains of a part's dk and dv; row j of each is the key at position first + j. */
typedef struct {
  float *dk, *dv;
  int64_t first;
} att_chains;

/* The second half of tile t for the keys at positions [lo, hi), which are in one segment. The chains of keys that an
 * earlier tile of the part has begun are in from; to takes those that a later tile continues. */
static void att_backward_keys(const att_backward *a, const att_tile *t, att_slot s, int32_t segment, int64_t lo, int64_t hi,
                              att_chains from, att_chains to) {
  const att_forest *f = &a->f;
  int own = segment == t->segment;
  lo = max64(lo, t->from), hi = min64(hi, t->keys);
  for (int64_t end; lo < hi; lo = end) {
    end = lo < t->fresh ? min64(hi, t->fresh) : hi;
    if (lo < t->done) end = min64(end, t->done);
    int64_t row = f->segments[segment].start + lo - f->segments[segment].before, at = row * f->stride + (int64_t)t->kv * f->h.dim;
    int64_t i = (lo - t->from) * ATT_LANES, hidden = (lo - f->segments[segment].before) * f->group - t->lane;
    int64_t src = (lo - from.first) * f->dim_padded, dst = (lo - to.first) * f->dim_padded;
    int begun = lo < t->fresh, ends = lo < t->done;
    att_spread(a->dk + at, begun ? from.dk + src : 0, ends ? 0 : to.dk + dst, s.ds + i, s.q, end - lo, own, hidden, f,
               t->lanes);
    att_spread(a->dv + at, begun ? from.dv + src : 0, ends ? 0 : to.dv + dst, s.p + i, s.d_out, end - lo, own, hidden, f,
               t->lanes);
  }
}

/* Returns chains in memory for the keys at n positions from first on. */
SIMD_INLINE att_chains att_chains_at(float *memory, const att_forest *f, int64_t n, int64_t first) {
  return (att_chains){memory, memory + n * f->dim_padded, first};
}

/* Both halves of all tiles of one tree and key-value head, tile by tile. */
static void att_backward_group(void *arg, int64_t task, int32_t thread) {
  const att_backward *a = arg;
  const att_forest *f = &a->f;
  att_chains chains = att_chains_at(a->chains + thread * 2 * f->max_keys * f->dim_padded, f, f->max_keys, 0);
  for (int64_t i = f->groups[task]; i < f->groups[task + 1]; i++) {
    const att_tile *t = &f->tiles[i];
    att_slot s = att_slot_at(a->slots + thread * a->slot, f, t);
    att_backward_tile(a, t, s, thread);
    for (int32_t g = t->segment; g >= 0; g = f->segments[g].parent)
      att_backward_keys(a, t, s, g, f->segments[g].before, f->segments[g].before + f->segments[g].len, chains, chains);
  }
}

/* The first half of one tile of the current run. */
static void att_backward_first(void *arg, int64_t task, int32_t thread) {
  const att_backward *a = arg;
  const att_tile *t = &a->f.tiles[a->first + task];
  att_backward_tile(a, t, att_slot_at(a->slots + t->slot, &a->f, t), thread);
}

/* The second half of all tiles of the current run, for a block of keys. */
static void att_backward_second(void *arg, int64_t task, int32_t thread) {
  const att_backward *a = arg;
  const att_forest *f = &a->f;
  int64_t block = task / f->h.kv, kv = task % f->h.kv;
  int32_t segment = f->blocks[block].segment;
  int64_t lo = f->segments[segment].before + f->blocks[block].first, hi = lo + att_block_rows(f, block);
  att_chains own = att_chains_at(a->chains + thread * 2 * EASYRL_ROW_TILE * f->dim_padded, f, EASYRL_ROW_TILE, lo);
  att_chains opened = att_chains_at(a->opened, f, f->max_keys, 0), open = att_chains_at(a->open, f, f->max_keys, 0);
  for (int64_t i = a->first; i < a->last; i++) {
    const att_tile *t = &f->tiles[i];
    int32_t g = t->segment;
    if (t->kv != kv) continue;
    while (g > segment) g = f->segments[g].parent;
    if (g != segment) continue;
    att_backward_keys(a, t, att_slot_at(a->slots + t->slot, f, t), g, lo, hi, i == a->first ? opened : own,
                      i == a->last - 1 ? open : own);
  }
}

/* Sets dk and dv of a block of keys to zero. */
static void att_backward_zero(void *arg, int64_t task, int32_t thread) {
  const att_backward *a = arg;
  const att_forest *f = &a->f;
  const easyrl_tile *b = &f->blocks[task / f->h.kv];
  int64_t at = (f->segments[b->segment].start + b->first) * f->stride + task % f->h.kv * f->h.dim;
  (void)thread;
  for (int32_t j = att_block_rows(f, task / f->h.kv); j > 0; j--, at += f->stride) {
    memset(a->dk + at, 0, (size_t)f->h.dim * 4);
    memset(a->dv + at, 0, (size_t)f->h.dim * 4);
  }
}

/* Multiplies dk of a block of keys by 1/sqrt(Dim). */
static void att_backward_scale(void *arg, int64_t task, int32_t thread) {
  const att_backward *a = arg;
  const att_forest *f = &a->f;
  const easyrl_tile *b = &f->blocks[task / f->h.kv];
  float *dk = a->dk + (f->segments[b->segment].start + b->first) * f->stride + task % f->h.kv * f->h.dim;
  (void)thread;
  for (int32_t j = att_block_rows(f, task / f->h.kv); j > 0; j--, dk += f->stride)
    for (int32_t e = 0; e < f->h.dim; e += VL) {
      int n = (int)min64(VL, f->h.dim - e);
      v_store_n(dk + e, v_mul(v_load_n(dk + e, n), v_set1(f->scale)), n);
    }
}

/* Returns whether groups of tiles keep all threads busy: the largest group has at most 1.25
 * times a thread's share of the work. A block's work is its rows times the keys of its last one. */
static int att_groups_suffice(const att_forest *f, int64_t threads) {
  int64_t total = 0, largest = 0, tree = 0;
  for (int64_t b = 0; b < f->n_blocks; b++) {
    int64_t rows = att_block_rows(f, b), keys = f->segments[f->blocks[b].segment].before + f->blocks[b].first + rows;
    tree = att_starts_tree(f, b) ? rows * keys : tree + rows * keys;
    total += rows * keys;
    largest = max64(largest, tree);
  }
  total *= f->h.kv; /* each tree has a group for every key-value head */
  return threads == 1 || largest * threads <= total + total / 4;
}

#define ATT_RUN_FLOATS ((int64_t)1 << 20) /* minimum room for a run's slots with several threads */

/* Gives slots to the tiles from first on, as many as fit into room floats. Returns the end of
 * this run of tiles. */
static int64_t att_backward_run(att_backward *a, int64_t first, int64_t room) {
  int64_t used = 0, i = first;
  for (; i < a->f.n_tiles; i++) {
    att_tile *t = &a->f.tiles[i];
    int64_t need = att_slot_floats(&a->f, t->keys - t->from);
    if (used + need > room) break;
    t->slot = used;
    used += need;
  }
  return i;
}

static void kernel_attention_backward(easyrl_device *d, void *dq, void *dk, void *dv, const void *d_out,
                                      const void *out, const float *stats, const void *q, const void *k,
                                      const void *v, easyrl_segments segments, easyrl_heads h) {
  att_backward a = {.dq = dq, .dk = dk, .dv = dv, .d_out = d_out, .out = out, .stats = stats, .q = q, .k = k, .v = v};
  att_forest_measure(&a.f, segments, h);
  int64_t shared = att_forest_floats(&a.f), threads = pool_threads(d->pool);
  int groups = att_groups_suffice(&a.f, pool_limited(d->pool));
  int64_t chain = 2 * a.f.dim_padded; /* floats of a key's chains */
  int64_t chains = (groups ? threads * a.f.max_keys : threads * EASYRL_ROW_TILE + 2 * a.f.max_keys) * chain;
  a.part = 3 * ATT_LANES * a.f.dim_padded + round_up(a.f.depth * (int64_t)sizeof(att_span) / 4, 16);
  a.slot = att_slot_floats(&a.f, a.f.max_span);
  int64_t room = threads * a.slot;
  if (threads > 1) room = max64(room, ATT_RUN_FLOATS);
  float *cursor = device_scratch(d, shared + threads * a.part + room + chains);
  if (!cursor) return;
  att_forest_build(&a.f, &cursor);
  a.scratch = cursor;
  a.slots = a.scratch + threads * a.part;
  a.chains = a.slots + room;
  pool_run(d->pool, (int64_t)a.f.n_blocks * h.kv, att_backward_zero, &a);
  if (groups) {
    pool_run(d->pool, a.f.n_groups, att_backward_group, &a);
  } else {
    a.open = a.chains + threads * EASYRL_ROW_TILE * chain;
    a.opened = a.open + a.f.max_keys * chain;
    for (a.first = 0; a.first < a.f.n_tiles; a.first = a.last) {
      a.last = att_backward_run(&a, a.first, room);
      pool_run(d->pool, a.last - a.first, att_backward_first, &a);
      pool_run(d->pool, (int64_t)a.f.n_blocks * h.kv, att_backward_second, &a);
      float *open = a.open;
      a.open = a.opened, a.opened = open;
    }
  }
  pool_run(d->pool, (int64_t)a.f.n_blocks * h.kv, att_backward_scale, &a);
}

#include "attention_cached.h"

#endif
