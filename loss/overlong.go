package loss

// OverlongPenalty is what is added to the reward of a response of length tokens,
// of at most limit, for coming near that limit: 0 up to limit - buffer, then
// falling linearly to -1 at the limit (Yu et al. 2025, arXiv 2503.14476, eq. 13,
// "DAPO"). A buffer of 0 is no penalty.
func OverlongPenalty(length, limit, buffer int) float64 {
	over := length - (limit - buffer)
	if buffer <= 0 || over <= 0 {
		return 0
	}
	return -min(1, float64(over)/float64(buffer))
}
