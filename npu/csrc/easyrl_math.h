/* exp and log in float32, with the same bits in every lane, instruction set and language.
 * They use only fused multiply-adds, products, sums and integer operations, in the order
 * written here. cpu/math_purego.go does the same in Go.
 *
 * exp(x) = 2^n (1 + r + r^2 q(r)), with n = round(x / ln 2) and r = x - n ln 2 in
 * two pieces (Cody and Waite); q is a minimax polynomial. The error is at most 1.04 ulp.
 * exp(-inf) = 0. A result too small for a subnormal is 0, and one above the largest float is
 * inf. NaN stays NaN.
 *
 * exp2(x) = 2^n p(r), with n = round(x), ties to even, and r = x - n; p is a minimax polynomial, evaluated
 * by Horner's rule. The error is at most 8e-8. exp2 of less than -126 is 0, and of 128 or more is inf. NaN stays
 * NaN. pow2 is exp2 of a whole number of at most 0.
 *
 * log(x) = e ln 2 + f - f^2/2 + f^3 q(f), with x = 2^e (1 + f) and 1 + f in
 * [1/sqrt 2, sqrt 2). The error is at most 0.86 ulp. log(0) = -inf, log of a
 * negative is NaN, log(inf) = inf. */
#ifndef EASYRL_MATH_H
#define EASYRL_MATH_H

#include "simd.h"

#define EXP_MAX 89.0f   /* exp of more overflows */
#define EXP_MIN -104.0f /* exp of less is below half the smallest subnormal */
#define EXP_ROUND 0x1.8p23f
#define EXP_LOG2E 0x1.715476p+0f
#define EXP_LN2_HI 0x1.62e430p-1f
#define EXP_LN2_LO -0x1.05c610p-29f
#define EXP_Q0 0x1.fffffcp-2f
#define EXP_Q1 0x1.5554a2p-3f
#define EXP_Q2 0x1.555880p-5f
#define EXP_Q3 0x1.12309cp-7f
#define EXP_Q4 0x1.6a48f6p-10f

#define EXP2_MIN -126.0f
#define EXP2_P0 0x1.62e430p-1f
#define EXP2_P1 0x1.ebfbdap-3f
#define EXP2_P2 0x1.c6aed4p-5f
#define EXP2_P3 0x1.3b2dbcp-7f
#define EXP2_P4 0x1.5f456ap-10f
#define EXP2_P5 0x1.41d334p-13f

#define LOG_LN2_HI 0x1.62e400p-1f
#define LOG_LN2_LO 0x1.7f7d1cp-20f
#define LOG_Q0 0x1.555548p-2f
#define LOG_Q1 -0x1.ffffeep-3f
#define LOG_Q2 0x1.99a40cp-3f
#define LOG_Q3 -0x1.556258p-3f
#define LOG_Q4 0x1.2347a4p-3f
#define LOG_Q5 -0x1.fb6890p-4f
#define LOG_Q6 0x1.e55f48p-4f
#define LOG_Q7 -0x1.e1cf38p-4f
#define LOG_Q8 0x1.1bf0c0p-4f

/* Returns p, 0.7 < p < 1.5, and sets t so that exp(x) = p 2^(t - EXP_ROUND), for x from EXP_MIN to EXP_MAX.
 * NaN gives NaN. The lowest bits of t are those of the exponent. */
SIMD_INLINE vf v_exp_fraction(vf x, vf *t) {
  *t = v_fma(x, v_set1(EXP_LOG2E), v_set1(EXP_ROUND));
  vf n = v_sub(*t, v_set1(EXP_ROUND));
  vf r = v_fnma(n, v_set1(EXP_LN2_HI), x);
  r = v_fnma(n, v_set1(EXP_LN2_LO), r);
  vf q = v_fma(v_set1(EXP_Q4), r, v_set1(EXP_Q3));
  q = v_fma(q, r, v_set1(EXP_Q2));
  q = v_fma(q, r, v_set1(EXP_Q1));
  q = v_fma(q, r, v_set1(EXP_Q0));
  return v_add(v_fma(v_mul(r, r), q, r), v_set1(1.0f));
}

/* v_exp of values from EXP_MIN to EXP_MAX, and NaN. */
SIMD_INLINE vf v_exp_bounded(vf x) {
  vf t, p = v_exp_fraction(x, &t);
#if defined(SIMD_AVX512)
  return _mm512_scalef_ps(p, v_sub(t, v_set1(EXP_ROUND)));
#else
  vi i = vi_sub(vf_bits(t), vi_set1(0x4b400000));
  vi half = vi_sra(i, 1);
  vi rest = vi_sub(i, half);
  p = v_mul(p, vi_bits(vi_shl(vi_add(half, vi_set1(127)), 23)));
  return v_mul(p, vi_bits(vi_shl(vi_add(rest, vi_set1(127)), 23)));
#endif
}

SIMD_INLINE vf v_rint(vf x) { return v_sub(v_add(x, v_set1(EXP_ROUND)), v_set1(EXP_ROUND)); } /* |x| <= 2^22 */

SIMD_INLINE vf v_exp2(vf x) {
  vf bounded = v_min(v_set1(128.0f), x);
#if defined(SIMD_AVX512)
  vf n = _mm512_roundscale_ps(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  vf t = v_add(bounded, v_set1(EXP_ROUND));
  vf n = v_sub(t, v_set1(EXP_ROUND));
#endif
  vf r = v_sub(bounded, n);
  vf p = v_fma(v_set1(EXP2_P5), r, v_set1(EXP2_P4));
  p = v_fma(p, r, v_set1(EXP2_P3));
  p = v_fma(p, r, v_set1(EXP2_P2));
  p = v_fma(p, r, v_set1(EXP2_P1));
  p = v_fma(p, r, v_set1(EXP2_P0));
  p = v_fma(p, r, v_set1(1.0f));
#if defined(SIMD_AVX512)
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, v_set1(EXP2_MIN), _CMP_NLT_UQ), p, n);
#else
  vf y = vi_bits(vi_add(vf_bits(p), vi_shl(vf_bits(t), 23)));
  y = v_select(v_ge(x, v_set1(EXP2_MIN)), y, v_zero());
  return v_select(v_ge(x, x), y, x); /* NaN */
#endif
}

SIMD_INLINE vf v_pow2(vf n) {
  vi t = vf_bits(v_add(n, v_set1(EXP_ROUND)));
  return v_select(v_ge(n, v_set1(EXP2_MIN)), vi_bits(vi_shl(vi_add(t, vi_set1(127)), 23)), v_zero());
}

SIMD_INLINE vf v_exp(vf x) { return v_exp_bounded(v_max(v_set1(EXP_MIN), v_min(v_set1(EXP_MAX), x))); }

SIMD_INLINE float s_from_bits(int32_t i) { float x; memcpy(&x, &i, 4); return x; }
SIMD_INLINE int32_t s_bits(float x) { int32_t i; memcpy(&i, &x, 4); return i; }

/* s_exp is v_exp of one value. */
SIMD_INLINE float s_exp(float x) {
  x = EXP_MAX < x ? EXP_MAX : x;
  x = EXP_MIN > x ? EXP_MIN : x;
  float t = fmaf(x, EXP_LOG2E, EXP_ROUND);
  float n = t - EXP_ROUND;
  float r = fmaf(-n, EXP_LN2_HI, x);
  r = fmaf(-n, EXP_LN2_LO, r);
  float q = fmaf(EXP_Q4, r, EXP_Q3);
  q = fmaf(q, r, EXP_Q2);
  q = fmaf(q, r, EXP_Q1);
  q = fmaf(q, r, EXP_Q0);
  float p = fmaf(r * r, q, r) + 1.0f;
  if (p != p) return p;
  int32_t i = s_bits(t) - 0x4b400000;
  int32_t half = i >> 1, rest = i - half;
  p = p * s_from_bits((half + 127) << 23);
  return p * s_from_bits((rest + 127) << 23);
}

/* s_pow2 is v_pow2 of one value. */
SIMD_INLINE float s_pow2(float n) { return n >= EXP2_MIN ? s_from_bits(((int32_t)n + 127) << 23) : 0.0f; }

/* s_log is the natural logarithm of one value. */
SIMD_INLINE float s_log(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? -INFINITY : NAN;
  if (x == INFINITY) return x;
  float e = 0.0f;
  if (x < 0x1p-126f) {
    x *= 0x1p23f;
    e = -23.0f;
  }
  int32_t i = s_bits(x) - 0x3f3504f3; /* sqrt(1/2) */
  e += (float)(i >> 23);
  float f = s_from_bits((i & 0x7fffff) + 0x3f3504f3) - 1.0f;
  float q = fmaf(LOG_Q8, f, LOG_Q7);
  q = fmaf(q, f, LOG_Q6);
  q = fmaf(q, f, LOG_Q5);
  q = fmaf(q, f, LOG_Q4);
  q = fmaf(q, f, LOG_Q3);
  q = fmaf(q, f, LOG_Q2);
  q = fmaf(q, f, LOG_Q1);
  q = fmaf(q, f, LOG_Q0);
  float z = f * f;
  float y = z * f * q;
  y = fmaf(e, LOG_LN2_LO, y);
  y = fmaf(-0.5f, z, y);
  return fmaf(e, LOG_LN2_HI, f + y);
}

#endif
