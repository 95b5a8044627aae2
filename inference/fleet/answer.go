package fleet

import (
	"cmp"
	"fmt"
	"math"

	"github.com/easyrl/easyrl/inference"
)

// checkAnswer returns an error unless out answers req under the weights with checksum sum. An answer
// without a checksum passes. vocab is the vocabulary's size, 0 if unknown.
func checkAnswer(out []inference.Completion, req *inference.Request, sum string, vocab int) error {
	if len(out) != req.N {
		return fmt.Errorf("%d responses, expected %d", len(out), req.N)
	}
	for i := range out {
		if err := checkResponse(i, &out[i], req, sum, vocab); err != nil {
			return err
		}
	}
	return nil
}

// checkResponse is checkAnswer for response i.
func checkResponse(i int, c *inference.Completion, req *inference.Request, sum string, vocab int) error {
	switch {
	case c.Version != req.Version:
		return fmt.Errorf("response %d has version %d, expected %d: %w", i, c.Version, req.Version, inference.ErrStale)
	case c.Checksum != "" && c.Checksum != sum:
		return fmt.Errorf("version %d of response %d has checksum %.40s, expected %s; "+
			"another trainer may be publishing to this instance: %w",
			c.Version, i, c.Checksum, sum, inference.ErrStale)
	case len(c.IDs) == 0:
		return fmt.Errorf("response %d has no tokens", i)
	case len(c.IDs) > req.Sampling.MaxTokens:
		return fmt.Errorf("response %d has %d tokens, expected at most %d", i, len(c.IDs), req.Sampling.MaxTokens)
	case len(c.IDs) != len(c.Logprobs):
		return fmt.Errorf("response %d has %d tokens but %d log-probabilities", i, len(c.IDs), len(c.Logprobs))
	case req.PromptLogprobs && len(c.PromptLogprobs) != len(req.PromptIDs):
		return fmt.Errorf("response %d has %d prompt log-probabilities, expected %d", i, len(c.PromptLogprobs),
			len(req.PromptIDs))
	}
	for j, id := range c.IDs {
		if id < 0 || vocab > 0 && int(id) >= vocab {
			return fmt.Errorf("response %d token %d is %d, expected 0 to %d", i, j, id, cmp.Or(vocab, math.MaxInt32)-1)
		}
	}
	for j, l := range c.Logprobs {
		if l64 := float64(l); math.IsNaN(l64) || math.IsInf(l64, 0) {
			return fmt.Errorf("response %d token %d has log-probability %v", i, j, l)
		}
	}
	return nil
}
