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

// scoring scores the responses to one request, each once.
//
// While the request runs, ended queues each response that an instance reports. If the fleet
// retries the request, a response may be reported again: it is known, and keeps its score,
// if it has the same bits. When the request has returned, final closes the scoring: it
// selects the answers of the request, queues those that are not known, and drops the others
// from the queue. wait then scores what is left. If the request fails, abandon ends the
// scoring instead.
//
// A scorer is a goroutine in score. There are at most AtOnce.
type scoring struct {
	*Sampler
	prompt  *rollout.Prompt
	ctx     context.Context         // ends with the caller's, on a failure that counts, and after wait
	cancel  context.CancelCauseFunc // cancels ctx
	scorers conc.WaitGroup          // scorers except the one that wait runs

	mu      sync.Mutex  // guards the fields below, and err of each answer
	early   [][]*answer // answers reported by ended, by index; several per index if instances differ
	queue   []*answer   // answers whose scoring has not begun
	running int         // number of scorers
	failed  bool        // the score of an answer that may count failed: scorers stop
	closed  bool        // final or abandon was called: ended has no effect
	answers []*answer   // final answers by index; set by final
}

// answer is a response by an instance. Its scorer sets score and err. Others read err under
// the lock of the scoring, and score when all scorers have ended.
type answer struct {
	inference.Completion
	index int    // index among the responses to the request
	text  string // text for the reward
	score reward.Score
	err   error
}

// newScoring returns the scoring of a request for n responses. Its caller must call final and
// wait, or abandon.
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
		return // final calls text again, where a panic does no harm
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.known(index, &got) != nil {
		return
	}
	c.early[index] = append(c.early[index], a)
	c.queue = append(c.queue, a)
	c.startScorer()
}

// known returns the early answer with the same bits, or nil. c is locked.
func (c *scoring) known(index int, got *inference.Completion) *answer {
	sameBits := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
	for _, a := range c.early[index] {
		if a.Version == got.Version && a.Finish == got.Finish && a.Text == got.Text &&
			slices.Equal(a.IDs, got.IDs) && slices.EqualFunc(a.Logprobs, got.Logprobs, sameBits) {
			return a
		}
	}
	return nil
}

// final sets and returns the answers to the request. It keeps known answers, queues new ones,
// and drops others from the queue.
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
	c.closed = true
	c.answers = answers
	c.queue = slices.DeleteFunc(c.queue, func(a *answer) bool { return answers[a.index] != a })
	c.queue = append(c.queue, added...)
	c.failed = false // the answer that failed may not be among the final ones
	for _, a := range answers {
		c.check(a)
	}
	return answers
}

// check handles a failed score. If the answer is final, it cancels the scoring. If answers
// are not final yet, it stops the scorers until they are. c is locked.
func (c *scoring) check(a *answer) {
	if a.err == nil {
		return
	}
	isFinal := c.answers != nil && c.answers[a.index] == a
	if isFinal || !c.closed {
		c.failed = true
	}
	if isFinal {
		c.cancel(a.err)
	}
}

// wait scores the answers that are left and returns all, or the first error. It also works
// as a scorer: instant rewards need no other goroutine.
func (c *scoring) wait() ([]*answer, error) {
	defer c.cancel(nil)
	c.mu.Lock()
	free := c.running < c.AtOnce
	if free {
		c.running++
	}
	c.mu.Unlock()
	if free {
		c.score()
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
	c.closed = true
	c.queue = nil
	c.mu.Unlock()
	c.cancel(nil)
	c.scorers.Wait()
}

// startScorer starts a scorer if an answer is queued and fewer than AtOnce scorers run. c is
// locked.
func (c *scoring) startScorer() {
	if len(c.queue) > 0 && c.running < c.AtOnce && !c.failed {
		c.running++
		c.scorers.Go(c.score)
	}
}

// score scores queued answers until there are none, or scoring failed or was cancelled. The
// caller has counted it in running. Before each answer, it starts another scorer if more
// answers are queued.
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
		c.startScorer()
		c.mu.Unlock()
		score, err := Score(c.ctx, c.Reward,
			reward.Input{Prompt: c.prompt, Text: a.text, Finish: a.Finish, Length: len(a.IDs)})
		c.mu.Lock()
		a.score = score
		if err != nil {
			a.err = fmt.Errorf("reward of response %d: %w", a.index, err)
			c.check(a)
		}
		c.mu.Unlock()
	}
}

// Score calls the reward for one response. The reward handles deadlines and retries,
// because only it knows when scoring begins. A panic or a score that fails its Check is an
// error. If ctx has ended, the error is the cause of that.
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
