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
// closed, the loop owns all other fields, with two exceptions. Once the caller has got a response's
// index from endings, it may read the response, promptLogp and promptTop. Once it has got an index or a
// token from feed, it may read version and checksum. The loop sets all of these only once.
//
// A response is pending, running or ended. It starts as pending and becomes pending again if it is
// preempted.
type group struct {
	ctx    context.Context
	req    inference.Request
	limit  int   // maximum number of tokens of a response
	number int64 // position among all requests, by arrival

	seqs    []sequence
	pending []*sequence // pending responses, by index
	running int         // number of running responses
	left    int         // number of responses that have not ended
	started bool        // the prompt has run once, so version and checksum are set

	cache  []int32 // pages with keys and values of the prompt's first filled positions; the last may be partly filled
	filled int     // number of prompt positions in cache; 0 before the prompt has run and after dropCache

	promptLogp []float32                  // one per prompt token; nil unless requested
	promptTop  [][]inference.TokenLogprob // one per prompt token; nil unless requested
	scored     int                        // number of prompt tokens whose log-probabilities are set
	feed       *feed                      // nil unless the caller streams
	// endings gets the index of each response that ends before the last one, and has room for all.
	// It is nil without Request.Ended.
	endings chan int

	version  int64  // version of the weights that sample
	checksum string // checksum of those weights
	err      error
	done     chan struct{} // closed by the loop when the responses are final or err is set
}

// sequence is one response. pages, tabled, lane and cached are valid only while it runs.
type sequence struct {
	g      *group
	index  int
	ids    []int32
	logp   []float32                  // one per token of ids
	top    [][]inference.TokenLogprob // one per token of ids; nil unless requested
	finish rollout.Finish
	pages  []int32 // pages of positions 0, 1, … of prompt and response
	tabled int     // number of pages that the model's page table has
	lane   int32   // the sequence's number in the model
	cached int     // number of positions with keys and values in pages
	active bool    // the response is running
	window int     // index in ids at which the search for stop strings begins
}

// newGroup validates req and returns its group. Errors wrap inference.ErrInvalid.
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
	if top, limit := max(req.TopLogprobs, req.PromptTop), min(maxTop, e.vocab); top > limit {
		return nil, fmt.Errorf("%w: %d top log-probabilities requested, expected at most %d",
			inference.ErrInvalid, top, limit)
	}
	limit := min(req.Sampling.MaxTokens, e.cfg.Context-n)
	// The last token of a response never runs, so it needs no place in the cache.
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

// completion returns response i, which has ended.
func (g *group) completion(i int, tok Decoder) inference.Completion {
	s := &g.seqs[i]
	c := inference.Completion{IDs: s.ids, Logprobs: s.logp, Finish: s.finish, Version: g.version, Checksum: g.checksum,
		PromptLogprobs: g.promptLogp, PromptTop: g.promptTop, Top: s.top}
	if tok != nil {
		c.Text = tok.Decode(s.ids)
	}
	return c
}

// known returns the number of known tokens of prompt and response.
func (s *sequence) known() int { return len(s.g.req.PromptIDs) + len(s.ids) }

// token returns the token at a position of prompt and response.
func (s *sequence) token(position int) int32 {
	if n := len(s.g.req.PromptIDs); position >= n {
		return s.ids[position-n]
	}
	return s.g.req.PromptIDs[position]
}

// younger reports whether s comes after other in the order of requests and responses.
func (s *sequence) younger(other *sequence) bool {
	return s.g.number > other.g.number || s.g == other.g && s.index > other.index
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
// response, and the complete response only to confirm a hit. A character may span
// several tokens, so the window is some bytes longer than the longest stop
// string. When the window has become four times as long, hasStop halves it.
func (s *sequence) hasStop(tok Decoder, stops []string) bool {
	longest := 0
	for _, stop := range stops {
		longest = max(longest, len(stop))
	}
	keep := longest + 16 // minimum length of the window's text, in bytes
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

// containsAny reports whether text contains one of parts.
func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
}
