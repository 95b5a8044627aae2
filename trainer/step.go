package trainer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/rollout"
)

// step is one step in progress.
type step struct {
	step    int
	version int64
	stream  rollout.Stream
	cancel  context.CancelFunc
	done    <-chan struct{} // ends training early; nil after the first optimizer step
	span    trace.Span
	clock   clock
	groups  []rollout.Group // as they were consumed
	failed  int
	metrics metrics // of the updates taken
	flops   float64 // of the policy's forward and backward passes
	mini    batch   // of the update in progress
	updates int     // taken
	norm    float64 // of the last update's gradient
	lr      float64 // of the last update
}

// batch is what one update is taken on, beside the accumulated gradients. The
// responses are those that are trained; where their pass was skipped, as it has no
// gradient, they count all the same.
type batch struct {
	metrics           metrics
	groups            int
	responses, tokens int     // that the loss is divided by
	loss, pg          float64 // sums, and the part of the loss that is no divergence
	rows              int     // that went through the models
}

// clock splits an iteration's wall time.
type clock struct {
	began                                            time.Time
	publish, firstGroup, wait, train, optimizer, all time.Duration
	streamed                                         time.Time // sampling began
}

func (t *Trainer) begin() *step {
	n := t.state.Step + 1
	return &step{step: n, version: int64(n), clock: clock{began: time.Now()}, span: t.Track.Begin(n, "step")}
}

func (s *step) published() { s.clock.publish = time.Since(s.clock.began) }

// produce starts sampling. Its context outlives a cancelled run: consume
// decides when a step is given up.
func (t *Trainer) produce(s *step, prompts []rollout.Prompt) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.clock.streamed = time.Now()
	s.stream = t.Produce(ctx, rollout.Batch{Step: s.step, Version: s.version, Prompts: prompts})
}

// abandon stops sampling and waits until nothing of it runs.
func (s *step) abandon() {
	s.cancel()
	for range s.stream.Groups() { //nolint:revive // drains what is still queued
	}
	_, _ = s.stream.Wait()
	s.span.End()
}

// consume trains n groups of the step as they come, in micro-batches of all
// that are ready. How they are cut into micro-batches changes no bit of the
// gradients. A cancelled context gives the step up before its first optimizer
// step; after it the step is finished, so that a checkpoint stands between
// steps.
func (t *Trainer) consume(ctx context.Context, s *step, n int) error {
	s.mini = batch{}
	s.done = ctx.Done()
	if s.updates > 0 {
		s.done = nil
	}
	var held []rollout.Group // where advantages need them all
	for left := n; left > 0; {
		waiting := time.Now()
		span := t.Track.Begin(s.step, "wait")
		batch, open := t.take(s, left)
		span.End()
		s.clock.wait += time.Since(waiting)
		if ctx.Err() != nil && s.done != nil {
			return ctx.Err()
		}
		if !open {
			if err := t.ended(s, left); err != nil {
				return err
			}
			break
		}
		left -= len(batch)
		if loss.WholeBatch(t.cfg.Loss.Advantage) {
			held = append(held, batch...)
			continue
		}
		if err := t.trainTimed(s, batch); err != nil {
			return err
		}
	}
	slices.SortFunc(held, func(a, b rollout.Group) int { return a.Index - b.Index })
	return t.trainTimed(s, held)
}

func (t *Trainer) trainTimed(s *step, groups []rollout.Group) error {
	began := time.Now()
	if err := t.train(s, groups); err != nil {
		return fmt.Errorf("step %d: %w", s.step, err)
	}
	s.clock.train += time.Since(began)
	return nil
}

// take waits for a finished group and adds those that are ready behind it, most
// at the most. open is false where the stream ended instead.
func (t *Trainer) take(s *step, most int) (batch []rollout.Group, open bool) {
	select {
	case <-s.done:
		return nil, true
	case g, ok := <-s.stream.Groups():
		if !ok {
			return nil, false
		}
		batch = append(batch, g)
		t.taken(&g)
	}
	if s.clock.firstGroup == 0 {
		s.clock.firstGroup = time.Since(s.clock.streamed)
	}
	for len(batch) < most {
		select {
		case g, ok := <-s.stream.Groups():
			if !ok {
				return batch, true // the next take reports the end
			}
			batch = append(batch, g)
			t.taken(&g)
		default:
			return batch, true
		}
	}
	return batch, true
}

// taken ends a group's wait for the trainer.
func (t *Trainer) taken(g *rollout.Group) {
	if !g.Scored.IsZero() {
		t.Queue.Add(g.Step, "queue", g.Scored, time.Since(g.Scored), trace.Note{Flows: []uint64{g.Seed}})
	}
}

// ended handles a stream that closed with groups missing: groups that were
// given up are counted, anything else ends the run.
func (t *Trainer) ended(s *step, missing int) error {
	stats, err := s.stream.Wait()
	if err != nil {
		return fmt.Errorf("step %d: sample: %w", s.step, err)
	}
	if s.failed += missing; s.failed > stats.Failed {
		return fmt.Errorf("step %d: the producer ended with %d groups missing, of which it gave up %d", s.step, s.failed, stats.Failed)
	}
	return nil
}

// train accumulates the gradients of whole groups, a micro-batch at a time.
func (t *Trainer) train(s *step, groups []rollout.Group) error {
	rewards := make([][]float64, len(groups))
	for i := range groups {
		if err := t.check(s, &groups[i]); err != nil {
			return err
		}
		rewards[i] = t.shaped(&groups[i])
	}
	advantages := loss.BatchAdvantages(t.cfg.Loss.Advantage, rewards)
	s.groups = append(s.groups, groups...)
	var m micro
	for i := range groups {
		g := &groups[i]
		kept := loss.Keep(t.cfg.Loss.Filter, t.cfg.Loss.Keep, rewards[i], t.state.Seed, uint64(s.step)<<32|uint64(g.Index))
		s.mini.groups++
		s.mini.responses += len(kept)
		for _, j := range kept {
			s.mini.tokens += len(g.Responses[j].IDs)
		}
		t.measureGroup(&s.mini.metrics, g, rewards[i])
		for part := range t.parts(g, advantages[i], kept) {
			if m.rows() > 0 && m.rows()+part.rows() > t.cfg.MicroBatchTokens {
				if err := t.trainMicro(s, &m); err != nil {
					return err
				}
				m = micro{}
			}
			m.add(part, t.cfg.Loss.Aggregation)
		}
	}
	return t.trainMicro(s, &m)
}

// shaped are a group's rewards as the advantages take them: with what the loss
// adds for length.
func (t *Trainer) shaped(g *rollout.Group) []float64 {
	rewards := make([]float64, len(g.Responses))
	for i := range g.Responses {
		r := &g.Responses[i]
		rewards[i] = r.Reward + loss.OverlongPenalty(len(r.IDs), t.cfg.MaxTokens, t.cfg.Loss.Overlong)
	}
	return rewards
}

// check is the on-policy invariant: every response of a group was sampled, to
// its last token, with the step's version of the weights.
func (t *Trainer) check(s *step, g *rollout.Group) error {
	if g.Step != s.step || g.Version != s.version {
		return fmt.Errorf("prompt %s: a group of step %d and version %d, expected step %d and version %d: not on-policy",
			g.Prompt.ID, g.Step, g.Version, s.step, s.version)
	}
	for i := range g.Responses {
		r := &g.Responses[i]
		if r.Version != s.version {
			return fmt.Errorf("prompt %s, response %d: sampled with version %d, expected %d: not on-policy", g.Prompt.ID, i, r.Version, s.version)
		}
		if len(r.IDs) == 0 || len(r.IDs) != len(r.Logprobs) {
			return fmt.Errorf("prompt %s, response %d: %d tokens with %d log-probabilities", g.Prompt.ID, i, len(r.IDs), len(r.Logprobs))
		}
		if r.Reward-r.Reward != 0 {
			return fmt.Errorf("prompt %s, response %d: reward is %v", g.Prompt.ID, i, r.Reward)
		}
	}
	return nil
}

// trainMicro runs the three models, the loss and the backward pass.
func (t *Trainer) trainMicro(s *step, m *micro) error {
	if m.rows() == 0 {
		return nil
	}
	select {
	case <-s.done:
		return context.Canceled
	default:
	}
	defer t.Track.Begin(s.step, "micro-batch").EndWith(trace.Note{Tokens: m.rows(), Flows: m.flows})
	forward := t.Track.Begin(s.step, "forward")
	lp, err := t.Models.Forward(&m.layout)
	forward.End()
	if err != nil {
		return fmt.Errorf("prompts %s: %w", m.names(), err)
	}
	if lp.Recomputed != nil {
		measureMismatch(&s.mini.metrics, lp.Recomputed, m.behaviour)
	}
	scored := t.Track.Begin(s.step, "loss")
	result, err := t.objective.Eval(loss.Vars{Policy: lp.Policy, Old: lp.Old, Reference: lp.Reference,
		Behaviour: m.behaviour, Recomputed: lp.Recomputed, Advantage: m.advantage, Weight: m.weight, Lengths: m.lengths})
	scored.End()
	if err != nil {
		return fmt.Errorf("prompts %s: %w", m.names(), err)
	}
	s.mini.rows += m.rows()
	s.mini.loss += result.Loss
	s.mini.pg += result.PG
	t.measurePass(&s.mini.metrics, &result, lp.Entropy, m.rows())
	s.flops += t.Models.Policy.Config.TrainFLOPs(&m.layout)
	defer t.Track.Begin(s.step, "backward").End()
	return t.Models.Backward(result.Grad)
}
