//go:build unix

#include "../csrc/device.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,prefer-vector-width=512")
#endif
#define SIMD_AVX512
#define KERNELS_TABLE KERNELS_TABLE_OF(avx512)
#define KERNELS_SUPPORTED                                                                           \
  (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&                       \
   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma"))
#include "../csrc/kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
const easyrl_device_api *KERNELS_TABLE_OF(avx512)(void) { return 0; }
#endif
