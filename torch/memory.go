package torch

import (
	"cmp"
	"fmt"

	"github.com/easyrl/easyrl/attention"
)

// exhausted is the failure of a rank that ran out of memory in a pass.
type exhausted struct {
	failure
	held []int64 // pieces whose activations the rank held; below 0 for empty ones
}

// MicroBatchRows returns the maximum rows of a micro-batch that ranks compute at once. It is 0
// until ranks have run out of memory. Pass cuts a larger micro-batch and computes its
// log-probabilities twice. ScoreAs cuts a larger layout, too.
func (s *Session) MicroBatchRows() int { return s.rows }

// shrink halves the maximum size of a micro-batch after a rank has run out of memory: to half the
// rows of the largest that the rank held and that can be cut. If a response that cannot be cut takes
// most of the memory, replicas have one piece in flight. The restart does not count as one of
// maxRestarts. shrink returns an error if cutting cannot help.
//
// Updates that fit are repeated in the pieces that they were made in: another order of sums would
// change weights that have been published. An update that no longer fits is cut again and then ends
// in other bits than before.
func (s *Session) shrink(rank *fault, full *exhausted) error {
	held, longest, largest := 0, 0, 0 // rows: of all, of the largest, and of the largest that can be cut
	pieces := 0
	repeating := false // whether the rank repeated an update
	for _, id := range full.held {
		p := s.piece(id)
		if p == nil { // empty, or of an update that was discarded
			continue
		}
		repeating = repeating || p.of != nil && p.of.update != s.now
		rows := p.layout.Rows()
		pieces = pieces + 1
		held = held + rows
		longest = max(longest, rows)
		if rows > largest && p.layout.Divisible() {
			largest = rows
		}
	}
	whole := largest == 0 || largest < longest/2 // a response that cannot be cut takes most
	switch {
	case held == 0:
		return s.countRestart(rank)
	case whole && pieces > 1 && s.depth > 1:
		s.depth = 1
		s.cfg.Warn("%v; it held %d micro-batches, the largest a single response of %d rows, which cannot be cut: "+
			"from now on a replica holds one at a time, which takes longer; %s", rank, pieces, longest, s.restarting())
	case whole:
		return fmt.Errorf(
			"%w; it held micro-batches of %d rows, the largest a single response of %d, which cannot be cut: "+
				"set train.recompute = true, use more ranks in mode lockstep, or lower rollout.max_tokens", rank,
			held, longest)
	default:
		s.rows = min(cmp.Or(s.rows, largest), largest/2) // a repeated update may have larger ones
		s.cfg.Warn(
			"%v; a micro-batch had %d rows, from now on at most %d (train.micro_batch_tokens = %d avoids this); %s",
			rank, largest, s.rows, s.rows, s.restarting())
	}
	s.recut(s.now)
	if repeating {
		for _, u := range s.past {
			s.recut(u)
		}
	}
	return nil
}

// piece returns the piece with an ID, nil if there is none.
func (s *Session) piece(id int64) *piece {
	if s.scored != nil && s.scored.id == id {
		return s.scored
	}
	if p := s.now.pieces[id]; p != nil {
		return p
	}
	for _, u := range s.past {
		if p := u.pieces[id]; p != nil {
			return p
		}
	}
	return nil
}

// recut cuts an update's micro-batches into pieces of the current size. A micro-batch that waits for
// derive keeps its log-probabilities and is cut when derive has returned; another one whose derive has
// not been called loses what it has of them.
func (s *Session) recut(u *update) {
	waits := map[*micro]bool{} // for derive
	for _, m := range s.toDerive {
		waits[m] = true
	}
	u.plan, u.pieces = s.newPlan(), map[int64]*piece{}
	for _, m := range u.micros {
		if m.whole = nil; !waits[m] {
			m.logprobs = nil
			s.cut(m)
		}
	}
}

// parts returns the parts of a layout that ranks compute at once.
func (s *Session) parts(l *attention.Layout) []attention.Part {
	if s.rows > 0 && l.Rows() > s.rows {
		return l.Split(s.rows)
	}
	return []attention.Part{{Layout: l}}
}

// cut plans the pieces of a micro-batch. If there are several, and derive needs the
// log-probabilities of all, they are probes: a replica holds too few of them for all to wait for
// derive.
func (s *Session) cut(m *micro) {
	parts := s.parts(m.layout)
	u, known := m.update, m.gradient != nil
	m.whole, m.missing = nil, len(parts)
	for _, part := range parts {
		s.lastID++
		p := &piece{id: s.lastID, of: m, layout: part.Layout, targets: part.Targets, probe: len(parts) > 1 && !known}
		if len(parts) == 1 {
			m.whole = p
		}
		u.pieces[p.id] = p
		u.plan.Add(p.id, p.layout.Rows())
		if known || p.probe {
			u.plan.Derived(p.id)
		}
	}
}

// derived plans the gradients of a micro-batch whose derivatives have become known.
func (s *Session) derived(m *micro) {
	if m.whole == nil {
		s.cut(m)
		return
	}
	m.update.plan.Derived(m.whole.id)
}

// gradient returns the derivatives for the piece's targets.
func (p *piece) gradient() []float32 {
	out := make([]float32, len(p.layout.Targets))
	if p.probe {
		return out
	}
	for i := range out {
		out[i] = p.of.gradient[p.at(i)]
	}
	return out
}

// at returns the index in the micro-batch of a target of the piece.
func (p *piece) at(target int) int {
	if p.targets == nil {
		return target
	}
	return p.targets[target]
}
