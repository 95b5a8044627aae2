package answer

import (
	"strconv"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/openai"
)

// fillIDs sets the fields of a choice of token IDs.
func (w *Writer) fillIDs(ch *openai.Choice, c *inference.Completion) {
	ch.IDs = c.IDs
	ch.Versions = []openai.Span{{Version: strconv.FormatInt(c.Version, 10), End: len(c.IDs)}}
	if w.job.Logprobs != nil {
		ch.Logprobs = w.idEntries(c)
	}
}

// idEntries returns the log-probabilities of c's tokens in the form of token IDs.
func (w *Writer) idEntries(c *inference.Completion) openai.IDLogprobs {
	entry := func(id int32, logprob float32) openai.IDLogprob {
		return openai.IDLogprob{Token: w.piece(id), ID: id, Logprob: max(logprob, lowestLogprob)}
	}
	out := openai.IDLogprobs{Content: []openai.IDLogprob{}}
	for i, id := range c.IDs {
		e := entry(id, c.Logprobs[i])
		e.Top = []openai.IDLogprob{e}
		if i < len(c.Top) {
			for _, t := range c.Top[i] {
				if t.ID != id {
					e.Top = append(e.Top, entry(t.ID, t.Logprob))
				}
			}
		}
		out.Content = append(out.Content, e)
	}
	return out
}
