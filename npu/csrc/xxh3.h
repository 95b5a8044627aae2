/* The 64-bit XXH3 of at least 4 bytes, without a seed. github.com/Cyan4973/xxHash,
 * doc/xxhash_spec.md, defines it. The host must be little-endian.
 *
 *   acc   eight sums of 64 bits   stripe  64 bytes of input   block  16 stripes */
#ifndef EASYRL_XXH3_H
#define EASYRL_XXH3_H

#include <stdint.h>
#include <string.h>

#define XXH3_STRIPE 64
#define XXH3_BLOCK 16
#define XXH3_PRIME32 0x9e3779b1u
#define XXH3_PRIME64 0x9e3779b185ebca87u

static const uint64_t xxh3_first[8] = {0xc2b2ae3du,          0x9e3779b185ebca87u, 0xc2b2ae3d27d4eb4fu, 0x165667b19e3779f9u,
                                       0x85ebca77c2b2ae63u, 0x85ebca77u,         0x27d4eb2f165667c5u, 0x9e3779b1u};

static const uint64_t xxh3_words[24] = {
    0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072, 0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82,
    0x8e2443f7744608b8, 0x4c263a81e69035e0, 0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
    0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8, 0xc3ebd33483acc5ea, 0xeb6313faffa081c5,
    0x49daf0b751dd0d17, 0x9e68d429265516d3, 0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af};

static inline const uint8_t *xxh3_secret(void) { return (const uint8_t *)xxh3_words; }

static inline uint64_t xxh3_word(const uint8_t *p) {
  uint64_t w;
  memcpy(&w, p, sizeof w);
  return w;
}

static inline uint64_t xxh3_folded(uint64_t a, uint64_t b) {
  unsigned __int128 p = (unsigned __int128)a * b;
  return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static inline uint64_t xxh3_avalanche(uint64_t h) {
  h ^= h >> 37;
  h *= 0x165667919e3779f9u;
  return h ^ h >> 32;
}

/* Returns the hash of a run of more than 240 bytes from its sums. */
static inline uint64_t xxh3_merged(const uint64_t *acc, int64_t bytes) {
  const uint8_t *key = xxh3_secret() + 11;
  uint64_t h = (uint64_t)bytes * XXH3_PRIME64;
  for (int i = 0; i < 8; i += 2) h += xxh3_folded(acc[i] ^ xxh3_word(key + 8 * i), acc[i + 1] ^ xxh3_word(key + 8 * i + 8));
  return xxh3_avalanche(h);
}

static inline uint64_t xxh3_mixed(const uint8_t *p, int64_t at, int64_t key) {
  return xxh3_folded(xxh3_word(p + at) ^ xxh3_word(xxh3_secret() + key), xxh3_word(p + at + 8) ^ xxh3_word(xxh3_secret() + key + 8));
}

/* The hash of 4 to 16 bytes. */
static inline uint64_t xxh3_tiny(const uint8_t *p, int64_t n) {
  if (n > 8) {
    uint64_t lo = xxh3_word(p) ^ xxh3_words[3] ^ xxh3_words[4], hi = xxh3_word(p + n - 8) ^ xxh3_words[5] ^ xxh3_words[6];
    return xxh3_avalanche((uint64_t)n + __builtin_bswap64(lo) + hi + xxh3_folded(lo, hi));
  }
  uint32_t lo, hi;
  memcpy(&lo, p, 4);
  memcpy(&hi, p + n - 4, 4);
  uint64_t h = (hi + ((uint64_t)lo << 32)) ^ xxh3_words[1] ^ xxh3_words[2];
  h ^= (h << 49 | h >> 15) ^ (h << 24 | h >> 40);
  h *= 0x9fb21c651e98df25u;
  h ^= (h >> 35) + (uint64_t)n;
  h *= 0x9fb21c651e98df25u;
  return h ^ h >> 28;
}

/* The hash of 17 to 240 bytes. */
static inline uint64_t xxh3_short(const uint8_t *p, int64_t n) {
  uint64_t h = (uint64_t)n * XXH3_PRIME64;
  if (n <= 128) {
    for (int64_t i = (n - 1) / 32; i >= 0; i--) h += xxh3_mixed(p, 16 * i, 32 * i) + xxh3_mixed(p, n - 16 * (i + 1), 32 * i + 16);
    return xxh3_avalanche(h);
  }
  for (int64_t i = 0; i < 8; i++) h += xxh3_mixed(p, 16 * i, 16 * i);
  h = xxh3_avalanche(h);
  for (int64_t i = 8; i < n / 16; i++) h += xxh3_mixed(p, 16 * i, 16 * (i - 8) + 3);
  return xxh3_avalanche(h + xxh3_mixed(p, n - 16, 119));
}

/* The hash of more than 240 bytes. */
static inline uint64_t xxh3_long(const uint8_t *p, int64_t n) {
  uint64_t acc[8];
  memcpy(acc, xxh3_first, sizeof acc);
  int64_t stripes = (n - 1) / XXH3_STRIPE;
  for (int64_t s = 0; s <= stripes; s++) {
    const uint8_t *in = s == stripes ? p + n - XXH3_STRIPE : p + s * XXH3_STRIPE;
    const uint8_t *key = xxh3_secret() + (s == stripes ? 121 : s % XXH3_BLOCK * 8);
    uint64_t data[8], mixed[8];
    memcpy(data, in, sizeof data);
    memcpy(mixed, key, sizeof mixed);
    for (int i = 0; i < 8; i++) mixed[i] ^= data[i];
    for (int i = 0; i < 8; i++) acc[i] += data[i ^ 1] + (mixed[i] & 0xffffffffu) * (mixed[i] >> 32);
    if (s == stripes || s % XXH3_BLOCK < XXH3_BLOCK - 1) continue;
    for (int i = 0; i < 8; i++) acc[i] = (acc[i] ^ acc[i] >> 47 ^ xxh3_words[16 + i]) * XXH3_PRIME32;
  }
  return xxh3_merged(acc, n);
}

static inline uint64_t xxh3(const void *data, int64_t bytes) {
  const uint8_t *p = data;
  return bytes <= 16 ? xxh3_tiny(p, bytes) : bytes <= 240 ? xxh3_short(p, bytes) : xxh3_long(p, bytes);
}

#endif
