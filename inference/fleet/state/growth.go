package state

import (
	"math"

	"github.com/easyrl/easyrl/inference"
)

// recent is the number of answers after which older ones count half.
const recent = 512

// growth estimates what share of the outstanding responses are still growing. A request's
// responses are all outstanding until the longest ends. The share is therefore the sum of
// the responses' lengths, divided by what the sum would be if each response were as long as
// the longest of its request.
type growth struct {
	share   float64 // the estimate; changes only by a tenth or more, because a change reorders all members
	grown   float64 // sum of the lengths of recent responses, in tokens
	lasted  float64 // the same sum if each were as long as the longest of its request
	answers int     // number of answers since both sums were halved
}

// add counts an answer, which has at least one token, and reports whether the share has changed.
func (g *growth) add(out []inference.Completion) bool {
	longest := 0
	for i := range out {
		n := len(out[i].IDs)
		longest = max(longest, n)
		g.grown += float64(n)
	}
	g.lasted += float64(longest * len(out))
	g.answers++
	if g.answers == recent {
		g.grown /= 2
		g.lasted /= 2
		g.answers = 0
	}
	share := g.grown / g.lasted
	if math.Abs(share-g.share) < g.share/10 {
		return false
	}
	g.share = share
	return true
}
