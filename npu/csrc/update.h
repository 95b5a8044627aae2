/* The optimizer's kernels. */

typedef struct {
  float *w;
  value *copy; /* or NULL */
  const int64_t *g;
  float *m, *v;
  int64_t n;
  float scale, beta1, rest1, beta2, rest2, correct1, correct2, eps, keep, lr;
} adamw_job;

/* Updates one vector in float32, with every operation rounded. sum is the gradient's fixed-point
 * sum, and decay and t are those of the update:
 *   g = float32(float64(sum)) * scale
 *   m = fma(beta1, m, rest1 * g),  v = fma(beta2, v, rest2 * (g * g)),  rest = 1 - beta
 *   step = (m * correct1) / (sqrt(v * correct2) + eps),  correct = 1 / (1 - beta^t) computed in float64
 *   w = fma(-lr, step, w * keep),  keep = 1 - lr * decay computed in float64 */
SIMD_INLINE void adamw_step(const adamw_job *j, vf *w, vf g, vf *m, vf *v) {
  g = v_mul(g, v_set1(j->scale));
  *m = v_fma(v_set1(j->beta1), *m, v_mul(v_set1(j->rest1), g));
  *v = v_fma(v_set1(j->beta2), *v, v_mul(v_set1(j->rest2), v_mul(g, g)));
  vf root = v_add(v_sqrt(v_mul(*v, v_set1(j->correct2))), v_set1(j->eps));
  vf step = v_div(v_mul(*m, v_set1(j->correct1)), root);
  *w = v_fnma(v_set1(j->lr), step, v_mul(*w, v_set1(j->keep)));
}

static void adamw_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const adamw_job *j = arg;
  int64_t i = task * ELEMENTS, end = min64(j->n, i + ELEMENTS);
  for (; i + VL <= end; i += VL) {
    vf w = v_load(j->w + i), m = v_load(j->m + i), v = v_load(j->v + i);
    adamw_step(j, &w, fixed_load(j->g + i), &m, &v);
    v_store(j->w + i, w);
    if (j->copy) value_store(j->copy + i, w);
    v_store(j->m + i, m);
    v_store(j->v + i, v);
  }
  if (i < end) {
    int n = (int)(end - i);
    vf w = v_load_n(j->w + i, n), m = v_load_n(j->m + i, n), v = v_load_n(j->v + i, n);
    int64_t g[VL] = {0};
    memcpy(g, j->g + i, (size_t)n * 8);
    adamw_step(j, &w, fixed_load(g), &m, &v);
    v_store_n(j->w + i, w, n);
    if (j->copy) value_store_n(j->copy + i, w, n);
    v_store_n(j->m + i, m, n);
    v_store_n(j->v + i, v, n);
  }
}

/* Returns 1 / (1 - beta^step), with the power by repeated squaring. */
static float adamw_correct(float beta, int32_t step) {
  double power = 1, square = (double)beta;
  for (; step > 0; step >>= 1) {
    if (step & 1) power = power * square;
    square = square * square;
  }
  return (float)(1 / (1 - power));
}

static void kernel_adamw(easyrl_device *d, const easyrl_update *updates, int32_t n, easyrl_adamw_params p) {
  float keep = (float)(1 - (double)p.lr * (double)p.weight_decay);
  adamw_job j = {.scale = p.grad_scale, .beta1 = p.beta1, .rest1 = 1.0f - p.beta1, .beta2 = p.beta2, .rest2 = 1.0f - p.beta2,
                 .correct1 = adamw_correct(p.beta1, p.step), .correct2 = adamw_correct(p.beta2, p.step),
                 .eps = p.eps, .lr = p.lr};
  for (const easyrl_update *u = updates; u < updates + n; u++) {
    j.w = u->w, j.copy = u->copy, j.g = u->g.data, j.m = u->m, j.v = u->v, j.n = u->n;
    j.keep = u->decay ? keep : 1.0f;
    pool_run(d->pool, ceil_div(j.n, ELEMENTS), adamw_task, &j);
  }
}

#define SQUARES_FOLD 4096 /* values per fold */
#define SQUARES_TASK 8 /* folds per task */

typedef struct {
  const float *x;
  int64_t n;
  float *folds;
} squares_job;

static void squares_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const squares_job *j = arg;
  int64_t folds = ceil_div(j->n, SQUARES_FOLD);
  for (int64_t f = task * SQUARES_TASK; f < min64(folds, (task + 1) * SQUARES_TASK); f++) {
    int64_t i = f * SQUARES_FOLD, end = min64(j->n, i + SQUARES_FOLD);
    vf sum = v_zero();
    for (; i + VL <= end; i += VL) {
      vf x = v_load(j->x + i);
      sum = v_fma(x, x, sum);
    }
    if (i < end) {
      vf x = v_load_n(j->x + i, (int)(end - i));
      sum = v_fma(x, x, sum);
    }
    j->folds[f] = v_fold(sum);
  }
}

static double squares_sum(easyrl_device *d, const float *x, int64_t n) {
  int64_t folds = ceil_div(n, SQUARES_FOLD);
  squares_job j = {.x = x, .n = n, .folds = device_scratch(d, folds)};
  if (folds == 0 || !j.folds) return 0;
  pool_run(d->pool, ceil_div(folds, SQUARES_TASK), squares_task, &j);
  double sum = 0;
  for (int64_t f = 0; f < folds; f++) sum += (double)j.folds[f];
  return sum;
}

static void kernel_sum_squares(easyrl_device *d, double *sums, const easyrl_values *x, int32_t n) {
  for (int32_t i = 0; i < n; i++) sums[i] = squares_sum(d, x[i].data, x[i].n);
}

typedef struct {
  const int64_t *g;
  int64_t n;
  easyrl_wide *parts; /* one per task */
} exact_job;

/* Adds high 2^128 + low to sum. */
static inline void wide_add(easyrl_wide *sum, unsigned __int128 low, uint64_t high) {
  unsigned __int128 old = (unsigned __int128)sum->words[1] << 64 | sum->words[0], total = old + low;
  sum->words[0] = (uint64_t)total;
  sum->words[1] = (uint64_t)(total >> 64);
  sum->words[2] += high + (total < old);
}

static void exact_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const exact_job *j = arg;
  easyrl_wide sum = {{0}};
  for (int64_t i = task * ELEMENTS; i < min64(j->n, (task + 1) * ELEMENTS); i++) {
    uint64_t v = (uint64_t)fabsf((float)(double)j->g[i]); /* at most 2^63 */
    wide_add(&sum, (unsigned __int128)v * v, 0);
  }
  j->parts[task] = sum;
}

static easyrl_squares exact_sum(easyrl_device *d, const easyrl_gradient *g) {
  easyrl_squares s = {.worst = 0};
  int64_t tasks = ceil_div(g->n, ELEMENTS);
  exact_job j = {.g = g->sums.data, .n = g->n, .parts = (easyrl_wide *)device_scratch(d, tasks * (int64_t)(sizeof(easyrl_wide) / 4))};
  if (tasks == 0 || !j.parts) return s; /* sync reports a failure */
  pool_run(d->pool, tasks, exact_task, &j);
  for (int64_t i = 0; i < tasks; i++)
    wide_add(&s.sum, (unsigned __int128)j.parts[i].words[1] << 64 | j.parts[i].words[0], j.parts[i].words[2]);
  uint32_t mark = (uint32_t)*g->sums.mark;
  memcpy(&s.worst, &mark, sizeof mark);
  return s;
}

static void kernel_sum_squares_exact(easyrl_device *d, easyrl_squares *sums, const easyrl_gradient *g, int32_t n) {
  for (int32_t i = 0; i < n; i++) sums[i] = exact_sum(d, g + i);
}
