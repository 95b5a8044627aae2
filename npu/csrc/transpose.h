/* Transposing blocks of floats. */
#ifndef EASYRL_TRANSPOSE_H
#define EASYRL_TRANSPOSE_H

#include "simd.h"

#if defined(SIMD_AVX2)
/* Loads n columns, at most 8, of the first rows rows into r. The rest of r[0..7] is zero. */
SIMD_INLINE void transpose_load(__m256 *r, const float *src, int64_t stride, int rows, int n) {
  if (rows >= 8 && n == 8) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(src + i * stride);
    return;
  }
  __m256i mask = simd_first8(n);
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) r[i] = i < rows ? _mm256_maskload_ps(src + i * stride, mask) : _mm256_setzero_ps();
}

/* Transposes r [8][8] in place. */
SIMD_INLINE void transpose_8x8(__m256 *r) {
  __m256 t[8], u[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}
#endif

/* Transposes a block of at most 16 x 16: dst[c][r] = src[r][c] for c < cols.
 * Strides are in floats. It writes all 16 values of each row of dst, zero for r >=
 * rows, in ascending order of c. With a dst_stride below 16, each row therefore
 * overwrites the surplus of the previous row. */
SIMD_INLINE void v_transpose(float *restrict dst, int64_t dst_stride, const float *restrict src, int64_t src_stride, int rows, int cols) {
#if defined(SIMD_AVX512)
  __m512 r[16], t[16];
  if (rows == 16 && cols == 16) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_ps(src + i * src_stride);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) r[i] = i < rows ? v_load_n(src + i * src_stride, cols) : v_zero();
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    __m512 a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
    __m512 c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
    t[i] = _mm512_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    __m512 a = _mm512_shuffle_f32x4(t[j], t[4 + j], 0x88), b = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0x88);
    __m512 c = _mm512_shuffle_f32x4(t[j], t[4 + j], 0xdd), d = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0xdd);
    r[j] = _mm512_shuffle_f32x4(a, b, 0x88);
    r[8 + j] = _mm512_shuffle_f32x4(a, b, 0xdd);
    r[4 + j] = _mm512_shuffle_f32x4(c, d, 0x88);
    r[12 + j] = _mm512_shuffle_f32x4(c, d, 0xdd);
  }
  if (cols == 16) {
#pragma GCC unroll 16
    for (int c = 0; c < 16; c++) _mm512_storeu_ps(dst + c * dst_stride, r[c]);
  } else {
#pragma GCC unroll 16
    for (int c = 0; c < 16; c++)
      if (c < cols) _mm512_storeu_ps(dst + c * dst_stride, r[c]);
  }
#elif defined(SIMD_AVX2)
  for (int c = 0; c < cols; c += 8) {
    int n = cols - c < 8 ? cols - c : 8;
    __m256 lo[8], hi[8];
    transpose_load(lo, src + c, src_stride, rows, n);
    transpose_8x8(lo);
    transpose_load(hi, src + c + 8 * src_stride, src_stride, rows - 8, n);
    if (rows > 8) transpose_8x8(hi);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
      if (i < n) {
        _mm256_storeu_ps(dst + (c + i) * dst_stride, lo[i]);
        _mm256_storeu_ps(dst + (c + i) * dst_stride + 8, hi[i]);
      }
  }
#else
  for (int c = 0; c < cols; c++) {
    float t[VL] = {0};
    for (int r = 0; r < rows; r++) t[r] = src[r * src_stride + c];
    memcpy(dst + c * dst_stride, t, sizeof t);
  }
#endif
}

#if defined(SIMD_AVX512)
/* Transposes a block of at most 8 x 16 to dst [cols][8], zero for r >= rows. */
SIMD_INLINE void v_transpose8(float *restrict dst, const float *restrict src, int64_t src_stride, int rows, int cols) {
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  __m512 r[8], t[8];
  if (rows == 8 && cols == 16) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = _mm512_loadu_ps(src + i * src_stride);
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = i < rows ? v_load_n(src + i * src_stride, cols) : v_zero();
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    __m512 a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
    __m512 c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
    t[i] = _mm512_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) { /* lane l of t[j] and t[4 + j] is column 4 l + j */
    __m512d a = _mm512_castps_pd(t[j]), b = _mm512_castps_pd(t[4 + j]);
    __m512d x = _mm512_permutex2var_pd(a, low, b), y = _mm512_permutex2var_pd(a, high, b);
    double *to = (double *)dst + 4 * j;
    if (j < cols) _mm256_storeu_pd(to, _mm512_castpd512_pd256(x));
    if (4 + j < cols) _mm256_storeu_pd(to + 16, _mm512_extractf64x4_pd(x, 1));
    if (8 + j < cols) _mm256_storeu_pd(to + 32, _mm512_castpd512_pd256(y));
    if (12 + j < cols) _mm256_storeu_pd(to + 48, _mm512_extractf64x4_pd(y, 1));
  }
}
#elif defined(SIMD_AVX2)
/* Transposes a block of at most 6 x 16 to dst [cols][6], zero for r >= rows. It writes 2 floats
 * beyond the end of dst. */
SIMD_INLINE void v_transpose6(float *restrict dst, const float *restrict src, int64_t src_stride, int rows, int cols) {
  for (int c = 0; c < cols; c += 8) {
    int n = cols - c < 8 ? cols - c : 8;
    __m256 r[8];
    if (rows == 6 && n == 8) {
#pragma GCC unroll 6
      for (int i = 0; i < 6; i++) r[i] = _mm256_loadu_ps(src + i * src_stride + c);
      r[6] = r[7] = _mm256_setzero_ps();
      transpose_8x8(r);
#pragma GCC unroll 8
      for (int i = 0; i < 8; i++) _mm256_storeu_ps(dst + (c + i) * 6, r[i]);
      continue;
    }
    transpose_load(r, src + c, src_stride, rows, n);
    transpose_8x8(r);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
      if (i < n) _mm256_storeu_ps(dst + (c + i) * 6, r[i]);
  }
}
#endif

/* Transposes a full 16 x 16 block. */
SIMD_INLINE void v_transpose16(float *restrict dst, int64_t dst_stride, const float *restrict src, int64_t src_stride) {
  v_transpose(dst, dst_stride, src, src_stride, 16, 16);
}

#endif
