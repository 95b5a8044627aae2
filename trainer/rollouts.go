package trainer

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer/schedule"
	"github.com/easyrl/easyrl/trainer/verify"
)

// Rollouts is the data of reinforcement learning: groups of responses, which are trained
// while the rest of their step is being sampled.
type Rollouts struct {
	Loss            loss.Config
	MaxTokens       int  // maximum response tokens, for response_length/clip_ratio
	DynamicSampling bool // prompts may be replaced, so replaced groups are measured
	LogRollouts     bool
	Rule            schedule.Rule // which versions may sample what a step trains
	BySource        bool          // record the mean reward of each data source as a metric
	Ranks           int           // devices that train; perf/tokens_per_second_per_device adds one for each instance
	// Cores returns the number of cores of the trainer and all serving instances, 0 if
	// unknown: then the metrics per core are omitted. It may be nil.
	Cores func() int
	// PeakFLOPS is the peak rate of the trainer's device, in operations per second.
	// perf/mfu is the share of it used by the forward and backward passes
	// (model.Config.TrainFLOPs) over the whole step, including waits. If it is 0, which
	// means unknown, perf/mfu is omitted.
	PeakFLOPS float64

	// Prompt returns prompt i of the endless training order.
	Prompt func(i int) rollout.Prompt
	// Produce starts sampling a batch.
	Produce func(ctx context.Context, batch rollout.Batch) rollout.Stream
	// Publish publishes a version to all instances and returns when they serve it.
	Publish func(ctx context.Context, w inference.Weights) error
	// Evaluate scores the published version on the held-out sets. The metrics are recorded
	// under the names it returns. score ranks checkpoints unless it is NaN. An error ends
	// the run.
	Evaluate func(ctx context.Context, step int) (metrics map[string]float64, score float64, err error)
	// Leaves gets the linear sums of a completed step's updates, if the models compute them. With it, each leaf is a
	// micro-batch by itself. It may be nil.
	Leaves func(step int, updates []UpdateSums) error
	// Select chooses which leaves a step trains, with Leaves; nil chooses all.
	Select func(step int, l Leaf) bool
	Queue  trace.Track // rows of the trace that show how long finished groups wait for the trainer
}

// rollouts is the source of reinforcement learning.
type rollouts struct {
	Rollouts
	t         *Trainer
	objective *loss.Objective
	verifier  verify.Verifier
	loop      *schedule.Loop
	snapshot  inference.Weights // the last version that the models hold; nil before the first
	sampling  sampling          // of the batch that the step trains
	ahead     []sampling        // of batches that later steps train, by number
}

// sampling is the stream of a batch and what it has delivered.
type sampling struct {
	batch     rollout.Batch
	stream    rollout.Stream
	cancel    context.CancelFunc
	began     time.Time
	waiting   []rollout.Group // groups that have arrived and are not trained yet
	groups    []rollout.Group // groups taken for training, in this order
	failed    int             // groups that the ended stream did not deliver
	resampled verify.Resampled
	stats     rollout.Stats // set by end
}

// replaced returns the groups that dynamic sampling replaced.
func (s *sampling) replaced() (all []rollout.Group) {
	for i := range s.groups {
		all = append(all, s.groups[i].Before...)
	}
	return all
}

// New prepares reinforcement learning. state is zero for a new run and comes from Resume
// for a resumed one.
func New(cfg Config, state State, deps Deps, r Rollouts) (*Trainer, error) {
	objective, err := loss.New(r.Loss)
	if err != nil {
		return nil, err
	}
	t := newTrainer(cfg, state, deps)
	if loss.WholeBatch(r.Loss.Advantage) {
		t.Warn("loss.advantage = %q needs all groups of a step, so training starts only after sampling ends",
			r.Loss.Advantage)
	}
	t.state.Total, t.logCheckpointTime = t.total, true
	source := &rollouts{Rollouts: r, t: t, objective: objective,
		loop: schedule.New(r.Rule, cfg.Steps, state.Step)}
	source.verifier = verify.Verifier{Models: t.Models, Rows: cfg.MicroBatchTokens, Track: t.Track,
		Produce: func(ctx context.Context, batch rollout.Batch) rollout.Stream { return source.Produce(ctx, batch) },
		// With the old policy of the previous step, later mini-batches do not compute the published weights'
		// log-probabilities, so training cannot verify them.
		DeferToPasses: r.Loss.OldPolicy != loss.PreviousStep || cfg.MiniBatches <= 1}
	t.source = source
	return t, nil
}

// start publishes the policy and starts sampling batches, as the schedule says, until the step's batch is in
// flight.
func (r *rollouts) start(ctx context.Context, s *step) error {
	for {
		switch next := r.loop.Next(); next.Kind {
		case schedule.Publish:
			if err := r.publish(ctx); err != nil { //           3
				return err
			}
		case schedule.Sample:
			if s.clock.publish == 0 {
				s.clock.publish = time.Since(s.clock.began)
			}
			r.ahead = append(r.ahead, r.sample(ctx, next.Batch, next.Version))
			r.loop.Started(next.Batch)
		case schedule.Train:
			r.sampling, r.ahead = r.ahead[0], r.ahead[1:]
			return r.Rule.Check(next.Step, r.sampling.batch.Version)
		default:
			panic(fmt.Sprintf("trainer: start of step %d after the last one", s.number))
		}
	}
}

// sample starts sampling a batch. The end of ctx does not end it: accumulate decides when to abandon a step.
func (r *rollouts) sample(ctx context.Context, number int, version int64) sampling {
	batch := rollout.Batch{Number: number, Version: version,
		Prompts: make([]rollout.Prompt, r.t.cfg.PromptsPerStep)}
	first := r.t.state.Position + (number-r.t.state.Step-1)*len(batch.Prompts)
	for i := range batch.Prompts { //                           4
		batch.Prompts[i] = r.Prompt(first + i)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	began := time.Now()
	return sampling{batch: batch, cancel: cancel, began: began, stream: r.Produce(ctx, batch)} // 5-10
}

// publish publishes the current policy to the instances, unless they have it.
func (r *rollouts) publish(ctx context.Context) error {
	if r.loop.IsPublished() {
		return nil
	}
	defer r.t.Track.Begin(r.t.state.Step+1, "publish").End()
	snapshot, err := r.current(ctx)
	if err != nil {
		return err
	}
	if err := r.Publish(ctx, snapshot); err != nil {
		return err // names the version
	}
	r.loop.Published()
	return nil
}

// current returns the policy as a version, which the models copy once.
func (r *rollouts) current(ctx context.Context) (inference.Weights, error) {
	version := r.loop.Current()
	if r.snapshot != nil && r.snapshot.Version() == version {
		return r.snapshot, nil
	}
	snapshot, err := r.t.Models.Publish(ctx, version)
	if err == nil {
		r.snapshot = snapshot
	}
	return snapshot, err
}

// checksum implements source: the policy after a step is the version that the next step publishes.
func (r *rollouts) checksum(ctx context.Context) (string, error) {
	defer r.t.Track.Begin(r.t.state.Step+1, "publish").End()
	snapshot, err := r.current(ctx)
	if err != nil {
		return "", err
	}
	return snapshot.Checksum(), nil
}

// abandon stops sampling, waits until it has ended and drops all groups.
func (r *rollouts) abandon() {
	inFlight := r.ahead
	if r.sampling.stream != nil {
		inFlight = append(inFlight, r.sampling)
	}
	r.sampling, r.ahead = sampling{}, nil
	for _, s := range inFlight {
		s.cancel()
	}
	for _, s := range inFlight {
		for range s.stream.Groups() { //nolint:revive // drains the queue
		}
		_, _ = s.stream.Wait()
	}
}

// accumulate trains the groups of the step's prompts first to end-1 as they arrive, all that are ready at
// once. Groups of later prompts keep waiting.
func (r *rollouts) accumulate(ctx context.Context, s *step, first, end int) (*miniBatch, error) {
	b := &miniBatch{first: len(r.sampling.groups)}
	var postponed []rollout.Group // all groups, if the advantage is computed over all of them
	for left := end - first; left > 0; {
		groups := r.sampling.takeDue(end)
		if len(groups) == 0 {
			span := r.t.Track.Begin(s.number, "wait")
			open, err := r.receive(ctx, s)
			span.End()
			if err == nil {
				err = ctx.Err()
			}
			if err == nil && !open {
				err = r.countFailed(left)
			}
			if err != nil {
				return nil, err
			}
			if !open {
				break
			}
			continue
		}
		for i := range groups {
			r.traceQueued(s, &groups[i])
		}
		left -= len(groups)
		if loss.WholeBatch(r.Loss.Advantage) {
			postponed = append(postponed, groups...)
			continue
		}
		if err := r.learn(ctx, s, b, groups); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(postponed, func(a, b rollout.Group) int { return a.Index - b.Index })
	if err := r.learn(ctx, s, b, postponed); err != nil {
		return nil, err
	}
	began := time.Now()
	err := r.t.Models.Flush(ctx)
	s.clock.train += time.Since(began)
	if err != nil {
		return nil, err
	}
	r.setScale(b)
	return b, nil
}

// setScale sets the scale of a complete batch according to the loss's aggregation, and measures its loss. The
// metrics of a step add up the sums and denominators of its batches, so that each batch counts by its share
// of the step.
func (r *rollouts) setScale(b *miniBatch) {
	denominator := r.Loss.Aggregation.Denominator(b.responses, b.tokens, r.MaxTokens)
	if denominator == 0 { // every group failed, or nothing is trained
		return
	}
	b.scale = 1 / denominator
	b.metrics.MeanOf("actor/loss", &b.loss, denominator)
	b.metrics.MeanOf("actor/pg_loss", &b.pg, denominator)
}

// takeDue removes the waiting groups of prompts before end and returns them.
func (s *sampling) takeDue(end int) (groups []rollout.Group) {
	s.waiting = slices.DeleteFunc(s.waiting, func(g rollout.Group) bool {
		if g.Index < end {
			groups = append(groups, g)
		}
		return g.Index < end
	})
	return groups
}

// receive waits for a finished group, and moves it and all others that are ready to waiting. open is false
// if the stream ended instead. While it waits, it lets the models finish micro-batches in flight.
func (r *rollouts) receive(ctx context.Context, s *step) (open bool, err error) {
	before := len(r.sampling.waiting)
	for open = true; open && len(r.sampling.waiting) == before && err == nil && ctx.Err() == nil; {
		began, spent := time.Now(), &s.clock.train
		if r.t.Models.Idle() {
			spent = &s.clock.wait
		}
		select {
		case <-ctx.Done():
		case <-r.t.Models.Ready():
			err = r.t.Models.Poll(ctx)
		case g, ok := <-r.sampling.stream.Groups():
			if open = ok; ok {
				r.sampling.waiting = append(r.sampling.waiting, g)
			}
		}
		*spent += time.Since(began)
	}
	if len(r.sampling.waiting) == before {
		return open, err
	}
	if s.clock.firstGroup == 0 {
		s.clock.firstGroup = time.Since(r.sampling.began)
	}
	for {
		select {
		case g, ok := <-r.sampling.stream.Groups():
			if !ok {
				return true, nil // the next receive reports the end
			}
			r.sampling.waiting = append(r.sampling.waiting, g)
		default:
			return true, nil
		}
	}
}

// traceQueued adds a group's wait for the trainer, which ends here, to the trace.
func (r *rollouts) traceQueued(s *step, g *rollout.Group) {
	if !g.Scored.IsZero() {
		r.Queue.Add(s.number, "queue", g.Scored, time.Since(g.Scored), trace.Note{Flows: []uint64{g.Seed}})
	}
}

// countFailed counts the groups missing from a stream that ended as failed. It returns an error if the
// producer failed or reports fewer failures.
func (r *rollouts) countFailed(missing int) error {
	stats, err := r.sampling.stream.Wait()
	if err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if r.sampling.failed += missing; r.sampling.failed > stats.Failed {
		return fmt.Errorf("%d groups are missing, but the producer reported only %d failures", r.sampling.failed,
			stats.Failed)
	}
	return nil
}

// remedy names the settings that make a gradient smaller. Unnormalized advantages grow with the rewards, the
// gradient of the divergence grows with the distance from the reference, and every gradient may grow if the
// weights diverge.
func (r *rollouts) remedy() string {
	var ways []string
	if loss.Unnormalized(r.Loss.Advantage) {
		ways = append(ways, "smaller rewards", `loss.advantage = "group"`)
	}
	if r.Loss.Beta > 0 {
		ways = append(ways, "a smaller loss.beta")
	}
	return strings.Join(append(ways, "a lower train.lr"), " or ")
}

func (r *rollouts) end() (err error) {
	defer r.sampling.cancel()
	if r.sampling.stats, err = r.sampling.stream.Wait(); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	r.loop.Trained(r.t.state.Step + 1)
	return nil
}

// unusable implements source: it reports whether a log-probability under the published policy is NaN or
// infinite. It tries one token after each of the next step's first prompts, as many as fit a micro-batch.
func (r *rollouts) unusable(ctx context.Context) bool {
	t := r.t
	if !r.loop.IsPublished() {
		return false
	}
	m := &micro{}
	for i := range t.cfg.PromptsPerStep {
		ids := r.Prompt(t.state.Position + i).IDs
		if len(ids) == 0 {
			return false
		}
		l := leaf{{prompt: ids, responses: []sequence{{spans: rollout.Demonstrated(ids[:1])}}}} // any token will do
		if i > 0 && m.rows()+l.rows() > t.cfg.MicroBatchTokens {
			break
		}
		m.add(l)
	}
	lp, err := t.Models.Score(ctx, &m.layout)
	return err == nil && slices.ContainsFunc(lp, func(v float32) bool { return !isFinite(float64(v)) })
}

// evaluate publishes the current policy and adds its scores to line.
func (r *rollouts) evaluate(ctx context.Context, line report.Values) (score float64, err error) {
	step := r.t.state.Step
	if step == 0 {
		line["version"] = 1 // the line has no other version yet
	}
	began := time.Now()
	if err := r.publish(ctx); err != nil {
		return math.NaN(), err
	}
	defer r.t.Track.Begin(step, "eval").End()
	scores, score, err := r.Evaluate(ctx, step)
	if err != nil {
		return math.NaN(), fmt.Errorf("evaluate after step %d: %w", step, err)
	}
	maps.Copy(line, scores)
	line["timing_s/eval"] = time.Since(began).Seconds()
	return score, nil
}

// log writes the step's groups in prompt order, followed by the replaced ones.
func (r *rollouts) log(step int) error {
	if !r.LogRollouts {
		return nil
	}
	dir := filepath.Join(r.t.cfg.Dir, "rollouts")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("log rollouts: %w", err)
	}
	byIndex := func(a, b rollout.Group) int { return a.Index - b.Index }
	slices.SortFunc(r.sampling.groups, byIndex)
	var b []byte
	for _, g := range slices.Concat(r.sampling.groups, r.sampling.replaced()) {
		line, err := g.MarshalJSON()
		if err != nil {
			return fmt.Errorf("log rollouts: prompt %s: %w", g.Prompt.ID, err)
		}
		b = append(append(b, line...), '\n')
	}
	path := filepath.Join(dir, fmt.Sprintf("step-%06d.jsonl", step))
	if err := os.WriteFile(path, b, 0o644); err != nil {
		_ = os.Remove(path) // a partial file would be mistaken for a complete one
		return fmt.Errorf("log rollouts: %w", err)
	}
	return nil
}
