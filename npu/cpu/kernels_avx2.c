//go:build unix

#include "../csrc/device.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define SIMD_AVX2
#define KERNELS_TABLE KERNELS_TABLE_OF(avx2)
#define KERNELS_SUPPORTED (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#include "../csrc/kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
const easyrl_device_api *KERNELS_TABLE_OF(avx2)(void) { return 0; }
#endif
