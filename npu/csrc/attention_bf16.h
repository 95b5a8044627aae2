/* Attention over a forest of segments and its backward pass, in BF16. The order of every sum is
 * that of npu.Device.
 *
 * All products are those of mma.h. A step of keys is STEP keys: of consecutive positions in the
 * forward pass, of consecutive rows of one segment in the backward pass. Kernels take ATT_KEYS
 * keys, 4 steps, at a time. Keys that a row does not see count as terms of 0, which change
 * nothing, so that a product may leave out steps that none of its rows sees. */
#ifndef EASYRL_ATTENTION_BF16_H
#define EASYRL_ATTENTION_BF16_H

#include "attention_forward.h"
#include "mma.h"

#define ATT_PANEL ((int64_t)ATT_KEYS * MMA_B) /* floats of a panel of ATT_KEYS terms */

#define ATT_POW_MIN -60.0f /* powers below are 0 */
#define ATT_POW_P0 0x1.fff692p-1f
#define ATT_POW_P1 0x1.62f31ap-1f
#define ATT_POW_P2 0x1.f0de1ap-3f
#define ATT_POW_P3 0x1.c3f760p-5f

/* 2^x. The relative error is at most 7.5e-5. 2^x of 128 or more is inf, and NaN stays NaN. */
SIMD_INLINE vf att_exp2(vf x) {
  vf bounded = v_max(v_set1(ATT_POW_MIN - 1.0f), v_min(v_set1(128.0f), x));
  vf t = v_add(bounded, v_set1(EXP_ROUND));
  vf r = v_sub(bounded, v_sub(t, v_set1(EXP_ROUND)));
  vf p = v_fma(v_set1(ATT_POW_P3), r, v_set1(ATT_POW_P2));
  p = v_fma(p, r, v_set1(ATT_POW_P1));
  p = v_fma(p, r, v_set1(ATT_POW_P0));
  vf y = vi_bits(vi_add(vf_bits(p), vi_shl(vf_bits(t), 23)));
  y = v_select(v_ge(x, v_set1(ATT_POW_MIN)), y, v_zero());
  y = v_select(v_ge(x, v_set1(128.0f)), v_set1(INFINITY), y);
  return v_select(v_ge(x, x), y, x); /* NaN */
}

/* 2^n of a whole number of at most 0. */
SIMD_INLINE vf att_pow2(vf n) { return v_select(v_ge(n, v_set1(ATT_POW_MIN)), v_pow2(n), v_zero()); }

/* Rows and columns of products. */

/* Writes the 32 columns of one term. See mma_codes_b. */
SIMD_INLINE vi att_term(float *dst, vf low, vf high, vi most) {
  v_store(dst, low);
  v_store(dst + VL, high);
  return mma_codes_b(dst + MMA_COLS, low, high, most);
}

/* Unpacks a panel whose terms are rows, from column e on, of which left exist. Terms that are NULL are 0, and so are
 * columns that do not exist. Returns whether a value is 2^64 or more, or not finite. */
static int att_unpack_rows(float *dst, const value *const *rows, int64_t terms, int32_t e, int32_t left) {
  vi most = vi_set1(0);
  for (int64_t i = 0; i < round_up(terms, MMA_STEP); i++, dst += MMA_B) {
    vf low = v_zero(), high = low;
    if (i < terms && rows[i]) {
      low = value_load_n(rows[i] + e, (int)min64(VL, left));
      if (left > VL) high = value_load_n(rows[i] + e + VL, (int)min64(VL, left - VL));
    }
    most = att_term(dst, low, high, most);
  }
  return mma_codes_huge(most);
}

/* Unpacks a panel whose columns are 32 rows of dim values. Returns as att_unpack_rows does. */
static int att_unpack_columns(float *dst, const value *const *rows, int32_t dim) {
  vi most = vi_set1(0);
  for (int32_t e = 0; e < dim; e += 2 * VL) {
    float pairs[2][VL * VL], block[VL * VL]; /* pairs of terms, one in each half of an int32 */
    int32_t n = (int32_t)min64(2 * VL, dim - e);
    for (int half = 0; half < 2; half++) {
      for (int i = 0; i < VL; i++) {
        if (n < 2 * VL) v_store(block + i * VL, v_zero());
        memcpy(block + i * VL, rows[half * VL + i] + e, n < 2 * VL ? (size_t)n * sizeof(value) : 2 * VL * sizeof(value));
      }
      v_transpose16(pairs[half], VL, block, VL);
    }
    for (int i = 0; i < round_up(n, MMA_STEP) / 2; i++, dst += 2 * MMA_B) {
      vi low = vf_bits(v_load(pairs[0] + i * VL)), high = vf_bits(v_load(pairs[1] + i * VL));
      most = att_term(dst, vi_bits(vi_shl(low, 16)), vi_bits(vi_shl(high, 16)), most);
      most = att_term(dst + MMA_B, vi_bits(vi_and(low, vi_set1(-65536))), vi_bits(vi_and(high, vi_set1(-65536))), most);
    }
  }
  return mma_codes_huge(most);
}

/* Copies the lanes' rows of x [T, Q, Dim] to rows [lanes][dim]. */
static void att_gather(float *rows, const value *x, const int64_t *at, int32_t lanes, int32_t dim) {
  for (int32_t i = 0; i < lanes; i++)
    for (int32_t e = 0; e < dim; e += VL) {
      int n = (int)min64(VL, dim - e);
      v_store_n(rows + (int64_t)i * dim + e, value_load_n(x + at[i] * dim + e, n), n);
    }
}

/* Packed rows of a product: lanes [first, first + n). */
typedef struct {
  float *packed;
  int32_t first, n;
  int64_t steps;
  int huge;
} att_rows;

/* Packs terms [0, k) of n rows of x [ATT_LANES][ld], from first on. */
SIMD_INLINE void att_pack(att_rows *r, const float *x, int64_t ld, int32_t first, int32_t n, int64_t k) {
  r->first = first, r->n = n, r->steps = ceil_div(k, MMA_STEP);
  r->huge = mma_pack_rows(r->packed, x + first * ld, ld, n, k);
}

/* What each lane sees of some keys: none of those before from, nor from to on. Neither falls from lane to lane. */
typedef struct { int32_t from[ATT_LANES], to[ATT_LANES]; } att_seen;

/* c [lane][ATT_KEYS] = products with the panel b, whose columns are the keys from key on, where a lane sees one. */
static void att_scores(float *c, const att_rows *r, const float *b, int huge, const att_seen *seen, int key) {
  int64_t tiles = ceil_div(r->n, MMA_MR);
  for (int64_t i = 0; i < tiles; i++) {
    int64_t m = mma_row(r->n, tiles, i + 1) - mma_row(r->n, tiles, i), lane = r->first + mma_row(r->n, tiles, i);
    if (seen->from[lane] >= key + MMA_COLS || seen->to[lane + m - 1] <= key) continue;
    mma_tiles[m - 1](r->steps, r->packed + i * r->steps * MMA_STEP * MMA_A, b, c + lane * ATT_KEYS + key, ATT_KEYS, MMA_COLS, 1,
                     huge || r->huge ? MMA_EXACT : MMA_FAST);
  }
}

/* Continues the chains c [lane][wide] with products with the panel b, whose terms are keys. */
static void att_weigh(float *c, int32_t wide, const att_rows *r, const float *b, int huge, const att_seen *seen) {
  int64_t tiles = ceil_div(r->n, MMA_MR);
  for (int64_t i = 0; i < tiles; i++) {
    int64_t m = mma_row(r->n, tiles, i + 1) - mma_row(r->n, tiles, i), lane = r->first + mma_row(r->n, tiles, i);
    int64_t first = seen->from[lane] / MMA_STEP, steps = ceil_div(seen->to[lane + m - 1], MMA_STEP) - first;
    if (steps <= 0) continue;
    mma_tiles[m - 1](steps, r->packed + (i * r->steps + first) * MMA_STEP * MMA_A, b + first * MMA_STEP * MMA_B, c + lane * wide,
                     wide, MMA_COLS, 0, huge || r->huge ? MMA_EXACT : MMA_FAST);
  }
}

/* Some lanes that attend to keys, at most ATT_LANES. */

/* The sums of lanes over a split, or over the splits so far. */
typedef struct {
  float m[ATT_LANES], l[ATT_LANES];
  float *o; /* [lanes][wide] */
} att_sums;

typedef struct {
  int32_t lanes, dim, wide;
  float exponent;
  int64_t window;
  int32_t position[ATT_LANES];
  att_rows q, p;
  float *s, *panel; /* scores, then weights [lanes][ATT_KEYS]; a panel */
  att_sums sums[2];
  att_sums *split, *all;
  int splits;
} att_query;

/* Keys of a tile and their values, by position. If paged is nonzero, k has instead the page of each step, [dim][STEP]. */
typedef struct {
  const value *k[ATT_KEYS], *v[ATT_KEYS];
  int paged;
} att_tile_keys;

static int64_t att_query_floats(int32_t dim) {
  int64_t wide = round_up(dim, MMA_COLS);
  return mma_rows_len(ATT_LANES, dim) + mma_rows_len(ATT_LANES, ATT_KEYS) + ATT_LANES * ATT_KEYS +
         max64(ATT_KEYS, wide) * MMA_B + 2 * ATT_LANES * wide + 6 * 16;
}

/* Begins with lanes whose rows of q [T, Q, Dim] are at some offsets. The caller sets position, exponent and window. */
static void att_query_begin(att_query *x, const value *q, const int64_t *at, int32_t lanes, int32_t dim, float *cursor) {
  x->lanes = lanes, x->dim = dim, x->wide = (int32_t)round_up(dim, MMA_COLS), x->splits = 0;
  x->q.packed = att_take(&cursor, mma_rows_len(ATT_LANES, dim) * 4);
  x->p.packed = att_take(&cursor, mma_rows_len(ATT_LANES, ATT_KEYS) * 4);
  x->s = att_take(&cursor, ATT_LANES * ATT_KEYS * 4);
  x->panel = att_take(&cursor, max64(ATT_KEYS, x->wide) * MMA_B * 4);
  x->split = &x->sums[0], x->all = &x->sums[1];
  x->split->o = att_take(&cursor, (int64_t)ATT_LANES * x->wide * 4);
  x->all->o = att_take(&cursor, (int64_t)ATT_LANES * x->wide * 4);
  float *rows = x->all->o; /* not yet in use */
  att_gather(rows, q, at, lanes, dim);
  att_pack(&x->q, rows, dim, 0, lanes, dim);
}

static void att_split_begin(att_query *x) {
  for (int i = 0; i < ATT_LANES; i++) x->split->m[i] = ATT_NO_MAXIMUM, x->split->l[i] = 0.0f;
  memset(x->split->o, 0, (size_t)x->lanes * (size_t)x->wide * 4);
}

/* Adds a split's sums to those of the splits before. */
static void att_split_end(att_query *x) {
  att_sums *all = x->all, *split = x->split;
  if (x->splits++ == 0) {
    x->all = split, x->split = all;
    return;
  }
  for (int32_t i = 0; i < x->lanes; i++) {
    vf before = v_set1(all->m[i]), now = v_set1(split->m[i]), top = v_max(before, now);
    vf from = att_pow2(v_sub(before, top)), to = att_pow2(v_sub(now, top));
    all->m[i] = v_first(top);
    all->l[i] = v_first(v_fma(v_set1(split->l[i]), to, v_mul(v_set1(all->l[i]), from)));
    for (int32_t e = 0; e < x->wide; e += VL) {
      float *o = all->o + (int64_t)i * x->wide + e;
      v_store(o, v_fma(v_load(split->o + (int64_t)i * x->wide + e), to, v_mul(v_load(o), from)));
    }
  }
}

/* Replaces a lane's scores of a tile, of which it sees keys [from, to), by rounded weights, and adds them to its sums. */
static void att_softmax(att_query *x, int32_t lane, int from, int to) {
  float *s = x->s + (int64_t)lane * ATT_KEYS, *o = x->split->o + (int64_t)lane * x->wide;
  vf w[ATT_KEYS / VL], exponent = v_set1(x->exponent), none = v_set1(-INFINITY), top = none, was = v_set1(x->split->m[lane]);
  for (int i = 0; i < ATT_KEYS / VL; i++) {
    w[i] = v_select_n((int)max64(0, min64(VL, to - i * VL)), v_load(s + i * VL), none);
    w[i] = v_select_n((int)max64(0, min64(VL, from - i * VL)), none, w[i]);
    top = v_max(w[i], top);
  }
  vf bounded = v_max(v_set1(-ATT_CLAMP), v_min(v_set1(ATT_CLAMP), v_mul(v_set1(v_hmax(top)), exponent)));
  vf now = v_max(was, v_add(v_rint(bounded), v_set1(1.0f))), factor = att_pow2(v_sub(was, now)), sum = v_zero();
  for (int i = 0; i < ATT_KEYS / VL; i++) {
    w[i] = value_round(att_exp2(v_fma(w[i], exponent, v_sub(v_zero(), now))));
    sum = v_add(sum, w[i]);
    v_store(s + i * VL, w[i]);
  }
  x->split->m[lane] = v_first(now);
  x->split->l[lane] = fmaf(x->split->l[lane], v_first(factor), v_fold(sum));
  if (v_first(factor) == 1.0f) return;
  for (int32_t e = 0; e < x->wide; e += VL) v_store(o + e, v_mul(v_load(o + e), factor));
}

/* Unpacks a panel whose columns are the keys [key, key + 32) of a tile. Keys beyond [from, to), which may be anything
 * in memory, are 0 or repeat others. */
static int att_unpack_keys(float *dst, const att_tile_keys *keys, int key, int from, int to, int32_t dim) {
  if (!keys->paged) {
    const value *rows[MMA_COLS];
    for (int i = 0; i < MMA_COLS; i++) rows[i] = keys->k[max64(from, min64(to - 1, key + i))];
    return att_unpack_columns(dst, rows, dim);
  }
  const value *page[2];
  int lo[2], hi[2]; /* columns of a page that exist */
  for (int half = 0; half < 2; half++) {
    int64_t step = max64(from / MMA_STEP, min64((to - 1) / MMA_STEP, key / MMA_STEP + half));
    page[half] = keys->k[step];
    lo[half] = (int)max64(0, from - step * MMA_STEP), hi[half] = (int)min64(MMA_STEP, to - step * MMA_STEP);
  }
  int whole = lo[0] == 0 && lo[1] == 0 && hi[0] == MMA_STEP && hi[1] == MMA_STEP;
  vi most = vi_set1(0);
  for (int32_t e = 0; e < round_up(dim, MMA_STEP); e++, dst += MMA_B) {
    vf x[2] = {v_zero(), v_zero()};
    for (int half = 0; half < 2 && e < dim; half++) {
      const value *at = page[half] + (int64_t)e * MMA_STEP;
      x[half] = value_load(at);
      if (whole) continue;
      x[half] = v_select_n(lo[half], v_zero(), v_select_n(hi[half], x[half], v_zero()));
    }
    most = att_term(dst, x[0], x[1], most);
  }
  return mma_codes_huge(most);
}

/* Adds a tile of keys, n positions from first on, to the sums of the lanes. */
static void att_attend(att_query *x, int64_t first, int64_t n, const att_tile_keys *keys) {
  int32_t lo = 0, hi = x->lanes; /* lanes that see a key */
  while (lo < hi && x->position[lo] < first) lo++;
  while (hi > lo && x->position[hi - 1] - x->window >= first + n - 1) hi--;
  if (lo == hi) return;
  att_seen seen;
  for (int32_t i = 0; i < x->lanes; i++) {
    seen.from[i] = (int32_t)max64(0, min64(n, x->position[i] - x->window + 1 - first));
    seen.to[i] = (int32_t)max64(0, min64(n, x->position[i] + 1 - first));
  }
  int from = seen.from[lo], to = seen.to[hi - 1], terms = (int)round_up(to, MMA_STEP);
  for (int key = 0; key < to; key += MMA_COLS) {
    if (from >= key + MMA_COLS) continue;
    int huge = att_unpack_keys(x->panel, keys, key, from, to, x->dim);
    att_scores(x->s, &x->q, x->panel, huge, &seen, key);
  }
  for (int32_t i = lo; i < hi; i++) att_softmax(x, i, seen.from[i], seen.to[i]);
  att_pack(&x->p, x->s, ATT_KEYS, lo, hi - lo, terms);
  const value *rows[ATT_KEYS];
  for (int i = 0; i < to; i++) rows[i] = i < from ? 0 : keys->v[i];
  for (int32_t e = 0; e < x->dim; e += MMA_COLS) {
    int huge = att_unpack_rows(x->panel, rows, to, e, x->dim - e);
    att_weigh(x->split->o + e, x->wide, &x->p, x->panel, huge, &seen);
  }
}

/* Writes the lanes' outputs to rows of out [T, Q, Dim], and the inverses of their sums to il. */
static void att_query_end(att_query *x, value *out, const int64_t *at, float *il) {
  for (int32_t i = 0; i < x->lanes; i++) {
    il[i] = 1.0f / x->all->l[i];
    for (int32_t e = 0; e < x->dim; e += VL) {
      vf y = v_add(v_mul(v_load(x->all->o + (int64_t)i * x->wide + e), v_set1(il[i])), v_zero());
      value_store_n(out + at[i] * x->dim + e, y, (int)min64(VL, x->dim - e));
    }
  }
}

/* The forward pass. */

static void att_forward_tile(const att_forward *a, const att_tile *t, int32_t thread) {
  const att_forest *f = &a->f;
  float *cursor = a->scratch + thread * a->part, il[ATT_LANES];
  att_span *path = att_take(&cursor, f->depth * (int64_t)sizeof(att_span)), spans[ATT_KEYS];
  int64_t first = t->from / ATT_KEYS * ATT_KEYS;
  att_lanes lanes;
  att_query x = {.exponent = f->exponent, .window = f->window};
  att_lanes_of(&lanes, f, t);
  memcpy(x.position, lanes.position, sizeof x.position);
  att_query_begin(&x, a->q, lanes.at, t->lanes, f->h.dim, cursor);
  att_path(path, f, t, first);
  while (first < t->keys) {
    att_split_begin(&x);
    for (int64_t end = min64(t->keys, round_up(first + 1, ATT_SPLIT)), n; first < end; first += n) {
      att_tile_keys keys = {.paged = 0};
      n = min64(ATT_KEYS, end - first);
      int64_t n_spans = att_next(spans, &path, n, f->stride), j = 0;
      for (int64_t i = 0; i < n_spans; i++)
        for (int64_t r = 0; r < spans[i].n; r++, j++)
          keys.k[j] = a->k + spans[i].at + r * f->stride, keys.v[j] = a->v + spans[i].at + r * f->stride;
      att_attend(&x, first, n, &keys);
    }
    att_split_end(&x);
  }
  att_query_end(&x, a->out, lanes.at, il);
  for (int32_t i = 0; a->stats && i < t->lanes; i++)
    a->stats[2 * lanes.at[i]] = x.all->m[i], a->stats[2 * lanes.at[i] + 1] = il[i];
}

/* Floats of scratch per thread. */
static int64_t att_forward_floats(const att_forest *f) {
  return round_up(att_query_floats(f->h.dim) + f->depth * (int64_t)sizeof(att_span) / 4 + 16, 16);
}

#include "attention_backward.h"

/* The backward pass numbers a tile's keys by steps: each segment on its path begins with a new step, and its steps
 * begin with its rows 0, STEP, 2 STEP and so on. */

/* p and dS are [blocks of ATT_KEYS keys][ATT_LANES][ATT_KEYS], rounded; q and dOut are panels whose terms are the lanes. */
typedef struct {
  value *p, *ds;
  float *q, *d_out;
  int32_t *huge; /* of q and dOut */
} att_slot;

/* Returns the most keys, with the rest of steps, of a tile with a number of keys. */
SIMD_INLINE int64_t att_slot_keys(const att_forest *f, int64_t keys) {
  return round_up(keys + (MMA_STEP - 1) * (f->depth + 1), ATT_KEYS);
}

static int64_t att_slot_floats(const att_forest *f, int64_t keys) {
  return att_slot_keys(f, keys) * ATT_LANES + 2 * (f->dim_padded / MMA_COLS) * ATT_PANEL + 16 + VL;
}

SIMD_INLINE att_slot att_slot_at(float *at, const att_forest *f, const att_tile *t) {
  int64_t matrix = att_slot_keys(f, t->keys - t->from) * ATT_LANES, panels = f->dim_padded / MMA_COLS * ATT_PANEL;
  value *p = (value *)(at + 2 * panels + 16);
  return (att_slot){.p = p, .ds = p + matrix, .q = at + 16, .d_out = at + 16 + panels, .huge = (int32_t *)at};
}

/* The rows of a segment on a tile's path that belong to the tile's keys, [first, end), from the first of a step. */
typedef struct { int64_t first, end; } att_range;

SIMD_INLINE att_range att_rows_of(const att_forest *f, const att_tile *t, int32_t segment) {
  const easyrl_segment *g = &f->segments[segment];
  int64_t end = segment == t->segment ? t->keys - g->before : g->len, skip = max64(0, t->from - g->before);
  return skip < end ? (att_range){skip / MMA_STEP * MMA_STEP, end} : (att_range){0, 0};
}

/* Returns the number of the first key of a segment on a tile's path. */
static int64_t att_first_key(const att_forest *f, const att_tile *t, int32_t segment) {
  int64_t n = 0;
  for (int32_t g = f->segments[segment].parent; g >= 0; g = f->segments[g].parent) {
    att_range r = att_rows_of(f, t, g);
    n += round_up(r.end - r.first, MMA_STEP);
  }
  return n;
}

static int64_t att_backward_floats(const att_forest *f) {
  return round_up(2 * mma_rows_len(ATT_LANES, f->h.dim) + mma_rows_len(ATT_LANES, ATT_KEYS) + 2 * ATT_LANES * ATT_KEYS +
                  max64(ATT_KEYS, f->dim_padded) * MMA_B + ATT_LANES * f->dim_padded + f->depth + 8 * 16, 16);
}

/* The first half of a tile at work on one block of keys. */
typedef struct {
  const att_backward *a;
  const att_tile *t;
  att_lanes lanes;
  att_slot slot;
  att_rows q, d_out, weights;
  float *s, *dp, *panel, *dq; /* scores, and dP, then rounded dS [lanes][ATT_KEYS]; a panel; dq [lanes][dim_padded] */
  float m[ATT_LANES], il[ATT_LANES], dot[ATT_LANES];
  int64_t block;
  int32_t n; /* keys of the block so far, whole steps */
  const value *k[ATT_KEYS], *v[ATT_KEYS];
  int32_t position[ATT_KEYS]; /* INT32_MAX for the rest of a step. Its rows repeat others. */
} att_half;

/* Replaces a lane's scores and dP by P and dS in the slot, and dS in dp. */
static void att_softmax_backward(att_half *x, int32_t lane) {
  const att_forest *f = &x->a->f;
  value *p = x->slot.p + (x->block * ATT_LANES + lane) * ATT_KEYS, *ds = x->slot.ds + (x->block * ATT_LANES + lane) * ATT_KEYS;
  int32_t last = x->lanes.position[lane];
  vi seen = vi_set1(last), from = vi_set1((int32_t)max64(0, last - f->window + 1));
  for (int32_t j = 0; j < x->n; j += VL) {
    int64_t i = (int64_t)lane * ATT_KEYS + j;
    vi key = vi_load(x->position + j);
    vm later = vi_gt(key, seen), older = vi_gt(from, key);
    vf w = att_exp2(v_fma(v_load(x->s + i), v_set1(f->exponent), v_set1(-x->m[lane])));
    w = v_mul(w, v_set1(x->il[lane]));
    vf d = v_mul(w, v_sub(v_load(x->dp + i), v_set1(x->dot[lane])));
    w = v_select(later, v_zero(), v_select(older, v_zero(), w));
    d = value_round(v_select(later, v_zero(), v_select(older, v_zero(), d)));
    v_store(x->dp + i, d);
    value_store(p + j, w);
    value_store(ds + j, d);
  }
}

/* Takes the keys of a block through the first half. */
static void att_half_block(att_half *x) {
  const att_forest *f = &x->a->f;
  int32_t lanes = x->t->lanes, dim = f->h.dim, from = 0, to = 0;
  att_seen seen;
  for (int32_t i = 0; i < lanes; i++) {
    int64_t last = x->lanes.position[i];
    while (from < x->n && x->position[from] <= last - f->window) from++;
    for (int32_t j = to; j < x->n; j++)
      if (x->position[j] <= last) to = j + 1;
    seen.from[i] = from, seen.to[i] = to;
  }
  for (int key = 0; key < x->n; key += MMA_COLS) {
    const value *rows[2][MMA_COLS];
    for (int i = 0; i < MMA_COLS; i++) {
      int64_t j = min64(x->n - 1, key + i);
      rows[0][i] = x->k[j], rows[1][i] = x->v[j];
    }
    int huge = att_unpack_columns(x->panel, rows[0], dim);
    att_scores(x->s, &x->q, x->panel, huge, &seen, key);
    huge = att_unpack_columns(x->panel, rows[1], dim);
    att_scores(x->dp, &x->d_out, x->panel, huge, &seen, key);
  }
  for (int32_t i = 0; i < lanes; i++) att_softmax_backward(x, i);
  for (int32_t i = lanes; i < round_up(lanes, MMA_STEP); i++) {
    memset(x->slot.p + (x->block * ATT_LANES + i) * ATT_KEYS, 0, ATT_KEYS * sizeof(value));
    memset(x->slot.ds + (x->block * ATT_LANES + i) * ATT_KEYS, 0, ATT_KEYS * sizeof(value));
  }
  for (int32_t j = 0; j < x->n; j++)
    if (x->position[j] == INT32_MAX) x->k[j] = 0;
  att_pack(&x->weights, x->dp, ATT_KEYS, 0, lanes, x->n);
  for (int32_t e = 0; e < dim; e += MMA_COLS) {
    int huge = att_unpack_rows(x->panel, x->k, x->n, e, dim - e);
    att_weigh(x->dq + e, f->dim_padded, &x->weights, x->panel, huge, &seen);
  }
  x->block++, x->n = 0;
}

static void att_backward_tile(const att_backward *a, const att_tile *t, float *slot, int32_t thread) {
  const att_forest *f = &a->f;
  float *cursor = a->scratch + thread * a->part;
  int32_t dim = f->h.dim, wide = f->dim_padded, depth = 0;
  att_half x = {.a = a, .t = t, .slot = att_slot_at(slot, f, t)};
  x.q.packed = att_take(&cursor, mma_rows_len(ATT_LANES, dim) * 4);
  x.d_out.packed = att_take(&cursor, mma_rows_len(ATT_LANES, dim) * 4);
  x.weights.packed = att_take(&cursor, mma_rows_len(ATT_LANES, ATT_KEYS) * 4);
  x.s = att_take(&cursor, ATT_LANES * ATT_KEYS * 4);
  x.dp = att_take(&cursor, ATT_LANES * ATT_KEYS * 4);
  x.panel = att_take(&cursor, max64(ATT_KEYS, wide) * MMA_B * 4);
  x.dq = att_take(&cursor, (int64_t)ATT_LANES * wide * 4);
  int32_t *path = att_take(&cursor, f->depth * (int64_t)sizeof(int32_t));

  att_lanes_of(&x.lanes, f, t);
  const int64_t *at = x.lanes.at;
  const value *rows[2][ATT_LANES];
  float *d_out = x.dq; /* not yet in use */
  att_gather(d_out, a->q, at, t->lanes, dim);
  att_pack(&x.q, d_out, dim, 0, t->lanes, dim);
  att_gather(d_out, a->d_out, at, t->lanes, dim);
  att_pack(&x.d_out, d_out, dim, 0, t->lanes, dim);
  for (int32_t i = 0; i < t->lanes; i++) {
    const value *out = a->out + at[i] * dim;
    vf sum = v_zero();
    for (int32_t e = 0; e < dim; e += VL) {
      int n = (int)min64(VL, dim - e);
      sum = v_fma(v_load_n(d_out + (int64_t)i * dim + e, n), value_load_n(out + e, n), sum);
    }
    x.m[i] = a->stats[2 * at[i]], x.il[i] = a->stats[2 * at[i] + 1], x.dot[i] = v_fold(sum);
    rows[0][i] = a->q + at[i] * dim, rows[1][i] = a->d_out + at[i] * dim;
  }
  x.slot.huge[0] = x.slot.huge[1] = 0;
  for (int32_t e = 0; e < dim; e += MMA_COLS) {
    x.slot.huge[0] |= att_unpack_rows(x.slot.q + e / MMA_COLS * ATT_PANEL, rows[0], t->lanes, e, dim - e);
    x.slot.huge[1] |= att_unpack_rows(x.slot.d_out + e / MMA_COLS * ATT_PANEL, rows[1], t->lanes, e, dim - e);
  }
  memset(x.dq, 0, (size_t)t->lanes * (size_t)wide * 4);

  for (int32_t g = t->segment; g >= 0; g = f->segments[g].parent) path[depth++] = g;
  while (depth > 0) {
    const easyrl_segment *g = &f->segments[path[--depth]];
    att_range r = att_rows_of(f, t, path[depth]);
    for (int64_t row = r.first; row < r.end; row += MMA_STEP) {
      for (int64_t j = row; j < row + MMA_STEP; j++, x.n++) {
        int64_t from = (g->start + min64(j, r.end - 1)) * f->stride + (int64_t)t->kv * dim;
        x.k[x.n] = a->k + from, x.v[x.n] = a->v + from;
        x.position[x.n] = j < r.end ? (int32_t)(g->before + j) : INT32_MAX;
      }
      if (x.n == ATT_KEYS) att_half_block(&x);
    }
  }
  if (x.n) att_half_block(&x);
  for (int32_t i = 0; i < t->lanes; i++)
    for (int32_t e = 0; e < dim; e += VL) {
      vf y = v_add(v_mul(v_load(x.dq + (int64_t)i * wide + e), v_set1(f->scale)), v_zero());
      value_store_n(a->dq + at[i] * dim + e, y, (int)min64(VL, dim - e));
    }
}

#define ATT_STEP_TILES ((MMA_STEP + MMA_MR - 1) / MMA_MR) /* tiles of the keys of a step */

/* Packs n keys of a step, whose terms are lanes: x [terms][ATT_KEYS]. Returns whether a value is huge. */
static int att_pack_step(float *dst, const value *x, int n, int64_t terms) {
  float t[2][VL + MMA_MR] = {{0}};
  int tiles = (n + MMA_MR - 1) / MMA_MR;
  vi most = vi_set1(0);
  for (int64_t i = 0; i < terms; i++, x += ATT_KEYS) {
    vf v = v_select_n(n, value_load(x), v_zero()); /* memory beyond may hold anything */
    most = vi_max(most, vi_and(vf_bits(v), vi_set1(INT32_MAX)));
    v_store(t[0], v);
    v_store(t[1], vi_bits(mma_codes_a(v)));
    for (int j = 0; j < tiles; j++) {
      float *to = dst + (j * terms + i) * MMA_A;
      memcpy(to, t[0] + mma_row(n, tiles, j), MMA_MR * sizeof *to);
      memcpy(to + MMA_MR, t[1] + mma_row(n, tiles, j), MMA_MR * sizeof *to);
    }
  }
  return vm_bits(vi_gt(most, vi_set1(MMA_HUGE - 1))) != 0;
}

/* Continues the chains of n keys of a step with packed rows r and a tile's panels x, in c [n][wide]. The lanes
 * before hidden[key] do not see a key. */
static void att_spread(float *c, int32_t wide, int n, const float *r, const float *x, int64_t steps, int begun, int huge,
                       const int64_t *hidden) {
  int tiles = (n + MMA_MR - 1) / MMA_MR;
  for (int64_t e = 0; e < wide; e += MMA_COLS, x += ATT_PANEL)
    for (int i = 0; i < tiles; i++) {
      int64_t key = mma_row(n, tiles, i), m = mma_row(n, tiles, i + 1) - key, first = hidden[key] / MMA_STEP;
      mma_tiles[m - 1](steps - first, r + (i * steps + first) * MMA_STEP * MMA_A, x + first * MMA_STEP * MMA_B,
                       c + key * wide + e, wide, MMA_COLS, !begun, huge ? MMA_EXACT : MMA_FAST);
    }
}

static void att_backward_chains(const att_backward *a, const att_tile *t, float *slot, int32_t segment, int64_t lo,
                                int64_t hi, int begun, int ends, att_chains src, att_chains dst) {
  const att_forest *f = &a->f;
  const easyrl_segment *g = &f->segments[segment];
  att_slot s = att_slot_at(slot, f, t);
  int32_t wide = f->dim_padded, own = segment == t->segment;
  int64_t row = lo - g->before, end = hi - g->before, steps = ceil_div(t->lanes, MMA_STEP);
  int64_t number = att_first_key(f, t, segment) - att_rows_of(f, t, segment).first; /* of the segment's row 0 */
  float r[ATT_STEP_TILES * ATT_LANES * MMA_A] __attribute__((aligned(64)));
  for (int64_t n; row < end; row += n) {
    int64_t key = number + row, hidden[MMA_STEP], at = (g->start + row) * f->stride + (int64_t)t->kv * f->h.dim;
    int64_t i = key / ATT_KEYS * ATT_LANES * ATT_KEYS + key % ATT_KEYS;
    n = min64(end - row, MMA_STEP - key % MMA_STEP);
    for (int64_t j = 0; j < n; j++) hidden[j] = own ? max64(0, (row + j) * f->group - t->lane) : 0;
    for (int gradient = 0; gradient < 2; gradient++) {
      float *y = (gradient ? a->dv_sums : a->dk_sums) + at;
      float *from = (gradient ? src.dv : src.dk) + (row + g->before - src.first) * wide;
      float *to = (gradient ? dst.dv : dst.dk) + (row + g->before - dst.first) * wide, *c = begun ? from : to;
      int huge = att_pack_step(r, (gradient ? s.p : s.ds) + i, (int)n, steps * MMA_STEP) | s.huge[gradient];
      att_spread(c, wide, (int)n, r, gradient ? s.d_out : s.q, steps, begun, huge, hidden);
      if (!ends && c != to) memcpy(to, c, (size_t)n * (size_t)wide * 4);
      for (int64_t j = 0; ends && j < n; j++)
        for (int32_t e = 0; e < f->h.dim; e += VL) {
          int width = (int)min64(VL, f->h.dim - e);
          float *sum = y + j * f->stride + e;
          v_store_n(sum, v_add(v_load_n(sum, width), v_load(c + j * wide + e)), width);
        }
    }
  }
}

#include "attention_cached_bf16.h"

#endif
