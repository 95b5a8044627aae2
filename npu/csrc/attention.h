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

/* Turns the scores s of a tile, in p, into exp(s - m), where m is each lane's maximum over
 * the keys. il is 1 / (the sum of p, a chain over the keys). */
SIMD_INLINE void att_softmax(float *p, float *m, float *il, int64_t keys, const int nv) {
  vf max[ATT_NV], sum[ATT_NV];
  for (int v = 0; v < nv; v++) max[v] = v_set1(-INFINITY), sum[v] = v_zero();
  for (int64_t j = 0; j < keys; j++)
    for (int v = 0; v < nv; v++) max[v] = v_max(v_load(p + j * ATT_LANES + v * VL), max[v]);
  for (int64_t j = 0; j < keys; j++)
    for (int v = 0; v < nv; v++) {
      vf x = v_exp(v_sub(v_load(p + j * ATT_LANES + v * VL), max[v]));
      v_store(p + j * ATT_LANES + v * VL, x);
      sum[v] = v_add(sum[v], x);
    }
  for (int v = 0; v < nv; v++) {
    v_store(m + v * VL, max[v]);
    v_store(il + v * VL, v_div(v_set1(1.0f), sum[v]));
  }
}

static void att_forward_tile(void *arg, int64_t task, int32_t thread) {
  const att_forward *a = arg;
  const att_forest *f = &a->f;
  const att_tile *t = &f->tiles[f->n_tiles - 1 - task]; /* longest first: later tiles of a sequence */
  float *cursor = a->scratch + thread * a->part;
  float *rows = att_take(&cursor, (int64_t)ATT_LANES * f->dim_padded * 4);
  float *columns = att_take(&cursor, (int64_t)ATT_LANES * f->dim_padded * 4);
  att_span *spans = att_take(&cursor, f->depth * (int64_t)sizeof(att_span));
  float *p = att_take(&cursor, f->max_keys * ATT_LANES * 4);
  int64_t at[ATT_LANES];
  float m[ATT_LANES], il[ATT_LANES];
  int nv = t->lanes > VL ? ATT_NV : 1;

  att_lane_heads(at, f, t);
  att_gather(rows, columns, a->q, at, f, t);
  int64_t n_spans = att_path(spans, f, t, a->k);
  att_scores(p, columns, spans, n_spans, f, t, f->scale, nv);
  if (nv == 1) att_softmax(p, m, il, t->keys, 1);
  else att_softmax(p, m, il, t->keys, ATT_NV);
  att_path(spans, f, t, a->v);
  att_weigh(a->out, at, p, il, spans, n_spans, f, t);
  if (a->stats)
    for (int32_t i = 0; i < t->lanes; i++) a->stats[2 * at[i]] = m[i], a->stats[2 * at[i] + 1] = il[i];
}

static void kernel_attention(easyrl_device *d, float *out, float *stats, const float *q, const float *k, const float *v,
                             easyrl_segments segments, easyrl_heads h) {
  att_forward a = {.out = out, .stats = stats, .q = q, .k = k, .v = v};
  int64_t shared = att_forest_measure(&a.f, segments.list, segments.n, h);
  a.part = 2 * ATT_LANES * a.f.dim_padded + round_up(a.f.depth * (int64_t)sizeof(att_span) / 4, 16) +
           a.f.max_keys * ATT_LANES;
  float *cursor = device_scratch(d, shared + pool_threads(d->pool) * a.part);
  if (!cursor) return;
  att_forest_build(&a.f, &cursor);
  a.scratch = cursor;
  pool_run(d->pool, a.f.n_tiles, att_forward_tile, &a);
}

/* The backward pass processes a tile in two halves. The first half writes dq, and stores the
 * tile's p and dS [keys][ATT_LANES] and its rows of q and dOut in a slot. The second half
 * adds dS q to dk and p dOut to dv, for the keys on the tile's path. Each dk and dv is a
 * chain over the lanes of all tiles of the tree, in their order, and memory holds the chain
 * between tiles. If there are enough trees to keep the threads busy, one thread takes a tree
 * through both halves. Otherwise the threads take a run of tiles through the first half in
 * parallel, and then units of keys through the second half. */
typedef struct {
  att_forest f;
  float *dq, *dk, *dv;
  const float *d_out, *out, *stats, *q, *k, *v;
  float *scratch, *slots;
  int64_t part, slot; /* floats of scratch per thread; floats per slot */
  int64_t first, last; /* current run of tiles */
} att_backward;

/* Returns the floats in the slot of a tile with a number of keys. */
SIMD_INLINE int64_t att_slot_floats(const att_forest *f, int64_t keys) {
  return 2 * (keys + ATT_ROWS) * ATT_LANES + 2 * ATT_LANES * f->dim_padded;
}

typedef struct { float *p, *ds, *q, *d_out; } att_slot;

SIMD_INLINE att_slot att_slot_at(float *at, const att_forest *f, const att_tile *t) {
  int64_t matrix = (t->keys + ATT_ROWS) * ATT_LANES, rows = (int64_t)ATT_LANES * f->dim_padded;
  return (att_slot){at, at + matrix, at + 2 * matrix, at + 2 * matrix + rows};
}

/* Replaces the scores s in the slot's p by p = exp(s - m) il, and dP in the slot's ds by
 * dS = (p (dP - dot)) scale. */
SIMD_INLINE void att_softmax_backward(att_slot s, int64_t keys, const float *m, const float *il, const float *dot,
                                      float scale, const int nv) {
  for (int v = 0; v < nv; v++) {
    vf mv = v_load(m + v * VL), iv = v_load(il + v * VL), dv = v_load(dot + v * VL);
    for (int64_t j = 0; j < keys; j++) {
      int64_t i = j * ATT_LANES + v * VL;
      vf p = v_mul(v_exp(v_sub(v_load(s.p + i), mv)), iv);
      v_store(s.p + i, p);
      v_store(s.ds + i, v_mul(v_mul(p, v_sub(v_load(s.ds + i), dv)), v_set1(scale)));
    }
  }
}

/* The first half of a tile. */
static void att_backward_tile(const att_backward *a, const att_tile *t, att_slot s, int32_t thread) {
  const att_forest *f = &a->f;
  float *cursor = a->scratch + thread * a->part;
  int64_t tile_bytes = (int64_t)ATT_LANES * f->dim_padded * 4;
  float *rows = att_take(&cursor, tile_bytes), *outs = att_take(&cursor, tile_bytes);
  float *qs = att_take(&cursor, tile_bytes), *d_outs = att_take(&cursor, tile_bytes);
  att_span *spans = att_take(&cursor, f->depth * (int64_t)sizeof(att_span));
  int64_t at[ATT_LANES];
  float m[ATT_LANES] = {0}, il[ATT_LANES] = {0}, dot[ATT_LANES], one[ATT_LANES];
  int nv = t->lanes > VL ? ATT_NV : 1;

  att_lane_heads(at, f, t);
  att_gather(s.q, qs, a->q, at, f, t);
  att_gather(s.d_out, d_outs, a->d_out, at, f, t);
  att_gather(rows, outs, a->out, at, f, t);
  for (int32_t i = 0; i < t->lanes; i++) m[i] = a->stats[2 * at[i]], il[i] = a->stats[2 * at[i] + 1];
  for (int v = 0; v < ATT_NV; v++) {
    vf sum = v_zero();
    for (int32_t e = 0; v < nv && e < f->h.dim; e++)
      sum = v_fma(v_load(d_outs + (int64_t)e * ATT_LANES + v * VL), v_load(outs + (int64_t)e * ATT_LANES + v * VL), sum);
    v_store(dot + v * VL, sum);
    v_store(one + v * VL, v_set1(1.0f));
  }
  int64_t n_spans = att_path(spans, f, t, a->v);
  att_scores(s.ds, d_outs, spans, n_spans, f, t, 1.0f, nv);
  att_path(spans, f, t, a->k);
  att_scores(s.p, qs, spans, n_spans, f, t, f->scale, nv);
  if (nv == 1) att_softmax_backward(s, t->keys, m, il, dot, f->scale, 1);
  else att_softmax_backward(s, t->keys, m, il, dot, f->scale, ATT_NV);
  att_weigh(a->dq, at, s.ds, one, spans, n_spans, f, t);
}

#define ATT_SPREAD_ROW(r) \
  case r: \
    for (int v = 0; v < nv; v++) acc[r][v] = v_fma(v_set1(p[r * ATT_LANES]), b[v], acc[r][v]); \
    __attribute__((fallthrough));

/* Continues the chains y[r] with p[r][lane] x[lane] over the lanes that attend to key r, for
 * nv vectors of Dim. y has keys rows, at most a block of rows rows. Key r is hidden from the
 * lanes below hidden + r step. */
SIMD_INLINE void att_spread_block(float *y, int64_t stride, int keys, const float *p, const float *x, int32_t wide,
                                  int32_t lanes, int64_t hidden, int64_t step, const int rows, const int nv,
                                  const int full, int width) {
  vf acc[ATT_ROWS][ATT_NV], b[ATT_NV];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++)
      acc[r][v] = r < keys ? att_load(y + r * stride + v * VL, full || v < nv - 1, width) : v_zero();
  int64_t lane = max64(0, hidden);
  int64_t all = max64(lane, min64(lanes, hidden + (keys - 1) * step)); /* lanes from this one on see all keys */
  p += lane, x += lane * wide;
  for (; lane < all; lane++, p++, x += wide) {
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) b[v] = v_load(x + v * VL);
    switch (min64((lane - hidden) / step, rows - 1)) {
#if ATT_ROWS == 8
      ATT_SPREAD_ROW(7)
      ATT_SPREAD_ROW(6)
      ATT_SPREAD_ROW(5)
      ATT_SPREAD_ROW(4)
#endif
      ATT_SPREAD_ROW(3)
      ATT_SPREAD_ROW(2)
      ATT_SPREAD_ROW(1)
      ATT_SPREAD_ROW(0)
      default:;
    }
  }
  for (; lane < lanes; lane++, p++, x += wide) {
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
    for (int v = 0; v < nv; v++) att_store(y + r * stride + v * VL, acc[r][v], full || v < nv - 1, width);
  }
}

/* Continues the chains y[key] with p[key] x, for n keys of one segment. Key j is hidden from
 * the lanes below hidden + j step. */
static void att_spread(float *y, const float *p, const float *x, int64_t n, int64_t hidden, int64_t step,
                       const att_forest *f, const att_tile *t) {
  int64_t stride = (int64_t)f->h.kv * f->h.dim;
  int32_t wide = f->dim_padded;
  for (int64_t j = 0; j < n; j += ATT_ROWS) {
    int keys = (int)min64(ATT_ROWS, n - j);
    for (int32_t e = 0; e < f->h.dim; e += ATT_LANES) {
      int32_t left = f->h.dim - e;
#define ATT_SPREAD(rows, nv, full, width) \
  att_spread_block(y + j * stride + e, stride, keys, p + j * ATT_LANES, x + e, wide, t->lanes, hidden + j * step, step, \
                   rows, nv, full, width)
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

/* The second half of tile t for keys [first, first + n) of a segment. */
SIMD_INLINE void att_backward_keys(const att_backward *a, const att_tile *t, att_slot s, int32_t segment, int64_t first,
                                   int64_t n) {
  const att_forest *f = &a->f;
  int own = segment == t->segment;
  if (own) n = min64(n, t->keys - f->before[segment] - first);
  if (n <= 0) return;
  int64_t at = (((int64_t)f->segments[segment].start + first) * f->h.kv + t->kv) * f->h.dim;
  int64_t j = (f->before[segment] + first) * ATT_LANES;
  int64_t step = own ? f->group : 0, hidden = own ? first * step - t->lane : ATT_SEEN;
  att_spread(a->dk + at, s.ds + j, s.q, n, hidden, step, f, t);
  att_spread(a->dv + at, s.p + j, s.d_out, n, hidden, step, f, t);
}

/* Both halves of all tiles of one tree and key-value head, tile by tile. */
static void att_backward_group(void *arg, int64_t task, int32_t thread) {
  const att_backward *a = arg;
  const att_forest *f = &a->f;
  for (int64_t i = f->groups[task]; i < f->groups[task + 1]; i++) {
    const att_tile *t = &f->tiles[i];
    att_slot s = att_slot_at(a->slots + thread * a->slot, f, t);
    att_backward_tile(a, t, s, thread);
    for (int32_t g = t->segment; g >= 0; g = f->segments[g].parent)
      att_backward_keys(a, t, s, g, 0, f->segments[g].len);
  }
}

/* The first half of one tile of the current run. */
static void att_backward_first(void *arg, int64_t task, int32_t thread) {
  const att_backward *a = arg;
  const att_tile *t = &a->f.tiles[a->first + task];
  att_backward_tile(a, t, att_slot_at(a->slots + t->slot, &a->f, t), thread);
}

/* The second half of all tiles of the current run, for the keys of one unit. */
static void att_backward_second(void *arg, int64_t task, int32_t thread) {
  const att_backward *a = arg;
  const att_forest *f = &a->f;
  const att_unit *u = &f->units[task];
  (void)thread;
  for (int64_t i = a->first; i < a->last; i++) {
    const att_tile *t = &f->tiles[i];
    int32_t g = t->segment;
    if (t->kv != u->kv) continue;
    while (g > u->segment) g = f->segments[g].parent;
    if (g == u->segment) att_backward_keys(a, t, att_slot_at(a->slots + t->slot, f, t), g, u->first, u->n);
  }
}

/* Sets dk and dv of one unit to zero. */
static void att_backward_zero(void *arg, int64_t task, int32_t thread) {
  const att_backward *a = arg;
  const att_unit *u = &a->f.units[task];
  (void)thread;
  for (int32_t j = 0; j < u->n; j++) {
    int64_t row = a->f.segments[u->segment].start + u->first + j;
    int64_t at = (row * a->f.h.kv + u->kv) * a->f.h.dim;
    memset(a->dk + at, 0, (size_t)a->f.h.dim * 4);
    memset(a->dv + at, 0, (size_t)a->f.h.dim * 4);
  }
}

/* Returns whether groups of tiles keep all threads busy: the largest group has at most 1.25
 * times a thread's share of the work. */
static int att_groups_suffice(const att_forest *f, int32_t threads) {
  int64_t total = 0, largest = 0;
  for (int64_t g = 0; g < f->n_groups; g++) {
    int64_t work = 0;
    for (int64_t i = f->groups[g]; i < f->groups[g + 1]; i++) work += f->tiles[i].keys;
    total += work;
    largest = max64(largest, work);
  }
  return threads == 1 || largest * threads <= total + total / 4;
}

#define ATT_RUN_FLOATS ((int64_t)1 << 20) /* minimum room for a run's slots with several threads */

/* Gives slots to the tiles from first on, as many as fit into room floats. Returns the end of
 * this run of tiles. */
static int64_t att_backward_run(att_backward *a, int64_t first, int64_t room) {
  int64_t used = 0, i = first;
  for (; i < a->f.n_tiles; i++) {
    att_tile *t = &a->f.tiles[i];
    int64_t need = att_slot_floats(&a->f, t->keys);
    if (used + need > room) break;
    t->slot = used;
    used += need;
  }
  return i;
}

static void kernel_attention_backward(easyrl_device *d, float *dq, float *dk, float *dv, const float *d_out,
                                      const float *out, const float *stats, const float *q, const float *k,
                                      const float *v, easyrl_segments segments, easyrl_heads h) {
  att_backward a = {.dq = dq, .dk = dk, .dv = dv, .d_out = d_out, .out = out, .stats = stats, .q = q, .k = k, .v = v};
  int32_t threads = pool_threads(d->pool);
  int64_t shared = att_forest_measure(&a.f, segments.list, segments.n, h);
  a.part = 4 * ATT_LANES * a.f.dim_padded + round_up(a.f.depth * (int64_t)sizeof(att_span) / 4, 16);
  a.slot = att_slot_floats(&a.f, a.f.max_keys);
  int64_t room = threads * a.slot;
  if (threads > 1) room = max64(room, ATT_RUN_FLOATS);
  float *cursor = device_scratch(d, shared + threads * a.part + room);
  if (!cursor) return;
  att_forest_build(&a.f, &cursor);
  a.scratch = cursor;
  a.slots = cursor + threads * a.part;
  pool_run(d->pool, a.f.n_units, att_backward_zero, &a);
  if (att_groups_suffice(&a.f, pool_limited(d->pool))) {
    pool_run(d->pool, a.f.n_groups, att_backward_group, &a);
    return;
  }
  for (a.first = 0; a.first < a.f.n_tiles; a.first = a.last) {
    a.last = att_backward_run(&a, a.first, room);
    pool_run(d->pool, a.last - a.first, att_backward_first, &a);
    pool_run(d->pool, a.f.n_units, att_backward_second, &a);
  }
}

#include "attention_cached.h"

#endif
