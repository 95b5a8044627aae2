//go:build unix

/* The loops that measure the machine's ceilings. They do only fused multiply-adds in registers,
 * or only loads. They return their results, so that the compiler cannot remove the work and a
 * test can check it. */
#include "../csrc/device.h"

#include <math.h>
#include <string.h>

#define FMAS 192  /* multiply-adds of single floats in a round, for every instruction set */
#define STREAMS 8 /* vectors that read adds up independently */

typedef struct {
  double (*fma)(int64_t rounds);
  double (*read)(const float *, int64_t n);
} ceiling_loops;

/* Defines the loops of an instruction set, whose vectors have a number of lanes.
 *
 * fma: a multiply-add takes 4 or 5 cycles, and a core starts 2 per cycle (4 on some arm64), so
 * only many chains at once keep it busy. Chain i starts from i + 3 in all lanes. A step is
 * x/2 + 1, whose fixed point is 2. The result is the sum of the chains, where a chain counts as
 * the mean of its lanes.
 *
 * read returns the sum of n values. n is a multiple of 16 * STREAMS. */
#define CEILINGS(isa, target, vec, lanes, chains, set1, load, add, fmadd)                            \
  target static double fma_##isa(int64_t rounds) {                                                   \
    vec a[chains], half = set1(0.5f), one = set1(1.0f);                                              \
    _Pragma("GCC unroll 32") for (int i = 0; i < chains; i++) a[i] = set1((float)(i + 3));           \
    for (int64_t n = rounds * (FMAS / (chains * lanes)); n > 0; n--) {                               \
      _Pragma("GCC unroll 32") for (int i = 0; i < chains; i++) a[i] = fmadd(a[i], half, one);       \
    }                                                                                                \
    float t[chains * lanes];                                                                         \
    double sum = 0;                                                                                  \
    memcpy(t, a, sizeof t);                                                                          \
    for (int i = 0; i < chains * lanes; i++) sum += (double)t[i];                                    \
    return sum / lanes;                                                                              \
  }                                                                                                  \
  target static double read_##isa(const float *p, int64_t n) {                                       \
    vec a[STREAMS];                                                                                  \
    _Pragma("GCC unroll 8") for (int i = 0; i < STREAMS; i++) a[i] = set1(0.0f);                     \
    for (; n > 0; n -= STREAMS * lanes, p += STREAMS * lanes) {                                      \
      _Pragma("GCC unroll 8") for (int i = 0; i < STREAMS; i++) a[i] = add(a[i], load(p + i * lanes)); \
    }                                                                                                \
    float t[STREAMS * lanes];                                                                        \
    double sum = 0;                                                                                  \
    memcpy(t, a, sizeof t);                                                                          \
    for (int i = 0; i < STREAMS * lanes; i++) sum += (double)t[i];                                   \
    return sum;                                                                                      \
  }                                                                                                  \
  static const ceiling_loops loops_##isa = {fma_##isa, read_##isa};

#if defined(__x86_64__)
#include <immintrin.h>
CEILINGS(avx512, __attribute__((target("avx512f"))), __m512, 16, 12, _mm512_set1_ps, _mm512_loadu_ps, _mm512_add_ps, _mm512_fmadd_ps)
CEILINGS(avx2, __attribute__((target("avx2,fma"))), __m256, 8, 12, _mm256_set1_ps, _mm256_loadu_ps, _mm256_add_ps, _mm256_fmadd_ps)
#endif

#if defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>
#define NEON_FMADD(a, b, c) vfmaq_f32(c, a, b)
CEILINGS(portable, , float32x4_t, 4, 24, vdupq_n_f32, vld1q_f32, vaddq_f32, NEON_FMADD)
#else
typedef float quad __attribute__((vector_size(16)));
static inline quad quad_set1(float x) { return (quad){x, x, x, x}; }
static inline quad quad_load(const float *p) {
  quad q;
  memcpy(&q, p, sizeof q);
  return q;
}
static inline quad quad_add(quad a, quad b) { return a + b; }
static inline quad quad_fmadd(quad a, quad b, quad c) {
  return (quad){fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]), fmaf(a[3], b[3], c[3])};
}
CEILINGS(portable, , quad, 4, 12, quad_set1, quad_load, quad_add, quad_fmadd)
#endif

/* Returns the loops of an instruction set by its number in easyrl_cpu_table, or the best ones
 * for -1. The machine must support the instruction set. */
static const ceiling_loops *loops_of(int32_t isa) {
#if defined(__x86_64__)
  if (isa == 2 || (isa < 0 && easyrl_cpu_avx512())) return &loops_avx512;
  if (isa == 1 || (isa < 0 && easyrl_cpu_avx2())) return &loops_avx2;
#endif
  (void)isa;
  return &loops_portable;
}

/* Computes FMAS * rounds multiply-adds of single floats. */
EASYRL_INTERNAL double easyrl_ceiling_fma(int32_t isa, int64_t rounds) { return loops_of(isa)->fma(rounds); }

/* Reads n values and returns their sum. */
EASYRL_INTERNAL double easyrl_ceiling_read(int32_t isa, const float *p, int64_t n) { return loops_of(isa)->read(p, n); }

/* Copies n values. */
EASYRL_INTERNAL void easyrl_ceiling_copy(float *dst, const float *src, int64_t n) { memcpy(dst, src, (size_t)n * 4); }
