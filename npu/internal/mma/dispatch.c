//go:build unix

#include "declare.h"

static const mma_table *table_of(int32_t isa) { return isa == 0 ? mma_portable() : isa == 1 ? mma_avx2() : mma_avx512(); }

int32_t mma_runs(int32_t isa) { return table_of(isa) != 0; }

void mma_pack(int32_t isa, uint16_t *panels, const float *w, int64_t n, int64_t k) { table_of(isa)->pack(panels, w, n, k); }

int32_t mma_product(int32_t isa, float *y, const float *x, const uint16_t *panels, int64_t m, int64_t n, int64_t k, int32_t add,
                    int32_t exact) {
  return table_of(isa)->product(y, x, panels, m, n, k, add, exact);
}
