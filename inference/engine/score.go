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

// topRows is the maximum number of prompt tokens whose logits are in host memory at once. It bounds
// the memory: a row of logits has a float32 per token of the vocabulary.
const topRows = 8

// promptTemperature is the temperature of prompt tokens' log-probabilities.
const promptTemperature = 1

// scorer computes log-probabilities of given tokens. Its errors end the request.
type scorer struct {
	m      forward
	vocab  int
	logits []float32 // logits of some rows, in host memory; see logitsFor
}

// scorePrompt sets the log-probabilities of the prompt tokens that follow n tokens just run, and their
// alternatives, as far as the request asks for them. The tokens that ran are at positions from first on, in the rows
// of the last pass from row on. A token that has been scored, when the prompt ran before its cache was dropped, is not
// scored again; see group.
func (c *scorer) scorePrompt(g *group, first, n, row int) error {
	if g.promptLogp == nil {
		return nil
	}
	end := min(first+n+1, len(g.req.PromptIDs)) // of the tokens to score, whose positions are those that ran plus 1
	from := max(first+1, g.scored)
	if from >= end {
		return nil
	}
	g.scored = end
	rows := make([]int32, end-from)
	for i := range rows {
		rows[i] = int32(row + from - 1 - first + i)
	}
	err := c.score(g.promptLogp[from:end], rows, g.req.PromptIDs[from:end], promptTemperature)
	if err != nil || g.promptTop == nil {
		return err
	}
	for i := 0; i < len(rows); i += topRows {
		block := rows[i:min(i+topRows, len(rows))]
		if err := c.m.logitsOf(c.logitsFor(len(block)), block); err != nil {
			return fmt.Errorf("prompt: %w", err)
		}
		if err := c.top(g.promptTop[from+i:], block, g.req.PromptTop, promptTemperature); err != nil {
			return err
		}
	}
	return nil
}

// addTop appends to s.top the likeliest tokens at the place where s's last token was sampled, if the
// request asks for them. Their log-probabilities are at the temperature of the draw, like the sampled
// token's, and at temperature 1 for a greedy draw.
func (c *scorer) addTop(s *sequence, sampled place) error {
	n := s.g.req.TopLogprobs
	if n == 0 {
		return nil
	}
	if err := c.m.download(c.logitsFor(1), sampled.logits); err != nil {
		return fmt.Errorf("top log-probabilities: %w", err)
	}
	s.top = append(s.top, nil)
	temperature := cmp.Or(s.g.req.Sampling.Temperature, 1)
	return c.top(s.top[len(s.top)-1:], []int32{sampled.row}, n, temperature)
}

// logitsFor returns c.logits with room for n rows. Their values are undefined.
func (c *scorer) logitsFor(n int) []float32 {
	c.logits = slices.Grow(c.logits[:0], n*c.vocab)[:n*c.vocab]
	return c.logits
}

// top sets dst[i] to the n likeliest tokens after row rows[i] of the last pass. Row i of c.logits has
// the logits of that row.
func (c *scorer) top(dst [][]inference.TokenLogprob, rows []int32, n int, temperature float32) error {
	var scoreRows, ids []int32
	for i, row := range rows {
		dst[i] = likeliest(c.logits[i*c.vocab:(i+1)*c.vocab], n)
		for _, t := range dst[i] {
			scoreRows = append(scoreRows, row)
			ids = append(ids, t.ID)
		}
	}
	logp := make([]float32, len(ids))
	if err := c.score(logp, scoreRows, ids, temperature); err != nil {
		return err
	}
	for i, l := range logp {
		dst[i/n][i%n].Logprob = l
	}
	return nil
}

// score calls the model's score and returns an error if a log-probability is NaN or above 0.
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

// likeliest returns the tokens with the n largest logits in descending order, and in the order of IDs
// where logits are equal. Logprob holds the logit. n is at most len(logits).
func likeliest(logits []float32, n int) []inference.TokenLogprob {
	top := make([]inference.TokenLogprob, 0, n+1)
	for id, l := range logits {
		if len(top) == n && !(l > top[n-1].Logprob) { // negated, so that NaN is never inserted here
			continue
		}
		i := len(top)
		for i > 0 && l > top[i-1].Logprob {
			i--
		}
		top = slices.Insert(top, i, inference.TokenLogprob{ID: int32(id), Logprob: l})
		top = top[:min(len(top), n)]
	}
	return top
}
