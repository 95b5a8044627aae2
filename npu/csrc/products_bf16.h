/* Products of BF16, on the tiles of mma.h. The terms of a chain come in runs of at most RUN_TERMS, and each
 * run is filled up with zeros to a multiple of MMA_STEP. */

#define RUN_TERMS 256
#define PRODUCT_ROWS 96       /* maximum rows in a block */
#define PRODUCT_FEW 24        /* fewer rows would unpack weights too often */
#define PRODUCT_PACKED 262144 /* maximum terms of a block with more rows than that */

/* Terms of linear are columns of w, those of linear_backward_input rows. */
typedef struct {
  const value *x; /* the first term of row 0, and the distance of rows */
  int64_t ld;
  easyrl_matrix w;
  int64_t first, len;
} product_run;

/* y [rows, cols]: panel p of the grid has columns 32p to 32p + 31. */
typedef struct {
  void *y;
  easyrl_dtype type;
  int64_t cols;
  const value *bias;
  easyrl_start start;
  product_run *runs;
  int64_t n_runs, terms;
  int by_rows; /* terms are rows of weights */
  gemm_grid grid;
  /* A slot has the packed rows of a block, and huge says whether they need mma_exact. If several tasks share
   * a block, each block has a slot, otherwise each thread. */
  float *packed, *parts;
  int32_t *huge;
  int64_t slot, part; /* floats of a slot, and of a thread's part: a run of unpacked weights, and sums [rows][32] */
} product_job;

/* Packs a block of rows to a slot. */
static void product_pack(const product_job *j, int64_t row, int64_t rows, int64_t slot) {
  float *dst = j->packed + slot * j->slot;
  int32_t huge = 0;
  for (const product_run *r = j->runs; r < j->runs + j->n_runs; r++) {
    huge |= mma_pack_values(dst, r->x + row * r->ld, r->ld, rows, r->len);
    dst += mma_rows_len(rows, r->len) - VL;
  }
  j->huge[slot] = huge;
}

static void product_pack_task(void *arg, int64_t block, int32_t thread) {
  (void)thread;
  const product_job *j = arg;
  gemm_part part = gemm_task(&j->grid, block * j->grid.chunks);
  product_pack(j, part.row, part.row_end - part.row, block);
}

/* Unpacks columns [k, k + 32) of rows [row, row + rows) of a weight, as mma_unpack does. Terms are rows. */
static int product_unpack_rows(float *dst, easyrl_matrix w, int64_t row, int64_t rows, int64_t k) {
  int cols = (int)min64(PANEL, w.cols - k);
  vi most = vi_set1(0);
  memset(dst + rows * MMA_B, 0, (size_t)(round_up(rows, MMA_STEP) - rows) * MMA_B * sizeof *dst);
  for (int64_t end = row + rows; row < end;) {
    int64_t lane = row % PANEL; /* the rows of one transposition are in one panel */
    int lanes = (int)min64(min64(VL, PANEL - lane), end - row);
    const value *src = (const value *)w.data + (row / PANEL * w.cols + k) * PANEL + lane;
    for (int half = 0; half < PANEL; half += VL) {
      float block[VL * VL];
      int live = cols - half < VL ? cols - half : VL;
      for (int c = 0; c < live; c++) v_store(block + c * VL, value_load_n(src + (half + c) * PANEL, lanes));
      v_transpose(dst + half, MMA_B, block, VL, live > 0 ? live : 0, lanes);
    }
    for (int i = 0; i < lanes; i++, dst += MMA_B) most = mma_codes_b(dst + PANEL, v_load(dst), v_load(dst + VL), most);
    row += lanes;
  }
  for (; rows % MMA_STEP; rows++, dst += MMA_B) mma_codes_b(dst + PANEL, v_zero(), v_zero(), most);
  return mma_codes_huge(most);
}

/* Sets sums [rows][32] to values of y from row and column on, or y to a function of the sums. */
static void product_continue(const product_job *j, float *sums, int64_t row, int64_t rows, int64_t col) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t v = 0; v < PANEL && col + v < j->cols; v += VL)
      v_store(sums + r * PANEL + v, v_load_n((const float *)j->y + (row + r) * j->cols + col + v,
                                             (int)min64(VL, j->cols - col - v)));
}

static void product_finish(const product_job *j, const float *sums, int64_t row, int64_t rows, int64_t col) {
  for (int64_t v = 0; v < PANEL && col + v < j->cols; v += VL) {
    int n = (int)min64(VL, j->cols - col - v);
    vf bias = j->bias ? value_load_n(j->bias + col + v, n) : v_zero();
    for (int64_t r = 0; r < rows; r++) {
      int64_t i = (row + r) * j->cols + col + v;
      vf sum = v_load(sums + r * PANEL + v);
      if (j->bias) sum = v_add(sum, bias);
      if (j->start == EASYRL_ADD) sum = v_add(v_load_n((const float *)j->y + i, n), sum);
      typed_store_n(j->y, j->type, i, sum, n);
    }
  }
}

static void product_task(void *arg, int64_t task, int32_t thread) {
  const product_job *j = arg;
  gemm_part part = gemm_task(&j->grid, task);
  float *weights = j->parts + thread * j->part, *sums = weights + RUN_TERMS * MMA_B;
  int64_t rows = part.row_end - part.row, slot = j->grid.chunks > 1 ? task / j->grid.chunks : thread;
  if (j->grid.chunks == 1) product_pack(j, part.row, rows, slot);
  for (int64_t p = part.panel; p < part.panel_end; p++) {
    const float *packed = j->packed + slot * j->slot;
    int lanes = (int)min64(PANEL, j->cols - p * PANEL), zero = j->start != EASYRL_CONTINUE;
    if (!zero) product_continue(j, sums, part.row, rows, p * PANEL);
    for (const product_run *r = j->runs; r < j->runs + j->n_runs; r++, zero = 0) {
      int huge = j->huge[slot];
      if (j->by_rows) huge |= product_unpack_rows(weights, r->w, r->first, r->len, p * PANEL);
      else huge |= mma_unpack(weights, (const value *)r->w.data + (p * r->w.cols + r->first) * PANEL, PANEL, PANEL, r->len);
      mma_block(rows, r->len, packed, weights, sums, PANEL, lanes, zero, huge);
      packed += mma_rows_len(rows, r->len) - VL;
    }
    product_finish(j, sums, part.row, rows, p * PANEL);
  }
}

/* Splits the output of a job among the threads and takes memory. Returns 0 if memory is short. */
static int product_open(easyrl_device *d, product_job *j, int64_t rows) {
  int32_t threads = pool_limited(d->pool);
  if (rows * j->cols * j->terms < 1 << 13) threads = 1;
  int64_t most = max64(PRODUCT_FEW, min64(PRODUCT_ROWS, PRODUCT_PACKED / j->terms));
  j->grid = gemm_cut(rows, ceil_div(j->cols, PANEL), most, threads, 2);
  int64_t slots = j->grid.chunks > 1 ? j->grid.blocks : pool_threads(d->pool), block = ceil_div(rows, j->grid.blocks);
  int64_t listed = round_up(j->n_runs * (int64_t)(sizeof *j->runs / sizeof(float)) + slots, 16);
  j->slot = round_up(mma_rows_len(block, j->terms), 16);
  j->part = RUN_TERMS * MMA_B + block * PANEL;
  float *scratch = device_scratch(d, listed + slots * j->slot + pool_threads(d->pool) * j->part);
  if (!scratch) return 0;
  j->runs = (product_run *)scratch;
  j->huge = (int32_t *)(j->runs + j->n_runs);
  j->packed = scratch + listed;
  j->parts = j->packed + slots * j->slot;
  return 1;
}

static void product_run_tasks(easyrl_device *d, product_job *j) {
  if (j->grid.chunks > 1) pool_run(d->pool, j->grid.blocks, product_pack_task, j);
  pool_run(d->pool, j->grid.blocks * j->grid.chunks, product_task, j);
}

static void kernel_linear(easyrl_device *d, void *y, easyrl_dtype y_type, const void *x, easyrl_matrix w,
                          const void *bias, int32_t t, easyrl_start start) {
  product_job j = {.y = y, .type = y_type, .cols = w.rows, .bias = bias, .start = start, .n_runs = ceil_div(w.cols, RUN_TERMS),
                   .terms = round_up(w.cols, MMA_STEP)};
  if (t <= 0 || w.rows <= 0 || !product_open(d, &j, t)) return;
  for (int64_t i = 0, k = 0; k < w.cols; i++, k += RUN_TERMS)
    j.runs[i] = (product_run){(const value *)x + k, w.cols, w, k, min64(RUN_TERMS, w.cols - k)};
  product_run_tasks(d, &j);
}

/* Counts the runs and terms of n products, and lists the runs if there is memory for them. */
static void input_list(product_job *j, const easyrl_product *products, int32_t n) {
  j->n_runs = j->terms = 0;
  for (input_cursor at = {0}; at.block * products->block < products->w.rows; j->n_runs++) {
    input_run r = input_next(products, n, &at, RUN_TERMS);
    j->terms += round_up(r.rows, MMA_STEP);
    if (j->runs)
      j->runs[j->n_runs] = (product_run){(const value *)r.product->dy + r.row, r.product->w.rows, r.product->w, r.row, r.rows};
  }
}

static void kernel_linear_backward_input(easyrl_device *d, void *dx, easyrl_dtype dx_type,
                                         const easyrl_product *products, int32_t n, int32_t t, easyrl_start start) {
  product_job j = {.y = dx, .type = dx_type, .cols = products->w.cols, .start = start, .by_rows = 1};
  input_list(&j, products, n);
  if (t <= 0 || j.cols <= 0 || !product_open(d, &j, t)) return;
  input_list(&j, products, n);
  product_run_tasks(d, &j);
}

/* The gradient of a weight. The rows of tiles are columns of the weight, and lanes its rows. */

#define WEIGHT_COLUMNS 192 /* columns of the weight in a task */
#define WEIGHT_PANELS 16   /* panels that share the packed rows of x */

typedef struct {
  easyrl_matrix_sums dw;
  easyrl_sums d_bias;
  const value *dy, *x, *x_end;
  fixed_format format;
  const weight_piece *pieces;
  int64_t n_pieces;
  gemm_grid grid; /* its rows are the weight's columns */
  float *scratch;
} weight_job;

/* Adds chains c [cols][32] to sums. Only the first lanes lanes are rows of the weight. */
static void weight_add(const weight_job *j, const float *c, int64_t cols, int lanes, int64_t *sum) {
  for (int64_t i = 0; i < cols; i++, c += PANEL, sum += PANEL) {
    vf v[2] = {v_load(c), v_load(c + VL)};
    if (lanes == PANEL) {
      fixed_add(2, v, sum, VL, j->dw.sums.mark, j->format);
      continue;
    }
    fixed_add_n(v[0], lanes < VL ? lanes : VL, sum, j->dw.sums.mark, j->format);
    if (lanes > VL) fixed_add_n(v[1], lanes - VL, sum + VL, j->dw.sums.mark, j->format);
  }
}

/* One panel and columns [c0, c0 + cols) over n pieces, whose rows of x are packed. c [cols][32] and bias [32]
 * have the chains of leaves that continue from block to block. */
static void weight_block(const weight_job *j, int64_t p, int64_t c0, int64_t cols, const weight_piece *pieces, int64_t n,
                         const float *packed, int huge, float *dy, float *c, float *bias) {
  int lanes = (int)min64(PANEL, j->dw.rows - p * PANEL);
  for (const weight_piece *w = pieces; w < pieces + n; w++) {
    int exact = mma_unpack(dy, j->dy + w->start * (int64_t)j->dw.rows + p * PANEL, j->dw.rows, lanes, w->len) | huge;
    if (bias) weight_bias(lanes, dy, MMA_B, w, bias, j->d_bias.data + p * PANEL, j->d_bias.mark, j->format);
    mma_block(cols, w->len, packed, dy, c, PANEL, lanes, w->first, exact);
    if (w->last) weight_add(j, c, cols, lanes, j->dw.sums.data + (p * j->dw.cols + c0) * PANEL);
    packed += mma_rows_len(cols, w->len) - VL;
  }
}

static int64_t weight_packed(void) { return round_up(mma_rows_len(WEIGHT_COLUMNS, WEIGHT_ROWS), 16); }

static int64_t weight_scratch(void) {
  return weight_packed() + WEIGHT_ROWS * MMA_B + WEIGHT_PANELS * PANEL * (1 + WEIGHT_COLUMNS);
}

static void weight_task(void *arg, int64_t task, int32_t thread) {
  const weight_job *j = arg;
  float *packed = j->scratch + thread * weight_scratch(), *dy = packed + weight_packed(), *bias = dy + WEIGHT_ROWS * MMA_B;
  float *chains = bias + WEIGHT_PANELS * PANEL;
  gemm_part part = gemm_task(&j->grid, task);
  int64_t c0 = part.row, cols = part.row_end - c0, k = j->dw.cols;
  int add_bias = c0 == 0 && j->d_bias.data;
  for (int64_t first = part.panel; first < part.panel_end; first += WEIGHT_PANELS) {
    const weight_piece *pieces = j->pieces;
    for (int64_t left = j->n_pieces, taken; left > 0; left -= taken, pieces += taken) {
      taken = weight_take(pieces, left, MMA_STEP);
      float *dst = packed;
      int huge = 0;
      for (const weight_piece *w = pieces; w < pieces + taken; dst += mma_rows_len(cols, w++->len) - VL)
        huge |= mma_pack_columns(dst, j->x + w->start * k + c0, k, cols, w->len, j->x_end);
      for (int64_t p = first; p < min64(part.panel_end, first + WEIGHT_PANELS); p++)
        weight_block(j, p, c0, cols, pieces, taken, packed, huge, dy, chains + (p - first) * cols * PANEL,
                     add_bias ? bias + (p - first) * PANEL : 0);
    }
  }
}

static void kernel_linear_backward_weight(easyrl_device *d, easyrl_matrix_sums dw, easyrl_sums d_bias, const void *dy,
                                          const void *x, easyrl_leaves leaves) {
  int64_t n = weight_cut(0, leaves, MMA_STEP), listed = round_up(n * (int64_t)(sizeof(weight_piece) / 4), 16);
  float *scratch = device_scratch(d, listed + pool_threads(d->pool) * weight_scratch());
  if (!scratch || n == 0) return;
  weight_piece *pieces = (weight_piece *)scratch;
  weight_cut(pieces, leaves, MMA_STEP);
  weight_job j = {.dw = dw, .d_bias = d_bias, .dy = dy, .x = x, .x_end = (const value *)x + (int64_t)leaves.rows * dw.cols,
                  .format = fixed_of(leaves.format), .pieces = pieces, .n_pieces = n, .scratch = scratch + listed};
  int32_t threads = pool_limited(d->pool);
  if ((int64_t)leaves.rows * dw.rows * dw.cols < 1 << 13) threads = 1;
  j.grid = gemm_cut(dw.cols, ceil_div(dw.rows, PANEL), WEIGHT_COLUMNS, threads, 1);
  pool_run(d->pool, j.grid.blocks * j.grid.chunks, weight_task, &j);
}
