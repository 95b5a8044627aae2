/* The order of work of attention's backward pass, in both numerics. */
#ifndef EASYRL_ATTENTION_BACKWARD_H
#define EASYRL_ATTENTION_BACKWARD_H

#include "attention_forest.h"

/* The backward pass processes a tile in two halves. The first half writes dq, and stores the
 * tile's p and dS and its rows of q and dOut in a slot. The second half adds dS q to
 * the chains of dk and p dOut to those of dv, for the keys on the tile's path. Memory holds the
 * chains of a part's keys between its tiles; the last tile adds them to the sums over parts. If
 * there are enough trees to keep the threads busy, one thread takes a tree through both halves.
 * Otherwise the threads take a run of tiles through the first half in parallel, and then the
 * blocks of keys through the second half. */
typedef struct {
  att_forest f;
  value *dq, *dk, *dv;
  const value *d_out, *out, *q, *k, *v;
  const float *stats;
  float *dk_sums, *dv_sums; /* [T, KV, Dim], which are dk and dv in FP32 */
  float *scratch, *slots;
  int64_t part, slot; /* floats of scratch per thread; floats per slot */
  int64_t first, last; /* current run of tiles */
  /* Chains of dk and dv, [2][max_keys][dim_padded] each. In a run, opened has those of the part that continues from
   * the run before, and open takes those of the part that the next run continues. */
  float *chains, *opened, *open;
} att_backward;

/* Chains of a part's dk and dv; row j of each is the key at position first + j. */
typedef struct {
  float *dk, *dv;
  int64_t first;
} att_chains;

/* What depends on the numerics. */

/* Returns the floats of scratch per thread for the first half of a tile. */
static int64_t att_backward_floats(const att_forest *f);

/* Returns the floats in the slot of a tile with a number of keys. */
static int64_t att_slot_floats(const att_forest *f, int64_t keys);

/* The first half of a tile. */
static void att_backward_tile(const att_backward *a, const att_tile *t, float *slot, int32_t thread);

/* Continues the chains of the keys at positions [lo, hi), which are in one segment, with a tile's lanes. begun says
 * whether the chains continue from src instead of 0. If ends is nonzero they are added to the sums, otherwise they go
 * to dst. */
static void att_backward_chains(const att_backward *a, const att_tile *t, float *slot, int32_t segment, int64_t lo,
                                int64_t hi, int begun, int ends, att_chains src, att_chains dst);

/* The second half of tile t for the keys at positions [lo, hi), which are in one segment. The chains of keys that an
 * earlier tile of the part has begun are in from; to takes those that a later tile continues. */
static void att_backward_keys(const att_backward *a, const att_tile *t, float *slot, int32_t segment, int64_t lo,
                              int64_t hi, att_chains from, att_chains to) {
  lo = max64(lo, t->from), hi = min64(hi, t->keys);
  for (int64_t end; lo < hi; lo = end) {
    end = lo < t->fresh ? min64(hi, t->fresh) : hi;
    if (lo < t->done) end = min64(end, t->done);
    att_backward_chains(a, t, slot, segment, lo, end, lo < t->fresh, lo < t->done, from, to);
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
    float *slot = a->slots + thread * a->slot;
    att_backward_tile(a, t, slot, thread);
    for (int32_t g = t->segment; g >= 0; g = f->segments[g].parent)
      att_backward_keys(a, t, slot, g, f->segments[g].before, f->segments[g].before + f->segments[g].len, chains, chains);
  }
}

/* The first half of one tile of the current run. */
static void att_backward_first(void *arg, int64_t task, int32_t thread) {
  const att_backward *a = arg;
  const att_tile *t = &a->f.tiles[a->first + task];
  att_backward_tile(a, t, a->slots + t->slot, thread);
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
    att_backward_keys(a, t, a->slots + t->slot, g, lo, hi, i == a->first ? opened : own,
                      i == a->last - 1 ? open : own);
  }
}

/* Sets the sums of a block of keys to zero. */
static void att_backward_zero(void *arg, int64_t task, int32_t thread) {
  const att_backward *a = arg;
  const att_forest *f = &a->f;
  const easyrl_tile *b = &f->blocks[task / f->h.kv];
  int64_t at = (f->segments[b->segment].start + b->first) * f->stride + task % f->h.kv * f->h.dim;
  (void)thread;
  for (int32_t j = att_block_rows(f, task / f->h.kv); j > 0; j--, at += f->stride) {
    memset(a->dk_sums + at, 0, (size_t)f->h.dim * 4);
    memset(a->dv_sums + at, 0, (size_t)f->h.dim * 4);
  }
}

/* Writes dk and dv of a block of keys: the sums, those of dk times 1/sqrt(Dim). */
static void att_backward_write(void *arg, int64_t task, int32_t thread) {
  const att_backward *a = arg;
  const att_forest *f = &a->f;
  const easyrl_tile *b = &f->blocks[task / f->h.kv];
  int64_t at = (f->segments[b->segment].start + b->first) * f->stride + task % f->h.kv * f->h.dim;
  (void)thread;
  for (int32_t j = att_block_rows(f, task / f->h.kv); j > 0; j--, at += f->stride)
    for (int32_t e = 0; e < f->h.dim; e += VL) {
      int n = (int)min64(VL, f->h.dim - e);
      value_store_n(a->dk + at + e, v_mul(v_load_n(a->dk_sums + at + e, n), v_set1(f->scale)), n);
      if (VALUE_TYPE != EASYRL_FLOAT32) value_store_n(a->dv + at + e, v_load_n(a->dv_sums + at + e, n), n);
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
  int64_t sums = VALUE_TYPE == EASYRL_FLOAT32 ? 0 : segments.rows * a.f.stride; /* floats of dk's sums */
  int64_t chains = (groups ? threads * a.f.max_keys : threads * EASYRL_ROW_TILE + 2 * a.f.max_keys) * chain;
  a.part = att_backward_floats(&a.f);
  a.slot = att_slot_floats(&a.f, a.f.max_span);
  int64_t room = threads * a.slot;
  if (threads > 1) room = max64(room, ATT_RUN_FLOATS);
  float *cursor = device_scratch(d, shared + threads * a.part + room + chains + 2 * sums);
  if (!cursor) return;
  att_forest_build(&a.f, &cursor);
  a.scratch = cursor;
  a.slots = a.scratch + threads * a.part;
  a.chains = a.slots + room;
  a.dk_sums = sums ? a.chains + chains : dk;
  a.dv_sums = sums ? a.dk_sums + sums : dv;
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
  pool_run(d->pool, (int64_t)a.f.n_blocks * h.kv, att_backward_write, &a);
}

#endif
