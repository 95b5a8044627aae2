package pipeline

// HandOn predicts how many seconds ranks take for a matrix product whose terms are divided among them.
// The outputs are cut into chunks. Rank 0 sums its terms of a chunk and hands the partial sums to rank
// 1, which adds its own terms, and so on, so that sums have the order of a single rank. A rank computes
// its chunks in order, each one as soon as the rank before it has handed it on.
//
// durations[rank][chunk] is the time to compute, and send the time of one message between ranks, both in
// seconds. Ranks compute while messages are under way, and several messages may be under way. The
// result includes sending the last chunk from the last rank back to all. A single rank sends nothing.
func HandOn(durations [][]float64, send float64) float64 {
	if len(durations) == 0 || len(durations[0]) == 0 {
		return 0
	}
	if len(durations) == 1 {
		send = 0
	}
	ready := make([]float64, len(durations[0])) // by chunk; the time at which it arrives at the next rank
	for _, row := range durations {
		end := 0.0
		for chunk := range ready {
			end = max(end, ready[chunk]) + row[chunk]
			ready[chunk] = end + send
		}
	}
	return ready[len(ready)-1]
}

// HandOnBubble returns the share of HandOn's time, 0 to 1, in which ranks wait if all chunks take the
// same time and messages take none. Both arguments are at least 1.
func HandOnBubble(ranks, chunks int) float64 {
	return float64(ranks-1) / float64(chunks+ranks-1)
}
