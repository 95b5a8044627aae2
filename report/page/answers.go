package page

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/report/chart"
	"github.com/easyrl/easyrl/rollout"
)

// Limits of the sampled answers to read and show.
const (
	pageGroups    = 4
	pageResponses = 4
	pageText      = 2000      // bytes per text
	readBytes     = 16 << 20  // bytes per rollouts file
	searchBytes   = 128 << 20 // bytes of all files, for repeated prompts
)

// group is the part of a rollouts line that the page uses.
type group struct {
	Step      int             `json:"step"`
	ID        string          `json:"prompt_id"`
	Prompt    string          `json:"prompt"`
	Answer    json.RawMessage `json:"answer"`
	Replaced  bool            `json:"replaced"` // the step trained another group instead
	Responses []response      `json:"responses"`

	Shown []response `json:"-"` // the responses that the page shows
}

// response is a response in a group, as recorded.
type response struct {
	Text      string    `json:"text"`
	span                // the only span, if Spans is empty
	Spans     []span    `json:"spans"`
	Entropies []float64 `json:"entropies"` // of the trained tokens; empty if the trainer computed none
	Advantage *float64  `json:"advantage"` // nil if unknown
	Reward    float64   `json:"reward"`
	Finish    string    `json:"finish"`
	Tokens    int       `json:"tokens"` // length, in files without IDs

	Count int     // number of equal responses, this one included
	View  []token // its tokens in color; empty if the page shows only its text
}

// span is a rollout.Span as it is recorded.
type span struct {
	From     rollout.Author `json:"from"`
	IDs      []int32        `json:"ids"`
	Logprobs []float64      `json:"logprobs"`
	Trained  bool           `json:"trained"`
}

// spans returns the response's spans.
func (r *response) spans() []span {
	if len(r.Spans) > 0 {
		return r.Spans
	}
	only := r.span
	only.From, only.Trained = rollout.Policy, true
	return []span{only}
}

// AnswerText returns the reference answer, without quotes if it is a string.
func (g group) AnswerText() string {
	var s string
	if json.Unmarshal(g.Answer, &s) == nil {
		return s
	}
	return string(g.Answer)
}

// choose returns at most pageResponses different responses to show, by ascending reward: those with the
// lowest rewards and, as the last one, the one with the highest.
func (g *group) choose() []response {
	var distinct []response
	for _, r := range g.Responses {
		same := slices.IndexFunc(distinct, func(d response) bool {
			return d.Text == r.Text && d.Reward == r.Reward && d.Finish == r.Finish
		})
		if same >= 0 {
			distinct[same].Count++
			continue
		}
		r.Count = 1
		distinct = append(distinct, r)
	}
	slices.SortStableFunc(distinct, func(a, b response) int { return cmp.Compare(a.Reward, b.Reward) })
	if n := len(distinct); n > pageResponses {
		distinct = append(distinct[:pageResponses-1], distinct[n-1])
	}
	return distinct
}

// wrongFirst sorts groups by their lowest reward. Among groups with the same lowest reward, those with
// a better response come first, because training learns only from such groups.
func wrongFirst(groups []group) {
	rank := func(g group) int {
		if g.Mean() > g.lowest() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.lowest(), b.lowest()), rank(a)-rank(b))
	})
}

// lowest returns the lowest reward, or 0 if there are no responses.
func (g group) lowest() float64 {
	if len(g.Responses) == 0 {
		return 0
	}
	return slices.MinFunc(g.Responses, func(a, b response) int { return cmp.Compare(a.Reward, b.Reward) }).Reward
}

// Mean returns the mean reward, or 0 if there are no responses.
func (g group) Mean() float64 {
	sum := 0.0
	for _, r := range g.Responses {
		sum += r.Reward
	}
	return sum / float64(max(len(g.Responses), 1))
}

// Length returns the number of tokens that the policy sampled.
func (r response) Length() int {
	n := 0
	for _, s := range r.spans() {
		if s.From == rollout.Policy {
			n += len(s.IDs)
		}
	}
	return max(r.Tokens, n)
}

// Total returns the number of tokens, including those of an environment.
func (r response) Total() int {
	n := 0
	for _, s := range r.spans() {
		n += len(s.IDs)
	}
	return n
}

// Cut reports whether the response ended at the length limit.
func (r response) Cut() bool { return r.Finish == "length" }

// sample holds what the page shows of one rollouts file.
type sample struct {
	Step   int
	Groups []group
}

// pair is a prompt that was sampled at two steps.
type pair struct {
	First, Last group
	Diff        []edit // from the first response of First to that of Last
}

// answers holds what the page shows of a run's rollouts.
type answers struct {
	Charts  []template.HTML
	Pairs   []pair
	Samples []sample

	HasViews     bool // at least one response has a View
	HasEntropies bool // at least one View shows entropies
}

// readAnswers reads answers of the run in dir. It draws distributions from the first, the middle and the
// last rollouts file, and takes samples from the first and the last. It pairs the answers of the first
// and the last evaluation or, if these have no pairs, those of the first rollouts file with later
// ones, from the last one backward.
func readAnswers(dir string) (answers, error) {
	var a answers
	files, err := stepFiles(filepath.Join(dir, "rollouts"))
	if err != nil {
		return a, err
	}
	held, err := stepFiles(filepath.Join(dir, HeldOut))
	if err == nil && len(held) > 1 {
		a.Pairs, err = heldPairs(held)
	}
	if err != nil || len(files) == 0 {
		return a, err
	}
	var lengths, rewards []chart.Sample
	var first []group
	for i, at := range slices.Compact([]int{0, (len(files) - 1) / 2, len(files) - 1}) {
		groups, err := readGroups(files[at])
		if err != nil {
			return a, err
		}
		if len(groups) == 0 {
			continue
		}
		length, reward := distribution(groups)
		lengths, rewards = append(lengths, length), append(rewards, reward)
		if i == 0 {
			first = groups
		}
		if at == 0 || at == len(files)-1 {
			a.Samples = append(a.Samples, samplesOf(groups))
		}
	}
	if len(lengths) > 0 {
		a.Charts = []template.HTML{chart.Histogram("Response lengths", "tokens", lengths),
			chart.Histogram("Rewards", "reward", rewards)}
	}
	views := newTokenViews(dir)
	for _, s := range slices.Backward(a.Samples) { // the last step matters most
		s.addViews(views)
	}
	a.HasViews, a.HasEntropies = views.made, views.entropies
	if len(a.Pairs) == 0 {
		a.Pairs, err = findPairs(first, files)
	}
	return a, err
}

// samplesOf chooses what to show of the groups of a step: wrong responses first.
func samplesOf(groups []group) sample {
	s := sample{Step: groups[0].Step}
	shown := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return g.Replaced || len(g.Responses) == 0 })
	wrongFirst(shown)
	s.Groups = shown[:min(len(shown), pageGroups)]
	for i := range s.Groups {
		s.Groups[i].Shown = s.Groups[i].choose()
	}
	return s
}

// addViews gives the shown responses their token views. It starts with the first response of each group,
// because the budget may not suffice for all.
func (s *sample) addViews(views *tokenViews) {
	for i := range pageResponses {
		for _, g := range s.Groups {
			if i < len(g.Shown) {
				g.Shown[i].View = views.view(&g.Shown[i])
			}
		}
	}
}

// stepFiles returns a folder's step files in step order.
func stepFiles(dir string) ([]string, error) {
	files, err := fs.Glob(os.DirFS(dir), "step-*.jsonl")
	for i, name := range files {
		files[i] = filepath.Join(dir, name)
	}
	slices.SortFunc(files, func(a, b string) int {
		return cmp.Or(len(a)-len(b), strings.Compare(a, b)) // step numbers above 999,999 have more digits
	})
	return files, err
}

// heldPairs returns pairs of held-out prompts that the first and last file share.
func heldPairs(files []string) ([]pair, error) {
	first, err := readGroups(files[0])
	if err != nil {
		return nil, err
	}
	pairs, err := findPairs(first, []string{files[0], files[len(files)-1]})
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(a.Last.Mean(), b.Last.Mean()) })
	return pairs, err
}

// distribution returns the lengths and rewards of the groups of one step.
func distribution(groups []group) (lengths, rewards chart.Sample) {
	lengths.Name = fmt.Sprintf("step %d", groups[0].Step)
	rewards.Name = lengths.Name
	for _, g := range groups {
		for _, r := range g.Responses {
			lengths.Values = append(lengths.Values, float64(r.Length()))
			rewards.Values = append(rewards.Values, r.Reward)
		}
	}
	return lengths, rewards
}

// readGroups reads the groups in the first readBytes of a rollouts file, up to the first line that is not
// valid JSON, such as one that is cut off.
func readGroups(path string) (groups []group, err error) {
	budget, whole := int64(readBytes), true
	err = eachLine(path, &budget, func(line []byte) {
		var g group
		if whole = whole && json.Unmarshal(line, &g) == nil; whole {
			groups = append(groups, g)
		}
	})
	return groups, err
}

// findPairs looks for the prompts of first, the groups in files[0], in the other files, last file first.
// It stops at pageGroups pairs or when it has read searchBytes.
func findPairs(first []group, files []string) ([]pair, error) {
	byID := map[string]group{}
	for _, g := range first {
		if g.ID != "" && len(g.Responses) > 0 {
			byID[g.ID] = g
		}
	}
	var pairs []pair
	budget := int64(searchBytes)
	for i := len(files) - 1; i > 0 && len(byID) > 0 && len(pairs) < pageGroups && budget > 0; i-- {
		err := eachLine(files[i], &budget, func(line []byte) {
			was, known := byID[promptID(line)]
			var now group
			if !known || len(pairs) == pageGroups || json.Unmarshal(line, &now) != nil || len(now.Responses) == 0 ||
				now.Prompt != was.Prompt {
				return
			}
			delete(byID, was.ID)
			pairs = append(pairs, pair{was, now, diff(shorten(was.Responses[0].Text), shorten(now.Responses[0].Text))})
		})
		if err != nil {
			return nil, err
		}
	}
	return pairs, nil
}

// eachLine calls f with each line of a file. It reads at most *budget bytes and subtracts what it has
// read from *budget. It ignores the rest of the file from a line longer than readBytes on.
func eachLine(path string, budget *int64, f func(line []byte)) error {
	file, err := filetype.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	limited := &io.LimitedReader{R: file, N: *budget}
	defer func() { *budget = limited.N }()
	lines := bufio.NewScanner(limited)
	lines.Buffer(make([]byte, 64<<10), readBytes)
	for lines.Scan() {
		f(lines.Bytes())
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil
	}
	return lines.Err()
}

// promptID returns the prompt ID of a rollouts line. The ID is near the beginning, so the
// rest, which may be long, is not parsed.
func promptID(line []byte) string {
	_, rest, ok := bytes.Cut(line[:min(len(line), 4096)], []byte(`"prompt_id":`))
	var id string
	if !ok || json.NewDecoder(bytes.NewReader(rest)).Decode(&id) != nil {
		return ""
	}
	return id
}

// shorten cuts s to pageText bytes.
func shorten(s string) string {
	if len(s) <= pageText {
		return s
	}
	return strings.ToValidUTF8(s[:pageText], "") + " …"
}
