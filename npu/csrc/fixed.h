/* 64-bit fixed-point sums. Adding a value v adds v * scale, rounded once to the nearest
 * integer, ties to even. Additions wrap. scale is a power of two of at least 1, so v * scale
 * is exact in float32 or infinite. If v * scale is NaN or beyond the limit in magnitude, v is
 * out of range: nothing is added, and the mark keeps the bits of the largest magnitude of
 * such a v. NaN counts as the largest. */
#ifndef EASYRL_FIXED_H
#define EASYRL_FIXED_H

#include "device.h"
#include "simd.h"

typedef struct {
  float scale, limit;
  float fast; /* if |v| is at most this, v is in range and |v * scale| is at most 2^51 */
} fixed_format;

static fixed_format fixed_of(easyrl_fixed_point p) {
  double most = (double)p.limit < 0x1p51 ? (double)p.limit : 0x1p51;
  float fast = (float)(most / (double)p.scale);
  if ((double)fast * (double)p.scale > most) fast = 0.0f; /* rounded up: the quotient is subnormal */
  return (fixed_format){p.scale, p.limit, fast};
}

/* Adding and then subtracting this rounds a double of magnitude at most 2^51 to an integer. */
#define FIXED_MAGIC 0x1.8p52

/* Raises the mark, atomically, to the bits of |v|, or to those of NaN. */
static __attribute__((noinline)) void fixed_mark(int64_t *mark, float v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  int64_t size = bits & 0x7fffffff, old = __atomic_load_n(mark, __ATOMIC_RELAXED);
  if (size > 0x7f800000) size = 0x7fc00000;
  while (old < size && !__atomic_compare_exchange_n(mark, &old, size, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

static inline int fixed_in_range(float v, fixed_format f) { return fabsf(v * f.scale) <= f.limit; }

/* Raises the mark for all values of m vectors that are out of range. */
static __attribute__((noinline, unused)) void fixed_mark_all(int64_t *mark, const vf *v, int m, fixed_format f) {
  float t[VL];
  for (int i = 0; i < m; i++) {
    v_store(t, v[i]);
    for (int l = 0; l < VL; l++)
      if (!fixed_in_range(t[l], f)) fixed_mark(mark, t[l]);
  }
}

/* Adds one value to a sum, or raises the mark. */
static inline void fixed_add_one(int64_t *sum, int64_t *mark, float v, fixed_format f) {
  if (!fixed_in_range(v, f)) {
    fixed_mark(mark, v);
    return;
  }
  float p = v * f.scale;
  /* From 2^24 on every float32 is an integer. */
  double d = (double)p, whole = fabsf(p) < 0x1p24f ? (d + FIXED_MAGIC) - FIXED_MAGIC : d;
  *sum = (int64_t)((uint64_t)*sum + (uint64_t)(int64_t)whole);
}

/* Adds v's first n lanes one by one. */
static __attribute__((noinline, unused)) void fixed_add_slow(int64_t *sum, int64_t *mark, const float *v, int n, fixed_format f) {
  for (int i = 0; i < n; i++) fixed_add_one(sum + i, mark, v[i], f);
}

/* fixed_add adds m vectors to sums: vector i to the 16 sums from i*stride on. It reads and
 * writes all 16. A lane of 0 leaves its sum as it is. */
#if defined(SIMD_AVX512)

SIMD_INLINE void fixed_add(const int m, const vf *v, int64_t *sum, int64_t stride, int64_t *mark, fixed_format f) {
  vf scale = v_set1(f.scale), limit = v_set1(f.limit);
  vm all = 0xffff;
#pragma GCC unroll 12
  for (int i = 0; i < m; i++) {
    vf p = v_mul(v[i], scale);
    vm in = _mm512_cmp_ps_mask(_mm512_abs_ps(p), limit, _CMP_LE_OQ);
    int64_t *s = sum + i * stride;
    __m512i lo = _mm512_maskz_cvtps_epi64((__mmask8)in, _mm512_castps512_ps256(p));
    __m512i hi = _mm512_maskz_cvtps_epi64((__mmask8)(in >> 8), _mm512_extractf32x8_ps(p, 1));
    _mm512_storeu_si512(s, _mm512_add_epi64(_mm512_loadu_si512(s), lo));
    _mm512_storeu_si512(s + 8, _mm512_add_epi64(_mm512_loadu_si512(s + 8), hi));
    all &= in;
  }
  if (__builtin_expect(all != 0xffff, 0)) fixed_mark_all(mark, v, m, f);
}

#elif defined(SIMD_AVX2)

SIMD_INLINE void fixed_add4(int64_t *s, __m128 v, __m256d scale) {
  const __m256d magic = _mm256_set1_pd(FIXED_MAGIC);
  __m256i t = _mm256_castpd_si256(_mm256_fmadd_pd(_mm256_cvtps_pd(v), scale, magic)); /* exact product, one rounding */
  t = _mm256_sub_epi64(t, _mm256_castpd_si256(magic));
  _mm256_storeu_si256((__m256i *)s, _mm256_add_epi64(_mm256_loadu_si256((const __m256i *)s), t));
}

SIMD_INLINE void fixed_add(const int m, const vf *v, int64_t *sum, int64_t stride, int64_t *mark, fixed_format f) {
  /* The bits of magnitudes compare like integers, and those of NaN are the largest. */
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
#pragma GCC unroll 12
  for (int i = 0; i < m; i++) {
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(v[i].a), magnitude));
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(v[i].b), magnitude));
  }
  __m256i above = _mm256_cmpgt_epi32(most, _mm256_castps_si256(_mm256_set1_ps(f.fast)));
  if (__builtin_expect(!_mm256_testz_si256(above, above), 0)) {
    float t[VL];
    for (int i = 0; i < m; i++) {
      v_store(t, v[i]);
      fixed_add_slow(sum + i * stride, mark, t, VL, f);
    }
    return;
  }
  __m256d scale = _mm256_set1_pd((double)f.scale);
#pragma GCC unroll 12
  for (int i = 0; i < m; i++) {
    int64_t *s = sum + i * stride;
    fixed_add4(s, _mm256_castps256_ps128(v[i].a), scale);
    fixed_add4(s + 4, _mm256_extractf128_ps(v[i].a, 1), scale);
    fixed_add4(s + 8, _mm256_castps256_ps128(v[i].b), scale);
    fixed_add4(s + 12, _mm256_extractf128_ps(v[i].b, 1), scale);
  }
}

#elif defined(SIMD_NEON)

/* Adds those of four values that are in range, and returns their mask. */
SIMD_INLINE uint32x4_t fixed_add4(int64_t *s, float32x4_t v, fixed_format f) {
  float32x4_t p = vmulq_n_f32(v, f.scale);
  uint32x4_t in = vcleq_f32(vabsq_f32(p), vdupq_n_f32(f.limit));
  int32x4_t keep = vreinterpretq_s32_u32(in);
  int64x2_t lo = vandq_s64(vcvtnq_s64_f64(vcvt_f64_f32(vget_low_f32(p))), vmovl_s32(vget_low_s32(keep)));
  int64x2_t hi = vandq_s64(vcvtnq_s64_f64(vcvt_high_f64_f32(p)), vmovl_high_s32(keep));
  vst1q_s64(s, vaddq_s64(vld1q_s64(s), lo));
  vst1q_s64(s + 2, vaddq_s64(vld1q_s64(s + 2), hi));
  return in;
}

SIMD_INLINE void fixed_add(const int m, const vf *v, int64_t *sum, int64_t stride, int64_t *mark, fixed_format f) {
  uint32x4_t in = vdupq_n_u32(~0u);
  for (int i = 0; i < m; i++) {
    int64_t *s = sum + i * stride;
    in = vandq_u32(in, vandq_u32(fixed_add4(s, v[i].a, f), fixed_add4(s + 4, v[i].b, f)));
    in = vandq_u32(in, vandq_u32(fixed_add4(s + 8, v[i].c, f), fixed_add4(s + 12, v[i].d, f)));
  }
  if (vminvq_u32(in) == 0) fixed_mark_all(mark, v, m, f);
}

#else

SIMD_INLINE void fixed_add(const int m, const vf *v, int64_t *sum, int64_t stride, int64_t *mark, fixed_format f) {
  float t[VL];
  for (int i = 0; i < m; i++) {
    v_store(t, v[i]);
    for (int l = 0; l < VL; l++) fixed_add_one(sum + i * stride + l, mark, t[l], f);
  }
}

#endif

/* Adds the first n lanes of v. */
SIMD_INLINE void fixed_add_n(vf v, int n, int64_t *sum, int64_t *mark, fixed_format f) {
  if (n == VL) {
    fixed_add(1, &v, sum, 0, mark, f);
    return;
  }
  float t[VL];
  v_store(t, v);
  fixed_add_slow(sum, mark, t, n, f);
}

/* fixed_load returns sixteen sums as float32(float64(sum)). */
SIMD_INLINE vf fixed_load(const int64_t *sum) {
#if defined(SIMD_AVX512)
  __m256 lo = _mm512_cvtpd_ps(_mm512_cvtepi64_pd(_mm512_loadu_si512(sum)));
  __m256 hi = _mm512_cvtpd_ps(_mm512_cvtepi64_pd(_mm512_loadu_si512(sum + 8)));
  return _mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1);
#elif defined(SIMD_AVX2)
  /* The low word goes into the mantissa of 2^52, and the high word, made unsigned, into that of
   * 2^84. Both are exact, so only their addition rounds. */
  const __m256i low = _mm256_set1_epi64x(0x4330000000000000), high = _mm256_set1_epi64x(0x4530000080000000);
  const __m256d bias = _mm256_set1_pd(0x1p84 + 0x1p63 + 0x1p52);
  __m128 q[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    __m256i s = _mm256_loadu_si256((const __m256i *)(sum + 4 * i));
    __m256d l = _mm256_castsi256_pd(_mm256_blend_epi32(low, s, 0x55));
    __m256d h = _mm256_castsi256_pd(_mm256_xor_si256(_mm256_srli_epi64(s, 32), high));
    q[i] = _mm256_cvtpd_ps(_mm256_add_pd(_mm256_sub_pd(h, bias), l));
  }
  return (vf){_mm256_set_m128(q[1], q[0]), _mm256_set_m128(q[3], q[2])};
#else
  float t[VL];
  for (int i = 0; i < VL; i++) t[i] = (float)(double)sum[i];
  return v_load(t);
#endif
}

#endif
