package trainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/rollout"
)

// maxRollouts is the maximum size of a rollouts file in bytes, 64 GiB.
const maxRollouts = 1 << 36

// ReadRollouts returns the text of a rollouts file, for StepOf and ParseGroups.
func ReadRollouts(path string) ([]byte, error) {
	text, err := filetype.ReadInput(path, maxRollouts)
	if err != nil {
		return nil, fmt.Errorf("read groups: %w", err)
	}
	return text, nil
}

// StepOf returns the step of the groups in the text of a rollouts file, or 0 if the first line names none.
func StepOf(text []byte) int {
	line, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	var first struct{ Step int }
	if json.Unmarshal(line, &first) != nil {
		return 0 // ParseGroups reports the error
	}
	return first.Step
}

// ParseGroups parses the text of a rollouts file, one group per line. All groups must be of one
// step and version, their tokens valid for a decoder of shape c, and their log-probabilities
// between minLogprob and maxLogprob. ParseGroups omits replaced groups, which were never trained, and an
// incomplete last line. The error names path and the line.
func ParseGroups(path string, text []byte, c *model.Config) ([]rollout.Group, error) {
	groups, n, err := parseGroups(text, c)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s:%d: %w", path, n, err)
	case len(groups) == 0:
		return nil, fmt.Errorf("%s has no groups, expected one per line", path)
	}
	return groups, nil
}

// parseGroups parses the groups of text. n is the number of the line with the error.
func parseGroups(text []byte, c *model.Config) (groups []rollout.Group, n int, err error) {
	firstLine := 0 // number of the line of groups[0]
	for line := range bytes.Lines(text) {
		n++
		complete := line[len(line)-1] == '\n'
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		g, err := parseGroup(line)
		if other := filetype.Explain(text, "groups as recorded in rollouts/"); err != nil && n == 1 && other != nil {
			err = other
		}
		if err != nil && len(groups) > 0 && !complete && !json.Valid(quoteConstants(line)) {
			break // the run was killed while it wrote the last line
		}
		if err == nil {
			err = checkGroup(&g, c)
		}
		if err == nil && len(groups) > 0 && (g.Step != groups[0].Step || g.Version != groups[0].Version) {
			err = fmt.Errorf("step %d and version %d, expected step %d and version %d as on line %d",
				g.Step, g.Version, groups[0].Step, groups[0].Version, firstLine)
		}
		if err != nil {
			return nil, n, err
		}
		if g.Replaced {
			continue
		}
		groups = append(groups, g)
		if firstLine == 0 {
			firstLine = n
		}
	}
	return groups, n, nil
}

// parseGroup reads a line of a rollouts file. It refuses null in place of a number, which
// encoding/json reads as 0 and other programs write for NaN, and names the place of a number
// that is not finite.
func parseGroup(text []byte) (rollout.Group, error) {
	var g rollout.Group
	var numbers struct {
		PromptIDs []*int32      `json:"prompt_ids"`
		Responses []rawResponse `json:"responses"`
	}
	numbersErr := json.Unmarshal(quoteConstants(text), &numbers)
	if numbersErr == nil {
		for j, r := range numbers.Responses {
			if err := r.check((*rawSpan).checkFinite); err != nil {
				return g, fmt.Errorf("response %d: %w", j, err)
			}
			if notFinite(r.Reward, 64) {
				return g, fmt.Errorf("response %d: reward is %s, expected a finite number", j, unquoted(r.Reward))
			}
		}
	}
	err := json.Unmarshal(text, &g)
	if err == nil {
		err = numbersErr
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		field := mismatch.Field
		if field == "" {
			field = "the line"
		}
		return g, fmt.Errorf("%s is a JSON %s, expected a group as recorded in rollouts/", field, mismatch.Value)
	}
	if errors.As(err, new(*json.SyntaxError)) {
		return g, fmt.Errorf("not JSON: %w", err)
	}
	if err != nil {
		return g, err
	}
	if i := indexNil(numbers.PromptIDs); i >= 0 {
		return g, fmt.Errorf("prompt_ids[%d] is null, expected a number", i)
	}
	for j, r := range numbers.Responses {
		if err := r.check((*rawSpan).checkNull); err != nil {
			return g, fmt.Errorf("response %d: %w", j, err)
		}
		if isNull(r.Reward) {
			return g, fmt.Errorf("response %d has no reward, expected a number", j)
		}
	}
	return g, nil
}

// rawResponse is a response whose numbers may be null or not finite.
type rawResponse struct {
	rawSpan
	Spans  []rawSpan       `json:"spans"`
	Reward json.RawMessage `json:"reward"`
}

// check returns the first error of check for a span.
func (r *rawResponse) check(check func(*rawSpan) error) error {
	for i := range r.Spans {
		if err := check(&r.Spans[i]); err != nil {
			return fmt.Errorf("spans[%d]: %w", i, err)
		}
	}
	return check(&r.rawSpan)
}

// rawSpan is a span whose numbers may be null or not finite.
type rawSpan struct {
	IDs      []*int32          `json:"ids"`
	Logprobs []json.RawMessage `json:"logprobs"`
}

func (s *rawSpan) checkFinite() error {
	for i, lp := range s.Logprobs {
		if notFinite(lp, 32) {
			return logprobError(i, unquoted(lp))
		}
	}
	return nil
}

func (s *rawSpan) checkNull() error {
	if i := indexNil(s.IDs); i >= 0 {
		return fmt.Errorf("ids[%d] is null, expected a number", i)
	}
	if i := slices.IndexFunc(s.Logprobs, isNull); i >= 0 {
		return fmt.Errorf("logprobs[%d] is null, expected a number", i)
	}
	return nil
}

// indexNil returns the index of the first nil, or -1.
func indexNil[T any](list []*T) int {
	for i, v := range list {
		if v == nil {
			return i
		}
	}
	return -1
}

// isNull reports whether a JSON value is null or absent.
func isNull(v json.RawMessage) bool { return len(v) == 0 || string(v) == "null" }

// quoteConstants turns NaN, -Infinity and the like, which other programs write for numbers that
// are not finite, into JSON strings.
func quoteConstants(text []byte) []byte {
	if json.Valid(text) {
		return text
	}
	stringOrConstant := regexp.MustCompile(`"(?:[^"\\]|\\.)*"|(?i:nan|[-+]?inf(?:inity)?)`)
	return stringOrConstant.ReplaceAllFunc(text, func(match []byte) []byte {
		if match[0] == '"' {
			return match
		}
		return slices.Concat([]byte{'"'}, match, []byte{'"'})
	})
}

// notFinite reports whether a JSON value, a number or the name of one, is NaN or infinite as a float of the
// given number of bits.
func notFinite(v json.RawMessage, bits int) bool {
	x, _ := strconv.ParseFloat(unquoted(v), bits) // 0 if it is no number; infinite if it is out of range
	return !isFinite(x)
}

func unquoted(v json.RawMessage) string { return strings.Trim(string(v), `"`) }

// Bounds of a recorded log-probability. No sampler draws a token whose probability is 0 in
// its arithmetic, and the smallest float64 above 0 is e^-744.4. An instance's rounding may move a
// log-probability a little above 0.
const (
	minLogprob = -745
	maxLogprob = 1e-3
)

// logprobError returns the error for the impossible log-probability of token i of a response.
func logprobError(i int, lp any) error {
	return fmt.Errorf("logprobs[%d] is %v, expected %v to 0", i, lp, minLogprob)
}

// checkGroup returns an error for a group that no run of a decoder of shape c could record.
func checkGroup(g *rollout.Group, c *model.Config) error {
	if len(g.Prompt.IDs) == 0 || len(g.Responses) == 0 {
		return fmt.Errorf("%d prompt_ids and %d responses, expected at least 1 of each", len(g.Prompt.IDs),
			len(g.Responses))
	}
	if err := checkIDs("prompt_ids", g.Prompt.IDs, c.VocabSize); err != nil {
		return err
	}
	for j := range g.Responses {
		if err := checkResponse(&g.Responses[j], g, c); err != nil {
			return fmt.Errorf("response %d: %w", j, err)
		}
	}
	return nil
}

func checkResponse(r *rollout.Response, g *rollout.Group, c *model.Config) error {
	if err := r.Spans.CheckSampled(g.Version); err != nil {
		return err
	}
	if r.Spans.Count(rollout.IsTrained) == 0 {
		return errors.New("no trained tokens, expected at least 1")
	}
	if n := len(g.Prompt.IDs) + r.Spans.Tokens(); n > c.MaxPositions {
		return fmt.Errorf("%d tokens including the prompt, but the model's context is %d", n, c.MaxPositions)
	}
	if r.Finish != rollout.Stop && r.Finish != rollout.Length {
		return fmt.Errorf("finish is %q, expected %q or %q", r.Finish, rollout.Stop, rollout.Length)
	}
	for i := range r.Spans {
		if err := checkSpan(&r.Spans[i], c); err != nil {
			return r.Spans.Within(i, err)
		}
	}
	return nil
}

func checkSpan(s *rollout.Span, c *model.Config) error {
	for i, lp := range s.Logprobs {
		if !(lp >= minLogprob && lp <= maxLogprob) { // also if lp is NaN
			return logprobError(i, lp)
		}
	}
	return checkIDs("ids", s.IDs, c.VocabSize)
}

// checkIDs returns an error that names the first id outside a vocabulary.
func checkIDs(name string, ids []int32, vocab int) error {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("%s[%d] is %d, expected 0 to %d", name, i, id, vocab-1)
		}
	}
	return nil
}
