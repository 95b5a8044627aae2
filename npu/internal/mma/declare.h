#include "../../csrc/device.h" /* first: it turns off contraction */

#include <stdlib.h>

/* The functions of one instruction set. */
typedef struct {
  void (*pack)(uint16_t *panels, const float *w, int64_t n, int64_t k);
  int32_t (*product)(float *y, const float *x, const uint16_t *panels, int64_t m, int64_t n, int64_t k, int32_t add, int32_t exact);
} mma_table;

/* NULL if this machine does not run the instruction set. */
EASYRL_INTERNAL const mma_table *mma_avx512(void);
EASYRL_INTERNAL const mma_table *mma_avx2(void);
EASYRL_INTERNAL const mma_table *mma_portable(void);

/* The functions of the instruction set with a number in the order of mma_cgo.go. */
EASYRL_INTERNAL int32_t mma_runs(int32_t isa);
EASYRL_INTERNAL void mma_pack(int32_t isa, uint16_t *panels, const float *w, int64_t n, int64_t k);
EASYRL_INTERNAL int32_t mma_product(int32_t isa, float *y, const float *x, const uint16_t *panels, int64_t m, int64_t n, int64_t k,
                                    int32_t add, int32_t exact);
