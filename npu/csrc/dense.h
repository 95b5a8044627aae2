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

/* Values of one type to be copied as another. */
typedef struct {
  void *y;
  const void *x;
  int64_t n;
  easyrl_dtype y_type, x_type;
} convert_job;

static void convert_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const convert_job *j = arg;
  for (int64_t i = task * ELEMENTS, end = min64(j->n, i + ELEMENTS); i < end; i += VL) {
    int lanes = (int)min64(VL, end - i);
    vf x = typed_load_n(j->x, j->x_type, i, lanes);
    typed_store_n(j->y, j->y_type, i, x, lanes);
  }
}

static void kernel_convert(easyrl_device *d, void *y, easyrl_dtype y_type, const void *x, easyrl_dtype x_type, int64_t n) {
  pool_run(d->pool, ceil_div(n, ELEMENTS), convert_task, &(convert_job){y, x, n, y_type, x_type});
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
  float *panel = (float *)j->m.data + p * cols * PANEL;
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
  const float *panel = (const float *)j->m.data + p * cols * PANEL;
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
  j->sums[p] = xxh3((const float *)j->m.data + p * values, values * (int64_t)sizeof(float));
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

#define ROWS_TASK 64 /* columns per task of kernel_scatter_add_rows */

static void embed_task(void *arg, int64_t t, int32_t thread) {
  (void)thread;
  const rows_job *j = arg;
  int64_t cols = j->m.cols, id = j->rows[t];
  const value *src = (const value *)j->m.data + id / PANEL * PANEL * cols + id % PANEL;
  for (int64_t k = 0; k < cols; k++) j->y[t * cols + k] = value_float(src[k * PANEL]);
}

static void kernel_embed(easyrl_device *d, float *y, easyrl_matrix table, const int32_t *ids, int32_t t) {
  pool_run(d->pool, t, embed_task, &(rows_job){.y = y, .m = table, .rows = ids});
}

#define EMBED_LISTS 64 /* lists per task of kernel_embed_backward */
#define EMBED_AHEAD 16 /* rows of lists that it prefetches */

typedef struct {
  easyrl_matrix_sums m;
  const float *dy;
  easyrl_tokens tokens;
  fixed_format format;
} embed_job;

/* Sets v to m vectors of row rows[r] of dy, which are lanes columns each from k on. With add, adds them. */
SIMD_INLINE void embed_backward_row(const embed_job *j, const int m, int lanes, int32_t r, int64_t k, int add, vf *v) {
  int64_t cols = j->m.cols;
  const float *row = j->dy + j->tokens.rows[r] * cols + k;
  if (r + EMBED_AHEAD < j->tokens.t) { /* the rows of the next lists are elsewhere in memory */
    const float *ahead = j->dy + j->tokens.rows[r + EMBED_AHEAD] * cols + k;
#pragma GCC unroll 4
    for (int c = 0; c < m; c++) __builtin_prefetch(ahead + c * VL);
  }
#pragma GCC unroll 4
  for (int c = 0; c < m; c++) v[c] = add ? v_add(v[c], v_load_n(row + c * VL, lanes)) : v_load_n(row + c * VL, lanes);
}

/* Adds lists [first, last), which have the same id, to columns of the table from k on: m vectors of lanes
 * columns. Their sum is complete before it is added to the table, whose columns are far apart. */
SIMD_INLINE void embed_backward_lists(const embed_job *j, const int m, int lanes, int32_t first, int32_t last, int64_t k) {
  const int32_t *starts = j->tokens.starts;
  int64_t id = j->tokens.ids[j->tokens.rows[starts[first]]], total[4 * VL] = {0};
  for (int32_t i = first; i < last; i++) {
    vf v[4], list[4]; /* list is in memory, because fixed_add takes its address */
    embed_backward_row(j, m, lanes, starts[i], k, 0, v);
    for (int32_t r = starts[i] + 1; r < starts[i + 1]; r++) embed_backward_row(j, m, lanes, r, k, 1, v);
#pragma GCC unroll 4
    for (int c = 0; c < m; c++) list[c] = v[c];
    fixed_add(m, list, total, VL, j->m.sums.mark, j->format);
  }
  int64_t *sum = j->m.sums.data + (id / PANEL * j->m.cols + k) * PANEL + id % PANEL;
#pragma GCC unroll 16
  for (int l = 0; l < (m - 1) * VL + lanes; l++) sum[l * PANEL] = (int64_t)((uint64_t)sum[l * PANEL] + (uint64_t)total[l]);
}

/* Returns the id of a list, or -1 if the list is empty. */
static int32_t embed_id(const easyrl_tokens *t, int32_t list) {
  return t->starts[list] < t->starts[list + 1] ? t->ids[t->rows[t->starts[list]]] : -1;
}

/* A task takes the ids whose first list is one of its EMBED_LISTS lists, and all lists of these ids: tasks
 * add to different rows of the table. */
static void embed_backward_task(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const embed_job *j = arg;
  const easyrl_tokens *t = &j->tokens;
  int32_t first = (int32_t)task * EMBED_LISTS, end = (int32_t)min64(t->lists, first + EMBED_LISTS);
  int32_t before = first ? embed_id(t, first - 1) : -1;
  while (first < end && embed_id(t, first) == before) first++;
  for (int32_t last; first < end; first = last) {
    int32_t id = embed_id(t, first);
    if (id < 0) break;
    for (last = first + 1; last < t->lists && embed_id(t, last) == id;) last++;
    int64_t k = 0;
    for (; k + 4 * VL <= j->m.cols; k += 4 * VL) embed_backward_lists(j, 4, VL, first, last, k);
    for (; k < j->m.cols; k += VL) embed_backward_lists(j, 1, (int)min64(VL, j->m.cols - k), first, last, k);
  }
}

static void kernel_embed_backward(easyrl_device *d, easyrl_matrix_sums d_table, const float *dy, easyrl_tokens tokens,
                                  easyrl_fixed_point format) {
  embed_job j = {.m = d_table, .dy = dy, .tokens = tokens, .format = fixed_of(format)};
  pool_run(d->pool, ceil_div(tokens.lists, EMBED_LISTS), embed_backward_task, &j);
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
