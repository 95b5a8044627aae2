package api

import (
	"strconv"

	"github.com/easyrl/easyrl/inference"
)

// fillIDs sets the fields of a choice of token IDs.
func (w *Writer) fillIDs(ch *choice, c *inference.Completion) {
	ch.IDs = c.IDs
	ch.Versions = []span{{Version: strconv.FormatInt(c.Version, 10), End: len(c.IDs)}}
	if w.job.Logprobs != nil {
		ch.Logprobs = w.idEntries(c)
	}
}

// idEntries returns the log-probabilities of c's tokens in the form of token IDs.
func (w *Writer) idEntries(c *inference.Completion) idLogprobs {
	entry := func(id int32, logprob float32) idLogprob {
		return idLogprob{Token: w.piece(id), ID: id, Logprob: max(logprob, lowestLogprob)}
	}
	out := idLogprobs{Content: []idLogprob{}}
	for i, id := range c.IDs {
		e := entry(id, c.Logprobs[i])
		e.Top = []idLogprob{e}
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
