/* How products in both numerics are cut: their outputs into tasks, their terms into runs, and the
 * rows of a weight's gradient into pieces.
 *
 * A weight [rows, cols] consists of panels. Panel p is [cols][32]; its lane l is the weight's
 * row 32p + l, zero beyond the last row. Panels are aligned to 64 bytes. */
#ifndef EASYRL_CUT_H
#define EASYRL_CUT_H

#include "device.h"
#include "fixed.h"
#include "simd.h"

#define PANEL 32
/* How an output of rows x panels is split into blocks x chunks tasks: blocks of rows of nearly
 * equal size, the same number for each thread. If there are too few rows for that, the split
 * is into chunks of panels. */
typedef struct {
  int64_t rows, panels, blocks, chunks;
} gemm_grid;

#define GEMM_FEW 32 /* fewest rows for which a task may read all panels */

/* Splits an output. A block has at most max_rows rows. Each thread gets shares blocks if there
 * are enough rows. */
static gemm_grid gemm_cut(int64_t rows, int64_t panels, int64_t max_rows, int32_t threads, int64_t shares) {
  gemm_grid g = {rows, panels, ceil_div(rows, max_rows), 1};
  if (threads == 1) return g;
  int64_t most = rows / GEMM_FEW;
  if (most >= threads) {
    int64_t each = max64(1, min64(shares, most / threads));
    g.blocks = max64(round_up(g.blocks, threads), each * threads);
  } else {
    g.chunks = min64(panels, max64(threads, min64(4 * threads, panels / 4)));
  }
  return g;
}

/* Rows [row, row_end) and panels [panel, panel_end) of a task. */
typedef struct {
  int64_t row, row_end, panel, panel_end;
} gemm_part;

static inline gemm_part gemm_task(const gemm_grid *g, int64_t task) {
  int64_t i = task / g->chunks, j = task % g->chunks;
  return (gemm_part){g->rows * i / g->blocks, g->rows * (i + 1) / g->blocks,
                     g->panels * j / g->chunks, g->panels * (j + 1) / g->chunks};
}

/* A run of terms of linear_backward_input: rows [row, row + rows) of a product's weight. */
typedef struct {
  const easyrl_product *product;
  int64_t row, rows;
} input_run;

/* The next term of the chain: the row at an offset in a block of a product. */
typedef struct {
  int64_t block, offset;
  int32_t product;
} input_cursor;

/* Returns the next run of n products, of at most most rows. It does not cross a block. */
static input_run input_next(const easyrl_product *products, int32_t n, input_cursor *at, int64_t most) {
  const easyrl_product *p = products + at->product;
  int64_t row = at->block * p->block + at->offset, left = min64(p->w.rows - row, p->block - at->offset);
  int64_t rows = min64(most, left);
  at->offset += rows;
  if (rows == left) {
    at->offset = 0;
    if (++at->product == n) at->product = 0, at->block++;
  }
  return (input_run){p, row, rows};
}

#define WEIGHT_ROWS 256 /* rows in a block of linear_backward_weight */

/* Rows [start, start + len) of one leaf. first and last say whether the leaf begins and ends
 * with them. */
typedef struct {
  int32_t start, len, first, last;
} weight_piece;

/* Returns how many of the pieces, from the first on, fit into a block of WEIGHT_ROWS rows. Chains
 * take step rows at a time, so a piece counts as a multiple of step rows. */
static int64_t weight_take(const weight_piece *pieces, int64_t n, int64_t step) {
  int64_t rows = 0, i = 0;
  while (i < n && (rows += round_up(pieces[i].len, step)) <= WEIGHT_ROWS) i++;
  return i;
}

/* Cuts leaves into pieces of at most WEIGHT_ROWS rows, nearly equal within a leaf. Only the last piece
 * of a leaf may have a number of rows that is no multiple of step. Returns their number; pieces may be NULL. */
static int64_t weight_cut(weight_piece *pieces, easyrl_leaves leaves, int64_t step) {
  int64_t n = 0, start = 0;
  for (int32_t i = 0; i < leaves.n; i++) {
    int64_t rows = leaves.ends[i] - start, parts = ceil_div(rows, WEIGHT_ROWS);
    for (int64_t k = 0; k < parts; k++, n++) {
      int64_t from = round_up(rows * k / parts, step), to = min64(rows, round_up(rows * (k + 1) / parts, step));
      if (pieces) pieces[n] = (weight_piece){(int32_t)(start + from), (int32_t)(to - from), k == 0, k == parts - 1};
    }
    start = leaves.ends[i];
  }
  return n;
}

/* Continues or starts the chains of a bias's gradient for lanes lanes of a panel, b [32], and adds finished
 * ones to sum. The piece's rows of dy are [len][ld]. */
static void weight_bias(int lanes, const float *dy, int64_t ld, const weight_piece *piece, float *b, int64_t *sum, int64_t *mark,
                        fixed_format format) {
  vf sum0 = piece->first ? v_zero() : v_load(b), sum1 = piece->first ? v_zero() : v_load(b + VL);
  for (int64_t t = 0; t < piece->len; t++) {
    sum0 = v_add(sum0, v_load(dy + t * ld));
    sum1 = v_add(sum1, v_load(dy + t * ld + VL));
  }
  if (!piece->last) {
    v_store(b, sum0);
    v_store(b + VL, sum1);
    return;
  }
  fixed_add_n(sum0, lanes < VL ? lanes : VL, sum, mark, format);
  if (lanes > VL) fixed_add_n(sum1, lanes - VL, sum + VL, mark, format);
}

#endif
