/* dx [t, cols] = sum of dy w over products. Lanes are the columns of the weights, and terms are
 * their rows: the chain takes the first block of rows of each product in turn, then the second
 * blocks, and so on. A run is a range of rows within one such block. The GEMM_KC terms that a
 * tile takes at once are a list of runs. */

typedef struct {
  float *dx;
  const easyrl_product *products;
  int32_t n_products;
  int64_t t, cols, terms;
  int start;
  gemm_grid grid;
  float *scratch;
  int64_t scratch_part;
} input_job;

/* Writes the next kc terms of the chain to runs and returns the number of runs, at most kc. */
static int input_take(const input_job *j, input_cursor *at, int64_t kc, input_run *runs) {
  int n = 0;
  for (; kc > 0; kc -= runs[n++].rows) runs[n] = input_next(j->products, j->n_products, at, kc);
  return n;
}

/* Transposes rows [row, row+rows) and columns [k0, k0+32) of a weight into [rows][32]. */
static void input_pack_weight(float *dst, easyrl_matrix w, int64_t row, int64_t rows, int64_t k0) {
  int64_t cols = min64(PANEL, w.cols - k0);
  for (int64_t end = row + rows; row < end;) {
    int64_t lane = row % PANEL; /* the rows of one transposition are in one panel */
    const float *src = (const float *)w.data + (row / PANEL * w.cols + k0) * PANEL + lane;
    int lanes = (int)min64(min64(VL, PANEL - lane), end - row);
    for (int64_t half = 0; half < PANEL; half += VL)
      v_transpose(dst + half, PANEL, src + half * PANEL, PANEL, (int)max64(0, min64(VL, cols - half)), lanes);
    dst += lanes * PANEL;
    row += lanes;
  }
}

/* Packs rows [r0, r0+rows) of dy as gemm_pack_rows does. The terms are those of the runs. */
static void input_pack_rows(float *dst, const input_run *runs, int n, int64_t r0, int64_t rows, int64_t tiles) {
  for (int64_t i = 0; i < tiles; i++) {
    int64_t r = gemm_tile_start(rows, tiles, i);
    int m = (int)(gemm_tile_start(rows, tiles, i + 1) - r);
    for (int k = 0; k < n; k++) {
      int64_t ld = runs[k].product->w.rows;
      gemm_pack_tile(dst, (const float *)runs[k].product->dy + (r0 + r) * ld + runs[k].row, ld, m, runs[k].rows);
      dst += runs[k].rows * GEMM_PR;
    }
  }
}

static void input_task(void *arg, int64_t task, int32_t thread) {
  const input_job *j = arg;
  float *panel = j->scratch + thread * j->scratch_part, *packed = panel + GEMM_KC * PANEL;
  gemm_part part = gemm_task(&j->grid, task);
  int64_t k = j->cols, r0 = part.row, rows = part.row_end - r0, tiles = ceil_div(rows, GEMM_PR);
  input_cursor at = {0};
  input_run runs[GEMM_KC];
  for (int64_t n0 = 0; n0 < j->terms || n0 == 0; n0 += GEMM_KC) {
    int64_t kc = min64(GEMM_KC, j->terms - n0);
    int n = input_take(j, &at, kc, runs);
    input_pack_rows(packed, runs, n, r0, rows, tiles);
    for (int64_t p = part.panel; p < part.panel_end; p++) {
      float *dst = panel;
      for (int i = 0; i < n; i++) {
        input_pack_weight(dst, runs[i].product->w, runs[i].row, runs[i].rows, p * PANEL);
        dst += runs[i].rows * PANEL;
      }
      gemm_block(rows, tiles, kc, packed, GEMM_PR, kc * GEMM_PR, panel, j->dx + r0 * k + p * PANEL, k,
                 n0 ? START_OUTPUT : j->start, 0, (int)min64(PANEL, k - p * PANEL));
    }
  }
}

static void kernel_linear_backward_input(easyrl_device *d, void *dx, easyrl_dtype dx_type,
                                         const easyrl_product *products, int32_t n, int32_t t, easyrl_start start) {
  (void)dx_type;
  input_job j = {.dx = dx, .products = products, .n_products = n, .t = t, .cols = products[0].w.cols,
                 .start = start ? START_OUTPUT : START_ZERO};
  for (int32_t i = 0; i < n; i++) j.terms += products[i].w.rows;
  if (t <= 0 || j.cols <= 0) return;
  j.scratch_part = GEMM_KC * PANEL + round_up(round_up(min64(GEMM_MC, t), GEMM_PR) * min64(j.terms, GEMM_KC), 16) + 16;
  j.scratch = device_scratch(d, pool_threads(d->pool) * j.scratch_part);
  if (!j.scratch) return;
  int32_t threads = pool_limited(d->pool);
  if (j.t * j.terms * j.cols < 1 << 15) threads = 1;
  j.grid = gemm_cut(j.t, ceil_div(j.cols, PANEL), GEMM_MC, threads, 2);
  pool_run(d->pool, j.grid.blocks * j.grid.chunks, input_task, &j);
}
