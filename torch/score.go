package torch

import (
	"context"
	"fmt"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/torch/wire"
)

// Score returns the log-probabilities of a layout's targets under the policy, at Config.Temperature. A
// derive may call it.
func (s *Session) Score(ctx context.Context, l *attention.Layout) ([]float32, error) {
	return s.ScoreAs(ctx, l, "", s.cfg.Temperature)
}

// ScoreAs returns the log-probabilities of a layout's targets at a temperature, under the
// weights in a folder, or under the policy if folder is empty.
func (s *Session) ScoreAs(
	ctx context.Context, l *attention.Layout, folder string, temperature float64,
) ([]float32, error) {
	if len(l.Targets) == 0 {
		return nil, nil
	}
	var out []float32
	err := s.attempt(ctx, func(g *group) error {
		out = make([]float32, len(l.Targets))
		for _, part := range s.parts(l) {
			s.lastID++
			s.scored = &piece{id: s.lastID, layout: part.Layout, targets: part.Targets}
			if err := s.score(ctx, g, s.scored, folder, temperature, out); err != nil {
				return err
			}
		}
		return nil
	})
	s.scored = nil
	if err != nil {
		return nil, fmt.Errorf("score: %w", err)
	}
	return out, nil
}

// score makes the ranks compute the log-probabilities of a piece, and writes them to out, which has an
// element for each target of the complete layout.
func (s *Session) score(
	ctx context.Context, g *group, p *piece, folder string, temperature float64, out []float32,
) error {
	frame, err := wire.Encode(wire.Score{ID: p.id, Model: folder, Temperature: temperature}, wire.Layout(p.layout))
	if err != nil {
		return err
	}
	first := g.ranks[0]
	done := false
	first.allow(len(p.layout.Targets))
	first.expect(expectation{"score", s.cfg.Deadlines.Pass, func(f *wire.Frame) error {
		var a wire.Logprobs
		if err := f.Decode(&a); err != nil {
			return err
		}
		values := f.Float32s("policy")
		if a.ID != p.id || len(values) != len(p.layout.Targets) {
			return fmt.Errorf("id is %d with %d values, expected %d with %d",
				a.ID, len(values), p.id, len(p.layout.Targets))
		}
		for i, v := range values {
			out[p.index(i)] = v
		}
		done = true
		return nil
	}})
	for _, r := range g.ranks { // scoring may need all replicas; the first rank answers
		if err := r.queue(frame); err != nil {
			return err
		}
	}
	for !done {
		if err := g.receive(ctx); err != nil {
			return err
		}
	}
	return nil
}
