package session

import (
	"cmp"
	"fmt"

	"github.com/easyrl/easyrl/attention"
)

// OutOfMemory is the failure of a rank that ran out of memory in a pass.
type OutOfMemory struct {
	Err  error
	Held []int64 // IDs of the pieces whose activations the rank held (see Ranks.Forward); below 0 for empty ones
}

// Error returns the text of Err.
func (e *OutOfMemory) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *OutOfMemory) Unwrap() error { return e.Err }

// MicroBatchRows returns the maximum number of rows that a replica computes at once. It is 0, for no limit, until a
// rank runs out of memory. Pass cuts a larger micro-batch into pieces and computes their log-probabilities
// twice. Logprobs cuts a larger layout, too.
func (s *Session[R]) MicroBatchRows() int { return s.rows }

// shrink reduces the memory that replicas need, after a rank has run out of it. It limits pieces to half
// the rows of the largest divisible piece that the rank held. If a response that cannot be cut takes most
// of the memory, it limits replicas to one piece in flight instead. It returns an error if neither helps.
// Such a restart does not count as one of maxRestarts.
//
// Updates whose pieces fit are repeated in the same pieces, because another order of sums would change
// weights that have been published. An update that no longer fits is cut into smaller pieces and then has
// other bits than before.
func (s *Session[R]) shrink(rank error, full *OutOfMemory) error {
	var (
		pieces    int  // number of pieces that the rank held
		heldRows  int  // rows of all of them
		longest   int  // rows of the largest
		divisible int  // rows of the largest that can be cut
		repeating bool // whether the rank repeated an update
	)
	for _, id := range full.Held {
		p := s.piece(id)
		if p == nil { // an empty piece, or one of a discarded update
			continue
		}
		if p.of != nil && p.of.update != s.now {
			repeating = true
		}
		rows := p.layout.Rows()
		pieces++
		heldRows += rows
		longest = max(longest, rows)
		if rows > divisible && p.layout.Divisible() {
			divisible = rows
		}
	}
	indivisible := divisible == 0 || divisible < longest/2 // a single response takes most of the memory
	switch {
	case heldRows == 0:
		return s.countRestart(rank)
	case indivisible && pieces > 1 && s.depth > 1:
		s.depth = 1
		s.cfg.Warn("%v; it held %d micro-batches, the largest a single response of %d rows, which cannot be cut: "+
			"from now on a replica holds one at a time, which takes longer; %s", rank, pieces, longest, s.restarting())
	case indivisible:
		return fmt.Errorf(
			"%w; it held micro-batches of %d rows, the largest a single response of %d, which cannot be cut: "+
				"set train.recompute = true, use more ranks in mode lockstep, or lower rollout.max_tokens", rank,
			heldRows, longest)
	default:
		// The limit never grows: an update that is repeated may have pieces above it.
		s.rows = min(cmp.Or(s.rows, divisible), divisible/2)
		s.cfg.Warn(
			"%v; a micro-batch had %d rows, from now on at most %d (train.micro_batch_tokens = %d avoids this); %s",
			rank, divisible, s.rows, s.rows, s.restarting())
	}
	s.recut(s.now)
	if repeating {
		for _, e := range s.log {
			if e.update != nil {
				s.recut(e.update)
			}
		}
	}
	return nil
}

// piece returns the piece with an ID, or nil if there is none.
func (s *Session[R]) piece(id int64) *piece {
	if s.scored != nil && s.scored.id == id {
		return s.scored
	}
	if p := s.now.pieces[id]; p != nil {
		return p
	}
	for _, e := range s.log {
		if e.update != nil && e.update.pieces[id] != nil {
			return e.update.pieces[id]
		}
	}
	return nil
}

// recut cuts an update's micro-batches into pieces of the current maximum size. A micro-batch in toDerive
// keeps its log-probabilities, and planGradients cuts it after its derive. All others lose the
// log-probabilities that have arrived.
func (s *Session[R]) recut(u *update) {
	toDerive := map[*micro]bool{}
	for _, m := range s.toDerive {
		toDerive[m] = true
	}
	u.plan = s.cfg.Plan(s.depth)
	u.pieces = map[int64]*piece{}
	for _, m := range u.micros {
		m.whole = nil
		if !toDerive[m] {
			m.outputs = nil
			s.cut(m)
		}
	}
}

// parts divides a layout into parts that a replica computes at once.
func (s *Session[R]) parts(l *attention.Layout) []attention.Part {
	if s.rows > 0 && l.Rows() > s.rows {
		return l.Split(s.rows)
	}
	return []attention.Part{{Layout: l}}
}

// cut adds the pieces of a micro-batch to its update's plan. If there are several, and derive has not been
// called, they are probes: derive needs the log-probabilities of all pieces, but a replica cannot hold
// the activations of all until then. planGradients then cuts the micro-batch again.
func (s *Session[R]) cut(m *micro) {
	parts := s.parts(m.layout)
	u := m.update
	derived := m.gradient != nil
	m.whole = nil
	m.missing = len(parts)
	for _, part := range parts {
		s.lastID++
		p := &piece{
			id: s.lastID, of: m, layout: part.Layout, targets: part.Targets, probe: len(parts) > 1 && !derived,
		}
		if len(parts) == 1 {
			m.whole = p
		}
		u.pieces[p.id] = p
		u.plan.Add(p.id, p.layout.Rows())
		if derived || p.probe {
			u.plan.Derived(p.id)
		}
	}
}

// planGradients plans the gradients of a micro-batch after its derive.
func (s *Session[R]) planGradients(m *micro) {
	if m.whole == nil {
		s.cut(m)
		return
	}
	m.update.plan.Derived(m.whole.id)
}

// gradient returns the derivatives of the loss by the log-probabilities of the piece's targets. Those of a
// probe are zero.
func (p *piece) gradient() []float32 {
	out := make([]float32, len(p.layout.Targets))
	if p.probe {
		return out
	}
	for i := range out {
		out[i] = p.of.gradient[p.index(i)]
	}
	return out
}

// index returns the index, among the micro-batch's targets, of a target of the piece.
func (p *piece) index(target int) int {
	if p.targets == nil {
		return target
	}
	return p.targets[target]
}
