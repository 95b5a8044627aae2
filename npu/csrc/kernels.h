/* All kernels for one instruction set. Each of cpu/kernels_*.c includes this
 * header once, after it has chosen the set. KERNELS_TABLE names the function that
 * returns the table. KERNELS_SUPPORTED is true if this machine runs the set. With KERNELS_BF16, the
 * kernels are those of npu.BF16, otherwise those of npu.FP32. */
#include "device.h"
#include "easyrl_math.h"
#include "simd.h"
#include "values.h"
#include "transpose.h"
#include "xxh3.h"

#include <stdio.h>

#include "fixed.h"
#include "cut.h"
#if defined(KERNELS_BF16)
#include "mma.h"
#include "products_bf16.h"
#else
#include "gemm.h"
#include "input.h"
#include "weight.h"
#endif
#include "dense.h"
#include "vocab.h"
#include "update.h"
#include "norm.h"
#include "pointwise.h"
#if defined(KERNELS_BF16)
#include "attention_bf16.h"
#else
#include "attention.h"
#endif

/* Computes a * b - c with vectors, into r[0], and with scalars, into r[1]. noinline keeps the
 * compiler from folding the constants of the caller. */
static __attribute__((noinline)) void kernels_difference(float *r, float a, float b, float c) {
  float lanes[VL];
  v_store(lanes, v_sub(v_mul(v_set1(a), v_set1(b)), v_set1(c)));
  r[0] = lanes[0];
  r[1] = a * b - c;
}

/* Opens a device. It first checks that the kernels were compiled without contraction, which
 * would make a * b - (a * b) differ from 0. */
static easyrl_device *kernels_open(int32_t ordinal, int32_t threads, char *err, int64_t err_len) {
  (void)ordinal;
  float product[2], rest[2];
  volatile float third = 1.0f / 3.0f;
  kernels_difference(product, third, third, 0.0f);
  kernels_difference(rest, third, third, product[0]);
  if (product[0] != product[1] || rest[0] != 0.0f || rest[1] != 0.0f) {
    snprintf(err, (size_t)err_len, "the kernels were compiled with floating-point contraction (-ffp-contract)");
    return 0;
  }
  return device_open("cpu/" SIMD_NAME, threads, err, err_len);
}

EASYRL_INTERNAL const easyrl_device_api *KERNELS_TABLE(void) {
  static const easyrl_device_api table = {
      .version = EASYRL_DEVICE_VERSION,
      .size = sizeof table,
      .exact = 1,
      .host_memory = 1,
      .type = VALUE_TYPE,
      .open = kernels_open,
      .fork = device_fork,
      .close = device_close,
      .name = device_name,
      .threads = device_threads,
      .limit = device_limit,
      .alloc = device_alloc,
      .free = device_free,
      .host_alloc = device_host_alloc,
      .host_free = device_host_free,
      .sync = device_sync,
      .upload = device_transfer,
      .download = device_transfer,
      .copy = device_transfer,
      .zero = device_zero,
      .convert = kernel_convert,
      .add = kernel_add,
      .matrix_len = kernel_matrix_len,
      .pack_matrix = kernel_pack_matrix,
      .unpack_matrix = kernel_unpack_matrix,
      .sum_panels = kernel_sum_panels,
      .embed = kernel_embed,
      .embed_backward = kernel_embed_backward,
      .linear = kernel_linear,
      .linear_backward_input = kernel_linear_backward_input,
      .linear_backward_weight = kernel_linear_backward_weight,
      .rms_norm = kernel_rms_norm,
      .rms_norm_backward = kernel_rms_norm_backward,
      .rope = kernel_rope,
      .swiglu = kernel_swiglu,
      .swiglu_backward = kernel_swiglu_backward,
      .attention = kernel_attention,
      .attention_backward = kernel_attention_backward,
      .cache_write = kernel_cache_write,
      .attention_cached = kernel_attention_cached,
      .gather_rows = kernel_gather_rows,
      .scatter_add_rows = kernel_scatter_add_rows,
      .set_ints = kernel_set_ints,
      .softmax_max = kernel_softmax_max,
      .softmax_sum = kernel_softmax_sum,
      .softmax_finish = kernel_softmax_finish,
      .softmax_backward = kernel_softmax_backward,
      .sample = kernel_sample,
      .adamw = kernel_adamw,
      .sum_squares = kernel_sum_squares,
      .sum_squares_exact = kernel_sum_squares_exact,
  };
  return KERNELS_SUPPORTED ? &table : 0;
}
