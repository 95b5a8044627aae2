//go:build unix

/* Copies runs of more than 240 bytes, and computes the XXH3 sum of each run while it is in
 * registers. If the sum is right, the copy is intact, even if the source changed during the
 * copy: only part of the last stripe is read twice, and the copy keeps the second reading. */
#include "../csrc/xxh3.h"

#define INTERNAL __attribute__((visibility("hidden")))
#define EXPONENT 0x7f800000u /* of infinity and NaN */
#define LOWEST 0x00800000u   /* lowest bit of an exponent; added to EXPONENT, it carries into the sign */

/* Defines run_<isa>, which returns the sum of a run and, unless dst is NULL, copies the run to
 * dst. The copy bypasses the caches if dst is aligned to a cache line. run_<isa> sets the sign
 * bit of *bad if a value is not finite. A stripe is vecs vectors of type vec. */
#define RUN(isa, target, vec, vecs)                                                                                                       \
  target static inline __attribute__((always_inline)) uint64_t body_##isa(uint8_t *dst, const uint8_t *src, int64_t bytes,                \
                                                                          int past, uint32_t *bad) {                                      \
    const int size = XXH3_STRIPE / vecs;                                                                                                  \
    vec acc[vecs], wrong[vecs];                                                                                                           \
    for (int i = 0; i < vecs; i++) acc[i] = load_##isa((const uint8_t *)xxh3_first + i * size), wrong[i] = zero_##isa();                  \
    int64_t stripes = (bytes - 1) / XXH3_STRIPE;                                                                                          \
    for (int64_t s = 0; s <= stripes; s++) {                                                                                              \
      int last = s == stripes;                                                                                                            \
      const uint8_t *in = last ? src + bytes - XXH3_STRIPE : src + s * XXH3_STRIPE, *key = xxh3_secret() + (last ? 121 : s % XXH3_BLOCK * 8);\
      for (int i = 0; i < vecs; i++) {                                                                                                    \
        vec d = load_##isa(in + i * size);                                                                                                \
        acc[i] = mixed_##isa(acc[i], d, load_##isa(key + i * size));                                                                      \
        wrong[i] = carried_##isa(wrong[i], d);                                                                                            \
        if (past && !last) stream_##isa(dst + s * XXH3_STRIPE + i * size, d);                                                             \
        if (!past && dst) store_##isa(last ? dst + bytes - XXH3_STRIPE + i * size : dst + s * XXH3_STRIPE + i * size, d);                 \
        if (past && last) store_##isa(dst + bytes - XXH3_STRIPE + i * size, d);                                                           \
      }                                                                                                                                   \
      if (s % XXH3_BLOCK == XXH3_BLOCK - 1 && !last)                                                                                      \
        for (int i = 0; i < vecs; i++) acc[i] = scrambled_##isa(acc[i], load_##isa(xxh3_secret() + 128 + i * size));                      \
    }                                                                                                                                     \
    uint64_t sums[8];                                                                                                                     \
    uint32_t carries[16];                                                                                                                 \
    for (int i = 0; i < vecs; i++) store_##isa((uint8_t *)sums + i * size, acc[i]), store_##isa((uint8_t *)carries + i * size, wrong[i]); \
    for (int i = 0; i < 16; i++) *bad |= carries[i];                                                                                      \
    return xxh3_merged(sums, bytes);                                                                                                      \
  }                                                                                                                                       \
  target static uint64_t run_##isa(uint8_t *dst, const uint8_t *src, int64_t bytes, uint32_t *bad) {                                      \
    if (!dst) return body_##isa(0, src, bytes, 0, bad);                                                                                   \
    if ((uintptr_t)dst % XXH3_STRIPE == 0) return body_##isa(dst, src, bytes, 1, bad);                                                    \
    return body_##isa(dst, src, bytes, 0, bad);                                                                                           \
  }

#define INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f")))
AVX512 INLINE __m512i zero_avx512(void) { return _mm512_setzero_si512(); }
AVX512 INLINE __m512i load_avx512(const uint8_t *p) { return _mm512_loadu_si512(p); }
AVX512 INLINE void store_avx512(uint8_t *p, __m512i x) { _mm512_storeu_si512(p, x); }
AVX512 INLINE void stream_avx512(uint8_t *p, __m512i x) { _mm512_stream_si512((void *)p, x); }
AVX512 INLINE __m512i mixed_avx512(__m512i acc, __m512i d, __m512i key) {
  __m512i v = _mm512_xor_si512(d, key);
  __m512i product = _mm512_mul_epu32(v, _mm512_srli_epi64(v, 32));
  return _mm512_add_epi64(acc, _mm512_add_epi64(_mm512_shuffle_epi32(d, _MM_PERM_BADC), product));
}
AVX512 INLINE __m512i carried_avx512(__m512i wrong, __m512i d) {
  __m512i e = _mm512_and_si512(d, _mm512_set1_epi32(EXPONENT));
  return _mm512_or_si512(wrong, _mm512_add_epi32(e, _mm512_set1_epi32(LOWEST)));
}
AVX512 INLINE __m512i scrambled_avx512(__m512i acc, __m512i key) {
  __m512i x = _mm512_xor_si512(_mm512_xor_si512(acc, _mm512_srli_epi64(acc, 47)), key), p = _mm512_set1_epi64((int64_t)XXH3_PRIME32);
  return _mm512_add_epi64(_mm512_mul_epu32(x, p), _mm512_slli_epi64(_mm512_mul_epu32(_mm512_srli_epi64(x, 32), p), 32));
}
RUN(avx512, AVX512, __m512i, 1)

#define AVX2 __attribute__((target("avx2")))
AVX2 INLINE __m256i zero_avx2(void) { return _mm256_setzero_si256(); }
AVX2 INLINE __m256i load_avx2(const uint8_t *p) { return _mm256_loadu_si256((const void *)p); }
AVX2 INLINE void store_avx2(uint8_t *p, __m256i x) { _mm256_storeu_si256((void *)p, x); }
AVX2 INLINE void stream_avx2(uint8_t *p, __m256i x) { _mm256_stream_si256((void *)p, x); }
AVX2 INLINE __m256i mixed_avx2(__m256i acc, __m256i d, __m256i key) {
  __m256i v = _mm256_xor_si256(d, key);
  __m256i product = _mm256_mul_epu32(v, _mm256_srli_epi64(v, 32));
  return _mm256_add_epi64(acc, _mm256_add_epi64(_mm256_shuffle_epi32(d, _MM_SHUFFLE(1, 0, 3, 2)), product));
}
AVX2 INLINE __m256i carried_avx2(__m256i wrong, __m256i d) {
  __m256i e = _mm256_and_si256(d, _mm256_set1_epi32(EXPONENT));
  return _mm256_or_si256(wrong, _mm256_add_epi32(e, _mm256_set1_epi32(LOWEST)));
}
AVX2 INLINE __m256i scrambled_avx2(__m256i acc, __m256i key) {
  __m256i x = _mm256_xor_si256(_mm256_xor_si256(acc, _mm256_srli_epi64(acc, 47)), key), p = _mm256_set1_epi64x((int64_t)XXH3_PRIME32);
  return _mm256_add_epi64(_mm256_mul_epu32(x, p), _mm256_slli_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 32), p), 32));
}
RUN(avx2, AVX2, __m256i, 2)
#endif

typedef struct {
  uint64_t a, b;
} pair;
INLINE pair zero_portable(void) { return (pair){0, 0}; }
INLINE pair load_portable(const uint8_t *p) { return (pair){xxh3_word(p), xxh3_word(p + 8)}; }
INLINE void store_portable(uint8_t *p, pair x) { memcpy(p, &x, sizeof x); }
#define stream_portable store_portable
INLINE uint64_t halves(uint64_t x) { return (x & 0xffffffffu) * (x >> 32); }
INLINE pair mixed_portable(pair acc, pair d, pair key) {
  return (pair){acc.a + d.b + halves(d.a ^ key.a), acc.b + d.a + halves(d.b ^ key.b)};
}
/* Adds LOWEST to the exponents of two values in a word. The lower one carries into its own sign
 * at most, not into the upper value. */
INLINE uint64_t carries(uint64_t x) { return (x & 0x7f8000007f800000u) + 0x0080000000800000u; }
INLINE pair carried_portable(pair wrong, pair d) { return (pair){wrong.a | carries(d.a), wrong.b | carries(d.b)}; }
INLINE uint64_t scrambled(uint64_t acc, uint64_t key) { return (acc ^ acc >> 47 ^ key) * XXH3_PRIME32; }
INLINE pair scrambled_portable(pair acc, pair key) { return (pair){scrambled(acc.a, key.a), scrambled(acc.b, key.b)}; }
RUN(portable, , pair, 4)

typedef uint64_t (*run_function)(uint8_t *dst, const uint8_t *src, int64_t bytes, uint32_t *bad);

/* Returns the function for an instruction set by its number in copysum_cgo.go, or the best one
 * for 0. Returns NULL if this machine does not support the instruction set. */
static run_function run_of(int32_t isa) {
#if defined(__x86_64__)
  int avx512 = __builtin_cpu_supports("avx512f"), avx2 = __builtin_cpu_supports("avx2");
  if (isa == 3 || (isa == 0 && avx512)) return avx512 ? run_avx512 : 0;
  if (isa == 2 || (isa == 0 && avx2)) return avx2 ? run_avx2 : 0;
#endif
  return isa <= 1 ? run_portable : 0;
}

/* Reports whether this machine runs an instruction set. */
INTERNAL int32_t easyrl_copy_sum_runs(int32_t isa) { return run_of(isa) != 0; }

/* Writes the sum of each of a number of runs, of n values each, to sums, and copies the runs to
 * dst unless it is NULL. n is above 60. Returns whether all values are finite. */
INTERNAL int32_t easyrl_copy_sum(int32_t isa, float *dst, const float *src, int64_t n, int64_t runs, uint64_t *sums) {
  run_function run = run_of(isa);
  uint32_t bad = 0;
  for (int64_t i = 0; i < runs; i++) sums[i] = run((uint8_t *)(dst ? dst + i * n : 0), (const uint8_t *)(src + i * n), 4 * n, &bad);
#if defined(__x86_64__)
  _mm_sfence();
#endif
  return bad >> 31 == 0;
}
