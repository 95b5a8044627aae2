//go:build unix

#include "declare.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define SIMD_AVX2
#define MMA_TABLE mma_avx2
#define MMA_SUPPORTED __builtin_cpu_supports("avx2")
#include "product.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
const mma_table *mma_avx2(void) { return 0; }
#endif
