/* RMS norm and its backward pass.
 *
 * Forward: r = 1/sqrt(sum(x^2)/n + eps), where the sum is a fold whose partial sums are chains
 * of fused multiply-adds, and y = (x r) weight.
 * Backward: g = dy weight, c is the fold of g x, b = (((c/n) r) r) r and dx = fma(x, -b, g r).
 * For each unit and each head, the chain of dy and x r over the unit's rows is added to
 * dWeight. */
#ifndef EASYRL_NORM_H
#define EASYRL_NORM_H

#include "device.h"
#include "fixed.h"
#include "simd.h"
#include "values.h"

#define NORM_VALUES 8192 /* approximate number of values per task */
#define NORM_COLUMNS 64  /* columns per task of dWeight */

typedef struct {
  value *y;
  void *dx; /* of type, as x */
  const void *x;
  easyrl_dtype type;
  const value *w, *dy;
  float *r, *b;    /* scratch: a value per vector */
  int64_t t, rows; /* vectors; vectors per task */
  int32_t n, add, heads;
  float eps;
  easyrl_sums dw;
  easyrl_leaves leaves;
  fixed_format format;
} norm_args;

/* Returns r of a vector. */
SIMD_INLINE float norm_inverse(const void *x, easyrl_dtype type, int32_t n, float eps) {
  vf sum = v_zero();
  int32_t i = 0;
  for (; i + VL <= n; i += VL) {
    vf v = typed_load(x, type, i);
    sum = v_fma(v, v, sum);
  }
  if (i < n) {
    vf v = typed_load_n(x, type, i, n - i);
    sum = v_select_n(n - i, v_fma(v, v, sum), sum);
  }
  return 1.0f / sqrtf(v_fold(sum) / (float)n + eps);
}

static void norm_forward(void *arg, int64_t task, int32_t thread) {
  const norm_args *a = arg;
  int32_t n = a->n;
  (void)thread;
  for (int64_t row = task * a->rows; row < min64(a->t, (task + 1) * a->rows); row++) {
    const void *x = typed_at(a->x, a->type, row * n);
    value *y = a->y + row * n;
    vf r = v_set1(norm_inverse(x, a->type, n, a->eps));
    int32_t i = 0;
    for (; i + VL <= n; i += VL) value_store(y + i, v_mul(v_mul(typed_load(x, a->type, i), r), value_load(a->w + i)));
    if (i < n) value_store_n(y + i, v_mul(v_mul(typed_load_n(x, a->type, i, n - i), r), value_load_n(a->w + i, n - i)), n - i);
  }
}

static void kernel_rms_norm(easyrl_device *d, void *y, const void *x, easyrl_dtype x_type, const void *weight,
                            int32_t t, int32_t cols, float eps) {
  norm_args a = {.y = y, .x = x, .type = x_type, .w = weight, .t = t, .n = cols, .eps = eps};
  a.rows = max64(1, NORM_VALUES / cols);
  pool_run(d->pool, ceil_div(t, a.rows), norm_forward, &a);
}

/* Computes r and b of the vectors [first, last). */
static void norm_backward_rows(const norm_args *a, int64_t first, int64_t last) {
  int32_t n = a->n;
  for (int64_t row = first; row < last; row++) {
    const void *x = typed_at(a->x, a->type, row * n);
    const value *dy = a->dy + row * n;
    vf sum = v_zero();
    int32_t i = 0;
    for (; i + VL <= n; i += VL)
      sum = v_fma(v_mul(value_load(dy + i), value_load(a->w + i)), typed_load(x, a->type, i), sum);
    if (i < n) {
      vf g = v_mul(value_load_n(dy + i, n - i), value_load_n(a->w + i, n - i));
      sum = v_select_n(n - i, v_fma(g, typed_load_n(x, a->type, i, n - i), sum), sum);
    }
    float r = norm_inverse(x, a->type, n, a->eps);
    a->r[row] = r;
    a->b[row] = v_fold(sum) / (float)n * r * r * r;
  }
}

/* Continues a chain over the vectors of one head in a number of rows. x, dy and r point to the
 * first vector's values. */
SIMD_INLINE vf norm_chain(vf sum, const void *x, easyrl_dtype type, const value *dy, const float *r, int64_t heads, int64_t n,
                          int64_t rows, int width) {
  for (int64_t i = 0; i < rows; i++) {
    vf xv = width == VL ? typed_load(x, type, 0) : typed_load_n(x, type, 0, width);
    vf g = width == VL ? value_load(dy) : value_load_n(dy, width);
    sum = v_fma(g, v_mul(xv, v_set1(*r)), sum);
    x = typed_at(x, type, heads * n);
    dy += heads * n;
    r += heads;
  }
  return sum;
}

/* Continues the chains of columns [from, to) over rows [first, last) of a unit. begins and ends
 * say whether the unit begins and ends there. If it does not do both, chains [heads, n] holds
 * the chains between calls. */
static void norm_backward_weight(const norm_args *a, int64_t first, int64_t last, int begins, int ends, int32_t from, int32_t to,
                                 float *chains) {
  int64_t n = a->n, heads = a->heads;
  for (int64_t i = from; i < to; i += VL) {
    int width = (int)min64(VL, to - i);
    for (int64_t h = 0; h < heads; h++) {
      int64_t vector = first * heads + h, at = vector * n + i;
      vf sum = begins ? v_zero() : v_load_n(chains + h * n + i, width);
      const void *x = typed_at(a->x, a->type, at);
      if (width == VL) sum = norm_chain(sum, x, a->type, a->dy + at, a->r + vector, heads, n, last - first, VL);
      else sum = norm_chain(sum, x, a->type, a->dy + at, a->r + vector, heads, n, last - first, width);
      if (ends) fixed_add_n(sum, width, a->dw.data + i, a->dw.mark, a->format);
      else v_store_n(chains + h * n + i, sum, width);
    }
  }
}

SIMD_INLINE vf norm_dx(vf x, vf dy, vf w, vf r, vf b) { return v_fnma(b, x, v_mul(v_mul(dy, w), r)); }

/* Computes dx of the vectors [first, last). */
static void norm_backward_input(const norm_args *a, int64_t first, int64_t last) {
  int32_t n = a->n;
  for (int64_t row = first; row < last; row++) {
    const void *x = typed_at(a->x, a->type, row * n);
    void *dx = typed_at(a->dx, a->type, row * n);
    const value *dy = a->dy + row * n;
    vf r = v_set1(a->r[row]), b = v_set1(a->b[row]);
    int32_t i = 0;
    for (; i + VL <= n; i += VL) {
      vf g = norm_dx(typed_load(x, a->type, i), value_load(dy + i), value_load(a->w + i), r, b);
      typed_store(dx, a->type, i, a->add ? v_add(typed_load(dx, a->type, i), g) : g);
    }
    if (i < n) {
      int left = n - i;
      vf g = norm_dx(typed_load_n(x, a->type, i, left), value_load_n(dy + i, left), value_load_n(a->w + i, left), r, b);
      typed_store_n(dx, a->type, i, a->add ? v_add(typed_load_n(dx, a->type, i, left), g) : g, left);
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
  int32_t start = 0, from = (int32_t)task * NORM_COLUMNS, to = (int32_t)min64(a->n, from + NORM_COLUMNS);
  for (int32_t i = 0; i < a->leaves.n_units; start = a->leaves.units[i++])
    if (a->leaves.units[i] > start) norm_backward_weight(a, start, a->leaves.units[i], 1, 1, from, to, 0);
}

static void norm_task_input(void *arg, int64_t task, int32_t thread) {
  const norm_args *a = arg;
  (void)thread;
  norm_backward_input(a, task * a->rows, min64(a->t, (task + 1) * a->rows));
}

/* The whole backward pass of one unit, on one thread, in groups of rows that stay in the cache
 * from one step to the next. */
static void norm_backward_unit(const norm_args *a, int64_t start, int64_t end, float *chains) {
  int64_t rows = max64(1, a->rows / a->heads);
  for (int64_t first = start; first < end; first += rows) {
    int64_t last = min64(end, first + rows);
    norm_backward_rows(a, first * a->heads, last * a->heads);
    norm_backward_weight(a, first, last, first == start, last == end, 0, a->n, chains);
    norm_backward_input(a, first * a->heads, last * a->heads);
  }
}

static void kernel_rms_norm_backward(easyrl_device *d, void *dx, easyrl_sums d_weight, const void *dy, const void *x,
                                     easyrl_dtype x_type, const void *weight, int32_t heads, int32_t cols, float eps,
                                     int32_t add, easyrl_leaves leaves) {
  if (leaves.n == 0) return;
  int64_t t = (int64_t)leaves.rows * heads, part = round_up(t, 16);
  norm_args a = {.dx = dx, .x = x, .type = x_type, .w = weight, .dy = dy, .t = t, .n = cols, .add = add, .heads = heads,
                 .eps = eps, .dw = d_weight, .leaves = leaves, .format = fixed_of(leaves.format)};
  a.r = device_scratch(d, 2 * part + (int64_t)heads * cols);
  if (!a.r) return;
  a.b = a.r + part;
  a.rows = max64(1, NORM_VALUES / cols);
  int64_t tasks = ceil_div(t, a.rows);
  if (pool_limited(d->pool) == 1 || tasks == 1) {
    int32_t start = 0;
    for (int32_t i = 0; i < leaves.n_units; start = leaves.units[i++])
      norm_backward_unit(&a, start, leaves.units[i], a.b + part);
    return;
  }
  pool_run(d->pool, tasks, norm_task_rows, &a);
  pool_run(d->pool, ceil_div(cols, NORM_COLUMNS), norm_task_weight, &a); /* before dx, which may share memory with dy */
  pool_run(d->pool, tasks, norm_task_input, &a);
}

#endif
