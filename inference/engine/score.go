package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/easyrl/easyrl/inference"
)

// maxTop is the maximum number of top log-probabilities per token.
const maxTop = 32

// topRows is the maximum number of prompt tokens whose logits are in host memory at once.
const topRows = 8

// scorer computes log-probabilities of given tokens. Its errors end the request.
type scorer struct {
	m      forward
	vocab  int
	logits []float32 // of some rows, in host memory; reused
}

// prompt sets the log-probabilities, at temperature 1, of the prompt tokens that
// follow the filled ones, and their alternatives. Row first of the last prefill is the
// prompt's first token.
func (c *scorer) prompt(g *group, first int) error {
	if g.promptLogp == nil {
		return nil
	}
	n := min(g.filled, len(g.req.PromptIDs)-1)
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(first + i)
	}
	if err := c.score(g.promptLogp[1:n+1], rows, g.req.PromptIDs[1:n+1], 1); err != nil || g.promptTop == nil {
		return err
	}
	for at := 0; at < n; at += topRows {
		some := rows[at:min(at+topRows, n)]
		if err := c.m.logitsOf(c.room(len(some)), some); err != nil {
			return fmt.Errorf("prompt: %w", err)
		}
		if err := c.top(g.promptTop[at+1:], some, g.req.PromptTop, 1); err != nil {
			return err
		}
	}
	return nil
}

// next does the same as prompt for one prompt token: the one after the token that s has just run,
// at the given place, in a decode step.
func (c *scorer) next(s *sequence, ran place) error {
	g, at := s.g, s.cached
	if g.promptLogp == nil || at >= len(g.req.PromptIDs) {
		return nil
	}
	rows := []int32{ran.row}
	if err := c.score(g.promptLogp[at:at+1], rows, g.req.PromptIDs[at:at+1], 1); err != nil || g.promptTop == nil {
		return err
	}
	if err := c.m.download(c.room(1), ran.logits); err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	return c.top(g.promptTop[at:], rows, g.req.PromptTop, 1)
}

// addTop records the likeliest tokens at the place where s's last token was
// sampled. Their log-probabilities use the temperature of the draw, like the
// sampled token's.
func (c *scorer) addTop(s *sequence, at place) error {
	n := s.g.req.TopLogprobs
	if n == 0 {
		return nil
	}
	if err := c.m.download(c.room(1), at.logits); err != nil {
		return fmt.Errorf("top log-probabilities: %w", err)
	}
	s.top = append(s.top, nil)
	return c.top(s.top[len(s.top)-1:], []int32{at.row}, n, cmp.Or(s.g.req.Sampling.Temperature, 1))
}

// room returns c.logits with room for n rows.
func (c *scorer) room(n int) []float32 {
	c.logits = slices.Grow(c.logits[:0], n*c.vocab)[:n*c.vocab]
	return c.logits
}

// top sets to[i] to the n likeliest tokens after row rows[i], whose logits are row i of
// c.logits.
func (c *scorer) top(to [][]inference.TokenLogprob, rows []int32, n int, temperature float32) error {
	var at, ids []int32
	for i, row := range rows {
		to[i] = likeliest(c.logits[i*c.vocab:(i+1)*c.vocab], n)
		for _, t := range to[i] {
			at, ids = append(at, row), append(ids, t.ID)
		}
	}
	logp := make([]float32, len(ids))
	if err := c.score(logp, at, ids, temperature); err != nil {
		return err
	}
	for i, l := range logp {
		to[i/n][i%n].Logprob = l
	}
	return nil
}

// score calls the model's score and checks the log-probabilities.
func (c *scorer) score(logp []float32, rows, targets []int32, temperature float32) error {
	if len(rows) == 0 {
		return nil
	}
	if err := c.m.score(logp, rows, targets, temperature); err != nil {
		return fmt.Errorf("score: %w", err)
	}
	for i, l := range logp {
		if math.IsNaN(float64(l)) || l > 0 {
			return fmt.Errorf("score: token %d has log-probability %v", targets[i], l)
		}
	}
	return nil
}

// likeliest returns the n largest logits in descending order, ties by lower id.
// Logprob holds the logit.
func likeliest(logits []float32, n int) []inference.TokenLogprob {
	top := make([]inference.TokenLogprob, 0, n+1)
	for id, l := range logits {
		if len(top) == n && !(l > top[n-1].Logprob) {
			continue
		}
		at := len(top)
		for at > 0 && l > top[at-1].Logprob {
			at--
		}
		top = slices.Insert(top, at, inference.TokenLogprob{ID: int32(id), Logprob: l})
		top = top[:min(len(top), n)]
	}
	return top
}
