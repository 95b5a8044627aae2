package page

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/tokenizer"
)

// Limits of the tokens shown in color: in one response and on the whole page.
const (
	viewTokens = 256
	pageTokens = 2000
)

// token is a token of a response, ready to show.
type token struct {
	Text  string
	Class string // style classes for its colors
	Title string // its log-probability and entropy, in words
}

// tokenViews makes token views of responses until their budget is spent.
type tokenViews struct {
	budget    int                         // tokens left
	text      func() *tokenizer.Tokenizer // returns the run's tokenizer, or nil if it is not found
	made      bool                        // whether view made at least one view
	entropies bool                        // whether a view has entropies
}

// newTokenViews returns the views for the run in dir. The first view loads the run's tokenizer.
func newTokenViews(dir string) *tokenViews {
	text := sync.OnceValue(func() *tokenizer.Tokenizer { return findTokenizer(dir) })
	return &tokenViews{budget: pageTokens, text: text}
}

// recordedToken is a token of a response as it is recorded.
type recordedToken struct {
	id      int32
	logprob *float64 // nil if the policy did not sample the token
	entropy *float64 // nil if unknown
}

// tokens returns all tokens of a response, or nil if a log-probability of the policy's is missing.
func (r *response) tokens() []recordedToken {
	var all []recordedToken
	entropies := r.Entropies
	for _, s := range r.spans() {
		if s.From == rollout.Policy && len(s.Logprobs) != len(s.IDs) {
			return nil
		}
		for i, id := range s.IDs {
			t := recordedToken{id: id}
			if s.From == rollout.Policy {
				t.logprob = &s.Logprobs[i]
			}
			if s.Trained && len(entropies) > 0 {
				t.entropy = &entropies[0]
				entropies = entropies[1:]
			}
			all = append(all, t)
		}
	}
	return all
}

// view returns the first tokens of a response, or nil if their log-probabilities were not
// recorded or the budget is spent.
func (v *tokenViews) view(r *response) []token {
	all := r.tokens()
	n := min(len(all), viewTokens)
	if n == 0 || n > v.budget {
		return nil
	}
	v.budget -= n
	v.made = true
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = all[i].id
	}
	tokens := make([]token, n)
	for i, piece := range v.pieces(ids) {
		tokens[i] = v.token(piece, all[i])
	}
	return tokens
}

// token returns a token with its colors and values.
func (v *tokenViews) token(piece string, r recordedToken) token {
	if r.logprob == nil {
		return token{piece, "environment", "written by the environment"}
	}
	classes := []string{}
	if class := level(-*r.logprob); class > 0 {
		classes = append(classes, fmt.Sprint("q", class))
	}
	title := fmt.Sprintf("log-probability %.3f", *r.logprob)
	if r.entropy != nil {
		v.entropies = true
		if class := level(*r.entropy); class > 0 {
			classes = append(classes, fmt.Sprint("e", class))
		}
		title += fmt.Sprintf(", entropy %.3f", *r.entropy)
	}
	return token{piece, strings.Join(classes, " "), title}
}

// level returns the color class, from 0 to 5, of a token's surprise or entropy in nats.
func level(nats float64) int {
	class, found := slices.BinarySearch([]float64{.1, .5, 1, 2, 4}, nats)
	if found {
		class++
	}
	return class
}

// pieces returns the text of each token: what it adds to the text of the tokens before it. Without a
// tokenizer, the text is the token's ID.
func (v *tokenViews) pieces(ids []int32) []string {
	out := make([]string, len(ids))
	before, text := "", v.text()
	for i, id := range ids {
		switch {
		case text == nil:
			out[i] = fmt.Sprintf("%d ", id)
			continue
		case text.Special(id) != "":
			out[i] = text.Special(id)
			continue
		}
		now := text.Decode(ids[:i+1])
		out[i] = visible(strings.TrimPrefix(now, before))
		before = whole(now)
	}
	return out
}

// whole returns text without an incomplete character at its end, which later tokens may complete.
func whole(text string) string {
	for text != "" {
		r, size := utf8.DecodeLastRuneInString(text)
		if r != utf8.RuneError {
			break
		}
		text = text[:len(text)-size]
	}
	return text
}

// visible marks line breaks and pieces that show nothing, such as a part of a character.
func visible(piece string) string {
	piece = strings.ReplaceAll(whole(piece), "\n", "↵\n")
	if piece == "" {
		return "·"
	}
	return strings.ToValidUTF8(piece, "·")
}

// findTokenizer loads the tokenizer of a run from its newest checkpoint or from the model
// that it started from. It returns nil if there is none.
func findTokenizer(dir string) *tokenizer.Tokenizer {
	names, _ := fs.Glob(os.DirFS(dir), "checkpoints/step-*")
	slices.Sort(names)
	slices.Reverse(names)
	for i := range names {
		names[i] = filepath.Join(dir, filepath.FromSlash(names[i]))
	}
	names = names[:min(len(names), 2)] // the newest may be incomplete
	if about, err := report.ReadAbout(dir); err == nil && about.Tokenizer != "" {
		names = append(names, about.Tokenizer)
	}
	for _, name := range names {
		if t, err := tokenizer.Load(name); err == nil {
			return t
		}
	}
	return nil
}

// sign returns the style class of an advantage, which may be nil.
func sign(advantage *float64) string {
	switch {
	case advantage == nil || *advantage == 0:
		return "none"
	case *advantage > 0:
		return "up"
	}
	return "down"
}

// signed formats an advantage, which must not be nil.
func signed(advantage *float64) string {
	if *advantage == 0 {
		return "0"
	}
	return fmt.Sprintf("%+.2f", *advantage)
}
