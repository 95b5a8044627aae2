package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/rollout"
)

// group is a request and its responses. Its request does not change. From submit until done is
// closed, the loop owns all other fields, with two exceptions: the caller may read a response whose
// index it got from endings, and version and checksum once feed has a token.
type group struct {
	ctx   context.Context
	req   inference.Request
	limit int   // maximum response tokens
	order int64 // request order

	seqs    []sequence
	pending []*sequence // neither running nor ended, by index
	running int
	left    int // not ended
	started bool

	cache  []int32 // pages with the first filled positions of the prompt
	filled int

	promptLogp []float32                  // one per prompt token; nil unless requested
	promptTop  [][]inference.TokenLogprob // like promptLogp
	feed       *feed                      // nil unless the caller streams
	// ended responses while others run, at most one entry each; nil without Request.Ended
	endings chan int

	version  int64
	checksum string
	err      error
	done     chan struct{} // closed by the loop when the responses are final or err is set
}

// sequence is one response.
type sequence struct {
	g      *group
	index  int
	ids    []int32
	logp   []float32
	top    [][]inference.TokenLogprob // nil unless requested
	finish rollout.Finish
	pages  []int32 // for positions 0, 1, … of prompt and response
	sent   int     // pages already in the model's table
	lane   int32   // the sequence's number in the model, while it runs
	cached int     // positions with keys and values in pages
	active bool    // a row of the next step
	window int     // index in ids where the search for stop strings resumes
}

// newGroup validates req against the engine's limits.
func (e *Engine) newGroup(ctx context.Context, req inference.Request) (*group, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	n := len(req.PromptIDs)
	if n >= e.cfg.Context {
		return nil, fmt.Errorf("%w: prompt of %d tokens, expected fewer than the context of %d", inference.ErrInvalid,
			n, e.cfg.Context)
	}
	for i, id := range req.PromptIDs {
		if id < 0 || int(id) >= e.vocab {
			return nil, fmt.Errorf("%w: prompt token %d is %d, expected 0 to %d", inference.ErrInvalid, i,
				id, e.vocab-1)
		}
	}
	if e.tok == nil && len(req.Sampling.Stop) > 0 {
		return nil, fmt.Errorf("%w: stop strings need a tokenizer, but the model has none", inference.ErrInvalid)
	}
	if top, most := max(req.TopLogprobs, req.PromptTop), min(maxTop, e.vocab); top > most {
		return nil, fmt.Errorf("%w: %d top log-probabilities requested, expected at most %d",
			inference.ErrInvalid, top, most)
	}
	limit := min(req.Sampling.MaxTokens, e.cfg.Context-n)
	// The last token of a response never runs.
	if need := pagesFor(n + limit - 1); need > e.cfg.CachePages {
		return nil, fmt.Errorf(
			"%w: a prompt of %d tokens and a response of %d need %d cache pages, but the engine has %d",
			inference.ErrInvalid, n, limit, need, e.cfg.CachePages)
	}
	g := &group{ctx: ctx, req: req, limit: limit, left: req.N, done: make(chan struct{})}
	g.req.PromptIDs = slices.Clone(req.PromptIDs)
	if req.Ended != nil {
		g.endings = make(chan int, req.N)
	}
	if req.PromptLogprobs {
		g.promptLogp = make([]float32, n)
	}
	if req.PromptTop > 0 {
		g.promptTop = make([][]inference.TokenLogprob, n)
	}
	g.seqs = make([]sequence, req.N)
	g.pending = make([]*sequence, req.N)
	for i := range g.seqs {
		s := &g.seqs[i]
		s.g, s.index = g, i
		g.pending[i] = s
	}
	return g, nil
}

// completions returns the result of a finished group.
func (g *group) completions(tok Decoder) []inference.Completion {
	out := make([]inference.Completion, len(g.seqs))
	for i := range g.seqs {
		out[i] = g.completion(i, tok)
	}
	return out
}

// completion returns an ended response.
func (g *group) completion(i int, tok Decoder) inference.Completion {
	s := &g.seqs[i]
	c := inference.Completion{IDs: s.ids, Logprobs: s.logp, Finish: s.finish, Version: g.version, Checksum: g.checksum,
		PromptLogprobs: g.promptLogp, PromptTop: g.promptTop, Top: s.top}
	if tok != nil {
		c.Text = tok.Decode(s.ids)
	}
	return c
}

// known returns the number of known tokens, prompt included.
func (s *sequence) known() int { return len(s.g.req.PromptIDs) + len(s.ids) }

// token returns the token at a position.
func (s *sequence) token(position int) int32 {
	if n := len(s.g.req.PromptIDs); position >= n {
		return s.ids[position-n]
	}
	return s.g.req.PromptIDs[position]
}

// younger reports whether s came after o.
func (s *sequence) younger(o *sequence) bool {
	return s.g.order > o.g.order || s.g == o.g && s.index > o.index
}

// ended reports whether the last token ends the response, and why.
func (s *sequence) ended(tok Decoder) (rollout.Finish, bool) {
	sampling := &s.g.req.Sampling
	switch {
	case slices.Contains(sampling.StopIDs, s.ids[len(s.ids)-1]):
		return rollout.Stop, true
	case len(sampling.Stop) > 0 && s.hasStop(tok, sampling.Stop):
		return rollout.Stop, true
	case len(s.ids) >= s.g.limit:
		return rollout.Length, true
	}
	return "", false
}

// hasStop reports whether the response's text contains a stop string. It decodes
// only a window at the end, so that the cost per token does not grow with the
// response, and the full response only to confirm a hit. A character may span
// several tokens, so the window is some bytes longer than the longest stop
// string.
func (s *sequence) hasStop(tok Decoder, stops []string) bool {
	longest := 0
	for _, stop := range stops {
		longest = max(longest, len(stop))
	}
	keep := longest + 16
	text := tok.Decode(s.ids[s.window:])
	if containsAny(text, stops) && (s.window == 0 || containsAny(tok.Decode(s.ids), stops)) {
		return true
	}
	for len(text) > 4*keep {
		middle := s.window + (len(s.ids)-s.window+1)/2
		shorter := tok.Decode(s.ids[middle:])
		if len(shorter) < keep {
			break
		}
		s.window, text = middle, shorter
	}
	return false
}

func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
}
