package fleet

import (
	"math"

	"github.com/easyrl/easyrl/inference"
)

// recent is the number of answers after which those before count half.
const recent = 512

// growth learns what share of the outstanding responses still grow. All of a
// request's are outstanding until its longest has ended, so that over time the
// share is the sum of the responses' lengths over what it would be, were each as
// long as its request's longest.
type growth struct {
	share         float64 // as dispatch takes it, in steps of a tenth of itself
	grown, lasted float64 // those sums, of recent answers, in tokens
	answers       int     // since both were halved
}

// add counts an answer and reports whether the share has moved.
func (g *growth) add(out []inference.Completion) bool {
	longest := 0
	for i := range out {
		n := len(out[i].IDs)
		longest = max(longest, n)
		g.grown += float64(n)
	}
	g.lasted += float64(longest * len(out))
	if g.answers++; g.answers == recent {
		g.grown, g.lasted, g.answers = g.grown/2, g.lasted/2, 0
	}
	share := g.grown / g.lasted
	if math.Abs(share-g.share) < g.share/10 {
		return false
	}
	g.share = share
	return true
}

// learn draws from an answer of m what dispatch goes by. f is locked.
func (f *Fleet) learn(m *member, out []inference.Completion) {
	for i := range out {
		m.generated += int64(len(out[i].IDs))
	}
	if f.growth.add(out) {
		for _, o := range f.members {
			f.place(o)
		}
	}
}

// Room is the number of requests of so many responses that callers should have
// with the fleet at once, so that no instance stands idle. It is what the
// instances that serve are given, of which the last request may go beyond the
// limit, and of a small one a second, and about as many responses again as they
// sample at once, which wait for instances that join. It grows when answers show
// that the responses of a request differ in length.
func (f *Fleet) Room(responses int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	given := (1 + f.cfg.Ahead) / f.growth.share
	return int(math.Ceil((given+1)*float64(f.capacity)/float64(responses))) + 2*f.serving
}
