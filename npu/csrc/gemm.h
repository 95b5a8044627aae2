/* Matrix products in which every output is one chain of fused multiply-adds. linear and
 * linear_backward_input run the same tile: m rows by 16 nv lanes of accumulators, which
 * start from the output, the bias or zero, over kc terms, with
 *
 *   a [kc][lda]     one value per row and term, broadcast
 *   b [kc][32]      one vector per term, the lanes
 *
 * A block of terms continues from the output, so neither the blocking nor the
 * shape of the tile affects the result. */

/* A tile has at most GEMM_MR x GEMM_NV accumulators, which fit the registers. Packed rows come
 * in tiles of at most GEMM_PR rows, which are fast to transpose and no slower to multiply. */
#if defined(SIMD_AVX512)
#define GEMM_MR 12
#define GEMM_NV 2
#define GEMM_PR 8
#else
#define GEMM_MR 6
#define GEMM_NV 1
#define GEMM_PR 6
#endif
#define GEMM_KC 256 /* terms in a block */
#define GEMM_MC 384 /* maximum rows in a block */

enum { START_ZERO, START_OUTPUT, START_BIAS };

/* One tile; m and nv are constants at each instantiation. If nv is more than two,
 * the vectors of a term are in several panels, b_panel floats apart. cols is the
 * number of lanes that exist in the output. */
SIMD_INLINE void gemm_tile(const int m, const int nv, int64_t kc, const float *restrict a, int64_t lda, const float *restrict b,
                           int64_t b_panel, float *restrict c, int64_t ldc, int start, const float *bias, int cols) {
  vf acc[12][8];
  int full = cols >= nv * VL;
#pragma GCC unroll 12
  for (int i = 0; i < m; i++) {
#pragma GCC unroll 8
    for (int j = 0; j < nv; j++) {
      const float *from = start == START_OUTPUT ? c + i * ldc + j * VL : bias + j * VL;
      int n = cols - j * VL;
      acc[i][j] = start == START_ZERO || n <= 0 ? v_zero() : n >= VL ? v_load(from) : v_load_n(from, n);
    }
  }
  for (int64_t k = 0; k < kc; k++) {
    vf bv[8];
#pragma GCC unroll 8
    for (int j = 0; j < nv; j++) bv[j] = v_load(b + (j / 2) * b_panel + (j % 2) * VL);
    __builtin_prefetch(b + 16 * PANEL);
    __builtin_prefetch(b + 16 * PANEL + VL);
#pragma GCC unroll 12
    for (int i = 0; i < m; i++) {
      vf av = v_set1(a[i]);
#pragma GCC unroll 8
      for (int j = 0; j < nv; j++) acc[i][j] = v_fma(av, bv[j], acc[i][j]);
    }
    a += lda;
    b += PANEL;
  }
#pragma GCC unroll 12
  for (int i = 0; i < m; i++) {
#pragma GCC unroll 8
    for (int j = 0; j < nv; j++) {
      int n = cols - j * VL;
      if (full || n >= VL) v_store(c + i * ldc + j * VL, acc[i][j]);
      else if (n > 0) v_store_n(c + i * ldc + j * VL, acc[i][j], n);
    }
  }
}

typedef void (*gemm_tile_fn)(int64_t kc, const float *a, int64_t lda, const float *b, int64_t b_panel, float *c, int64_t ldc,
                             int start, const float *bias, int cols);

#define GEMM_TILE(m, nv)                                                                                           \
  static __attribute__((noinline)) void gemm_tile_##m##_##nv(int64_t kc, const float *a, int64_t lda,              \
                                                             const float *b, int64_t b_panel, float *c,            \
                                                             int64_t ldc, int start, const float *bias, int cols) { \
    gemm_tile(m, nv, kc, a, lda, b, b_panel, c, ldc, start, bias, cols);                                           \
  }

#if defined(SIMD_AVX512)
GEMM_TILE(1, 2) GEMM_TILE(2, 2) GEMM_TILE(3, 2) GEMM_TILE(4, 2) GEMM_TILE(5, 2) GEMM_TILE(6, 2)
GEMM_TILE(7, 2) GEMM_TILE(8, 2) GEMM_TILE(9, 2) GEMM_TILE(10, 2) GEMM_TILE(11, 2) GEMM_TILE(12, 2)
GEMM_TILE(1, 8) GEMM_TILE(2, 4) GEMM_TILE(3, 4)
static const gemm_tile_fn gemm_tiles[GEMM_MR] = {
    gemm_tile_1_2, gemm_tile_2_2, gemm_tile_3_2, gemm_tile_4_2,  gemm_tile_5_2,  gemm_tile_6_2,
    gemm_tile_7_2, gemm_tile_8_2, gemm_tile_9_2, gemm_tile_10_2, gemm_tile_11_2, gemm_tile_12_2};
/* A tile of one panel and few rows has too few chains to keep the multipliers busy, so these
 * tiles span several panels. Entry m - 1 is for m rows. */
static const struct { int panels; gemm_tile_fn tile; } gemm_wide[] = {{4, gemm_tile_1_8}, {2, gemm_tile_2_4}, {2, gemm_tile_3_4}};
#else
GEMM_TILE(1, 1) GEMM_TILE(2, 1) GEMM_TILE(3, 1) GEMM_TILE(4, 1) GEMM_TILE(5, 1) GEMM_TILE(6, 1)
GEMM_TILE(1, 4) GEMM_TILE(2, 2)
static const gemm_tile_fn gemm_tiles[GEMM_MR] = {gemm_tile_1_1, gemm_tile_2_1, gemm_tile_3_1,
                                                 gemm_tile_4_1, gemm_tile_5_1, gemm_tile_6_1};
static const struct { int panels; gemm_tile_fn tile; } gemm_wide[] = {{2, gemm_tile_1_4}, {1, gemm_tile_2_2}};
#endif
#define GEMM_WIDE ((int)(sizeof gemm_wide / sizeof gemm_wide[0]))

/* Rows are cut into tiles of nearly equal height. Returns the first row of tile i. */
static inline int64_t gemm_tile_start(int64_t rows, int64_t tiles, int64_t i) { return rows * i / tiles; }

/* Packs terms [0, kc) of the rows of one tile, x [m][ld], into [kc][GEMM_PR]. It may
 * write up to 16 more floats. */
static inline void gemm_pack_tile(float *dst, const float *x, int64_t ld, int m, int64_t kc) {
  for (int64_t k = 0; k < kc; k += VL) {
    int cols = (int)min64(VL, kc - k);
#if GEMM_PR == 8
    v_transpose8(dst + k * GEMM_PR, x + k, ld, m, cols);
#elif defined(SIMD_AVX2)
    v_transpose6(dst + k * GEMM_PR, x + k, ld, m, cols);
#else
    v_transpose(dst + k * GEMM_PR, GEMM_PR, x + k, ld, m, cols);
#endif
  }
}

/* Packs rows x [rows][ld], terms [0, kc), into consecutive tiles [kc][GEMM_PR].
 * dst needs room for 16 more floats. */
static void gemm_pack_rows(float *dst, const float *x, int64_t ld, int64_t rows, int64_t tiles, int64_t kc) {
  for (int64_t i = 0; i < tiles; i++) {
    int64_t r = gemm_tile_start(rows, tiles, i);
    gemm_pack_tile(dst, x + r * ld, ld, (int)(gemm_tile_start(rows, tiles, i + 1) - r), kc);
    dst += kc * GEMM_PR;
  }
}

/* Multiplies a block of rows by one panel, tile by tile. In a, each tile starts step floats
 * after the previous one. With step 0 it starts one float per row of the previous tile after
 * that tile's start. */
static inline void gemm_block(int64_t rows, int64_t tiles, int64_t kc, const float *a, int64_t lda, int64_t step, const float *b,
                              float *c, int64_t ldc, int start, const float *bias, int cols) {
  for (int64_t i = 0; i < tiles; i++) {
    int64_t r = gemm_tile_start(rows, tiles, i), m = gemm_tile_start(rows, tiles, i + 1) - r;
    /* Prefetch the next tile's output. */
    for (int64_t n = r + m; n < min64(rows, r + m + GEMM_MR); n++) {
      __builtin_prefetch(c + n * ldc, 1);
      __builtin_prefetch(c + n * ldc + min64(cols - 1, VL), 1);
    }
    for (int j = 0; j < PANEL && j < cols; j += GEMM_NV * VL)
      gemm_tiles[m - 1](kc, a, lda, b + j, 0, c + r * ldc + j, ldc, start, bias ? bias + j : 0, cols - j);
    a += step ? step : m;
  }
}

/* y [t, w.rows] = x wT. Each chain starts from the value that start selects. */
typedef struct {
  float *y;
  const float *x;
  easyrl_matrix w;
  const float *bias;
  int64_t t;
  int start;
  gemm_grid grid;
  float *scratch;
  int64_t scratch_part;
} linear_job;

/* Computes the panels [p, p_end) for t of at most GEMM_MR rows. It reads every panel once, from
 * front to back, over all its terms. */
static void linear_few(const linear_job *j, int64_t p, int64_t p_end, float *packed) {
  int64_t k = j->w.cols, n = j->w.rows;
  int m = (int)j->t;
  const float *a = j->x;
  if (m > 1) {
    for (int64_t i = 0; i < k; i += VL) v_transpose(packed + i * m, m, j->x + i, k, m, (int)min64(VL, k - i));
    a = packed;
  }
  while (p < p_end) {
    const float *b = (const float *)j->w.data + p * k * PANEL, *bias = j->bias ? j->bias + p * PANEL : 0;
    float *y = j->y + p * PANEL;
    int64_t cols = n - p * PANEL;
    if (m <= GEMM_WIDE && p + gemm_wide[m - 1].panels <= p_end) {
      int panels = gemm_wide[m - 1].panels;
      gemm_wide[m - 1].tile(k, a, m, b, k * PANEL, y, j->w.rows, j->start, bias, (int)min64(cols, panels * PANEL));
      p += panels;
      continue;
    }
    gemm_block(m, 1, k, a, m, 0, b, y, j->w.rows, j->start, bias, (int)min64(cols, PANEL));
    p++;
  }
}

static void linear_task(void *arg, int64_t task, int32_t thread) {
  const linear_job *j = arg;
  float *packed = j->scratch + thread * j->scratch_part;
  gemm_part part = gemm_task(&j->grid, task);
  int64_t k = j->w.cols, r0 = part.row, rows = part.row_end - r0;
  if (j->t <= GEMM_MR) {
    linear_few(j, part.panel, part.panel_end, packed);
    return;
  }
  int64_t tiles = ceil_div(rows, GEMM_PR);
  for (int64_t k0 = 0; k0 < k || k0 == 0; k0 += GEMM_KC) {
    int64_t kc = min64(GEMM_KC, k - k0);
    gemm_pack_rows(packed, j->x + r0 * k + k0, k, rows, tiles, kc);
    for (int64_t p = part.panel; p < part.panel_end; p++)
      gemm_block(rows, tiles, kc, packed, GEMM_PR, kc * GEMM_PR, (const float *)j->w.data + (p * k + k0) * PANEL,
                 j->y + r0 * j->w.rows + p * PANEL, j->w.rows, k0 ? START_OUTPUT : j->start,
                 j->bias ? j->bias + p * PANEL : 0, (int)min64(PANEL, j->w.rows - p * PANEL));
  }
}

/* Returns the floats of scratch that a thread takes. */
static int64_t linear_scratch(int64_t t, int64_t cols) {
  if (t <= GEMM_MR) return round_up(t * cols, 16) + 16;
  return round_up(round_up(min64(GEMM_MC, t), GEMM_PR) * min64(cols, GEMM_KC), 16) + 16;
}

static void kernel_linear(easyrl_device *d, void *y, easyrl_dtype y_type, const void *x, easyrl_matrix w,
                          const void *bias, int32_t t, easyrl_start start) {
  (void)y_type;
  if (t <= 0 || w.rows <= 0) return;
  linear_job j = {.y = y, .x = x, .w = w, .bias = bias, .t = t, .start = start ? START_OUTPUT : bias ? START_BIAS : START_ZERO};
  j.scratch_part = linear_scratch(t, w.cols);
  j.scratch = device_scratch(d, pool_threads(d->pool) * j.scratch_part);
  if (!j.scratch) return;
  int32_t threads = pool_limited(d->pool);
  if (j.t * w.rows * w.cols < 1 << 15) threads = 1;
  j.grid = gemm_cut(j.t, ceil_div(w.rows, PANEL), GEMM_MC, threads, 2);
  pool_run(d->pool, j.grid.blocks * j.grid.chunks, linear_task, &j);
}
