/* Defines MMA_TABLE, which returns the functions of the instruction set that the including file
 * has chosen. MMA_SUPPORTED is true if this machine runs it. */
#include "../../csrc/mma.h"

#define PRODUCT_TERMS 256 /* terms in a block */

/* Packs w [n][k] to panels [ceil(n / 32)][k][32]. */
static void product_pack(uint16_t *panels, const float *w, int64_t n, int64_t k) {
  for (int64_t p = 0; p < n; p += MMA_COLS) mma_pack_panel(panels + p * k, w + p * k, k, (int)min64(MMA_COLS, n - p), k);
}

/* y [m][n] = x [m][k] wT, or y += x wT if add is set. If exact is set, mma_exact computes all
 * steps. Returns 0 if memory is short. */
static int32_t product(float *y, const float *x, const uint16_t *panels, int64_t m, int64_t n, int64_t k, int32_t add, int32_t exact) {
  int64_t rows = round_up(mma_rows_len(m, PRODUCT_TERMS), VL);
  float *a = aligned_alloc(64, (size_t)(rows + PRODUCT_TERMS * MMA_B) * sizeof *a);
  if (!a) return 0;
  float *b = a + rows;
  for (int64_t k0 = 0; k0 < k; k0 += PRODUCT_TERMS) {
    int64_t terms = min64(PRODUCT_TERMS, k - k0);
    int huge = mma_pack_rows(a, x + k0, k, m, terms);
    for (int64_t p = 0; p < n; p += MMA_COLS) {
      int huge_b = mma_unpack_panel(b, panels + p * k + k0 * MMA_COLS, terms);
      mma_block(m, terms, a, b, y + p, n, (int)min64(MMA_COLS, n - p), !add && k0 == 0, huge || huge_b || exact);
    }
  }
  free(a);
  return 1;
}

const mma_table *MMA_TABLE(void) {
  static const mma_table table = {product_pack, product};
  return MMA_SUPPORTED ? &table : 0;
}
