/* The order of work of attention's forward pass, in both numerics. */
#ifndef EASYRL_ATTENTION_FORWARD_H
#define EASYRL_ATTENTION_FORWARD_H

#include "attention_forest.h"

typedef struct {
  att_forest f;
  value *out;
  float *stats;
  const value *q, *k, *v;
  float *scratch;
  int64_t part; /* floats of scratch per thread */
} att_forward;

/* What a numerics supplies: the outputs of a tile, and the floats of scratch that they take. */
static void att_forward_tile(const att_forward *a, const att_tile *t, int32_t thread);
static int64_t att_forward_floats(const att_forest *f);

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
  a.part = att_forward_floats(&a.f);
  a.scratch = device_scratch(d, pool_threads(d->pool) * a.part);
  if (!a.scratch) return;
  pool_run(d->pool, (int64_t)a.f.n_blocks * h.kv, att_forward_block, &a);
}

#endif
