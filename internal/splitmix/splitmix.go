// Package splitmix implements SplitMix64 (Steele, Lea and Flood 2014), the
// module's only integer mixer: reproducible seeds and draws come from it.
package splitmix

// At returns output n, counted from 0, of the generator with the given seed.
func At(seed, n uint64) uint64 { return Mix(seed + (n+1)*0x9e3779b97f4a7c15) }

// Mix is the generator's finalizer, a bijection.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
