package sample

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/panics"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// scoring scores the responses to one request as they end, each once. A retry may sample a
// response again: it keeps its score if it has the same bits.
type scoring struct {
	*Sampler
	prompt  *rollout.Prompt
	ctx     context.Context
	cancel  context.CancelCauseFunc
	scorers conc.WaitGroup

	mu      sync.Mutex
	early   [][]*answer // by response; several if instances differ
	queue   []*answer   // not begun
	running int         // scorers
	failed  bool        // a score failed
	closed  bool        // the answers are final
	answers []*answer   // by response, once closed
}

// answer is a response by an instance. Its score and err are set by its scorer.
type answer struct {
	inference.Completion
	index int
	text  string // as the reward gets it
	score reward.Score
	err   error
}

func newScoring(ctx context.Context, s *Sampler, prompt *rollout.Prompt, n int) *scoring {
	c := &scoring{Sampler: s, prompt: prompt, early: make([][]*answer, n)}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c
}

// ended begins to score a response while others are being sampled. It implements
// inference.Request.Ended, so it may be called at any time and must not panic.
func (c *scoring) ended(index int, got inference.Completion) {
	if index < 0 || index >= len(c.early) {
		return
	}
	c.mu.Lock()
	known := c.closed || c.known(index, &got) != nil
	c.mu.Unlock()
	if known {
		return
	}
	a := &answer{Completion: got, index: index}
	if panics.Try(func() { a.text = c.text(&got) }) != nil {
		return // final panics again, where it is recovered
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.known(index, &got) != nil {
		return
	}
	c.early[index] = append(c.early[index], a)
	c.queue = append(c.queue, a)
	c.another()
}

// known returns the answer with the same bits, or nil. c is locked.
func (c *scoring) known(index int, got *inference.Completion) *answer {
	for _, a := range c.early[index] {
		if a.Version == got.Version && a.Finish == got.Finish && a.Text == got.Text && slices.Equal(a.IDs, got.IDs) &&
			slices.EqualFunc(a.Logprobs, got.Logprobs,
				func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
			return a
		}
	}
	return nil
}

// final returns the answers to the request. It keeps known scores, queues new responses and drops
// the rest.
func (c *scoring) final(out []inference.Completion) []*answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := make([]*answer, len(out))
	var added []*answer
	for i := range out {
		if answers[i] = c.known(i, &out[i]); answers[i] == nil {
			answers[i] = &answer{Completion: out[i], index: i, text: c.text(&out[i])}
			added = append(added, answers[i])
		}
	}
	c.closed, c.answers = true, answers
	c.queue = append(slices.DeleteFunc(c.queue, func(a *answer) bool { return answers[a.index] != a }), added...)
	c.failed = false
	for _, a := range answers {
		c.check(a)
	}
	return answers
}

// check stops scoring if an answer that may count could not be scored, and gives up if it
// does count. c is locked.
func (c *scoring) check(a *answer) {
	counts := c.closed && c.answers != nil && c.answers[a.index] == a
	if a.err != nil && (counts || !c.closed) {
		c.failed = true
	}
	if a.err != nil && counts {
		c.cancel(a.err)
	}
}

// wait scores the answers that are left and returns all, or the first error.
func (c *scoring) wait() ([]*answer, error) {
	defer c.cancel(nil)
	c.mu.Lock()
	begin := c.running < c.AtOnce
	if begin {
		c.running++
	}
	c.mu.Unlock()
	if begin {
		c.score() // on this goroutine: instant rewards need no other
	}
	c.scorers.Wait()
	if err := context.Cause(c.ctx); err != nil {
		return nil, err
	}
	return c.answers, nil
}

// abandon stops all scoring and waits for it to end.
func (c *scoring) abandon() {
	c.mu.Lock()
	c.closed, c.queue = true, nil
	c.mu.Unlock()
	c.cancel(nil)
	c.scorers.Wait()
}

// another starts a scorer if an answer waits and there may be one more. c is locked.
func (c *scoring) another() {
	if len(c.queue) > 0 && c.running < c.AtOnce && !c.failed {
		c.running++
		c.scorers.Go(c.score)
	}
}

// score scores queued answers until there are none. Each scorer starts the next one before
// its own score, so with instant rewards the later ones find nothing to do.
func (c *scoring) score() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 || c.failed || c.ctx.Err() != nil {
			c.running--
			c.mu.Unlock()
			return
		}
		a := c.queue[0]
		c.queue = c.queue[1:]
		c.another()
		c.mu.Unlock()
		score, err := Score(c.ctx, c.Reward,
			reward.Input{Prompt: c.prompt, Text: a.text, Finish: a.Finish, Length: len(a.IDs)})
		c.mu.Lock()
		if a.score = score; err != nil {
			a.err = fmt.Errorf("reward of response %d: %w", a.index, err)
			c.check(a)
		}
		c.mu.Unlock()
	}
}

// Score calls the reward for one response. The reward handles deadlines and retries,
// because only it knows when scoring begins. A panic or a score that fails its Check is an
// error.
func Score(ctx context.Context, f reward.Func, in reward.Input) (score reward.Score, err error) {
	defer func() { // panics.Try would allocate for each response
		if p := recover(); p != nil {
			r := panics.NewRecovered(1, p)
			err = r.AsError()
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	score, err = f.Score(ctx, in)
	if err == nil {
		err = score.Check()
	}
	return score, err
}
