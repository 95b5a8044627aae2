/* Distributions over a vocabulary: log-probabilities, their gradient, draws.
 *
 * For one row of logits x and s_j = x_j * inv_temp, in float32:
 *   m = max s_j,  d_j = max(s_j - m, -104),  e_j = exp(d_j)
 *   w_j = rint(e_j 2^44),  z = sum of w_j,  u = sum of rint(e_j d_j 2^44), in int64
 *   Z = float32(z) 2^-44,  U = float32(u) 2^-44
 *   logp_j = (s_j - m) - log Z,  entropy = log Z - U / Z
 *   d logit_j = (onehot_j - e_j (1 / Z)) (d_logp inv_temp)
 * The product e_j d_j is exact. exp of less than -104 is 0, so the bound changes no term. A vocabulary
 * has at most 2^18 tokens, so no sum overflows. Integer sums do not depend on the order, so a row may be
 * cut anywhere, and the parts of tensor ranks are added up. A row with NaN or an infinite maximum has no distribution. */

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

/* z and u of some columns, and whether a term was not finite. */
typedef struct {
  int64_t z, u;
  int bad;
} softmax_sums;

#define SOFTMAX_UNIT 0x1p-44f

/* w_j of e_j. */
static inline int64_t softmax_weight(float e) { return (int64_t)((double)e * 0x1p44 + FIXED_MAGIC) - (int64_t)FIXED_MAGIC; }

/* Lane sums of rint(x 2^44) for |x| <= 1, ties to even. high = x + SOFTMAX_HIGH is rounded to a multiple of
 * 2^-22, and low = x - (high - SOFTMAX_HIGH) + SOFTMAX_LOW to one of 2^-44, because of the sizes of these
 * constants; it is rounded once, since SOFTMAX_HIGH + SOFTMAX_LOW - high is exact. Both stay between the same
 * powers of 2, so their bits count the multiples: the term is (bits of high - bits of SOFTMAX_HIGH) 2^22
 * + bits of low - bits of SOFTMAX_LOW. Sums of up to SOFTMAX_VECTORS vectors of terms fit. */
typedef struct {
  vs high, low;
} softmax_part;

#define SOFTMAX_HIGH 0x1.8p1f
#define SOFTMAX_LOW 0x1.8p-21f
#define SOFTMAX_HIGH_BITS 0x40400000
#define SOFTMAX_LOW_BITS 0x35400000
#define SOFTMAX_VECTORS (511 / (VL / VS_LANES))

/* Returns the sums that are 0 after a number of vectors of terms of 0. */
SIMD_INLINE softmax_part softmax_part_start(int64_t vectors) {
  uint32_t terms = (uint32_t)vectors * (VL / VS_LANES);
  return (softmax_part){vs_set1((int32_t)-(terms * SOFTMAX_HIGH_BITS)), vs_set1((int32_t)-(terms * SOFTMAX_LOW_BITS))};
}

SIMD_INLINE int64_t softmax_part_total(softmax_part p) { return vs_total(p.high, p.low, 22); }

SIMD_INLINE vf softmax_rest(vf high) { return v_sub(v_set1(SOFTMAX_HIGH + SOFTMAX_LOW), high); }

SIMD_INLINE softmax_part softmax_part_bits(softmax_part p, vf high, vf low) {
  return (softmax_part){vs_add(p.high, vf_bits(high)), vs_add(p.low, vf_bits(low))};
}

/* Adds x. */
SIMD_INLINE softmax_part softmax_part_add(softmax_part p, vf x) {
  vf high = v_add(x, v_set1(SOFTMAX_HIGH));
  return softmax_part_bits(p, high, v_add(x, softmax_rest(high)));
}

/* Adds the product a b. */
SIMD_INLINE softmax_part softmax_part_fma(softmax_part p, vf a, vf b) {
  vf high = v_fma(a, b, v_set1(SOFTMAX_HIGH));
  return softmax_part_bits(p, high, v_fma(a, b, softmax_rest(high)));
}

/* The sums of some vectors of a row. bits is the bitwise or of numbers below 2, so SOFTMAX_NAN is set once one of
 * them is NaN. */
typedef struct {
  softmax_part z, u;
  vs bits;
} softmax_state;

#define SOFTMAX_NAN 0x40000000
#define SOFTMAX_MIN -40.0f /* terms of smaller d are 0, and so are those of this one */

/* Adds the terms of a vector of logits, its first lanes alone, and returns e_j, but exp(SOFTMAX_MIN) for less. */
SIMD_INLINE vf softmax_term(softmax_state *s, vf x, int lanes, vf inv_temp, vf max, const int with_u) {
  vf d = v_max(v_set1(SOFTMAX_MIN), v_sub(v_mul(x, inv_temp), max)), exponent;
  if (lanes < VL) d = v_select_n(lanes, d, v_zero());
  vf p = v_exp_fraction(d, &exponent);
  s->bits = vs_or(s->bits, vf_bits(p));
  vf e = vi_bits(vi_add(vf_bits(p), vi_shl(vf_bits(exponent), 23)));
  if (lanes < VL) e = v_select_n(lanes, e, v_zero());
  s->z = softmax_part_add(s->z, e);
  if (with_u) s->u = softmax_part_fma(s->u, e, d);
  return e;
}

/* Returns the sums over n logits of a row; u is 0 without with_u. If e is not NULL, it gets the results of softmax_term. */
SIMD_INLINE softmax_sums softmax_sum(const float *x, int64_t n, float inv_temp, float m, float *e, const int with_u) {
  vf t = v_set1(inv_temp), max = v_set1(m);
  softmax_sums sums = {0};
  for (int64_t i = 0; i < n;) {
    int64_t vectors = min64(SOFTMAX_VECTORS, ceil_div(n - i, VL)), full = min64(vectors, (n - i) / VL);
    softmax_state s = {softmax_part_start(vectors), softmax_part_start(vectors), vs_set1(0)};
    for (int64_t k = 0; k < full; k++, i += VL) {
      vf w = softmax_term(&s, v_load(x + i), VL, t, max, with_u);
      if (e) v_store(e + i, w);
    }
    if (full < vectors) {
      int lanes = (int)(n - i);
      vf w = softmax_term(&s, v_load_n(x + i, lanes), lanes, t, max, with_u);
      if (e) v_store_n(e + i, w, lanes);
      i = n;
    }
    sums.z += softmax_part_total(s.z);
    if (with_u) sums.u += softmax_part_total(s.u);
    sums.bad |= vs_any(s.bits, SOFTMAX_NAN);
  }
  return sums;
}

/* Z or U of a sum. */
static inline float softmax_value(int64_t sum) { return (float)(double)sum * SOFTMAX_UNIT; }

static inline float softmax_logp(float score, float max, float sum) { return (score - max) - s_log(sum); }

typedef struct {
  float *max, *logits;
  value *d_logits;
  int64_t *sums;
  const float *stats, *d_logp;
  const int32_t *targets;
  int64_t n, cols, first;
  int add;
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

static void softmax_sum_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const softmax_job *j = arg;
  for (int64_t i = task * j->share, end = min64(j->n, i + j->share); i < end; i++) {
    const float *x = j->logits + i * j->cols;
    int64_t *sums = j->sums + i * EASYRL_SOFTMAX_SUMS;
    softmax_sums s = softmax_sum(x, j->cols, j->inv_temp, j->max[i], 0, 1);
    int64_t target = j->targets[i] - j->first;
    int64_t score = target >= 0 && target < j->cols ? (int64_t)(uint32_t)s_bits(x[target] * j->inv_temp) : 0;
    if (!j->add) memset(sums, 0, EASYRL_SOFTMAX_SUMS * sizeof *sums);
    sums[0] += s.z;
    sums[1] += s.u;
    sums[2] += score;
    sums[3] += s.bad;
  }
}

static void kernel_softmax_sum(easyrl_device *d, int64_t *sums, const float *max, const float *logits, const int32_t *targets,
                               int32_t n, int32_t cols, int32_t first, float inv_temp, int32_t add) {
  softmax_run(d, softmax_sum_task,
              (softmax_job){.sums = sums, .max = (float *)max, .logits = (float *)logits, .targets = targets, .n = n,
                            .cols = cols,
                            .first = first, .inv_temp = inv_temp, .add = add});
}

static void kernel_softmax_finish(easyrl_device *d, float *logp, float *entropy, float *stats, const int64_t *sums,
                                  const float *max, int32_t n) {
  (void)d;
  for (int64_t i = 0; i < n; i++) {
    const int64_t *s = sums + i * EASYRL_SOFTMAX_SUMS;
    float m = max[i], z = s[3] ? NAN : softmax_value(s[0]);
    logp[i] = softmax_logp(s_from_bits((int32_t)s[2]), m, z);
    entropy[i] = s_log(z) - softmax_value(s[1]) / z;
    stats[2 * i] = m;
    stats[2 * i + 1] = z;
  }
}

static void softmax_backward_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const softmax_job *j = arg;
  for (int64_t i = task * j->share, end = min64(j->n, i + j->share); i < end; i++) {
    const float *x = j->logits + i * j->cols;
    value *y = j->d_logits + i * j->cols;
    float g = j->d_logp[i] * j->inv_temp, inv = 1.0f / j->stats[2 * i + 1];
    int64_t target = j->targets[i] - j->first, n = j->cols;
    float score = target >= 0 && target < n ? x[target] : 0.0f;
    vf t = v_set1(j->inv_temp), max = v_set1(j->stats[2 * i]), bound = v_set1(EXP_MIN), gv = v_set1(g), iv = v_set1(inv);
    for (int64_t k = 0; k < n; k += VL) {
      int lanes = (int)min64(VL, n - k);
      vf e = v_exp_bounded(v_max(bound, v_sub(v_mul(lanes == VL ? v_load(x + k) : v_load_n(x + k, lanes), t), max)));
      e = v_mul(v_sub(v_zero(), v_mul(e, iv)), gv);
      if (lanes == VL) value_store(y + k, e);
      else value_store_n(y + k, e, lanes);
    }
    if (target >= 0 && target < n) {
      float d = score * j->inv_temp - j->stats[2 * i];
      value_store_n(y + target, v_set1((1.0f - s_exp(EXP_MIN > d ? EXP_MIN : d) * inv) * g), 1);
    }
  }
}

static void kernel_softmax_backward(easyrl_device *d, void *d_logits, const float *logits, const float *d_logp,
                                    const float *stats, const int32_t *targets, int32_t n, int32_t cols, int32_t first,
                                    float inv_temp) {
  softmax_run(d, softmax_backward_task,
              (softmax_job){.d_logits = d_logits, .logits = (float *)logits, .d_logp = d_logp, .stats = stats,
                            .targets = targets, .n = n, .cols = cols, .first = first, .inv_temp = inv_temp});
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
    int64_t sum = 0, i = 0;
    for (int64_t k = 0; k < kept; k++) sum += softmax_weight(e[order[k]]);
    int64_t goal = (int64_t)((double)sum * (double)p.top_p);
    sum = 0;
    do sum += softmax_weight(e[order[i++]]);
    while (i < kept && sum < goal);
    kept = i;
  }
  for (int64_t i = kept; i < n; i++) e[order[i]] = 0.0f;
}

/* Returns the sum of the weights of n tokens. */
static int64_t sample_weights(const float *e, int64_t n) {
  int64_t sum = 0;
  for (int64_t i = 0; i < n;) {
    int64_t vectors = min64(SOFTMAX_VECTORS, ceil_div(n - i, VL));
    softmax_part part = softmax_part_start(vectors);
    for (int64_t k = 0; k < vectors; k++, i += VL)
      part = softmax_part_add(part, n - i >= VL ? v_load(e + i) : v_load_n(e + i, (int)(n - i)));
    sum += softmax_part_total(part);
  }
  return sum;
}

#define SAMPLE_BLOCK 1024 /* tokens whose weights are added up at once in search of the one to draw */

/* Returns the first id at which the running sum of weights exceeds uniform times their total, which is
 * above 0. uniform is a multiple of 2^-24 below 1. */
static int32_t sample_draw(const float *e, int64_t n, int64_t total, float uniform) {
  int64_t u = (int64_t)(uniform * 0x1p24f);
  int64_t goal = (total >> 24) * u + (((total & 0xffffff) * u) >> 24), sum = 0, i = 0;
  for (; n - i > SAMPLE_BLOCK; i += SAMPLE_BLOCK) {
    int64_t block = sample_weights(e + i, SAMPLE_BLOCK);
    if (sum + block > goal) break;
    sum += block;
  }
  for (;; i++) {
    sum += softmax_weight(e[i]);
    if (sum > goal) return (int32_t)i;
  }
}

static void sample_task(void *arg, int64_t i, int32_t thread) {
  const sample_job *j = arg;
  easyrl_sample_params p = j->params[i];
  const float *x = j->logits + i * j->vocab;
  float *e = j->scratch + thread * j->part;
  int64_t n = j->vocab, id = 0;
  float inv_temp = p.temperature > 0.0f ? 1.0f / p.temperature : 1.0f;
  float max = softmax_max(x, n, inv_temp);
  softmax_sums sums = softmax_sum(x, n, inv_temp, max, e, 0);
  j->ids[i] = -1;
  if (sums.bad) return;
  if (p.temperature > 0.0f) {
    int limited = (p.top_k > 0 && p.top_k < n) || p.top_p < 1.0f;
    if (limited) sample_limit(x, n, inv_temp, p, e, (uint32_t *)(e + n));
    if (p.min_p > 0.0f) /* the likeliest token has e = 1 and always stays */
      for (int64_t k = 0; k < n; k++)
        if (e[k] < p.min_p && e[k] < 1.0f) e[k] = 0.0f;
    id = sample_draw(e, n, limited || p.min_p > 0.0f ? sample_weights(e, n) : sums.z, p.uniform);
  } else {
    for (int64_t k = 1; k < n; k++)
      if (x[k] > x[id]) id = k;
  }
  j->ids[i] = (int32_t)id;
  j->logp[i] = softmax_logp(x[id] * inv_temp, max, softmax_value(sums.z));
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
