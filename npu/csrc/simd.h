/* A thin vector layer. A vector always has 16 floats (VL), whatever the size of the machine's
 * registers, so that one source serves all machines and lane j computes the same bits on each.
 * A source file chooses the instruction set by defining SIMD_AVX512 or SIMD_AVX2 before it
 * includes this header. Otherwise the layer uses NEON on arm64 and plain C elsewhere.
 *
 *   vf   16 floats        vi   16 int32        vm   16 booleans
 *
 * In every lane, v_max(a, b) is a > b ? a : b and v_min(a, b) is a < b ? a : b: if either is
 * NaN, the result is b. v_fma(a, b, c) is a b + c and v_fnma(a, b, c) is c - a b, rounded
 * once. v_load_n and v_store_n touch only the first n floats of memory, 0 <= n <= 16; v_load_n
 * sets the other lanes to zero. vf_int truncates toward zero; beyond int32 its result is unspecified.
 * vi_float rounds to nearest, vi_float_rz toward zero; vi_float_rz needs |x| <= 2^31 - 128.
 *
 * Functions whose names end in 16 take a vi as 32 int16: lane j holds number 2j in its low half
 * and number 2j + 1 in its high half. vi_replace16(x, n) replaces every 0 by n. */
#ifndef EASYRL_SIMD_H
#define EASYRL_SIMD_H

#include "device.h" /* first: it turns off contraction */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define VL 16
#define SIMD_INLINE static inline __attribute__((always_inline, unused))

#if defined(SIMD_AVX512) || defined(SIMD_AVX2)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__ARM_NEON)
#define SIMD_NEON
#include <arm_neon.h>
#endif

#if defined(SIMD_AVX512)

#define SIMD_NAME "avx512"
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

SIMD_INLINE vm vm_first(int n) { return (vm)((1u << n) - 1u); }
SIMD_INLINE vm vm_and(vm a, vm b) { return (vm)(a & b); }
SIMD_INLINE vm vm_not(vm a) { return (vm)~a; }
SIMD_INLINE unsigned vm_bits(vm a) { return a; }
SIMD_INLINE vf v_set1(float x) { return _mm512_set1_ps(x); }
SIMD_INLINE vf v_zero(void) { return _mm512_setzero_ps(); }
SIMD_INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
SIMD_INLINE void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
SIMD_INLINE vf v_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(vm_first(n), p); }
SIMD_INLINE void v_store_n(float *p, vf a, int n) { _mm512_mask_storeu_ps(p, vm_first(n), a); }
SIMD_INLINE vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
SIMD_INLINE vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
SIMD_INLINE vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
SIMD_INLINE vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
SIMD_INLINE vf v_sqrt(vf a) { return _mm512_sqrt_ps(a); }
SIMD_INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
SIMD_INLINE vf v_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
SIMD_INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
SIMD_INLINE vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
SIMD_INLINE vm v_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
SIMD_INLINE vm v_ge(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
SIMD_INLINE vf v_select(vm m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }
SIMD_INLINE vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
SIMD_INLINE vi vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
SIMD_INLINE void vi_store(int32_t *p, vi a) { _mm512_storeu_si512(p, a); }
SIMD_INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
SIMD_INLINE vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
SIMD_INLINE vi vi_and(vi a, vi b) { return _mm512_and_epi32(a, b); }
#define vi_shl(a, n) _mm512_slli_epi32((a), (n))
#define vi_sra(a, n) _mm512_srai_epi32((a), (n))
SIMD_INLINE vm vi_gt(vi a, vi b) { return _mm512_cmpgt_epi32_mask(a, b); }
SIMD_INLINE vi vf_bits(vf a) { return _mm512_castps_si512(a); }
SIMD_INLINE vf vi_bits(vi a) { return _mm512_castsi512_ps(a); }
SIMD_INLINE vf vi_float(vi a) { return _mm512_cvtepi32_ps(a); }
SIMD_INLINE vf vi_float_rz(vi a) { return _mm512_cvt_roundepi32_ps(a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
SIMD_INLINE vi vf_int(vf a) { return _mm512_cvttps_epi32(a); }
SIMD_INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
SIMD_INLINE vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
SIMD_INLINE vi vi_add16(vi a, vi b) { return _mm512_add_epi16(a, b); }
SIMD_INLINE vi vi_max16(vi a, vi b) { return _mm512_max_epi16(a, b); }
SIMD_INLINE vi vi_replace16(vi a, int16_t n) {
  return _mm512_mask_set1_epi16(a, _mm512_testn_epi16_mask(a, a), n);
}

#elif defined(SIMD_AVX2)

#define SIMD_NAME "avx2"
typedef struct { __m256 a, b; } vf;
typedef struct { __m256i a, b; } vi;
typedef struct { __m256 a, b; } vm;

SIMD_INLINE __m256i simd_first8(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SIMD_INLINE vm vm_first(int n) { return (vm){_mm256_castsi256_ps(simd_first8(n)), _mm256_castsi256_ps(simd_first8(n - 8))}; }
SIMD_INLINE vm vm_and(vm x, vm y) { return (vm){_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b)}; }
SIMD_INLINE vm vm_not(vm x) {
  __m256 ones = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  return (vm){_mm256_xor_ps(x.a, ones), _mm256_xor_ps(x.b, ones)};
}
SIMD_INLINE unsigned vm_bits(vm x) { return (unsigned)_mm256_movemask_ps(x.a) | (unsigned)_mm256_movemask_ps(x.b) << 8; }
SIMD_INLINE vf v_set1(float x) { return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
SIMD_INLINE vf v_zero(void) { return (vf){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
SIMD_INLINE vf v_load(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
SIMD_INLINE void v_store(float *p, vf x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
SIMD_INLINE vf v_load_n(const float *p, int n) {
  return (vf){_mm256_maskload_ps(p, simd_first8(n)), n > 8 ? _mm256_maskload_ps(p + 8, simd_first8(n - 8)) : _mm256_setzero_ps()};
}
SIMD_INLINE void v_store_n(float *p, vf x, int n) {
  _mm256_maskstore_ps(p, simd_first8(n), x.a);
  if (n > 8) _mm256_maskstore_ps(p + 8, simd_first8(n - 8), x.b);
}
#define SIMD_BINARY(name, op) \
  SIMD_INLINE vf name(vf x, vf y) { return (vf){op(x.a, y.a), op(x.b, y.b)}; }
SIMD_BINARY(v_add, _mm256_add_ps)
SIMD_BINARY(v_sub, _mm256_sub_ps)
SIMD_BINARY(v_mul, _mm256_mul_ps)
SIMD_BINARY(v_div, _mm256_div_ps)
SIMD_BINARY(v_max, _mm256_max_ps)
SIMD_BINARY(v_min, _mm256_min_ps)
#undef SIMD_BINARY
SIMD_INLINE vf v_sqrt(vf x) { return (vf){_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
SIMD_INLINE vf v_fma(vf x, vf y, vf z) { return (vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
SIMD_INLINE vf v_fnma(vf x, vf y, vf z) { return (vf){_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)}; }
SIMD_INLINE vm v_gt(vf x, vf y) { return (vm){_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ)}; }
SIMD_INLINE vm v_ge(vf x, vf y) { return (vm){_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ)}; }
SIMD_INLINE vf v_select(vm m, vf yes, vf no) {
  return (vf){_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b)};
}
SIMD_INLINE vi vi_set1(int32_t x) { return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
SIMD_INLINE vi vi_load(const int32_t *p) {
  return (vi){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 8))};
}
SIMD_INLINE void vi_store(int32_t *p, vi x) {
  _mm256_storeu_si256((__m256i *)p, x.a);
  _mm256_storeu_si256((__m256i *)(p + 8), x.b);
}
SIMD_INLINE vi vi_add(vi x, vi y) { return (vi){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
SIMD_INLINE vi vi_sub(vi x, vi y) { return (vi){_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
SIMD_INLINE vi vi_and(vi x, vi y) { return (vi){_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
SIMD_INLINE vi vi_shl(vi x, const int n) { return (vi){_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
SIMD_INLINE vi vi_sra(vi x, const int n) { return (vi){_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)}; }
SIMD_INLINE vm vi_gt(vi x, vi y) {
  return (vm){_mm256_castsi256_ps(_mm256_cmpgt_epi32(x.a, y.a)), _mm256_castsi256_ps(_mm256_cmpgt_epi32(x.b, y.b))};
}
SIMD_INLINE vi vf_bits(vf x) { return (vi){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
SIMD_INLINE vf vi_bits(vi x) { return (vf){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
SIMD_INLINE vf vi_float(vi x) { return (vf){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
/* Rounds |x| to nearest and subtracts one unit in the last place if that exceeds |x|. */
SIMD_INLINE __m256 simd_float_rz(__m256i x) {
  __m256i size = _mm256_abs_epi32(x);
  __m256 f = _mm256_cvtepi32_ps(size);
  __m256i above = _mm256_cmpgt_epi32(_mm256_cvttps_epi32(f), size), sign = _mm256_set1_epi32(INT32_MIN);
  return _mm256_castsi256_ps(_mm256_or_si256(_mm256_add_epi32(_mm256_castps_si256(f), above), _mm256_and_si256(x, sign)));
}
SIMD_INLINE vf vi_float_rz(vi x) { return (vf){simd_float_rz(x.a), simd_float_rz(x.b)}; }
SIMD_INLINE vi vf_int(vf x) { return (vi){_mm256_cvttps_epi32(x.a), _mm256_cvttps_epi32(x.b)}; }
SIMD_INLINE vi vi_or(vi x, vi y) { return (vi){_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
SIMD_INLINE vi vi_max(vi x, vi y) { return (vi){_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
SIMD_INLINE vi vi_add16(vi x, vi y) { return (vi){_mm256_add_epi16(x.a, y.a), _mm256_add_epi16(x.b, y.b)}; }
SIMD_INLINE vi vi_max16(vi x, vi y) { return (vi){_mm256_max_epi16(x.a, y.a), _mm256_max_epi16(x.b, y.b)}; }
SIMD_INLINE vi vi_replace16(vi x, int16_t n) {
  __m256i zero = _mm256_setzero_si256(), v = _mm256_set1_epi16(n);
  return (vi){_mm256_or_si256(x.a, _mm256_and_si256(_mm256_cmpeq_epi16(x.a, zero), v)),
              _mm256_or_si256(x.b, _mm256_and_si256(_mm256_cmpeq_epi16(x.b, zero), v))};
}

#else

/* NEON and plain C: a vector is four quarters of four lanes. */
#if defined(SIMD_NEON)
#define SIMD_NAME "neon"
typedef float32x4_t simd_q;
typedef int32x4_t simd_qi;
typedef uint32x4_t simd_qm;
#define SIMD_Q(n) vdupq_n_f32(n)
SIMD_INLINE simd_q simd_ldq(const float *p) { return vld1q_f32(p); }
SIMD_INLINE void simd_stq(float *p, simd_q x) { vst1q_f32(p, x); }
SIMD_INLINE simd_q simd_fma(simd_q a, simd_q b, simd_q c) { return vfmaq_f32(c, a, b); }
SIMD_INLINE simd_q simd_fnma(simd_q a, simd_q b, simd_q c) { return vfmsq_f32(c, a, b); }
SIMD_INLINE simd_q simd_sqrt(simd_q a) { return vsqrtq_f32(a); }
SIMD_INLINE simd_q simd_div(simd_q a, simd_q b) { return vdivq_f32(a, b); }
SIMD_INLINE simd_qm simd_gt(simd_q a, simd_q b) { return vcgtq_f32(a, b); }
SIMD_INLINE simd_qm simd_ge(simd_q a, simd_q b) { return vcgeq_f32(a, b); }
SIMD_INLINE simd_q simd_sel(simd_qm m, simd_q a, simd_q b) { return vbslq_f32(m, a, b); }
SIMD_INLINE simd_q simd_cvt(simd_qi a) { return vcvtq_f32_s32(a); }
SIMD_INLINE simd_qi simd_int(simd_q a) { return vcvtq_s32_f32(a); }
#else
#define SIMD_NAME "portable"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
typedef float simd_q __attribute__((vector_size(16)));
typedef int32_t simd_qi __attribute__((vector_size(16)));
typedef int32_t simd_qm __attribute__((vector_size(16)));
#define SIMD_Q(n) ((simd_q){(n), (n), (n), (n)})
SIMD_INLINE simd_q simd_ldq(const float *p) { simd_q x; memcpy(&x, p, 16); return x; }
SIMD_INLINE void simd_stq(float *p, simd_q x) { memcpy(p, &x, 16); }
SIMD_INLINE simd_q simd_fma(simd_q a, simd_q b, simd_q c) {
  return (simd_q){fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]), fmaf(a[3], b[3], c[3])};
}
SIMD_INLINE simd_q simd_fnma(simd_q a, simd_q b, simd_q c) { return simd_fma(-a, b, c); }
SIMD_INLINE simd_q simd_sqrt(simd_q a) { return (simd_q){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
SIMD_INLINE simd_q simd_div(simd_q a, simd_q b) { return a / b; }
SIMD_INLINE simd_qm simd_gt(simd_q a, simd_q b) { return a > b; }
SIMD_INLINE simd_qm simd_ge(simd_q a, simd_q b) { return a >= b; }
SIMD_INLINE simd_q simd_sel(simd_qm m, simd_q a, simd_q b) {
  return (simd_q)(((simd_qi)a & m) | ((simd_qi)b & ~m));
}
SIMD_INLINE simd_q simd_cvt(simd_qi a) { return (simd_q){(float)a[0], (float)a[1], (float)a[2], (float)a[3]}; }
SIMD_INLINE simd_qi simd_int(simd_q a) { return __builtin_convertvector(a, simd_qi); }
#endif

typedef uint32_t simd_qu __attribute__((vector_size(16)));
typedef int16_t simd_qs __attribute__((vector_size(16)));
typedef struct { simd_q a, b, c, d; } vf;
typedef struct { simd_qi a, b, c, d; } vi;
typedef struct { simd_qm a, b, c, d; } vm;

SIMD_INLINE vi vi_load(const int32_t *p) { vi x; memcpy(&x, p, 64); return x; }
SIMD_INLINE void vi_store(int32_t *p, vi x) { memcpy(p, &x, 64); }
SIMD_INLINE vi vi_set1(int32_t n) { simd_qi q = {n, n, n, n}; return (vi){q, q, q, q}; }
#define SIMD_BINARY(name, quarter) \
  SIMD_INLINE vi name(vi x, vi y) { return (vi){quarter(x.a, y.a), quarter(x.b, y.b), quarter(x.c, y.c), quarter(x.d, y.d)}; }
SIMD_INLINE simd_qi simd_add32(simd_qi x, simd_qi y) { return (simd_qi)((simd_qu)x + (simd_qu)y); } /* wraps */
SIMD_INLINE simd_qi simd_sub32(simd_qi x, simd_qi y) { return (simd_qi)((simd_qu)x - (simd_qu)y); }
SIMD_INLINE simd_qi simd_max32(simd_qi x, simd_qi y) { simd_qi m = (simd_qi)(x > y); return (x & m) | (y & ~m); }
SIMD_INLINE simd_qi simd_add16(simd_qi x, simd_qi y) { return (simd_qi)((simd_qs)x + (simd_qs)y); }
SIMD_INLINE simd_qi simd_max16(simd_qi x, simd_qi y) {
#if defined(__SSE2__)
  return (simd_qi)_mm_max_epi16((__m128i)x, (__m128i)y);
#endif
  simd_qs m = (simd_qs)((simd_qs)x > (simd_qs)y);
  return (x & (simd_qi)m) | (y & ~(simd_qi)m);
}
SIMD_BINARY(vi_add, simd_add32)
SIMD_BINARY(vi_sub, simd_sub32)
SIMD_BINARY(vi_max, simd_max32)
SIMD_BINARY(vi_add16, simd_add16)
SIMD_BINARY(vi_max16, simd_max16)
#undef SIMD_BINARY
SIMD_INLINE simd_qi simd_replace16(simd_qi x, int16_t n) {
  simd_qs zero = {0}, v = zero + n;
  return x | ((simd_qi)((simd_qs)x == zero) & (simd_qi)v);
}
SIMD_INLINE vi vi_replace16(vi x, int16_t n) {
  return (vi){simd_replace16(x.a, n), simd_replace16(x.b, n), simd_replace16(x.c, n), simd_replace16(x.d, n)};
}
SIMD_INLINE vi vi_or(vi x, vi y) { return (vi){x.a | y.a, x.b | y.b, x.c | y.c, x.d | y.d}; }
SIMD_INLINE vi vi_and(vi x, vi y) { return (vi){x.a & y.a, x.b & y.b, x.c & y.c, x.d & y.d}; }
SIMD_INLINE vi vi_shl(vi x, const int n) {
  return (vi){(simd_qi)((simd_qi)x.a << n), x.b << n, x.c << n, x.d << n};
}
SIMD_INLINE vi vi_sra(vi x, const int n) { return (vi){x.a >> n, x.b >> n, x.c >> n, x.d >> n}; }
SIMD_INLINE vm vi_gt(vi x, vi y) {
  return (vm){(simd_qm)(x.a > y.a), (simd_qm)(x.b > y.b), (simd_qm)(x.c > y.c), (simd_qm)(x.d > y.d)};
}
SIMD_INLINE vm vm_first(int n) {
  static const int32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return vi_gt(vi_set1(n), vi_load(lane));
}
SIMD_INLINE vm vm_and(vm x, vm y) { return (vm){x.a & y.a, x.b & y.b, x.c & y.c, x.d & y.d}; }
SIMD_INLINE vm vm_not(vm x) { return (vm){~x.a, ~x.b, ~x.c, ~x.d}; }
SIMD_INLINE unsigned vm_bits(vm x) {
  int32_t m[16];
  unsigned bits = 0;
  memcpy(m, &x, 64);
  for (int i = 0; i < 16; i++) bits |= (m[i] != 0 ? 1u : 0u) << i;
  return bits;
}
SIMD_INLINE vf v_set1(float n) { simd_q q = SIMD_Q(n); return (vf){q, q, q, q}; }
SIMD_INLINE vf v_zero(void) { return v_set1(0.0f); }
SIMD_INLINE vf v_load(const float *p) { return (vf){simd_ldq(p), simd_ldq(p + 4), simd_ldq(p + 8), simd_ldq(p + 12)}; }
SIMD_INLINE void v_store(float *p, vf x) {
  simd_stq(p, x.a);
  simd_stq(p + 4, x.b);
  simd_stq(p + 8, x.c);
  simd_stq(p + 12, x.d);
}
SIMD_INLINE vf v_load_n(const float *p, int n) {
  float t[16] = {0};
  for (int i = 0; i < n; i++) t[i] = p[i];
  return v_load(t);
}
SIMD_INLINE void v_store_n(float *p, vf x, int n) {
  float t[16];
  v_store(t, x);
  for (int i = 0; i < n; i++) p[i] = t[i];
}
SIMD_INLINE vf v_add(vf x, vf y) { return (vf){x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d}; }
SIMD_INLINE vf v_sub(vf x, vf y) { return (vf){x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d}; }
SIMD_INLINE vf v_mul(vf x, vf y) { return (vf){x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d}; }
SIMD_INLINE vf v_div(vf x, vf y) { return (vf){simd_div(x.a, y.a), simd_div(x.b, y.b), simd_div(x.c, y.c), simd_div(x.d, y.d)}; }
SIMD_INLINE vf v_sqrt(vf x) { return (vf){simd_sqrt(x.a), simd_sqrt(x.b), simd_sqrt(x.c), simd_sqrt(x.d)}; }
SIMD_INLINE vf v_fma(vf x, vf y, vf z) {
  return (vf){simd_fma(x.a, y.a, z.a), simd_fma(x.b, y.b, z.b), simd_fma(x.c, y.c, z.c), simd_fma(x.d, y.d, z.d)};
}
SIMD_INLINE vf v_fnma(vf x, vf y, vf z) {
  return (vf){simd_fnma(x.a, y.a, z.a), simd_fnma(x.b, y.b, z.b), simd_fnma(x.c, y.c, z.c), simd_fnma(x.d, y.d, z.d)};
}
SIMD_INLINE vm v_gt(vf x, vf y) { return (vm){simd_gt(x.a, y.a), simd_gt(x.b, y.b), simd_gt(x.c, y.c), simd_gt(x.d, y.d)}; }
SIMD_INLINE vm v_ge(vf x, vf y) { return (vm){simd_ge(x.a, y.a), simd_ge(x.b, y.b), simd_ge(x.c, y.c), simd_ge(x.d, y.d)}; }
SIMD_INLINE vf v_select(vm m, vf y, vf n) {
  return (vf){simd_sel(m.a, y.a, n.a), simd_sel(m.b, y.b, n.b), simd_sel(m.c, y.c, n.c), simd_sel(m.d, y.d, n.d)};
}
SIMD_INLINE vf v_max(vf x, vf y) { return v_select(v_gt(x, y), x, y); }
SIMD_INLINE vf v_min(vf x, vf y) { return v_select(v_gt(y, x), x, y); }
SIMD_INLINE vi vf_bits(vf x) { vi y; memcpy(&y, &x, 64); return y; }
SIMD_INLINE vf vi_bits(vi x) { vf y; memcpy(&y, &x, 64); return y; }
SIMD_INLINE vf vi_float(vi x) { return (vf){simd_cvt(x.a), simd_cvt(x.b), simd_cvt(x.c), simd_cvt(x.d)}; }
SIMD_INLINE vi vf_int(vf x) { return (vi){simd_int(x.a), simd_int(x.b), simd_int(x.c), simd_int(x.d)}; }
/* Rounds |x| to nearest and subtracts one unit in the last place if that exceeds |x|. */
SIMD_INLINE vf vi_float_rz(vi x) {
  vi sign = vi_sra(x, 31), size = vi_max(x, vi_sub(vi_set1(0), x));
  vf f = vi_float(size);
  vm above = vi_gt(vf_int(f), size);
  vi bits = vi_add(vf_bits(f), (vi){(simd_qi)above.a, (simd_qi)above.b, (simd_qi)above.c, (simd_qi)above.d});
  return vi_bits(vi_add(bits, vi_shl(sign, 31)));
}

#endif

/* Returns a. With AVX-512 it makes the compiler keep a in a register instead of loading it again
 * for each use. */
SIMD_INLINE vf v_keep(vf a) {
#if defined(SIMD_AVX512)
  __asm__("" : "+v"(a));
#endif
  return a;
}

/* Returns the first n lanes of yes and the other lanes of no. */
SIMD_INLINE vf v_select_n(int n, vf yes, vf no) { return v_select(vm_first(n), yes, no); }

/* The end of a fold: partial sum i+s is added to partial sum i, s = 8, 4, 2, 1. */
SIMD_INLINE float v_fold(vf a) {
#if defined(SIMD_AVX512)
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a),
                           _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)));
#elif defined(SIMD_AVX2)
  __m256 h = _mm256_add_ps(a.a, a.b);
#endif
#if defined(SIMD_AVX512) || defined(SIMD_AVX2)
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
#else
  simd_q x = a.a + a.c, y = a.b + a.d;
  x = x + y;
  return (x[0] + x[2]) + (x[1] + x[3]);
#endif
}

/* Int32 sums of lanes: vs_add adds each lane of a vector to one of VS_LANES sums, so that each sum gets
 * VL / VS_LANES lanes. Sums wrap. vs_or takes the bitwise or instead, and vs_any says whether any of some bits is
 * set. vs_total returns the total of the sums in high times 2^shift and of those in low. */
#if defined(SIMD_AVX512)
#define VS_LANES 16
typedef __m512i vs;
SIMD_INLINE vs vs_set1(int32_t x) { return _mm512_set1_epi32(x); }
SIMD_INLINE vs vs_add(vs s, vi a) { return _mm512_add_epi32(s, a); }
SIMD_INLINE vs vs_or(vs s, vi a) { return _mm512_or_epi32(s, a); }
SIMD_INLINE int vs_any(vs s, int32_t bits) { return _mm512_test_epi32_mask(s, _mm512_set1_epi32(bits)) != 0; }
SIMD_INLINE __m512i vs_wide(vs s) {
  return _mm512_add_epi64(_mm512_cvtepi32_epi64(_mm512_castsi512_si256(s)),
                          _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(s, 1)));
}
SIMD_INLINE int64_t vs_total(vs high, vs low, const int shift) {
  return _mm512_reduce_add_epi64(_mm512_add_epi64(_mm512_slli_epi64(vs_wide(high), shift), vs_wide(low)));
}
#elif defined(SIMD_AVX2)
#define VS_LANES 8
typedef __m256i vs;
SIMD_INLINE vs vs_set1(int32_t x) { return _mm256_set1_epi32(x); }
SIMD_INLINE vs vs_add(vs s, vi a) { return _mm256_add_epi32(_mm256_add_epi32(s, a.a), a.b); }
SIMD_INLINE vs vs_or(vs s, vi a) { return _mm256_or_si256(_mm256_or_si256(s, a.a), a.b); }
SIMD_INLINE int vs_any(vs s, int32_t bits) { return !_mm256_testz_si256(s, _mm256_set1_epi32(bits)); }
SIMD_INLINE __m256i vs_wide(vs s) {
  return _mm256_add_epi64(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(s)),
                          _mm256_cvtepi32_epi64(_mm256_extracti128_si256(s, 1)));
}
SIMD_INLINE int64_t vs_total(vs high, vs low, const int shift) {
  __m256i sum = _mm256_add_epi64(_mm256_slli_epi64(vs_wide(high), shift), vs_wide(low));
  __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  return _mm_extract_epi64(half, 0) + _mm_extract_epi64(half, 1);
}
#else
#define VS_LANES 4
typedef simd_qi vs;
SIMD_INLINE vs vs_set1(int32_t x) { return (vs){x, x, x, x}; }
SIMD_INLINE vs vs_add(vs s, vi a) { return s + (a.a + a.b) + (a.c + a.d); }
SIMD_INLINE vs vs_or(vs s, vi a) { return s | (a.a | a.b) | (a.c | a.d); }
SIMD_INLINE int vs_any(vs s, int32_t bits) { return ((s[0] | s[1] | s[2] | s[3]) & bits) != 0; }
SIMD_INLINE int64_t vs_wide(vs s) { return (int64_t)s[0] + s[1] + s[2] + s[3]; }
SIMD_INLINE int64_t vs_total(vs high, vs low, const int shift) {
  return vs_wide(high) * ((int64_t)1 << shift) + vs_wide(low);
}
#endif

/* The first lane. */
SIMD_INLINE float v_first(vf a) {
#if defined(SIMD_AVX512)
  return _mm512_cvtss_f32(a);
#elif defined(SIMD_AVX2)
  return _mm256_cvtss_f32(a.a);
#else
  return a.a[0];
#endif
}

/* The largest lane. No lane may be NaN. */
SIMD_INLINE float v_hmax(vf a) {
#if defined(SIMD_AVX512)
  return _mm512_reduce_max_ps(a);
#else
  float t[VL], m;
  v_store(t, a);
  m = t[0];
  for (int i = 1; i < VL; i++) m = t[i] > m ? t[i] : m;
  return m;
#endif
}

#endif
