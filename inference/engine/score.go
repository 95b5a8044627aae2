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

// scorer computes log-probabilities of given tokens. Its errors end the request.
type scorer struct {
	m      forward
	vocab  int
	logits []float32 // of one row, in host memory; reused
}

// prompt sets the log-probabilities, at temperature 1, of the prompt tokens that
// follow the filled ones. Row first of the last prefill is the prompt's first token.
func (c *scorer) prompt(g *group, first int) error {
	if g.promptLogp == nil {
		return nil
	}
	n := min(g.filled, len(g.req.PromptIDs)-1)
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(first + i)
	}
	return c.score(g.promptLogp[1:n+1], rows, g.req.PromptIDs[1:n+1], 1)
}

// next is prompt for a prompt token that runs in a decode step: the one after the
// token that s has just run in the given row.
func (c *scorer) next(s *sequence, row int32) error {
	g, at := s.g, s.cached
	if g.promptLogp == nil || at >= len(g.req.PromptIDs) {
		return nil
	}
	return c.score(g.promptLogp[at:at+1], []int32{row}, g.req.PromptIDs[at:at+1], 1)
}

// addTop records the likeliest tokens at the place where s's last token was
// sampled. Their log-probabilities use the temperature of the draw, like the
// sampled token's.
func (c *scorer) addTop(s *sequence, at place) error {
	n := s.g.req.TopLogprobs
	if n == 0 {
		return nil
	}
	c.logits = slices.Grow(c.logits[:0], c.vocab)[:c.vocab]
	c.m.download(c.logits, at.logits)
	top := likeliest(c.logits, n)
	rows, ids, logp := make([]int32, n), make([]int32, n), make([]float32, n)
	for i := range top {
		rows[i], ids[i] = at.row, top[i].ID
	}
	if err := c.score(logp, rows, ids, cmp.Or(s.g.req.Sampling.Temperature, 1)); err != nil {
		return err
	}
	for i := range top {
		top[i].Logprob = logp[i]
	}
	s.top = append(s.top, top)
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
