// Package evaluate samples and scores responses to held-out prompts and turns their scores
// into mean@k, pass@k and maj@k.
//
// mean@k and maj@k use rewards. pass@k counts the responses that the reward judges right
// (reward.Score.Right), so extras for form and length do not affect it. Equally common
// answers share maj@k.
package evaluate

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sourcegraph/conc/pool"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/lossy"
	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/rollout/sample"
)

// Set is a named list of held-out prompts.
type Set struct {
	Name    string           // without slashes; see Names
	Prompts []rollout.Prompt // with IDs
	LeftOut int              // prompts of its files that are not in Prompts
}

// Config sets what is sampled.
type Config struct {
	K        int // responses per prompt
	Sampling inference.Sampling
	// Seed determines the random draws, together with a prompt's index in its set. So two
	// evaluations differ only by their weights.
	Seed uint64
}

// Fleet samples responses. *fleet.Fleet implements it.
type Fleet interface {
	sample.Generator
	// Capacity returns the number of responses that the fleet can sample at once now.
	Capacity() int
}

// Deps are the parts that an evaluation uses.
type Deps struct {
	Fleet  Fleet
	Reward reward.Func
	// Text decodes a response for the reward.
	Text func(ids []int32) string
	// Warn reports each prompt without a score.
	Warn func(format string, args ...any)
	// Progress reports the number of finished prompts. Its calls do not overlap. It may be
	// nil.
	Progress func(done, of int)
	// Done receives each scored prompt. Its calls do not overlap. It may be nil.
	Done func(*Result)
}

// ErrFailed reports that more prompts lack a score than Budget allows.
var ErrFailed = errors.New("too many prompts have no score")

// Budget returns the number of a set's prompts that may lack a score because their reward
// failed: a tenth, but at least 3, and never all. The means cover the other prompts. With
// more missing they would mean little, so the evaluation fails. It also fails if none of
// the first hopeless prompts has a score.
func Budget(prompts int) int { return min(max(3, prompts/10), prompts-1) }

// hopeless is the number of failures that end an evaluation without any score.
const hopeless = 8

// Run samples the responses to all prompts with one version of the weights and scores them.
// It returns the metrics, whose names begin with eval/<set>/, and score, the mean of the
// sets' mean@k. Run skips prompts that record holds and adds those it finishes; record may
// be nil. With ErrFailed there are no means, but metrics still count the failed prompts of
// each set.
func Run(ctx context.Context, version int64, cfg Config, sets []Set, deps Deps, record *Record) (
	metrics map[string]float64, score float64, err error) {
	r := &run{version: version, cfg: cfg, sets: sets, Deps: deps, record: record,
		sampler: sample.Sampler{Fleet: deps.Fleet, Reward: deps.Reward, Text: deps.Text, AtOnce: scoringAtOnce}}
	for i := range sets {
		r.results = append(r.results, make([]*scores, len(sets[i].Prompts)))
		r.failed = append(r.failed, 0)
		r.total += len(sets[i].Prompts)
		for j := range sets[i].Prompts {
			if s := record.scores(sets[i].Name, j); s != nil {
				r.results[i][j] = s
				r.done++
				r.scored++
			}
		}
	}
	r.report()
	// The fleet queues requests beyond its capacity; other tasks wait for scores.
	tasks := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError().WithMaxGoroutines(
		4 * max(1, deps.Fleet.Capacity()))
	for i := range sets {
		for j := range sets[i].Prompts {
			if r.results[i][j] == nil && ctx.Err() == nil {
				tasks.Go(func(ctx context.Context) error { return r.task(ctx, i, j) })
			}
		}
	}
	if err := tasks.Wait(); errors.Is(err, ErrFailed) {
		return r.counts(), 0, err
	} else if err != nil {
		return nil, 0, err
	}
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	metrics = r.metrics()
	for i := range sets {
		score += metrics[fmt.Sprintf("eval/%s/mean@%d", sets[i].Name, cfg.K)] / float64(len(sets))
	}
	return metrics, score, record.finish()
}

// run is one evaluation.
type run struct {
	Deps
	sampler sample.Sampler
	version int64
	cfg     Config
	sets    []Set
	record  *Record

	mu      sync.Mutex  // guards the fields below while tasks run
	results [][]*scores // scores by set and prompt; nil for a prompt without a score
	failed  []int       // number of failed prompts of each set
	scored  int         // scored prompts of all sets
	done    int         // scored and failed prompts of all sets
	total   int         // prompts of all sets
}

// report calls Progress. While tasks run, the caller holds mu.
func (r *run) report() {
	if r.Progress != nil {
		r.Progress(r.done, r.total)
	}
}

// task samples and scores the responses to prompt j of set i. It returns an error if the
// evaluation cannot continue.
func (r *run) task(ctx context.Context, i, j int) error {
	set, p := &r.sets[i], &r.sets[i].Prompts[j]
	group, err := r.sampler.Sample(ctx, p,
		inference.Request{N: r.cfg.K, Seed: seedOf(r.cfg.Seed, j), Sampling: r.cfg.Sampling, Version: r.version})
	if err != nil {
		return fmt.Errorf("%s: prompt %s: %w", set.Name, p.ID, err)
	}
	scores := make([]reward.Score, len(group.Responses))
	err = group.Score(scores)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	result := Result{Set: set.Name, Index: j, PromptID: p.ID, Prompt: p.Text, Question: p.Asked(), Answer: p.Answer,
		Source: p.Source}
	if err == nil {
		result.Responses = responses(group.Group, scores)
		if err := r.record.write(&result); err != nil {
			return err
		}
	}
	return r.finished(i, j, &result, err)
}

// scoringAtOnce is the number of responses to a prompt that are scored at once.
const scoringAtOnce = 8

// responses converts the responses of a scored group.
func responses(g *rollout.Group, scores []reward.Score) []ScoredResponse {
	out := make([]ScoredResponse, len(scores))
	for i := range scores {
		resp, score := &g.Responses[i], &scores[i]
		// JSON replaces invalid UTF-8, and a response read from a record must count like
		// the original.
		answer := lossy.String(score.Answer)
		out[i] = ScoredResponse{Text: resp.Text, Reward: score.Value, Right: score.Right(), Parts: score.Parts,
			Answer: answer,
			Finish: resp.Finish, Tokens: resp.Spans.Count(rollout.IsPolicy)}
	}
	return out
}

// finished records that prompt j of set i was scored, or failed with err.
func (r *run) finished(i, j int, result *Result, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	defer r.report()
	if err == nil {
		r.results[i][j] = scoresOf(result)
		r.scored++
		if r.Done != nil {
			r.Done(result)
		}
		return nil
	}
	set := &r.sets[i]
	r.failed[i]++
	r.Warn("%s: gave up on prompt %s: %v", set.Name, result.PromptID, err)
	if n := r.failed[i]; n > Budget(len(set.Prompts)) {
		return fmt.Errorf("%w: %d of %d in %s, more than the %d allowed: %w", ErrFailed, n, len(set.Prompts), set.Name,
			Budget(len(set.Prompts)), err)
	}
	if r.scored == 0 && r.done >= hopeless {
		return fmt.Errorf("%w: the first %d failed: %w", ErrFailed, hopeless, err)
	}
	return nil
}

// seedOf returns the seed of the draws for prompt i of a set. The constant makes it differ from the seeds of
// training.
func seedOf(seed uint64, i int) uint64 {
	key := splitmix.At(seed^0x6576616c75617465, 0) // "evaluate" in ASCII
	return splitmix.Mix(key + uint64(i))
}
