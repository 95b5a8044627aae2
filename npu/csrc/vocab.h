/* Distributions over a vocabulary: log-probabilities, their gradient, draws.
 *
 * For one row of logits x and s_j = x_j * inv_temp, in float32:
 *   m = max s_j,  d_j = max(s_j - m, -104),  e_j = exp(d_j)
 *   z = fold of e_j,  u = fold of e_j d_j by fma
 *   logp_j = (s_j - m) - log z,  entropy = log z - u / z
 *   d logit_j = (onehot_j - e_j (1 / z)) (d_logp inv_temp)
 * exp of less than -104 is 0, so the bound changes no term. A row may be split at any multiple
 * of 32 columns: a pass over all columns finds the maximum first, and then a fold continues
 * from the partial sums of the columns before. */

/* Returns max s_j, never -0. */
static float softmax_max(const float *x, int64_t n, float inv_temp) {
  vf t = v_set1(inv_temp), m0 = v_set1(-INFINITY), m1 = m0;
  int64_t i = 0;
  for (; i + 2 * VL <= n; i += 2 * VL) {
    m0 = v_max(v_mul(v_load(x + i), t), m0);
    m1 = v_max(v_mul(v_load(x + i + VL), t), m1);
  }
  for (; i < n; i += VL) {
    int lanes = (int)min64(VL, n - i);
    m0 = v_max(v_select_n(lanes, v_mul(v_load_n(x + i, lanes), t), m0), m0);
  }
  return v_hmax(v_max(m0, m1)) + 0.0f;
}

/* The partial sums of z and u. */
typedef struct {
  vf sum, weighted;
} softmax_sums;

/* Continues the partial sums over n logits of a row. The first one's column in the vocabulary is
 * a multiple of 16. If e is not NULL, e_j is stored there. */
SIMD_INLINE softmax_sums softmax_fold(softmax_sums s, const float *x, int64_t n, float inv_temp, float m, float *e) {
  vf t = v_set1(inv_temp), max = v_set1(m), bound = v_set1(EXP_MIN);
  int64_t i = 0;
  for (; i + VL <= n; i += VL) {
    vf d = v_max(bound, v_sub(v_mul(v_load(x + i), t), max));
    vf p = v_exp(d);
    if (e) v_store(e + i, p);
    s.sum = v_add(s.sum, p);
    s.weighted = v_fma(p, d, s.weighted);
  }
  if (i < n) {
    int lanes = (int)(n - i);
    vf d = v_max(bound, v_sub(v_mul(v_load_n(x + i, lanes), t), max));
    vf p = v_select_n(lanes, v_exp(d), v_zero());
    d = v_select_n(lanes, d, v_zero());
    if (e) v_store_n(e + i, p, lanes);
    s.sum = v_add(s.sum, p);
    s.weighted = v_fma(p, d, s.weighted);
  }
  return s;
}

static inline float softmax_logp(float score, float max, float sum) { return (score - max) - s_log(sum); }

typedef struct {
  float *max, *folds, *scores, *logits;
  const float *stats, *d_logp;
  const int32_t *targets;
  int64_t n, cols, first;
  float inv_temp;
  int64_t share; /* rows per task */
} softmax_job;

#define SOFTMAX_TASK 4096 /* logits per task, at least one row */

static void softmax_run(easyrl_device *d, pool_fn task, softmax_job j) {
  j.share = max64(1, SOFTMAX_TASK / max64(1, j.cols));
  pool_run(d->pool, ceil_div(j.n, j.share), task, &j);
}

static void softmax_max_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const softmax_job *j = arg;
  for (int64_t i = task * j->share, end = min64(j->n, i + j->share); i < end; i++)
    j->max[i] = softmax_max(j->logits + i * j->cols, j->cols, j->inv_temp);
}

static void kernel_softmax_max(easyrl_device *d, float *max, const float *logits, int32_t n, int32_t cols, float inv_temp) {
  softmax_run(d, softmax_max_task, (softmax_job){.max = max, .logits = (float *)logits, .n = n, .cols = cols, .inv_temp = inv_temp});
}

static void softmax_fold_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const softmax_job *j = arg;
  for (int64_t i = task * j->share, end = min64(j->n, i + j->share); i < end; i++) {
    const float *x = j->logits + i * j->cols;
    float *folds = j->folds + i * 2 * VL;
    softmax_sums s = {v_zero(), v_zero()};
    if (j->first) s = (softmax_sums){v_load(folds), v_load(folds + VL)};
    s = softmax_fold(s, x, j->cols, j->inv_temp, j->max[i], 0);
    v_store(folds, s.sum);
    v_store(folds + VL, s.weighted);
    int64_t target = j->targets[i] - j->first;
    if (target >= 0 && target < j->cols) j->scores[i] = x[target] * j->inv_temp;
  }
}

static void kernel_softmax_fold(easyrl_device *d, float *folds, float *scores, const float *max, const float *logits,
                                const int32_t *targets, int32_t n, int32_t cols, int32_t first, float inv_temp) {
  softmax_run(d, softmax_fold_task,
              (softmax_job){.folds = folds, .scores = scores, .max = (float *)max, .logits = (float *)logits, .targets = targets,
                            .n = n, .cols = cols, .first = first, .inv_temp = inv_temp});
}

static void kernel_softmax_finish(easyrl_device *d, float *logp, float *entropy, float *stats, const float *folds,
                                  const float *scores, const float *max, int32_t n) {
  (void)d;
  for (int64_t i = 0; i < n; i++) {
    float m = max[i], z = v_fold(v_load(folds + i * 2 * VL)), u = v_fold(v_load(folds + i * 2 * VL + VL));
    logp[i] = softmax_logp(scores[i], m, z);
    entropy[i] = s_log(z) - u / z;
    stats[2 * i] = m;
    stats[2 * i + 1] = z;
  }
}

static void softmax_backward_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const softmax_job *j = arg;
  for (int64_t i = task * j->share, end = min64(j->n, i + j->share); i < end; i++) {
    float *x = j->logits + i * j->cols;
    float g = j->d_logp[i] * j->inv_temp, inv = 1.0f / j->stats[2 * i + 1];
    int64_t target = j->targets[i] - j->first, n = j->cols;
    float score = target >= 0 && target < n ? x[target] : 0.0f;
    vf t = v_set1(j->inv_temp), max = v_set1(j->stats[2 * i]), bound = v_set1(EXP_MIN), gv = v_set1(g), iv = v_set1(inv);
    for (int64_t k = 0; k < n; k += VL) {
      int lanes = (int)min64(VL, n - k);
      vf e = v_exp(v_max(bound, v_sub(v_mul(lanes == VL ? v_load(x + k) : v_load_n(x + k, lanes), t), max)));
      e = v_mul(v_sub(v_zero(), v_mul(e, iv)), gv);
      if (lanes == VL) v_store(x + k, e);
      else v_store_n(x + k, e, lanes);
    }
    if (target >= 0 && target < n) {
      float d = score * j->inv_temp - j->stats[2 * i];
      x[target] = (1.0f - s_exp(EXP_MIN > d ? EXP_MIN : d) * inv) * g;
    }
  }
}

static void kernel_softmax_backward(easyrl_device *d, float *logits, const float *d_logp, const float *stats,
                                    const int32_t *targets, int32_t n, int32_t cols, int32_t first, float inv_temp) {
  softmax_run(d, softmax_backward_task,
              (softmax_job){.logits = logits, .d_logp = d_logp, .stats = stats, .targets = targets, .n = n, .cols = cols,
                            .first = first, .inv_temp = inv_temp});
}

typedef struct {
  int32_t *ids;
  float *logp;
  const float *logits;
  int64_t vocab;
  const easyrl_sample_params *params;
  float *scratch;
  int64_t part;
} sample_job;

/* Sorts ids 0 to n-1 by descending x * inv_temp, lower ids first among equals, with a radix sort
 * in three passes of 11 bits. Returns the sorted ids, which are in the memory of ids. keys and
 * ids need room for 2n values each. */
static uint32_t *sample_order(const float *x, int64_t n, float inv_temp, uint32_t *keys, uint32_t *ids) {
  uint32_t *from = keys, *to = keys + n, *id = ids, *id_to = ids + n;
  for (int64_t i = 0; i < n; i++) {
    int32_t b = s_bits(x[i] * inv_temp + 0.0f);
    from[i] = b < 0 ? (uint32_t)b : ~((uint32_t)b | 0x80000000u); /* ascending keys are descending values */
    id[i] = (uint32_t)i;
  }
  for (int shift = 0; shift < 33; shift += 11) {
    int64_t at[2048] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i++) at[from[i] >> shift & 2047]++;
    for (int b = 0; b < 2048; b++) {
      int64_t count = at[b];
      at[b] = sum;
      sum += count;
    }
    for (int64_t i = 0; i < n; i++) {
      int64_t to_at = at[from[i] >> shift & 2047]++;
      to[to_at] = from[i];
      id_to[to_at] = id[i];
    }
    uint32_t *swap = from;
    from = to;
    to = swap;
    swap = id;
    id = id_to;
    id_to = swap;
  }
  return id;
}

/* Sets e to 0 for the tokens that top-k and then top-p exclude. keys needs room for 4n values. */
static void sample_limit(const float *x, int64_t n, float inv_temp, easyrl_sample_params p, float *e, uint32_t *keys) {
  const uint32_t *order = sample_order(x, n, inv_temp, keys, keys + 2 * n);
  int64_t kept = p.top_k > 0 && p.top_k < n ? p.top_k : n;
  if (p.top_p < 1.0f) {
    double mass = 0, sum = 0;
    for (int64_t i = 0; i < kept; i++) mass += (double)e[order[i]];
    mass *= (double)p.top_p;
    int64_t i = 0;
    do sum += (double)e[order[i++]];
    while (i < kept && sum < mass);
    kept = i;
  }
  for (int64_t i = kept; i < n; i++) e[order[i]] = 0.0f;
}

/* Returns the first id at which the running sum of e exceeds uniform times the total. If
 * rounding leaves none, returns the last id with a positive e. */
static int32_t sample_draw(const float *e, int64_t n, float uniform) {
  double total = 0, sum = 0;
  for (int64_t i = 0; i < n; i++) total += (double)e[i];
  double goal = total * (double)uniform;
  int64_t last = 0;
  for (int64_t i = 0; i < n; i++) {
    sum += (double)e[i];
    if (sum > goal) return (int32_t)i;
    if (e[i] > 0.0f) last = i;
  }
  return (int32_t)last;
}

static void sample_task(void *arg, int64_t i, int32_t thread) {
  const sample_job *j = arg;
  easyrl_sample_params p = j->params[i];
  const float *x = j->logits + i * j->vocab;
  float *e = j->scratch + thread * j->part;
  int64_t n = j->vocab, id = 0;
  float inv_temp = p.temperature > 0.0f ? 1.0f / p.temperature : 1.0f;
  float max = softmax_max(x, n, inv_temp);
  float sum = v_fold(softmax_fold((softmax_sums){v_zero(), v_zero()}, x, n, inv_temp, max, e).sum);
  j->ids[i] = -1;
  if (!(sum > 0.0f && sum < INFINITY)) return;
  if (p.temperature > 0.0f) {
    if ((p.top_k > 0 && p.top_k < n) || p.top_p < 1.0f) sample_limit(x, n, inv_temp, p, e, (uint32_t *)(e + n));
    if (p.min_p > 0.0f) /* the likeliest token has e = 1 and always stays */
      for (int64_t k = 0; k < n; k++)
        if (e[k] < p.min_p && e[k] < 1.0f) e[k] = 0.0f;
    id = sample_draw(e, n, p.uniform);
  } else {
    for (int64_t k = 1; k < n; k++)
      if (x[k] > x[id]) id = k;
  }
  j->ids[i] = (int32_t)id;
  j->logp[i] = softmax_logp(x[id] * inv_temp, max, sum);
}

static void kernel_sample(easyrl_device *d, int32_t *ids, float *logp, const float *logits, int32_t n, int32_t vocab,
                          const easyrl_sample_params *params) {
  int64_t part = round_up(5 * (int64_t)vocab, 16);
  float *scratch = device_scratch(d, pool_threads(d->pool) * part);
  if (!scratch) return;
  pool_run(d->pool, n, sample_task,
           &(sample_job){.ids = ids, .logp = logp, .logits = logits, .vocab = vocab, .params = params, .scratch = scratch, .part = part});
  for (int32_t i = 0; i < n; i++) {
    if (ids[i] >= 0) continue;
    ids[i] = 0;
    logp[i] = NAN;
    device_fail(d, "sample: logits of row %d are not finite", (int)i);
  }
}
