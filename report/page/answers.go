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

	"github.com/easyrl/easyrl/report/chart"
)

// How much of the sampled answers is read and shown.
const (
	pageGroups    = 4
	pageResponses = 4
	pageText      = 2000      // bytes of one text
	readBytes     = 16 << 20  // of one rollouts file
	searchBytes   = 128 << 20 // of all files, for prompts that came twice
)

// group is what the page reads of a line of a rollouts file.
type group struct {
	Step      int             `json:"step"`
	ID        string          `json:"prompt_id"`
	Prompt    string          `json:"prompt"`
	Answer    json.RawMessage `json:"answer"`
	Responses []response      `json:"responses"`
}

type response struct {
	Text   string  `json:"text"`
	IDs    []int32 `json:"ids"`
	Reward float64 `json:"reward"`
	Finish string  `json:"finish"`
	Tokens int     `json:"tokens"` // in place of IDs
}

// AnswerText is the answer, without quotes where it is a string.
func (g group) AnswerText() string {
	var s string
	if json.Unmarshal(g.Answer, &s) == nil {
		return s
	}
	return string(g.Answer)
}

// Shown are the responses that there is room for.
func (g group) Shown() []response { return g.Responses[:min(len(g.Responses), pageResponses)] }

// Mean is that of the rewards.
func (g group) Mean() float64 {
	sum := 0.0
	for _, r := range g.Responses {
		sum += r.Reward
	}
	return sum / float64(max(len(g.Responses), 1))
}

// Length is in tokens.
func (r response) Length() int { return max(r.Tokens, len(r.IDs)) }

// Cut says whether the response ended at the limit of its length.
func (r response) Cut() bool { return r.Finish == "length" }

// sample is what the page shows of a rollouts file.
type sample struct {
	Step   int
	Groups []group
}

// pair is a prompt that came twice.
type pair struct {
	First, Last group
	Diff        []edit // from the first response then to the first response now
}

// answers are what the page shows of a run's rollouts.
type answers struct {
	Charts  []template.HTML
	Pairs   []pair
	Samples []sample
}

// readAnswers reads some of the rollouts files in dir: the first, the middle and
// the last one for the distributions and samples. For prompts that came twice it
// reads the first and the last evaluation or, where there are none, rollouts files
// from the last one on.
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
			a.Samples = append(a.Samples, sample{groups[0].Step, groups[:min(len(groups), pageGroups)]})
		}
	}
	if len(lengths) > 0 {
		a.Charts = []template.HTML{chart.Histogram("Response lengths", "tokens", lengths), chart.Histogram("Rewards", "reward", rewards)}
	}
	if len(a.Pairs) == 0 {
		a.Pairs, err = findPairs(first, files)
	}
	return a, err
}

// stepFiles are a folder's files of steps, in the order of the steps.
func stepFiles(dir string) ([]string, error) {
	files, err := fs.Glob(os.DirFS(dir), "step-*.jsonl")
	for i, name := range files {
		files[i] = filepath.Join(dir, name)
	}
	slices.SortFunc(files, func(a, b string) int {
		return cmp.Or(len(a)-len(b), strings.Compare(a, b)) // a million has a digit more
	})
	return files, err
}

// heldPairs are the held-out prompts of the first file that the last one has too.
func heldPairs(files []string) ([]pair, error) {
	first, err := readGroups(files[0])
	if err != nil {
		return nil, err
	}
	return findPairs(first, []string{files[0], files[len(files)-1]})
}

// distribution is that of the lengths and rewards of groups of one step.
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

// readGroups reads the groups at the beginning of a rollouts file; a line that was
// cut short ends them.
func readGroups(path string) ([]group, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	var groups []group
	lines := json.NewDecoder(io.LimitReader(file, readBytes))
	for {
		var g group
		if lines.Decode(&g) != nil {
			return groups, nil
		}
		groups = append(groups, g)
	}
}

// findPairs looks for prompts of the first step in the files of later ones, the
// last ones first, until it has enough of them or has read enough.
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
			if !known || len(pairs) == pageGroups || json.Unmarshal(line, &now) != nil || len(now.Responses) == 0 || now.Prompt != was.Prompt {
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

// eachLine calls f with the lines of a file that fit into what is left of a budget
// of bytes.
func eachLine(path string, budget *int64, f func(line []byte)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	limited := &io.LimitedReader{R: file, N: *budget}
	defer func() { *budget = limited.N }()
	lines := bufio.NewScanner(limited)
	lines.Buffer(make([]byte, 64<<10), readBytes)
	for lines.Scan() {
		f(lines.Bytes())
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil // its prompt is not looked for
	}
	return lines.Err()
}

// promptID is that of a line of a rollouts file, which has it near its beginning;
// the rest of the line, which may be long, is not parsed.
func promptID(line []byte) string {
	_, rest, ok := bytes.Cut(line[:min(len(line), 4096)], []byte(`"prompt_id":`))
	var id string
	if !ok || json.NewDecoder(bytes.NewReader(rest)).Decode(&id) != nil {
		return ""
	}
	return id
}

func shorten(s string) string {
	if len(s) <= pageText {
		return s
	}
	return strings.ToValidUTF8(s[:pageText], "") + " …"
}
