/* exp and log in float32, with the same bits in every lane, instruction set and language.
 * They use only fused multiply-adds, products, sums and integer operations, in the order
 * written here. cpu/math_purego.go does the same in Go.
 *
 * exp(x) = 2^n (1 + r + r^2 q(r)), with n = round(x / ln 2) and r = x - n ln 2 in
 * two pieces (Cody and Waite); q is a minimax polynomial. The error is at most 1.04 ulp.
 * exp(-inf) = 0. A result too small for a subnormal is 0, and one above the largest float is
 * inf. NaN stays NaN.
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

SIMD_INLINE vf v_exp(vf x) {
  vf clamped = v_max(v_set1(EXP_MIN), v_min(v_set1(EXP_MAX), x));
  vf t = v_fma(clamped, v_set1(EXP_LOG2E), v_set1(EXP_ROUND));
  vf n = v_sub(t, v_set1(EXP_ROUND));
  vf r = v_fnma(n, v_set1(EXP_LN2_HI), clamped);
  r = v_fnma(n, v_set1(EXP_LN2_LO), r);
  vf q = v_fma(v_set1(EXP_Q4), r, v_set1(EXP_Q3));
  q = v_fma(q, r, v_set1(EXP_Q2));
  q = v_fma(q, r, v_set1(EXP_Q1));
  q = v_fma(q, r, v_set1(EXP_Q0));
  vf p = v_add(v_fma(v_mul(r, r), q, r), v_set1(1.0f));
#if defined(SIMD_AVX512)
  return _mm512_scalef_ps(p, n);
#else
  vi i = vi_sub(vf_bits(t), vi_set1(0x4b400000));
  vi half = vi_sra(i, 1);
  vi rest = vi_sub(i, half);
  p = v_mul(p, vi_bits(vi_shl(vi_add(half, vi_set1(127)), 23)));
  return v_mul(p, vi_bits(vi_shl(vi_add(rest, vi_set1(127)), 23)));
#endif
}

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
