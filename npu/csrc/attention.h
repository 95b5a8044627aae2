/* Attention over a forest of segments and its backward pass, in FP32. The order of every
 * sum is that of npu.Device and of cpu/attention_purego.go. */
#ifndef EASYRL_ATTENTION_H
#define EASYRL_ATTENTION_H

#include "attention_forward.h"
#include "attention_tile.h"

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

/* Floats of scratch per thread. */
static int64_t att_forward_floats(const att_forest *f) {
  return 4 * ATT_LANES * f->dim_padded + ATT_PASS * ATT_LANES + round_up(f->depth * (int64_t)sizeof(att_span) / 4, 16);
}

#include "attention_backward.h"

static int64_t att_backward_floats(const att_forest *f) {
  return 3 * ATT_LANES * f->dim_padded + round_up(f->depth * (int64_t)sizeof(att_span) / 4, 16);
}

/* p and dS are [keys][ATT_LANES]. */
typedef struct { float *p, *ds, *q, *d_out; } att_slot;

static int64_t att_slot_floats(const att_forest *f, int64_t keys) {
  return 2 * (keys + ATT_ROWS) * ATT_LANES + 2 * ATT_LANES * f->dim_padded;
}

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

static void att_backward_tile(const att_backward *a, const att_tile *t, float *slot, int32_t thread) {
  const att_forest *f = &a->f;
  att_slot s = att_slot_at(slot, f, t);
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

static void att_backward_chains(const att_backward *a, const att_tile *t, float *slot, int32_t segment, int64_t lo,
                                int64_t hi, int begun, int ends, att_chains src, att_chains dst) {
  const att_forest *f = &a->f;
  const easyrl_segment *g = &f->segments[segment];
  att_slot s = att_slot_at(slot, f, t);
  int own = segment == t->segment;
  int64_t at = (g->start + lo - g->before) * f->stride + (int64_t)t->kv * f->h.dim;
  int64_t i = (lo - t->from) * ATT_LANES, hidden = (lo - g->before) * f->group - t->lane, n = hi - lo;
  int64_t from = (lo - src.first) * f->dim_padded, to = (lo - dst.first) * f->dim_padded;
  att_spread(a->dk_sums + at, begun ? src.dk + from : 0, ends ? 0 : dst.dk + to, s.ds + i, s.q, n, own, hidden, f, t->lanes);
  att_spread(a->dv_sums + at, begun ? src.dv + from : 0, ends ? 0 : dst.dv + to, s.p + i, s.d_out, n, own, hidden, f, t->lanes);
}

#include "attention_cached.h"

#endif
