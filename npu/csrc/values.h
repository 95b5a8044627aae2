/* Values of weights and activations: float32 or, in the tables of npu.BF16, bfloat16. */
#ifndef EASYRL_VALUES_H
#define EASYRL_VALUES_H

#include "device.h"
#include "simd.h"

/* The bits of x as bfloat16 in the upper halves of lanes, zero in the lower halves: nearest, ties to even,
 * with magnitudes below 2^-62 as +0. NaN stays NaN. See bf16.Round. */
SIMD_INLINE vi bfloat16_bits(vf x) {
  vi bits = vf_bits(x), size = vi_and(bits, vi_set1(INT32_MAX));
  vi odd = vi_and(vi_sra(bits, 16), vi_set1(1));
  vi near = vi_add(bits, vi_add(odd, vi_set1(0x7fff)));
  vf r = v_select(vi_gt(size, vi_set1(0x7f800000)), vi_bits(vi_or(bits, vi_set1(0x400000))), vi_bits(near));
  r = v_select(vi_gt(vi_set1(0x20800000), size), v_zero(), r); /* the bits of 2^-62 */
  return vi_and(vf_bits(r), vi_set1(-65536));
}

/* x rounded to bfloat16. */
SIMD_INLINE vf bfloat16_round(vf x) { return vi_bits(bfloat16_bits(x)); }

SIMD_INLINE vf bfloat16_load(const uint16_t *p) {
#if defined(SIMD_AVX512)
  return vi_bits(vi_shl(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
#elif defined(SIMD_AVX2)
  vi x = {_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)),
          _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)))};
  return vi_bits(vi_shl(x, 16));
#else
  int32_t t[VL];
  for (int i = 0; i < VL; i++) t[i] = p[i];
  return vi_bits(vi_shl(vi_load(t), 16));
#endif
}

SIMD_INLINE void bfloat16_store(uint16_t *p, vf x) {
  vi bits = bfloat16_bits(x);
#if defined(SIMD_AVX512)
  _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
#elif defined(SIMD_AVX2)
  __m256i both = _mm256_packus_epi32(_mm256_srli_epi32(bits.a, 16), _mm256_srli_epi32(bits.b, 16));
  _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(both, 0xd8));
#else
  int32_t t[VL];
  vi_store(t, bits);
  for (int i = 0; i < VL; i++) p[i] = (uint16_t)((uint32_t)t[i] >> 16);
#endif
}

/* The first n values; the other lanes are zero. */
SIMD_INLINE vf bfloat16_load_n(const uint16_t *p, int n) {
  if (n == VL) return bfloat16_load(p);
#if defined(SIMD_AVX512)
  return vi_bits(vi_shl(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vm_first(n), p)), 16));
#else
  uint16_t t[VL] = {0};
  for (int i = 0; i < n; i++) t[i] = p[i];
  return bfloat16_load(t);
#endif
}

/* Stores the first n lanes. */
SIMD_INLINE void bfloat16_store_n(uint16_t *p, vf x, int n) {
  if (n == VL) {
    bfloat16_store(p, x);
    return;
  }
#if defined(SIMD_AVX512)
  _mm256_mask_storeu_epi16(p, vm_first(n), _mm512_cvtepi32_epi16(_mm512_srli_epi32(bfloat16_bits(x), 16)));
#else
  uint16_t t[VL];
  bfloat16_store(t, x);
  for (int i = 0; i < n; i++) p[i] = t[i];
#endif
}

/* value is the type of weights and activations, VALUE_TYPE its easyrl_dtype. value_round rounds lanes to it;
 * value_store does so, too. */
#if defined(KERNELS_BF16)
typedef uint16_t value;
#define VALUE_TYPE EASYRL_BFLOAT16
SIMD_INLINE vf value_load(const value *p) { return bfloat16_load(p); }
SIMD_INLINE vf value_load_n(const value *p, int n) { return bfloat16_load_n(p, n); }
SIMD_INLINE void value_store(value *p, vf x) { bfloat16_store(p, x); }
SIMD_INLINE void value_store_n(value *p, vf x, int n) { bfloat16_store_n(p, x, n); }
SIMD_INLINE vf value_round(vf x) { return bfloat16_round(x); }
SIMD_INLINE float value_float(value x) { return s_from_bits((int32_t)((uint32_t)x << 16)); }
#else
typedef float value;
#define VALUE_TYPE EASYRL_FLOAT32
SIMD_INLINE vf value_load(const value *p) { return v_load(p); }
SIMD_INLINE vf value_load_n(const value *p, int n) { return v_load_n(p, n); }
SIMD_INLINE void value_store(value *p, vf x) { v_store(p, x); }
SIMD_INLINE void value_store_n(value *p, vf x, int n) { v_store_n(p, x, n); }
SIMD_INLINE vf value_round(vf x) { return x; }
SIMD_INLINE float value_float(value x) { return x; }
#endif

/* typed functions take values from index i of x on, which are float32 or of type VALUE_TYPE. */
SIMD_INLINE int typed_float(easyrl_dtype type) { return VALUE_TYPE == EASYRL_FLOAT32 || type == EASYRL_FLOAT32; }

/* Returns the address of value i. */
SIMD_INLINE void *typed_at(const void *x, easyrl_dtype type, int64_t i) {
  return (char *)x + i * (typed_float(type) ? (int64_t)sizeof(float) : (int64_t)sizeof(uint16_t));
}

SIMD_INLINE vf typed_load(const void *x, easyrl_dtype type, int64_t i) {
  return typed_float(type) ? v_load((const float *)x + i) : bfloat16_load((const uint16_t *)x + i);
}

SIMD_INLINE vf typed_load_n(const void *x, easyrl_dtype type, int64_t i, int n) {
  return typed_float(type) ? v_load_n((const float *)x + i, n) : bfloat16_load_n((const uint16_t *)x + i, n);
}

SIMD_INLINE void typed_store(void *y, easyrl_dtype type, int64_t i, vf x) {
  if (typed_float(type)) v_store((float *)y + i, x);
  else bfloat16_store((uint16_t *)y + i, x);
}

SIMD_INLINE void typed_store_n(void *y, easyrl_dtype type, int64_t i, vf x, int n) {
  if (typed_float(type)) v_store_n((float *)y + i, x, n);
  else bfloat16_store_n((uint16_t *)y + i, x, n);
}

#endif
