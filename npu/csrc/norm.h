/* RMS norm and its backward pass.
 *
 * r = 1/sqrt(sum(x^2)/n + eps), where the sum is a fold whose partial sums are
 * chains of fused multiply-adds; y = (x r) weight. Backward, with g = dy weight
 * and c the fold of g x: b = (((c/n) r) r) r, dx = fma(x, -b, g r), and dWeight is
 * the chain over rows of dy and x r. */
#ifndef EASYRL_NORM_H
#define EASYRL_NORM_H

#include "device.h"
#include "simd.h"

#define NORM_VALUES 8192 /* approximate number of values per task */
#define NORM_COLUMNS 64  /* columns per task of dWeight */

typedef struct {
  float *y, *dx, *dw;
  const float *x, *w, *dy;
  float *r, *b; /* per row */
  int64_t t, rows; /* rows; rows per task */
  int32_t n, add;
  float eps;
} norm_args;

SIMD_INLINE float norm_inverse(const float *x, int32_t n, float eps) {
  vf sum = v_zero();
  int32_t i = 0;
  for (; i + VL <= n; i += VL) sum = v_fma(v_load(x + i), v_load(x + i), sum);
  if (i < n) {
    vf v = v_load_n(x + i, n - i);
    sum = v_select_n(n - i, v_fma(v, v, sum), sum);
  }
  return 1.0f / sqrtf(v_fold(sum) / (float)n + eps);
}

static void norm_forward(void *arg, int64_t task, int32_t thread) {
  const norm_args *a = arg;
  int32_t n = a->n;
  (void)thread;
  for (int64_t row = task * a->rows; row < min64(a->t, (task + 1) * a->rows); row++) {
    const float *x = a->x + row * n;
    float *y = a->y + row * n;
    vf r = v_set1(norm_inverse(x, n, a->eps));
    int32_t i = 0;
    for (; i + VL <= n; i += VL) v_store(y + i, v_mul(v_mul(v_load(x + i), r), v_load(a->w + i)));
    if (i < n) v_store_n(y + i, v_mul(v_mul(v_load_n(x + i, n - i), r), v_load_n(a->w + i, n - i)), n - i);
  }
}

static void kernel_rms_norm(easyrl_device *d, float *y, const float *x, const float *weight, int32_t t, int32_t cols,
                            float eps) {
  norm_args a = {.y = y, .x = x, .w = weight, .t = t, .n = cols, .eps = eps};
  a.rows = max64(1, NORM_VALUES / cols);
  pool_run(d->pool, ceil_div(t, a.rows), norm_forward, &a);
}

/* Computes r and b of each row. */
static void norm_backward_rows(const norm_args *a, int64_t first, int64_t last) {
  int32_t n = a->n;
  for (int64_t row = first; row < last; row++) {
    const float *x = a->x + row * n, *dy = a->dy + row * n;
    vf sum = v_zero();
    int32_t i = 0;
    for (; i + VL <= n; i += VL) sum = v_fma(v_mul(v_load(dy + i), v_load(a->w + i)), v_load(x + i), sum);
    if (i < n) {
      vf g = v_mul(v_load_n(dy + i, n - i), v_load_n(a->w + i, n - i));
      sum = v_select_n(n - i, v_fma(g, v_load_n(x + i, n - i), sum), sum);
    }
    float r = norm_inverse(x, n, a->eps);
    a->r[row] = r;
    a->b[row] = v_fold(sum) / (float)n * r * r * r;
  }
}

/* Adds to dWeight of some columns over rows [first, last). */
static void norm_backward_weight(const norm_args *a, int64_t first, int64_t last, int32_t from, int32_t to) {
  int32_t n = a->n;
  for (int32_t i = from; i < to; i += VL) {
    int width = (int)min64(VL, to - i);
    vf sum = v_load_n(a->dw + i, width);
    for (int64_t row = first; row < last; row++) {
      vf x = v_load_n(a->x + row * n + i, width), dy = v_load_n(a->dy + row * n + i, width);
      sum = v_fma(dy, v_mul(x, v_set1(a->r[row])), sum);
    }
    v_store_n(a->dw + i, sum, width);
  }
}

SIMD_INLINE vf norm_dx(vf x, vf dy, vf w, vf r, vf b) { return v_fnma(b, x, v_mul(v_mul(dy, w), r)); }

static void norm_backward_input(const norm_args *a, int64_t first, int64_t last) {
  int32_t n = a->n;
  for (int64_t row = first; row < last; row++) {
    const float *x = a->x + row * n, *dy = a->dy + row * n;
    float *dx = a->dx + row * n;
    vf r = v_set1(a->r[row]), b = v_set1(a->b[row]);
    int32_t i = 0;
    for (; i + VL <= n; i += VL) {
      vf g = norm_dx(v_load(x + i), v_load(dy + i), v_load(a->w + i), r, b);
      v_store(dx + i, a->add ? v_add(v_load(dx + i), g) : g);
    }
    if (i < n) {
      int left = n - i;
      vf g = norm_dx(v_load_n(x + i, left), v_load_n(dy + i, left), v_load_n(a->w + i, left), r, b);
      v_store_n(dx + i, a->add ? v_add(v_load_n(dx + i, left), g) : g, left);
    }
  }
}

static void norm_task_rows(void *arg, int64_t task, int32_t thread) {
  const norm_args *a = arg;
  (void)thread;
  norm_backward_rows(a, task * a->rows, min64(a->t, (task + 1) * a->rows));
}

static void norm_task_weight(void *arg, int64_t task, int32_t thread) {
  const norm_args *a = arg;
  (void)thread;
  norm_backward_weight(a, 0, a->t, (int32_t)task * NORM_COLUMNS, (int32_t)min64(a->n, (task + 1) * NORM_COLUMNS));
}

static void norm_task_input(void *arg, int64_t task, int32_t thread) {
  const norm_args *a = arg;
  (void)thread;
  norm_backward_input(a, task * a->rows, min64(a->t, (task + 1) * a->rows));
}

static void kernel_rms_norm_backward(easyrl_device *d, float *dx, float *d_weight, const float *dy, const float *x,
                                     const float *weight, int32_t t, int32_t cols, float eps, int32_t add) {
  norm_args a = {.dx = dx, .dw = d_weight, .x = x, .w = weight, .dy = dy, .t = t, .n = cols, .add = add, .eps = eps};
  int64_t part = round_up(t, 16);
  a.r = device_scratch(d, 2 * part);
  if (!a.r) return;
  a.b = a.r + part;
  a.rows = max64(1, NORM_VALUES / cols);
  int64_t tasks = ceil_div(t, a.rows);
  if (pool_limited(d->pool) == 1 || tasks == 1) { /* rows stay in the cache from one pass to the next */
    for (int64_t first = 0; first < t; first += a.rows) {
      int64_t last = min64(t, first + a.rows);
      norm_backward_rows(&a, first, last);
      norm_backward_weight(&a, first, last, 0, cols);
      norm_backward_input(&a, first, last);
    }
    return;
  }
  pool_run(d->pool, tasks, norm_task_rows, &a);
  pool_run(d->pool, ceil_div(cols, NORM_COLUMNS), norm_task_weight, &a); /* before dx, which may share memory with dy */
  pool_run(d->pool, tasks, norm_task_input, &a);
}

#endif
