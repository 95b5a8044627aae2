/* Rotary positions and SwiGLU: elementwise kernels. */
#ifndef EASYRL_POINTWISE_H
#define EASYRL_POINTWISE_H

#include "device.h"
#include "easyrl_math.h"
#include "simd.h"
#include "values.h"

#define ROPE_VALUES 8192   /* approximate number of values per task */
#define SWIGLU_VALUES 4096 /* values per task */

typedef struct {
  value *x;
  const float *table;
  const int32_t *positions;
  int64_t t, rows;
  int32_t heads, dim, inverse;
} rope_args;

/* Rotates pairs (a, b) = (x[i], x[half + i]), a vector of them: a' = fma(a, cos, -(b sin)) and
 * b' = fma(b, cos, a sin). sign, 1 or -1 for inverse, multiplies sin. */
SIMD_INLINE void rope_pairs(value *x, const float *table, int32_t half, int32_t i, const int full, int width, vf sign) {
  vf a = full ? value_load(x + i) : value_load_n(x + i, width);
  vf b = full ? value_load(x + half + i) : value_load_n(x + half + i, width);
  vf cos = full ? v_load(table + i) : v_load_n(table + i, width);
  vf sin = v_mul(full ? v_load(table + half + i) : v_load_n(table + half + i, width), sign);
  vf to_a = v_fma(a, cos, v_mul(v_mul(b, sin), v_set1(-1.0f)));
  vf to_b = v_fma(b, cos, v_mul(a, sin));
  if (full) {
    value_store(x + i, to_a);
    value_store(x + half + i, to_b);
  } else {
    value_store_n(x + i, to_a, width);
    value_store_n(x + half + i, to_b, width);
  }
}

static void rope_rows(void *arg, int64_t task, int32_t thread) {
  const rope_args *a = arg;
  int32_t half = a->dim / 2;
  vf sign = v_set1(a->inverse ? -1.0f : 1.0f);
  (void)thread;
  for (int64_t row = task * a->rows; row < min64(a->t, (task + 1) * a->rows); row++) {
    const float *table = a->table + (int64_t)a->positions[row] * a->dim;
    for (int32_t head = 0; head < a->heads; head++) {
      value *x = a->x + (row * a->heads + head) * a->dim;
      int32_t i = 0;
      for (; i + VL <= half; i += VL) rope_pairs(x, table, half, i, 1, VL, sign);
      if (i < half) rope_pairs(x, table, half, i, 0, half - i, sign);
    }
  }
}

static void kernel_rope(easyrl_device *d, void *x, const float *table, const int32_t *positions, int32_t t,
                        int32_t heads, int32_t dim, int32_t inverse) {
  rope_args a = {x, table, positions, t, max64(1, ROPE_VALUES / ((int64_t)heads * dim)), heads, dim, inverse};
  pool_run(d->pool, ceil_div(t, a.rows), rope_rows, &a);
}

typedef struct {
  value *y, *d_gate, *d_up;
  const value *dy, *gate, *up;
  int64_t n;
} swiglu_args;

/* y = (gate / (1 + exp(-gate))) up */
SIMD_INLINE vf swiglu_value(vf gate, vf up) {
  vf e = v_add(v_set1(1.0f), v_exp(v_sub(v_zero(), gate)));
  return v_mul(v_div(gate, e), up);
}

static void swiglu_chunk(void *arg, int64_t task, int32_t thread) {
  const swiglu_args *a = arg;
  int64_t i = task * SWIGLU_VALUES, last = min64(a->n, i + SWIGLU_VALUES);
  (void)thread;
  for (; i + VL <= last; i += VL) value_store(a->y + i, swiglu_value(value_load(a->gate + i), value_load(a->up + i)));
  if (i < last) {
    int left = (int)(last - i);
    value_store_n(a->y + i, swiglu_value(value_load_n(a->gate + i, left), value_load_n(a->up + i, left)), left);
  }
}

static void kernel_swiglu(easyrl_device *d, void *y, const void *gate, const void *up, int64_t n) {
  swiglu_args a = {.y = y, .gate = gate, .up = up, .n = n};
  pool_run(d->pool, ceil_div(n, SWIGLU_VALUES), swiglu_chunk, &a);
}

/* With e = 1 + exp(-gate) and s = 1/e: dUp = dy (gate/e) and
 * dGate = (dy up) (s fma(gate, 1 - s, 1)). */
SIMD_INLINE void swiglu_slopes(vf dy, vf gate, vf up, vf *d_gate, vf *d_up) {
  vf e = v_add(v_set1(1.0f), v_exp(v_sub(v_zero(), gate)));
  vf s = v_div(v_set1(1.0f), e);
  *d_up = v_mul(dy, v_div(gate, e));
  *d_gate = v_mul(v_mul(dy, up), v_mul(s, v_fma(gate, v_sub(v_set1(1.0f), s), v_set1(1.0f))));
}

static void swiglu_backward_chunk(void *arg, int64_t task, int32_t thread) {
  const swiglu_args *a = arg;
  int64_t i = task * SWIGLU_VALUES, last = min64(a->n, i + SWIGLU_VALUES);
  vf d_gate, d_up;
  (void)thread;
  for (; i + VL <= last; i += VL) {
    swiglu_slopes(value_load(a->dy + i), value_load(a->gate + i), value_load(a->up + i), &d_gate, &d_up);
    value_store(a->d_gate + i, d_gate);
    value_store(a->d_up + i, d_up);
  }
  if (i < last) {
    int left = (int)(last - i);
    swiglu_slopes(value_load_n(a->dy + i, left), value_load_n(a->gate + i, left), value_load_n(a->up + i, left), &d_gate, &d_up);
    value_store_n(a->d_gate + i, d_gate, left);
    value_store_n(a->d_up + i, d_up, left);
  }
}

static void kernel_swiglu_backward(easyrl_device *d, void *d_gate, void *d_up, const void *dy, const void *gate,
                                   const void *up, int64_t n) {
  swiglu_args a = {.d_gate = d_gate, .d_up = d_up, .dy = dy, .gate = gate, .up = up, .n = n};
  pool_run(d->pool, ceil_div(n, SWIGLU_VALUES), swiglu_backward_chunk, &a);
}

#endif
