/* Memory-bound kernels: they add values, move rows, pack and unpack weights, and hash panels. */

#define ELEMENTS 16384 /* values per task of an elementwise kernel */

typedef struct {
  float *y;
  const float *x;
  int64_t n;
} pair_job;

static void add_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const pair_job *j = arg;
  int64_t i = task * ELEMENTS, end = min64(j->n, i + ELEMENTS);
  for (; i + VL <= end; i += VL) v_store(j->y + i, v_add(v_load(j->y + i), v_load(j->x + i)));
  if (i < end) v_store_n(j->y + i, v_add(v_load_n(j->y + i, (int)(end - i)), v_load_n(j->x + i, (int)(end - i))), (int)(end - i));
}

static void kernel_add(easyrl_device *d, float *y, const float *x, int64_t n) {
  pool_run(d->pool, ceil_div(n, ELEMENTS), add_task, &(pair_job){y, x, n});
}

static int64_t kernel_matrix_len(easyrl_device *d, int32_t rows, int32_t cols) {
  (void)d;
  return ceil_div(rows, PANEL) * PANEL * (int64_t)cols;
}

typedef struct {
  easyrl_matrix m;
  const float *src;
  float *dst;
} pack_job;

static void pack_task(void *arg, int64_t p, int32_t thread) {
  (void)thread;
  const pack_job *j = arg;
  int64_t cols = j->m.cols, rows = min64(PANEL, j->m.rows - p * PANEL);
  float *panel = j->m.data + p * cols * PANEL;
  for (int64_t k = 0; k < cols; k += VL)
    for (int64_t half = 0; half < PANEL; half += VL) {
      int live = (int)max64(0, min64(VL, rows - half));
      v_transpose(panel + k * PANEL + half, PANEL, j->src + (p * PANEL + (live ? half : 0)) * cols + k, cols, live,
                  (int)min64(VL, cols - k));
    }
}

static void kernel_pack_matrix(easyrl_device *d, easyrl_matrix m, const float *src) {
  pool_run(d->pool, ceil_div(m.rows, PANEL), pack_task, &(pack_job){.m = m, .src = src});
}

static void unpack_task(void *arg, int64_t p, int32_t thread) {
  (void)thread;
  const pack_job *j = arg;
  int64_t cols = j->m.cols, rows = min64(PANEL, j->m.rows - p * PANEL);
  const float *panel = j->m.data + p * cols * PANEL;
  float block[VL * VL];
  for (int64_t k = 0; k < cols; k += VL) {
    int live = (int)min64(VL, cols - k);
    for (int64_t r = 0; r < rows; r += VL) {
      int lanes = (int)min64(VL, rows - r);
      v_transpose(block, VL, panel + k * PANEL + r, PANEL, live, lanes);
      for (int i = 0; i < lanes; i++) v_store_n(j->dst + (p * PANEL + r + i) * cols + k, v_load(block + i * VL), live);
    }
  }
}

static void kernel_unpack_matrix(easyrl_device *d, float *dst, easyrl_matrix m) {
  pool_run(d->pool, ceil_div(m.rows, PANEL), unpack_task, &(pack_job){.m = m, .dst = dst});
}

typedef struct {
  uint64_t *sums;
  easyrl_matrix m;
} panels_job;

static void panel_task(void *arg, int64_t p, int32_t thread) {
  (void)thread;
  const panels_job *j = arg;
  int64_t values = j->m.cols ? (int64_t)PANEL * j->m.cols : j->m.rows;
  j->sums[p] = xxh3(j->m.data + p * values, values * (int64_t)sizeof(float));
}

static void kernel_sum_panels(easyrl_device *d, uint64_t *sums, const easyrl_matrix *m, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    int64_t panels = m[i].cols ? ceil_div(m[i].rows, PANEL) : 1;
    pool_run(d->pool, panels, panel_task, &(panels_job){sums, m[i]});
    sums += panels;
  }
}

typedef struct {
  float *y;
  const float *x;
  easyrl_matrix m;
  const int32_t *rows;
  int64_t n, cols;
} rows_job;

#define ROWS_TASK 64 /* columns per task of the kernels that add rows */

static void embed_task(void *arg, int64_t t, int32_t thread) {
  (void)thread;
  const rows_job *j = arg;
  int64_t cols = j->m.cols, id = j->rows[t];
  const float *src = j->m.data + id / PANEL * PANEL * cols + id % PANEL;
  for (int64_t k = 0; k < cols; k++) j->y[t * cols + k] = src[k * PANEL];
}

static void kernel_embed(easyrl_device *d, float *y, easyrl_matrix table, const int32_t *ids, int32_t t) {
  pool_run(d->pool, t, embed_task, &(rows_job){.y = y, .m = table, .rows = ids});
}

typedef struct {
  easyrl_matrix_sums m;
  const float *dy;
  easyrl_tokens tokens;
  fixed_format format;
} embed_job;

static void embed_backward_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const embed_job *j = arg;
  const int32_t *next = j->tokens.next;
  int64_t cols = j->m.cols, lo = task * ROWS_TASK, hi = min64(cols, lo + ROWS_TASK);
  for (int32_t i = 0; i < j->tokens.lists; i++) {
    int64_t first = j->tokens.firsts[i];
    if (first < 0) continue;
    int64_t id = j->tokens.ids[first];
    int64_t *sum = j->m.sums.data + id / PANEL * PANEL * cols + id % PANEL;
    for (int64_t k = lo; k < hi; k += VL) {
      int n = (int)min64(VL, hi - k);
      vf v = v_load_n(j->dy + first * cols + k, n);
      for (int64_t t = next[first]; t >= 0; t = next[t]) v = v_add(v, v_load_n(j->dy + t * cols + k, n));
      int64_t add[VL] = {0};
      fixed_add(1, &v, add, 0, j->m.sums.mark, j->format);
      for (int l = 0; l < n; l++) {
        int64_t *to = sum + (k + l) * PANEL;
        *to = (int64_t)((uint64_t)*to + (uint64_t)add[l]);
      }
    }
  }
}

static void kernel_embed_backward(easyrl_device *d, easyrl_matrix_sums d_table, const float *dy, easyrl_tokens tokens,
                                  easyrl_fixed_point format) {
  embed_job j = {.m = d_table, .dy = dy, .tokens = tokens, .format = fixed_of(format)};
  pool_run(d->pool, ceil_div(d_table.cols, ROWS_TASK), embed_backward_task, &j);
}

static void kernel_gather_rows(easyrl_device *d, float *y, const float *x, const int32_t *rows, int32_t n, int32_t cols) {
  (void)d;
  for (int64_t i = 0; i < n; i++) memcpy(y + i * cols, x + (int64_t)rows[i] * cols, (size_t)cols * 4);
}

static void scatter_add_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const rows_job *j = arg;
  int64_t lo = task * ROWS_TASK, width = min64(j->cols - lo, ROWS_TASK);
  for (int64_t i = 0; i < j->n; i++) {
    float *dst = j->y + j->rows[i] * j->cols + lo;
    const float *src = j->x + i * j->cols + lo;
    int64_t k = 0;
    for (; k + VL <= width; k += VL) v_store(dst + k, v_add(v_load(dst + k), v_load(src + k)));
    for (; k < width; k++) dst[k] += src[k];
  }
}

static void kernel_scatter_add_rows(easyrl_device *d, float *y, const float *x, const int32_t *rows, int32_t n, int32_t cols) {
  pool_run(d->pool, ceil_div(cols, ROWS_TASK), scatter_add_task, &(rows_job){.y = y, .x = x, .rows = rows, .n = n, .cols = cols});
}

static void kernel_set_ints(easyrl_device *d, int32_t *y, const int32_t *at, const int32_t *x, int32_t n) {
  (void)d;
  for (int32_t i = 0; i < n; i++) y[at[i]] = x[i];
}
