/* Distributions over a vocabulary: log-probabilities, their gradient, draws.
 *
 * For one row of logits x and s_j = x_j * inv_temp, in float32:
 *   m = max s_j,  d_j = max(s_j - m, -104),  e_j = exp(d_j)
 *   z = fold of e_j,  u = fold of e_j d_j by fma
 *   logp_j = (s_j - m) - log z,  entropy = log z - u / z
 *   d logit_j = (onehot_j - e_j (1 / z)) (d_logp inv_temp)
 * exp of less than -104 is 0, so the bound changes no term. */

typedef struct {
  float max, sum, weighted;
} softmax;

/* Computes the statistics of a row. If e is not NULL, it stores e_j there; e may
 * be x. */
static softmax softmax_row(const float *x, int64_t n, float inv_temp, float *e) {
  softmax r;
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
  r.max = v_hmax(v_max(m0, m1));
  vf max = v_set1(r.max), bound = v_set1(EXP_MIN), sum = v_zero(), weighted = v_zero();
  for (i = 0; i + VL <= n; i += VL) {
    vf d = v_max(bound, v_sub(v_mul(v_load(x + i), t), max));
    vf p = v_exp(d);
    if (e) v_store(e + i, p);
    sum = v_add(sum, p);
    weighted = v_fma(p, d, weighted);
  }
  if (i < n) {
    int lanes = (int)(n - i);
    vf d = v_max(bound, v_sub(v_mul(v_load_n(x + i, lanes), t), max));
    vf p = v_select_n(lanes, v_exp(d), v_zero());
    d = v_select_n(lanes, d, v_zero());
    if (e) v_store_n(e + i, p, lanes);
    sum = v_add(sum, p);
    weighted = v_fma(p, d, weighted);
  }
  r.sum = v_fold(sum);
  r.weighted = v_fold(weighted);
  return r;
}

static inline float softmax_logp(softmax r, float x, float inv_temp) { return (x * inv_temp - r.max) - s_log(r.sum); }

#define VOCAB_FLOATS (8 << 20) /* logits held at a time, unless twelve rows need more */

/* Returns the number of rows of logits in a chunk. */
static int64_t vocab_chunk(int64_t n, int64_t vocab) {
  return min64(n, max64(12, VOCAB_FLOATS / max64(1, vocab) / 12 * 12));
}

typedef struct {
  float *logp, *entropy;
  const float *d_logp;
  float *logits;
  int64_t vocab;
  const int32_t *targets;
  float inv_temp;
} vocab_job;

static void log_prob_task(void *arg, int64_t i, int32_t thread) {
  (void)thread;
  const vocab_job *j = arg;
  const float *x = j->logits + i * j->vocab;
  softmax r = softmax_row(x, j->vocab, j->inv_temp, 0);
  j->logp[i] = softmax_logp(r, x[j->targets[i]], j->inv_temp);
  j->entropy[i] = s_log(r.sum) - r.weighted / r.sum;
}

static void kernel_log_prob(easyrl_device *d, float *logp, float *entropy, const float *hidden, easyrl_matrix w,
                            const int32_t *targets, int32_t n, float inv_temp) {
  int64_t chunk = vocab_chunk(n, w.rows), logits = round_up(chunk * w.rows, 16);
  float *scratch = device_scratch(d, logits + pool_threads(d->pool) * linear_scratch(chunk, w.cols));
  if (!scratch) return;
  for (int64_t i = 0; i < n; i += chunk) {
    int64_t rows = min64(chunk, n - i);
    linear_run(d, (linear_job){.y = scratch, .ldy = w.rows, .x = hidden + i * w.cols, .w = w, .t = rows,
                               .start = START_ZERO, .scratch = scratch + logits});
    pool_run(d->pool, rows, log_prob_task,
             &(vocab_job){.logp = logp + i, .entropy = entropy + i, .logits = scratch, .vocab = w.rows,
                          .targets = targets + i, .inv_temp = inv_temp});
  }
}

/* Turns a row of logits into its gradient. */
static void log_prob_backward_task(void *arg, int64_t i, int32_t thread) {
  (void)thread;
  const vocab_job *j = arg;
  float *x = j->logits + i * j->vocab;
  softmax r = softmax_row(x, j->vocab, j->inv_temp, x);
  float g = j->d_logp[i] * j->inv_temp, inv = 1.0f / r.sum;
  float target = (1.0f - x[j->targets[i]] * inv) * g;
  vf gv = v_set1(g), iv = v_set1(inv);
  int64_t k = 0;
  for (; k + VL <= j->vocab; k += VL) v_store(x + k, v_mul(v_sub(v_zero(), v_mul(v_load(x + k), iv)), gv));
  if (k < j->vocab) {
    int lanes = (int)(j->vocab - k);
    v_store_n(x + k, v_mul(v_sub(v_zero(), v_mul(v_load_n(x + k, lanes), iv)), gv), lanes);
  }
  x[j->targets[i]] = target;
}

static void kernel_log_prob_backward(easyrl_device *d, float *d_hidden, easyrl_matrix dw, const float *d_logp, const float *hidden,
                                     easyrl_matrix w, const int32_t *targets, int32_t n, float inv_temp) {
  int64_t chunk = vocab_chunk(n, w.rows), logits = round_up(chunk * w.rows, 16);
  int64_t part = max64(linear_scratch(chunk, w.cols), max64(input_scratch(chunk, w.rows), WEIGHT_SCRATCH));
  float *scratch = device_scratch(d, logits + pool_threads(d->pool) * part);
  if (!scratch) return;
  for (int64_t i = 0; i < n; i += chunk) {
    int64_t rows = min64(chunk, n - i);
    const float *x = hidden + i * w.cols;
    linear_run(d, (linear_job){.y = scratch, .ldy = w.rows, .x = x, .w = w, .t = rows, .start = START_ZERO,
                               .scratch = scratch + logits});
    pool_run(d->pool, rows, log_prob_backward_task,
             &(vocab_job){.d_logp = d_logp + i, .logits = scratch, .vocab = w.rows, .targets = targets + i, .inv_temp = inv_temp});
    input_run(d, (input_job){.dx = d_hidden + i * w.cols, .dy = scratch, .ldy = w.rows, .w = w, .t = rows,
                             .start = START_ZERO, .scratch = scratch + logits});
    weight_run(d, (weight_job){.dw = dw, .dy = scratch, .ldy = w.rows, .x = x, .t = rows, .scratch = scratch + logits});
  }
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

/* Orders ids 0..n-1 by descending x * inv_temp, lower ids first among equals, by a
 * radix sort in three passes of 11 bits. Returns the order. keys and ids need room
 * for 2n each. */
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

/* Zeroes the values of e that top-k, then top-p, exclude. */
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

/* Returns the first id at which the running sum of e exceeds uniform times the
 * total. */
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
  softmax r = softmax_row(x, n, inv_temp, e);
  j->ids[i] = -1;
  if (!(r.sum > 0.0f && r.sum < INFINITY)) return;
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
  j->logp[i] = softmax_logp(r, x[id], inv_temp);
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
