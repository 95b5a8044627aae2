/* The gradient of a weight, dyT x for each leaf, in the weight's own layout. A tile is m columns
 * of the weight by 16 GEMM_NV lanes of a panel. Its terms are rows: those of x, which it reads
 * in place, and those of dy, packed. */

#define WEIGHT_COLUMNS GEMM_MC /* columns of the weight in a task */
#define WEIGHT_PANELS 8        /* panels that share the rows of x in the cache */

typedef struct {
  easyrl_matrix_sums dw;
  easyrl_sums d_bias;
  const float *dy, *x;
  fixed_format format;
  const weight_piece *pieces;
  int64_t n_pieces;
  gemm_grid grid; /* its rows are the weight's columns */
  float *scratch;
} weight_job;

/* A tile over kc rows of one piece. Its chains continue from c or start from zero. At their end
 * it adds them to the sums or, if sum is NULL, stores them in c. Only the first lanes lanes are
 * rows of the weight; the others are padding. */
SIMD_INLINE void weight_tile(const int m, int64_t kc, const float *restrict a, int64_t lda, const float *restrict b, float *restrict c,
                             int start, int64_t *restrict sum, int64_t *mark, fixed_format f, int lanes) {
  vf acc[GEMM_NV][12];
#pragma GCC unroll 2
  for (int j = 0; j < GEMM_NV; j++) {
#pragma GCC unroll 12
    for (int i = 0; i < m; i++) acc[j][i] = start == START_ZERO ? v_zero() : v_load(c + i * PANEL + j * VL);
  }
#pragma GCC unroll 4
  for (int64_t k = 0; k < kc; k++) {
    vf bv[GEMM_NV];
#pragma GCC unroll 2
    for (int j = 0; j < GEMM_NV; j++) bv[j] = v_load(b + j * VL);
#pragma GCC unroll 12
    for (int i = 0; i < m; i++) {
      vf av = v_set1(a[i]);
#pragma GCC unroll 2
      for (int j = 0; j < GEMM_NV; j++) acc[j][i] = v_fma(av, bv[j], acc[j][i]);
    }
    a += lda;
    b += PANEL;
  }
#pragma GCC unroll 2
  for (int j = 0; j < GEMM_NV; j++) {
    if (!sum) {
#pragma GCC unroll 12
      for (int i = 0; i < m; i++) v_store(c + i * PANEL + j * VL, acc[j][i]);
      continue;
    }
    if (__builtin_expect(lanes < (j + 1) * VL, 0)) { /* padding stays zero even if x is not finite */
      int n = lanes > j * VL ? lanes - j * VL : 0;
#pragma GCC unroll 12
      for (int i = 0; i < m; i++) acc[j][i] = v_select_n(n, acc[j][i], v_zero());
    }
    fixed_add(m, acc[j], sum + j * VL, PANEL, mark, f);
  }
}

/* A tile over all pieces of a block. x is the tile's first column of row 0. */
typedef void (*weight_tile_fn)(const weight_piece *pieces, int64_t n, const float *x, int64_t ldx, const float *packed, float *c,
                               int64_t *sum, int64_t *mark, const fixed_format *format, int lanes);

#define WEIGHT_TILE(m)                                                                                              \
  static __attribute__((noinline)) void weight_tile_##m(const weight_piece *w, int64_t n, const float *x,           \
                                                        int64_t ldx, const float *packed, float *c, int64_t *sum,   \
                                                        int64_t *mark, const fixed_format *format, int lanes) {     \
    fixed_format f = *format;                                                                                       \
    for (; n > 0; packed += w++->len * PANEL, n--)                                                                  \
      weight_tile(m, w->len, x + w->start * ldx, ldx, packed, c, w->first ? START_ZERO : START_OUTPUT,              \
                  w->last ? sum : 0, mark, f, lanes);                                                               \
  }

WEIGHT_TILE(1) WEIGHT_TILE(2) WEIGHT_TILE(3) WEIGHT_TILE(4) WEIGHT_TILE(5) WEIGHT_TILE(6)
#if GEMM_MR == 12
WEIGHT_TILE(7) WEIGHT_TILE(8) WEIGHT_TILE(9) WEIGHT_TILE(10) WEIGHT_TILE(11) WEIGHT_TILE(12)
#endif
static const weight_tile_fn weight_tiles[GEMM_MR] = {
    weight_tile_1, weight_tile_2, weight_tile_3, weight_tile_4,  weight_tile_5,  weight_tile_6,
#if GEMM_MR == 12
    weight_tile_7, weight_tile_8, weight_tile_9, weight_tile_10, weight_tile_11, weight_tile_12,
#endif
};

/* Copies lanes columns of dy, len rows of ld floats, into [len][32]. The other lanes are zero. */
static void weight_pack_lanes(float *dst, const float *dy, int64_t ld, int lanes, int64_t len) {
  int lo = lanes < VL ? lanes : VL, hi = lanes - lo;
  for (int64_t t = 0; t < len; t++) {
    v_store(dst + t * PANEL, v_load_n(dy + t * ld, lo));
    v_store(dst + t * PANEL + VL, hi ? v_load_n(dy + t * ld + VL, hi) : v_zero());
  }
}

/* One panel and columns [c0, c0 + cols) over the pieces of a block. c [cols][32] has the
 * chains of leaves that continue from block to block. */
static void weight_block(const weight_job *j, int64_t p, int64_t c0, int64_t cols, const weight_piece *pieces, int64_t n,
                         const float *packed, float *c) {
  int64_t k = j->dw.cols, tiles = ceil_div(cols, GEMM_MR);
  int lanes = (int)min64(PANEL, j->dw.rows - p * PANEL);
  for (int64_t i = 0; i < tiles; i++) {
    int64_t r = gemm_tile_start(cols, tiles, i), m = gemm_tile_start(cols, tiles, i + 1) - r;
    for (int l = 0; l < lanes; l += GEMM_NV * VL) {
      int64_t *sum = j->dw.sums.data + (p * k + c0 + r) * PANEL + l;
      weight_tiles[m - 1](pieces, n, j->x + c0 + r, k, packed + l, c + r * PANEL + l, sum, j->dw.sums.mark, &j->format, lanes - l);
    }
  }
}

#define WEIGHT_CHAINS (WEIGHT_PANELS * PANEL)
#define WEIGHT_SCRATCH (WEIGHT_ROWS * PANEL + WEIGHT_CHAINS * (1 + WEIGHT_COLUMNS))

static void weight_task(void *arg, int64_t task, int32_t thread) {
  const weight_job *j = arg;
  float *packed = j->scratch + thread * WEIGHT_SCRATCH, *bias = packed + WEIGHT_ROWS * PANEL, *chains = bias + WEIGHT_CHAINS;
  gemm_part part = gemm_task(&j->grid, task);
  int64_t n = j->dw.rows, c0 = part.row, cols = part.row_end - c0;
  int add_bias = c0 == 0 && j->d_bias.data;
  for (int64_t first = part.panel; first < part.panel_end; first += WEIGHT_PANELS) {
    int64_t end = min64(part.panel_end, first + WEIGHT_PANELS);
    const weight_piece *pieces = j->pieces;
    for (int64_t left = j->n_pieces, taken; left > 0; left -= taken, pieces += taken) {
      taken = weight_take(pieces, left, 1);
      const weight_piece *last = pieces + taken - 1;
      for (int64_t p = first; p < end; p++) {
        int lanes = (int)min64(PANEL, n - p * PANEL);
        weight_pack_lanes(packed, j->dy + pieces->start * n + p * PANEL, n, lanes, last->start + last->len - pieces->start);
        const float *rows = packed;
        for (const weight_piece *w = pieces; add_bias && w <= last; rows += w++->len * PANEL)
          weight_bias(lanes, rows, PANEL, w, bias + (p - first) * PANEL, j->d_bias.data + p * PANEL, j->d_bias.mark, j->format);
        weight_block(j, p, c0, cols, pieces, taken, packed, chains + (p - first) * cols * PANEL);
      }
    }
  }
}

static void kernel_linear_backward_weight(easyrl_device *d, easyrl_matrix_sums dw, easyrl_sums d_bias, const void *dy,
                                          const void *x, easyrl_leaves leaves) {
  int64_t n = weight_cut(0, leaves, 1), listed = round_up(n * (int64_t)(sizeof(weight_piece) / 4), 16);
  float *scratch = device_scratch(d, listed + pool_threads(d->pool) * (int64_t)WEIGHT_SCRATCH);
  if (!scratch || n == 0) return;
  weight_piece *pieces = (weight_piece *)scratch;
  weight_cut(pieces, leaves, 1);
  weight_job j = {.dw = dw, .d_bias = d_bias, .dy = dy, .x = x, .format = fixed_of(leaves.format), .pieces = pieces,
                  .n_pieces = n, .scratch = scratch + listed};
  int32_t threads = pool_limited(d->pool);
  if ((int64_t)leaves.rows * dw.rows * dw.cols < 1 << 15) threads = 1;
  j.grid = gemm_cut(dw.cols, ceil_div(dw.rows, PANEL), WEIGHT_COLUMNS, threads, 1);
  pool_run(d->pool, j.grid.blocks * j.grid.chunks, weight_task, &j);
}
