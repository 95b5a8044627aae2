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

// scorePrompt sets the log-probabilities, at temperature 1, of the prompt tokens
// that follow the filled ones. Row first of the last prefill is the prompt's first
// token. It reports false if the group failed.
func (e *Engine) scorePrompt(g *group, first int) bool {
	if g.promptLogp == nil {
		return true
	}
	n := min(g.filled, len(g.req.PromptIDs)-1)
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(first + i)
	}
	return e.score(g, g.promptLogp[1:n+1], rows, g.req.PromptIDs[1:n+1], 1)
}

// scoreNext is scorePrompt for a prompt token that runs in a decode step: the one
// after the token that s has just run in the given row.
func (e *Engine) scoreNext(s *sequence, row int32) bool {
	g, at := s.g, s.cached
	if g.promptLogp == nil || at >= len(g.req.PromptIDs) {
		return true
	}
	return e.score(g, g.promptLogp[at:at+1], []int32{row}, g.req.PromptIDs[at:at+1], 1)
}

// addTop records the likeliest tokens at the place where s's last token was
// sampled. Their log-probabilities use the temperature of the draw, like the
// sampled token's. It reports false if the group failed.
func (e *Engine) addTop(s *sequence, at place) bool {
	n := s.g.req.TopLogprobs
	if n == 0 {
		return true
	}
	e.buf.logits = slices.Grow(e.buf.logits[:0], e.vocab)[:e.vocab]
	e.m.download(e.buf.logits, at.logits)
	top := likeliest(e.buf.logits, n)
	rows, ids, logp := make([]int32, n), make([]int32, n), make([]float32, n)
	for i := range top {
		rows[i], ids[i] = at.row, top[i].ID
	}
	if !e.score(s.g, logp, rows, ids, cmp.Or(s.g.req.Sampling.Temperature, 1)) {
		return false
	}
	for i := range top {
		top[i].Logprob = logp[i]
	}
	s.top = append(s.top, top)
	return true
}

// score calls the model's score and fails g if it fails or returns an invalid
// log-probability.
func (e *Engine) score(g *group, logp []float32, rows, targets []int32, temperature float32) bool {
	if len(rows) == 0 {
		return true
	}
	err := e.m.score(logp, rows, targets, temperature)
	for i := 0; err == nil && i < len(logp); i++ {
		if math.IsNaN(float64(logp[i])) || logp[i] > 0 {
			err = fmt.Errorf("token %d has log-probability %v", targets[i], logp[i])
		}
	}
	if err != nil {
		e.fail(g, fmt.Errorf("score: %w", err))
		return false
	}
	return true
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
