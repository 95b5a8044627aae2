/* Matrix products by the rule of tensor cores, which npu/bf16 states. A chain takes its terms in
 * steps of 16. Operands are bfloat16 values, 0 or at least 2^-62 in magnitude.
 *
 * mma_step is exact. Let E be the largest exponent of a step's terms and u = 2^(E-25). The rule
 * adds trunc(t / u) over the terms t.
 *   - A product ab has 16 significant bits, so ab is exact in float32. So is ab / u, unless it is
 *     subnormal, and then it truncates to 0. |ab / u| < 2^27, and the conversion to int32 truncates.
 *   - 16 products add up to at most 16 (255/128)^2 2^25 = 2130739200 < 2^31. With an accumulator of
 *     at most 2^26 - 4 the sum may wrap, but then its magnitude is above MMA_SUM.
 *   - The sum is converted toward zero, and its product with u is exact, because it is 0, at least
 *     2^-126, or infinite.
 * u and 1 / u are normal if -101 <= E <= 127, and products of operands below 2^64 do not overflow.
 * Larger operands are found when they are packed, and take mma_exact. Lanes with a smaller E, with
 * a sum that may have wrapped or an accumulator that is not finite are found in mma_step. If all
 * terms of a lane are 0, every E gives +0.
 *
 * E comes from 16-bit codes. The code of a value b is the upper half of |b|'s bits, which is the
 * exponent and 7 bits of significand. The code of a value a is its exponent, without bias, in the
 * same place. The largest sum of two codes has the largest exponent of a product, whatever its
 * lower bits are, and the layout of a float32's upper half. The codes of 0 make a sum negative. */
#ifndef EASYRL_MMA_H
#define EASYRL_MMA_H

#include "device.h"
#include "simd.h"
#include "transpose.h"
#include "values.h"

#define MMA_STEP 16 /* terms of a step */
#define MMA_COLS 32 /* columns of a tile */

/* Maximum rows of a tile. */
#if defined(SIMD_AVX512)
#define MMA_MR 6
#elif defined(SIMD_AVX2)
#define MMA_MR 2
#else
#define MMA_MR 4
#endif

/* One term of packed operands: the values of a tile's rows, then their codes, each twice, in both
 * halves of an int32; the values of its columns, then their codes, those of columns j and 16 + j
 * in int32 j. */
#define MMA_A (2 * MMA_MR)
#define MMA_B (MMA_COLS + MMA_COLS / 2)

#define MMA_HUGE 0x5f800000     /* bits of 2^64 */
#define MMA_LEAST (26 << 23)    /* bits of 2^-101 */
#define MMA_SUM 2097119235      /* 2^32 - 2130739200 - (2^26 - 4) - 1 */
#define MMA_ZERO_A (-192 * 128) /* below -191 * 128, for b < 2^64 */
#define MMA_ZERO_B (-64 * 128)  /* below -63 * 128, for a < 2^64; the sum of both is an int16 */

/* The exponent of a value that is not 0, or 128 if it is not finite. */
static inline int mma_exponent(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  int field = bits >> 23 & 0xff;
  return field ? field - 127 : -126;
}

/* One step by the rule itself, for all operands. Consecutive terms are lda and ldb floats apart. */
static __attribute__((noinline)) float mma_exact(float c, const float *a, int64_t lda, const float *b, int64_t ldb) {
  int top = c != 0.0f ? mma_exponent(c) : -133, most = top;
  for (int k = 0; k < MMA_STEP; k++) {
    float x = a[k * lda], y = b[k * ldb];
    int ex = mma_exponent(x), ey = mma_exponent(y);
    if (x != 0.0f && y != 0.0f && ex + ey > top) top = ex + ey;
    if (ex > most) most = ex;
    if (ey > most) most = ey;
  }
  if (most == 128) {
    float infinite = 0.0f;
    for (int k = 0; k < MMA_STEP; k++)
      if (mma_exponent(a[k * lda]) == 128 || mma_exponent(b[k * ldb]) == 128) infinite += a[k * lda] * b[k * ldb];
    return mma_exponent(c) == 128 ? infinite + c : infinite;
  }
  double scale = ldexp(1.0, 25 - top);
  int64_t sum = (int64_t)((double)c * scale);
  for (int k = 0; k < MMA_STEP; k++) sum += (int64_t)((double)a[k * lda] * (double)b[k * ldb] * scale);
  double exact = (double)sum / scale;
  if (fabs(exact) >= 0x1p128) return exact < 0 ? -INFINITY : INFINITY;
  float r = (float)exact;
  return fabs((double)r) > fabs(exact) ? nextafterf(r, 0.0f) : r;
}

/* Corrects the lanes bad of r, the result of a step from the accumulators c. */
static __attribute__((noinline)) vf mma_repair(vf r, const float *c, unsigned bad, const float *a, const float *b) {
  float fixed[VL];
  v_store(fixed, r);
  for (; bad; bad &= bad - 1) {
    int l = __builtin_ctz(bad);
    fixed[l] = mma_exact(c[l], a, MMA_A, b + l, MMA_B);
  }
  return v_load(fixed);
}

/* One step of m rows: acc [m][32] += a b. Returns doubt; where the fast computation may be wrong,
 * it sets the lane's sign bit or, if careful, repairs the lane. */
SIMD_INLINE vi mma_step(const int m, const int careful, const float *a, const float *b, float *acc, vi doubt) {
  vi top[MMA_MR];
#pragma GCC unroll 4
  for (int k = 0; k < MMA_STEP; k++) {
    vi codes = vi_load((const int32_t *)(b + k * MMA_B + MMA_COLS));
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      int32_t code;
      memcpy(&code, a + k * MMA_A + MMA_MR + i, sizeof code);
      vi sum = vi_add16(codes, vi_set1(code));
      top[i] = k ? vi_max16(top[i], sum) : sum;
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < MMA_COLS; v += VL) {
    vi small[MMA_MR], sum[MMA_MR]; /* small is negative if E < -101; sum is in units of u */
    vf scale[MMA_MR];              /* 1 / u */
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      vf c = v_load(acc + i * MMA_COLS + v);
      vi high = v ? vi_and(top[i], vi_set1(-65536)) : vi_shl(top[i], 16);
      high = vi_max(high, vi_and(vf_bits(c), vi_set1(INT32_MAX))); /* 0 if all terms are */
      small[i] = vi_and(vi_sub(high, vi_set1(MMA_LEAST)), vi_sub(vi_set1(0), high));
      vi e = vi_and(vi_max(high, vi_set1(MMA_LEAST)), vi_set1(0xff << 23)); /* bits of 2^E */
      scale[i] = vi_bits(vi_sub(vi_set1((int32_t)(279u << 23)), e));
      sum[i] = vf_int(v_mul(c, scale[i]));
    }
#pragma GCC unroll 4
    for (int k = 0; k < MMA_STEP; k++) {
      vf bv = v_load(b + k * MMA_B + v);
#pragma GCC unroll 6
      for (int i = 0; i < m; i++)
        sum[i] = vi_add(sum[i], vf_int(v_mul(v_mul(v_set1(a[k * MMA_A + i]), bv), scale[i])));
    }
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      float *c = acc + i * MMA_COLS + v;
      vi u = vi_sub(vi_set1(254 << 23), vf_bits(scale[i]));
      vf r = v_mul(vi_float_rz(sum[i]), vi_bits(u));
      if (careful) {
        vi range = vi_or(small[i], vi_sub(vi_set1(229 << 23), u)); /* negative if E > 127, too */
        vm wrapped = vi_gt(vi_add(sum[i], vi_set1(INT32_MIN + MMA_SUM)), vi_set1(INT32_MIN + MMA_SUM + MMA_SUM));
        unsigned bad = vm_bits(vi_gt(vi_set1(0), range)) | vm_bits(wrapped);
        if (bad) r = mma_repair(r, c, bad, a + i, b + v);
      } else {
        doubt = vi_or(doubt, vi_or(small[i], vi_add(sum[i], vi_set1(1 << 30)))); /* negative if |sum| >= 2^30 */
      }
      v_store(c, r);
    }
  }
  return doubt;
}

/* All steps of one row: acc [32] += a b. */
static __attribute__((noinline)) void mma_careful(int64_t steps, const float *a, const float *b, float *acc, int huge) {
  for (; steps > 0; steps--, a += MMA_STEP * MMA_A, b += MMA_STEP * MMA_B) {
    if (!huge) mma_step(1, 1, a, b, acc, vi_set1(0));
    for (int l = 0; huge && l < MMA_COLS; l++) acc[l] = mma_exact(acc[l], a, MMA_A, b + l, MMA_B);
  }
}

/* How to compute a tile. MMA_CAREFUL repairs single lanes, MMA_FAST computes a tile again that
 * needs repairs, and MMA_EXACT is for operands that are huge. */
enum { MMA_FAST, MMA_CAREFUL, MMA_EXACT };

/* Loads m rows of c [m][ldc], of which cols columns exist, to acc [m][32], or zeros. In lanes
 * with a value that is not finite, the result is negative. */
SIMD_INLINE vi mma_load(const int m, float *acc, const float *c, int64_t ldc, int cols, int zero) {
  vi most = vi_set1(0);
  for (int i = 0; i < m; i++) {
    for (int v = 0; v < MMA_COLS; v += VL) {
      int n = cols - v;
      vf x = zero || n <= 0 ? v_zero() : v_load_n(c + i * ldc + v, n < VL ? n : VL);
      most = vi_max(most, vi_and(vf_bits(x), vi_set1(INT32_MAX)));
      v_store(acc + i * MMA_COLS + v, x);
    }
  }
  return vi_sub(vi_set1(0x7f7fffff), most);
}

/* One tile of m rows. It continues from c [m][ldc], of which cols columns exist, or with zero set
 * starts from 0. Returns the way that suits tiles with the same b. */
SIMD_INLINE int mma_tile(const int m, int64_t steps, const float *a, const float *b, float *c, int64_t ldc, int cols, int zero,
                         int way) {
  float acc[MMA_MR * MMA_COLS] __attribute__((aligned(64)));
  vi doubt = mma_load(m, acc, c, ldc, cols, zero);
  if (way == MMA_FAST) {
    for (int64_t s = 0; s < steps; s++)
      doubt = mma_step(m, 0, a + s * MMA_STEP * MMA_A, b + s * MMA_STEP * MMA_B, acc, doubt);
    if (vm_bits(vi_gt(vi_set1(0), doubt))) {
      mma_load(m, acc, c, ldc, cols, zero);
      way = MMA_CAREFUL;
    }
  }
  for (int i = 0; i < m && way != MMA_FAST; i++) mma_careful(steps, a + i, b, acc + i * MMA_COLS, way == MMA_EXACT);
  for (int i = 0; i < m; i++) {
    for (int v = 0; v < MMA_COLS && v < cols; v += VL)
      v_store_n(c + i * ldc + v, v_load(acc + i * MMA_COLS + v), cols - v < VL ? cols - v : VL);
  }
  return way;
}

typedef int (*mma_tile_fn)(int64_t steps, const float *a, const float *b, float *c, int64_t ldc, int cols, int zero, int way);

#define MMA_TILE(m)                                                                                            \
  static __attribute__((noinline)) int mma_tile_##m(int64_t steps, const float *a, const float *b, float *c,   \
                                                    int64_t ldc, int cols, int zero, int way) {                \
    return mma_tile(m, steps, a, b, c, ldc, cols, zero, way);                                                  \
  }

MMA_TILE(1) MMA_TILE(2)
#if MMA_MR >= 4
MMA_TILE(3) MMA_TILE(4)
#endif
#if MMA_MR >= 6
MMA_TILE(5) MMA_TILE(6)
#endif
static const mma_tile_fn mma_tiles[MMA_MR] = {
    mma_tile_1, mma_tile_2,
#if MMA_MR >= 4
    mma_tile_3, mma_tile_4,
#endif
#if MMA_MR >= 6
    mma_tile_5, mma_tile_6,
#endif
};

/* Rows are cut into tiles of nearly equal height. */
static inline int64_t mma_row(int64_t rows, int64_t tiles, int64_t i) { return rows * i / tiles; }

/* Packed rows are tile after tile of [round_up(k, 16)][MMA_A]. Returns the floats that a function which
 * packs them may write. */
static inline int64_t mma_rows_len(int64_t rows, int64_t k) {
  return ceil_div(rows, MMA_MR) * round_up(k, MMA_STEP) * MMA_A + VL;
}

/* Returns the codes of values a, each twice. */
SIMD_INLINE vi mma_codes_a(vf x) {
  vi size = vi_and(vf_bits(x), vi_set1(INT32_MAX));
  vi code = vi_sub(vi_and(vi_sra(size, 16), vi_set1(0xff << 7)), vi_set1(127 << 7));
  code = vf_bits(v_select(vi_gt(size, vi_set1(0)), vi_bits(code), vi_bits(vi_set1(MMA_ZERO_A))));
  return vi_or(vi_shl(code, 16), vi_and(code, vi_set1(0xffff)));
}

/* Packs terms [0, k) of the rows x [rows][ld], which are bfloat16 values of a type. Returns whether a value is
 * 2^64 or more, or not finite. */
SIMD_INLINE int mma_pack(float *dst, const void *x, easyrl_dtype type, int64_t ld, int64_t rows, int64_t k) {
  int64_t tiles = ceil_div(rows, MMA_MR);
  vi most = vi_set1(0);
  for (int64_t t = 0; t < tiles; t++) {
    int64_t r = mma_row(rows, tiles, t), m = mma_row(rows, tiles, t + 1) - r;
    for (int64_t k0 = 0; k0 < k; k0 += VL, dst += VL * MMA_A) {
      float block[MMA_A * VL];
      for (int i = 0; i < MMA_MR; i++) {
        vf v = i < m ? typed_load_n(x, type, (r + i) * ld + k0, (int)min64(VL, k - k0)) : v_zero();
        most = vi_max(most, vi_and(vf_bits(v), vi_set1(INT32_MAX)));
        v_store(block + i * VL, v);
        v_store(block + (MMA_MR + i) * VL, vi_bits(mma_codes_a(v)));
      }
      v_transpose(dst, MMA_A, block, VL, MMA_A, VL);
    }
  }
  return vm_bits(vi_gt(most, vi_set1(MMA_HUGE - 1))) != 0;
}

static int mma_pack_values(float *dst, const value *x, int64_t ld, int64_t rows, int64_t k) {
  return mma_pack(dst, x, VALUE_TYPE, ld, rows, k);
}

static __attribute__((unused)) int mma_pack_rows(float *dst, const float *x, int64_t ld, int64_t rows, int64_t k) {
  return mma_pack(dst, x, EASYRL_FLOAT32, ld, rows, k);
}

/* Packs k terms x [k][ld] of rows rows, as mma_pack_values does. The memory of x ends at end. */
static int mma_pack_columns(float *dst, const value *x, int64_t ld, int64_t rows, int64_t k, const value *end) {
  int64_t tiles = ceil_div(rows, MMA_MR);
  vi most = vi_set1(0);
  for (int64_t t = 0; t < tiles; t++) {
    int64_t r = mma_row(rows, tiles, t), m = mma_row(rows, tiles, t + 1) - r;
    for (int64_t i = 0; i < round_up(k, MMA_STEP); i++, dst += MMA_A) {
      const value *from = x + i * ld + r;
      vf v = i >= k ? v_zero() : value_load_n(from, end - from >= VL ? VL : (int)m); /* a tile ignores rows from m on */
      most = vi_max(most, vi_and(vf_bits(v), vi_set1(INT32_MAX)));
      v_store(dst, v);
      v_store(dst + MMA_MR, vi_bits(mma_codes_a(v)));
    }
  }
  return vm_bits(vi_gt(most, vi_set1(MMA_HUGE - 1))) != 0;
}

/* Stores the codes of a term's columns lo and hi. Returns the maximum of most and their magnitudes' upper halves. */
SIMD_INLINE vi mma_codes_b(float *dst, vf lo, vf hi, vi most) {
  vi size = vi_or(vi_and(vi_sra(vf_bits(lo), 16), vi_set1(0x7fff)), vi_and(vf_bits(hi), vi_set1(0x7fff0000)));
  v_store(dst, vi_bits(vi_replace16(size, MMA_ZERO_B)));
  return vi_max16(most, size);
}

/* Returns whether a value of which mma_codes_b has seen the codes is 2^64 or more, or not finite. */
static inline int mma_codes_huge(vi most) {
  return vm_bits(vi_gt(vi_max(vi_shl(most, 16), most), vi_set1(MMA_HUGE - 1))) != 0;
}

/* Unpacks k terms src [k][ld] of cols columns to dst [round_up(k, 16)][MMA_B], filled up with zeros.
 * Returns whether a value is 2^64 or more, or not finite. */
static int mma_unpack(float *dst, const value *src, int64_t ld, int cols, int64_t k) {
  vi most = vi_set1(0);
  int low = cols < VL ? cols : VL, high = cols - low;
  for (int64_t i = 0; i < round_up(k, MMA_STEP); i++, dst += MMA_B) {
    vf lo = i < k ? value_load_n(src + i * ld, low) : v_zero();
    vf hi = i < k && high ? value_load_n(src + i * ld + VL, high) : v_zero();
    v_store(dst, lo);
    v_store(dst + VL, hi);
    most = mma_codes_b(dst + MMA_COLS, lo, hi, most);
  }
  return mma_codes_huge(most);
}

/* Multiplies packed rows by unpacked columns over k terms. c [rows][ldc] has cols columns; zero
 * starts its chains. huge says whether a function that packed or unpacked operands returned so. */
static void mma_block(int64_t rows, int64_t k, const float *a, const float *b, float *c, int64_t ldc, int cols, int zero,
                      int huge) {
  int64_t tiles = ceil_div(rows, MMA_MR), steps = ceil_div(k, MMA_STEP);
  int way = huge ? MMA_EXACT : MMA_FAST;
  for (int64_t i = 0; i < tiles; i++) {
    int64_t r = mma_row(rows, tiles, i), m = mma_row(rows, tiles, i + 1) - r;
    way = mma_tiles[m - 1](steps, a, b, c + r * ldc, ldc, cols, zero, way);
    a += steps * MMA_STEP * MMA_A;
  }
}

#endif
