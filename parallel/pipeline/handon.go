package pipeline

// HandOn returns the time that ranks take for a product whose terms they share: a chunk of its
// outputs is computed by rank 0, which hands its accumulators on to rank 1, and so on, so that
// sums have the order of a single rank. A rank computes its chunks in order, each one when the
// rank before has handed it on. durations[rank][chunk] are in seconds, as is send, the time of
// a message between ranks, while both may compute; several may be under way. All ranks
// finish when the last rank's last chunk has been sent back to all; a single rank sends
// nothing.
func HandOn(durations [][]float64, send float64) float64 {
	if len(durations) == 0 || len(durations[0]) == 0 {
		return 0
	}
	if len(durations) == 1 {
		send = 0
	}
	ready := make([]float64, len(durations[0])) // times at which chunks arrive at the next rank
	for _, row := range durations {
		end := 0.0
		for chunk := range ready {
			end = max(end, ready[chunk]) + row[chunk]
			ready[chunk] = end + send
		}
	}
	return ready[len(ready)-1]
}

// HandOnBubble returns the share of HandOn's time, 0 to 1, in which ranks wait with equal
// chunks and messages that take no time. Both numbers are at least 1.
func HandOnBubble(ranks, chunks int) float64 {
	return float64(ranks-1) / float64(chunks+ranks-1)
}
