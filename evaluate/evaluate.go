// Package evaluate samples and scores responses to held-out prompts and turns
// their scores into mean@k, pass@k and maj@k.
//
// mean@k and maj@k are of rewards; pass@k counts the responses that are right, as
// the reward says (reward.Score.Right): what a sum pays or takes for form and
// length changes no answer. Answers that are equally common share maj@k.
package evaluate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/sourcegraph/conc/pool"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/rollout/sample"
)

// Set is a list of held-out prompts under a name.
type Set struct {
	Name    string           // without slashes; see Names
	Prompts []rollout.Prompt // with IDs
	LeftOut int              // prompts of its files that are not among them
}

// Config says what is sampled.
type Config struct {
	K        int // responses to a prompt
	Sampling inference.Sampling
	// Seed of the draws, which depend on it and on a prompt's place in its set
	// alone: two evaluations differ by the weights.
	Seed uint64
}

// Fleet samples. *fleet.Fleet is one.
type Fleet interface {
	sample.Fleet
	// Capacity is the number of responses that are sampled at once, now.
	Capacity() int
}

// Deps are what an evaluation works with.
type Deps struct {
	Fleet  Fleet
	Reward reward.Func
	// Text is what the reward reads of a response.
	Text func(ids []int32) string
	// Warn is told of each prompt that has no score.
	Warn func(format string, args ...any)
	// Progress is told how many prompts are done, one call at a time; it may be nil.
	Progress func(done, of int)
	// Done is given each prompt that has its scores, one call at a time; it may be
	// nil.
	Done func(*Result)
}

// ErrFailed is wrapped where more prompts have no score than may.
var ErrFailed = errors.New("too many prompts have no score")

// Budget is how many prompts of a set may lack a score because their reward
// failed: a tenth, but 3 of a small set. The means are over the others; with more
// of them missing, or all, they would say little, and an evaluation fails. It
// also does where the first hopeless ones end without a single score.
func Budget(prompts int) int { return min(max(3, prompts/10), prompts-1) }

// hopeless is how many failures before any score are taken for all.
const hopeless = 8

// Run has the responses to all prompts sampled by the weights of a version and
// scored, and returns the metrics, whose names begin with eval/<set>/, and score,
// the mean of the sets' mean@k. What record holds already is not done again, and
// what is done is added to it; it may be nil. With ErrFailed there are no means, and
// metrics still say how many prompts of each set failed until then.
func Run(ctx context.Context, version int64, cfg Config, sets []Set, deps Deps, record *Record) (metrics map[string]float64, score float64, err error) {
	r := &run{version: version, cfg: cfg, sets: sets, Deps: deps, record: record}
	for i := range sets {
		r.got = append(r.got, make([]*scores, len(sets[i].Prompts)))
		r.failed = append(r.failed, 0)
		r.total += len(sets[i].Prompts)
		for j := range sets[i].Prompts {
			if s := record.scores(sets[i].Name, j); s != nil {
				r.got[i][j] = s
				r.done++
				r.scored++
			}
		}
	}
	r.report()
	// The fleet queues what it cannot sample yet; the rest waits for its score.
	tasks := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError().WithMaxGoroutines(4 * max(1, deps.Fleet.Capacity()))
	for i := range sets {
		for j := range sets[i].Prompts {
			if r.got[i][j] == nil && ctx.Err() == nil {
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
	version int64
	cfg     Config
	sets    []Set
	record  *Record

	mu     sync.Mutex
	got    [][]*scores // by set and prompt; nil where there is none
	failed []int       // by set
	scored int         // in all sets
	done   int         // with or without a score
	total  int
}

// report tells how far the evaluation is; the caller holds mu where tasks run.
func (r *run) report() {
	if r.Progress != nil {
		r.Progress(r.done, r.total)
	}
}

// task samples and scores the responses to prompt j of set i. It returns an
// error where the evaluation cannot go on.
func (r *run) task(ctx context.Context, i, j int) error {
	set, p := &r.sets[i], &r.sets[i].Prompts[j]
	s := sample.Sampler{Fleet: r.Fleet, Reward: r.Reward, Text: r.Text, AtOnce: scoringAtOnce}
	group, err := s.Sample(ctx, p, inference.Request{N: r.cfg.K, Seed: seedOf(r.cfg.Seed, j), Sampling: r.cfg.Sampling, Version: r.version})
	if err != nil {
		return fmt.Errorf("%s: prompt %s: %w", set.Name, p.ID, err)
	}
	scores, err := s.Score(ctx, group)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	result := Result{Set: set.Name, Index: j, PromptID: p.ID, Prompt: p.Text, Answer: p.Answer, Source: p.Source}
	if err == nil {
		result.Responses = responses(group, scores)
		if err := r.record.write(&result); err != nil {
			return err
		}
	}
	return r.finished(i, j, &result, err)
}

// scoringAtOnce is the number of responses to a prompt that are scored at once.
const scoringAtOnce = 8

// responses are a group's, as a record has them.
func responses(g *rollout.Group, scores []reward.Score) []Response {
	out := make([]Response, len(scores))
	for i := range scores {
		resp, score := &g.Responses[i], &scores[i]
		// A record holds valid UTF-8 alone, and a response must count the same
		// whether it is read from one or not.
		answer := strings.ToValidUTF8(score.Answer, "\uFFFD")
		out[i] = Response{Text: resp.Text, Reward: score.Value, Right: score.Right(), Parts: score.Parts, Answer: answer,
			Finish: resp.Finish, Tokens: len(resp.IDs)}
	}
	return out
}

// finished counts a prompt that has its scores, or that failed.
func (r *run) finished(i, j int, result *Result, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	defer r.report()
	if err == nil {
		r.got[i][j] = scoresOf(result)
		r.scored++
		if r.Done != nil {
			r.Done(result)
		}
		return nil
	}
	set := &r.sets[i]
	r.failed[i]++
	r.Warn("%s: gave up prompt %s: %v", set.Name, result.PromptID, err)
	if n := r.failed[i]; n > Budget(len(set.Prompts)) {
		return fmt.Errorf("%w: %d of the %d in %s, %d at most: %w", ErrFailed, n, len(set.Prompts), set.Name, Budget(len(set.Prompts)), err)
	}
	if r.scored == 0 && r.done >= hopeless {
		return fmt.Errorf("%w: the first %d failed: %w", ErrFailed, hopeless, err)
	}
	return nil
}

// seedOf keys the draws of a prompt, apart from those of training.
func seedOf(seed uint64, i int) uint64 {
	key := splitmix.At(seed^0x6576616c75617465, 0) // "evaluate"
	return splitmix.Mix(key + uint64(i))
}
