/* The part of the CPU device that all kernels share. The headers that kernels.h lists
 * contain the kernels, which are compiled once for each instruction set. Each kernel is a
 * static function with the signature of its entry in easyrl_device_api. */
#ifndef EASYRL_CPU_DEVICE_H
#define EASYRL_CPU_DEVICE_H

/* The compiler must round every product and sum separately, whatever -std is, and not
 * contract them into fused multiply-adds. This precedes all functions, intrinsics included.
 * kernels_open tests the result. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif
#if defined(__FAST_MATH__)
#error "easyrl's kernels must not be compiled with -ffast-math"
#endif

#include "easyrl_device.h"
#include "pool.h"

struct easyrl_device {
  pool *pool;
  const char *name;
  float *scratch;        /* grown by device_scratch */
  int64_t scratch_floats;
  int32_t failed;
  char failure[256];
};

/* device_fail records a failure unless one is already recorded. Call it from the
 * caller's thread, not from a task. */
EASYRL_INTERNAL void device_fail(easyrl_device *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* device_scratch returns room for n floats, aligned to 64 bytes, with undefined content. It
 * is valid until the next call of device_scratch. A kernel that gives each thread a part
 * asks for threads * part, with part a multiple of 16. If memory is short, device_scratch
 * records a failure and returns NULL, and the kernel must return. */
EASYRL_INTERNAL float *device_scratch(easyrl_device *, int64_t n);

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/* The tables of the instruction sets in this build; NULL if the machine does not
 * run them. */
EASYRL_INTERNAL const easyrl_device_api *easyrl_cpu_avx512(void);
EASYRL_INTERNAL const easyrl_device_api *easyrl_cpu_avx2(void);
EASYRL_INTERNAL const easyrl_device_api *easyrl_cpu_portable(void);
EASYRL_INTERNAL const easyrl_device_api *easyrl_cpu_avx512_bf16(void);
EASYRL_INTERNAL const easyrl_device_api *easyrl_cpu_avx2_bf16(void);
EASYRL_INTERNAL const easyrl_device_api *easyrl_cpu_portable_bf16(void);
#if defined(KERNELS_BF16)
#define KERNELS_TABLE_OF(isa) easyrl_cpu_##isa##_bf16
#else
#define KERNELS_TABLE_OF(isa) easyrl_cpu_##isa
#endif

/* Entries shared by all instruction sets. */
EASYRL_INTERNAL easyrl_device *device_open(const char *name, int32_t threads, char *err, int64_t err_len);
EASYRL_INTERNAL easyrl_device *device_fork(easyrl_device *, int32_t threads, char *err, int64_t err_len);
EASYRL_INTERNAL void device_close(easyrl_device *);
EASYRL_INTERNAL const char *device_name(easyrl_device *);
EASYRL_INTERNAL int32_t device_threads(easyrl_device *);
EASYRL_INTERNAL void device_limit(easyrl_device *, int32_t n);
EASYRL_INTERNAL void *device_alloc(easyrl_device *, int64_t bytes);
EASYRL_INTERNAL void device_free(easyrl_device *, void *);
EASYRL_INTERNAL void *device_host_alloc(easyrl_device *, int64_t bytes);
EASYRL_INTERNAL void device_host_free(easyrl_device *, void *);
EASYRL_INTERNAL int32_t device_sync(easyrl_device *, char *err, int64_t err_len);
EASYRL_INTERNAL void device_transfer(easyrl_device *, void *dst, const void *src, int64_t bytes);
EASYRL_INTERNAL void device_zero(easyrl_device *, void *, int64_t bytes);

#endif
