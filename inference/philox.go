package inference

import "math/bits"

// Uniform returns the random draw, in [0, 1), for one token. It divides the top 24 bits of the
// first word of Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC 2011) by 2^24. The key is the seed, low word first, and the counter is
// (sample, position, 0, 0), where sample is the response's index, counted from Request.FirstIndex, and
// position is the token's index in the response.
func Uniform(seed uint64, sample, position uint32) float32 {
	out := philox([4]uint32{sample, position}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float32(out[0]>>8) / (1 << 24)
}

// philox applies Philox4x32-10, a bijection on counters for each key.
func philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	const (
		m0, m1 = 0xD2511F53, 0xCD9E8D57 // the paper's multipliers
		w0, w1 = 0x9E3779B9, 0xBB67AE85 // the paper's key increments
	)
	for range 10 {
		hi0, lo0 := bits.Mul32(m0, ctr[0])
		hi1, lo1 := bits.Mul32(m1, ctr[2])
		ctr = [4]uint32{hi1 ^ ctr[1] ^ key[0], lo1, hi0 ^ ctr[3] ^ key[1], lo0}
		key[0] += w0
		key[1] += w1
	}
	return ctr
}
