package pairs

// maxShort is the number of symbols up to which searching all pairs for the best
// one is faster than a heap.
const maxShort = 32

// mergeShort is Merge for at most maxShort symbols, in quadratic time.
func (p *Table) mergeShort(ids []int32) int {
	var ranks, into [maxShort]int32 // of the pair that starts at each symbol
	n := len(ids)
	for i := range n - 1 {
		ranks[i], into[i] = p.get(ids[i], ids[i+1])
	}
	for n > 1 {
		best, at := int32(noRank), 0
		for i, r := range ranks[:n-1] {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			break
		}
		ids[at] = into[at]
		if at+2 < n { // move the symbols right of the pair
			copy(ids[at+1:], ids[at+2:n])
			copy(ranks[at+1:], ranks[at+2:n-1])
			copy(into[at+1:], into[at+2:n-1])
		}
		n--
		if at > 0 {
			ranks[at-1], into[at-1] = p.get(ids[at-1], ids[at])
		}
		if at < n-1 {
			ranks[at], into[at] = p.get(ids[at], ids[at+1])
		}
	}
	return n
}
