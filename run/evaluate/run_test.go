package evaluate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// sampler returns responses of two tokens, made from the seed and the response's index.
type sampler struct {
	mu      sync.Mutex
	asked   int
	version int64
	fault   error
	few     bool // one response too few
}

func (s *sampler) Capacity() int { return 3 }

func (s *sampler) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.version = req.Version
	out := make([]inference.Completion, req.N)
	for i := range out {
		out[i] = inference.Completion{IDs: []int32{int32(req.Seed % 1000), int32(i)}, Finish: rollout.Stop,
			Version: req.Version}
		if i == 1 {
			out[i].Finish = rollout.Length
		}
	}
	if s.few {
		out = out[1:]
	}
	return out, "sampler", errors.Join(s.fault, ctx.Err())
}

// scoring adapts a function to reward.Func.
type scoring func(in reward.Input) (reward.Score, error)

func (s scoring) Score(_ context.Context, in reward.Input) (reward.Score, error) { return s(in) }

// testRun is an evaluation under test.
type testRun struct {
	sets     []Set
	fleet    *sampler
	reward   scoring
	warnings []string
	progress []int
	ended    []string // prompts with scores
	cfg      Config
}

func newRun(sizes ...int) *testRun {
	r := &testRun{fleet: &sampler{}, cfg: Config{K: 4, Seed: 1}}
	for i, n := range sizes {
		set := Set{Name: string(rune('a' + i)), LeftOut: i}
		for j := range n {
			set.Prompts = append(set.Prompts, rollout.Prompt{ID: fmt.Sprintf("%s:%d", set.Name, j), Text: "p",
				IDs: []int32{int32(j)}, Answer: json.RawMessage(`"x"`)})
		}
		r.sets = append(r.sets, set)
	}
	// The first j responses to prompt j of a set are right; the wrong ones agree.
	r.reward = func(in reward.Input) (reward.Score, error) {
		var j, i int
		_, err := fmt.Sscan(in.Prompt.ID[2:]+" "+in.Text, &j, new(int), &i)
		s := reward.Score{Answer: "wrong", Parts: map[string]float64{"format": float64(i)}}
		if i < j {
			s.Value, s.Answer, s.Verdict = 1, "right", reward.Right
		}
		return s, err
	}
	return r
}

func (r *testRun) run(ctx context.Context, record *Record) (map[string]float64, float64, error) {
	return Run(ctx, 7, r.cfg, r.sets, Deps{Fleet: r.fleet, Reward: r.reward,
		Text:     func(ids []int32) string { return fmt.Sprint(ids[0], ids[1]) },
		Warn:     func(format string, args ...any) { r.warnings = append(r.warnings, fmt.Sprintf(format, args...)) },
		Progress: func(done, _ int) { r.progress = append(r.progress, done) },
		Done:     func(result *Result) { r.ended = append(r.ended, result.PromptID) }}, record)
}

func TestMetricsOfSets(t *testing.T) {
	t.Parallel()
	r := newRun(5, 1)
	metrics, score, err := r.run(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, r.ended, 6)
	// By hand: the prompts of set a have 0, 1, 2, 3 and 4 of 4 right, those of b none.
	want := map[string]float64{
		"mean@4": 0.5, "stderr": math.Sqrt((0.25 + 0.0625 + 0.0625 + 0.25) / 4 / 5),
		"pass@1": 0.5, "pass@2": (0.5 + 5.0/6 + 1 + 1) / 5, "pass@4": 0.8,
		"maj@2":           0.5, // a tie of one vote each is shared, which gives the mean
		"maj@4":           0.5, // likewise with two votes each
		"response_length": 2, "clip_ratio": 0.25, "format/mean": 1.5, "prompts": 5, "failed": 0, "left_out": 0,
	}
	for name, x := range want {
		require.InDelta(t, x, metrics["eval/a/"+name], 1e-12, name)
	}
	require.NotContains(t, metrics, "eval/b/stderr", "of one prompt")
	require.NotContains(t, metrics, "eval/average/stderr")
	require.InDelta(t, 0.25, metrics["eval/average/mean@4"], 1e-12, "over sets, not prompts")
	require.InDelta(t, 0.25, score, 1e-12)
	require.Equal(t, 6.0, metrics["eval/average/prompts"])
	require.Equal(t, 1.0, metrics["eval/average/left_out"])
	require.Len(t, metrics, 13+12+12)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, r.progress)
	require.EqualValues(t, 7, r.fleet.version, "only the published version")

	var table bytes.Buffer
	require.NoError(t, WriteTable(&table, metrics, r.sets))
	require.Equal(t, `
set      mean@4  stderr  pass@1  pass@2  pass@4   maj@2   maj@4  format/mean  response_length  clip_ratio  `+
		`prompts  left_out  failed
a        0.5000  0.1768  0.5000  0.6667  0.8000  0.5000  0.5000       1.5000              2.0      `+
		`0.2500        5         0       0
b        0.0000       -  0.0000  0.0000  0.0000  0.0000  0.0000       1.5000              2.0      `+
		`0.2500        1         1       0
average  0.2500       -  0.2500  0.3333  0.4000  0.2500  0.2500       1.5000              2.0      `+
		`0.2500        6         1       0
`, "\n"+table.String())
}

// pass@k counts right responses, whatever their reward, and a record keeps which are right.
func TestPassCountsRightResponses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "eval.jsonl")
	r := newRun(5)
	r.reward = func(in reward.Input) (reward.Score, error) {
		var j, i int
		_, err := fmt.Sscan(in.Prompt.ID[2:]+" "+in.Text, &j, new(int), &i)
		if i < j {
			return reward.Score{Value: 0.7, Verdict: reward.Right}, err // penalized for length
		}
		return reward.Score{Value: 1.2, Verdict: reward.Wrong}, err // raised by extras
	}
	for _, asked := range []int{5, 5} {
		record, err := OpenRecord(path, map[string]string{})
		require.NoError(t, err)
		metrics, _, err := r.run(t.Context(), record)
		require.NoError(t, err)
		require.NoError(t, record.Close())
		require.Equal(t, asked, r.fleet.asked)
		require.InDelta(t, 0.95, metrics["eval/a/mean@4"], 1e-12)
		for k, want := range map[int]float64{1: 0.5, 2: (0.5 + 5.0/6 + 1 + 1) / 5, 4: 0.8} {
			require.InDelta(t, want, metrics[fmt.Sprintf("eval/a/pass@%d", k)], 1e-12)
		}
	}
}

// Evaluations of all versions use the same seeds.
func TestSeedsNeverChange(t *testing.T) {
	t.Parallel()
	for want, c := range map[uint64]struct {
		seed  uint64
		index int
	}{
		0x6f04b78ec2988f4b: {0, 0}, 0x94856f979d4ccae6: {0, 1}, 0x6c4f4c859fda6ad4: {42, 7},
		0xcf1a01c9cbf7b56f: {math.MaxUint64, 1318},
	} {
		require.Equal(t, want, seedOf(c.seed, c.index))
	}
}

func TestOneResponseHasNoVote(t *testing.T) {
	t.Parallel()
	r := newRun(3)
	r.cfg.K = 1
	metrics, _, err := r.run(t.Context(), nil)
	require.NoError(t, err)
	require.Contains(t, metrics, "eval/a/pass@1")
	require.NotContains(t, metrics, "eval/a/maj@1")
	require.NotContains(t, metrics, "eval/average/mean@1", "of one set")
}

func TestNoVotesWithoutAnswers(t *testing.T) {
	t.Parallel()
	r := newRun(3)
	r.reward = func(reward.Input) (reward.Score, error) { return reward.Score{Value: 2}, nil }
	metrics, _, err := r.run(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 2.0, metrics["eval/a/mean@4"])
	require.Equal(t, 1.0, metrics["eval/a/pass@4"], "rewards above 1 count as right")
	for name := range metrics {
		require.NotContains(t, name, "maj@")
	}
}

// A prompt whose reward fails does not count as 0. It is reported, counted and left out of
// the means, up to a budget.
func TestFailedPrompts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		prompts, from int // prompts from this one on fail
		fault         func() (reward.Score, error)
		want          string
	}{
		{"a few of a small set", 5, 2, nil, ""},
		{"a tenth", 50, 45, nil, ""},
		{"more than a tenth", 50, 44, nil,
			"too many prompts have no score: 6 of 50 in a, more than the 5 allowed: reward of response 0: no verdict"},
		{"all of a small set", 3, 0, nil, "too many prompts have no score: 3 of 3 in a, more than the 2 allowed"},
		{"the only one", 1, 0, nil, "too many prompts have no score: 1 of 1 in a, more than the 0 allowed"},
		{"all", 500, 0, nil, "too many prompts have no score: the first 8 failed"},
		{"panics", 5, 4, func() (reward.Score, error) { panic("scorer") }, ""},
		{"not a number", 5, 4, func() (reward.Score, error) { return reward.Score{Value: math.NaN()}, nil }, ""},
		{"a part that is infinite", 5, 4, func() (reward.Score, error) {
			return reward.Score{Parts: map[string]float64{"x": math.Inf(1)}}, nil
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRun(test.prompts)
			r.cfg.K = 1
			r.reward = func(in reward.Input) (reward.Score, error) {
				var j int
				if _, err := fmt.Sscan(in.Prompt.ID[2:], &j); err != nil || j < test.from {
					return reward.Score{Value: 1}, err
				}
				if test.fault != nil {
					return test.fault()
				}
				return reward.Score{}, errors.New("no verdict")
			}
			metrics, _, err := r.run(t.Context(), nil)
			if test.want != "" {
				require.ErrorIs(t, err, ErrFailed)
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, 1.0, metrics["eval/a/mean@1"])
			require.Equal(t, float64(test.from), metrics["eval/a/prompts"])
			require.Equal(t, float64(test.prompts-test.from), metrics["eval/a/failed"])
			require.Len(t, r.warnings, test.prompts-test.from)
			require.Contains(t, strings.Join(r.warnings, "\n"),
				fmt.Sprintf("a: gave up on prompt a:%d: reward of response 0: ", test.from))
		})
	}
}

// A prompt that no instance can sample ends the evaluation.
func TestLostPromptEndsEvaluation(t *testing.T) {
	t.Parallel()
	r := newRun(5)
	r.fleet.fault = errors.New("connection refused")
	_, _, err := r.run(t.Context(), nil)
	require.ErrorContains(t, err, "connection refused")
	require.Regexp(t, `^a: prompt a:\d: `, err)
	require.Empty(t, r.warnings)

	r = newRun(5)
	r.fleet.few = true
	_, _, err = r.run(t.Context(), nil)
	require.ErrorContains(t, err, "sampler returned 3 responses, expected 4")
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	reason := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	r := newRun(50)
	scored := r.reward
	r.reward = func(in reward.Input) (reward.Score, error) {
		cancel(reason)
		return scored(in)
	}
	_, _, err := r.run(ctx, nil)
	require.Error(t, err)
	require.Empty(t, r.warnings, "cancellation is not a failure")
	require.Less(t, r.fleet.asked, 50)
}

// An interrupted evaluation continues where it stopped, samples nothing twice and ends with
// the same numbers and the same file.
func TestRecordContinues(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"eval.k": "4", "reward.kind": `"math"`}
	dir := t.TempDir()
	path := filepath.Join(dir, "deep", "eval.jsonl")
	open := func() *Record {
		record, err := OpenRecord(path, settings)
		require.NoError(t, err)
		return record
	}
	r := newRun(7, 3)
	record := open()
	want, _, err := r.run(t.Context(), record)
	require.NoError(t, err)
	require.NoError(t, record.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1+10, bytes.Count(whole, []byte("\n")))
	header := bytes.IndexByte(whole, '\n') + 1

	for cut := header; cut <= len(whole); cut += 53 {
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o644))
		r := newRun(7, 3)
		record := open()
		done := bytes.Count(whole[header:cut], []byte("\n"))
		require.Equal(t, done, record.Len())
		got, _, err := r.run(t.Context(), record)
		require.NoError(t, err)
		require.NoError(t, record.Close())
		require.Equal(t, want, got)
		require.Equal(t, 10-done, r.fleet.asked)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(whole), string(b))
	}
	require.Len(t, entries(t, filepath.Dir(path)), 1, "no temporary file remains")
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	return list
}

// A failed prompt is not in the record, so the next evaluation tries it again.
func TestRecordOmitsFailures(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "eval.jsonl")
	r := newRun(4)
	right := r.reward
	r.reward = func(in reward.Input) (reward.Score, error) {
		if in.Prompt.ID == "a:2" {
			return reward.Score{}, errors.New("no verdict")
		}
		return right(in)
	}
	for _, round := range []struct{ failed, asked int }{{1, 4}, {1, 5}, {0, 6}} {
		record, err := OpenRecord(path, map[string]string{})
		require.NoError(t, err)
		if round.failed == 0 {
			r.reward = right
		}
		metrics, _, err := r.run(t.Context(), record)
		require.NoError(t, err)
		require.NoError(t, record.Close())
		require.Equal(t, float64(round.failed), metrics["eval/a/failed"])
		require.Equal(t, round.asked, r.fleet.asked)
	}
}

func TestRecordRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "eval.jsonl")
	record, err := OpenRecord(path, map[string]string{"a": "1", "b": "2", "c": "3"})
	require.NoError(t, err)
	require.NoError(t, record.Close())
	first, err := os.ReadFile(path)
	require.NoError(t, err)
	if runtime.GOOS == "linux" {
		holder, err := OpenRecord(path, map[string]string{"a": "1", "b": "2", "c": "3"})
		require.NoError(t, err)
		_, err = OpenRecord(path, map[string]string{"a": "1", "b": "2", "c": "3"})
		require.ErrorIs(t, err, ErrRecord)
		require.ErrorContains(t, err, "in use by another process")
		require.NoError(t, holder.Close())
	}
	for name, test := range map[string]struct {
		content  string
		settings map[string]string
		want     string
	}{
		"other settings": {string(first), map[string]string{"a": "1", "b": "5", "d": "4"},
			"b changed from 2 to 5, c is unset and was 3, d is 4 and was unset; use the same settings or another file"},
		"prompts": {`{"prompt":"1","answer":"2"}` + "\n", nil, "line 1 does not hold an evaluation's settings"},
		"empty":   {"", nil, "line 1 does not hold an evaluation's settings"},
		"no line": {strings.Repeat("x", 3*maxHeader), nil, "found plain text, expected a record of an evaluation"},
		"a bad line": {string(first) + "{}\n{}\n", map[string]string{"a": "1", "b": "2", "c": "3"},
			"line 2 is not a prompt's result"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			require.NoError(t, os.WriteFile(file, []byte(test.content), 0o644))
			_, err := OpenRecord(file, test.settings)
			require.ErrorIs(t, err, ErrRecord)
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "\n")
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, test.content, string(b), "the file is unchanged")
		})
	}
	_, err = OpenRecord(dir, nil)
	require.ErrorContains(t, err, "is a folder, expected a regular file")
	_, err = OpenRecord(os.DevNull, nil)
	require.ErrorIs(t, err, ErrRecord)
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ files, want string }{
		{"a/test.jsonl", "test"},
		{"gsm8k/test.jsonl math/test.jsonl", "gsm8k-test math-test"},
		{"x/gsm8k/test.jsonl y/gsm8k/test.jsonl math/test.parquet aime.json",
			"x-gsm8k-test y-gsm8k-test math-test aime"},
		{"/test.jsonl /a/test.jsonl", "test.jsonl a-test"},
		{"a/test.jsonl a/test.parquet", "a-test.jsonl a-test.parquet"},
		{"a/test.jsonl b/test.jsonl a-test.jsonl", "a-test.jsonl b-test a-test.jsonl-2"},
		{"average.jsonl", "average"},
		{"average.jsonl b.jsonl", "average.jsonl b"},
		{"d/test-00000-of-00002.parquet d/test-00001-of-00002.parquet e/test-00000-of-00001.parquet",
			"d-test:0,1 e-test"},
		{"test-00000-of-00001.parquet test.parquet", "test.parquet test.parquet-2"},
		{".jsonl", ".jsonl"},
	} {
		var got []string
		for i, set := range Names(strings.Fields(test.files)) {
			name := set.Name
			if len(set.Files) > 1 {
				name += ":" + strings.ReplaceAll(strings.Trim(fmt.Sprint(set.Files), "[]"), " ", ",")
			} else if i == 0 {
				require.Equal(t, []int{0}, set.Files)
			}
			require.NotContains(t, set.Name, "/")
			got = append(got, name)
		}
		require.Equal(t, test.want, strings.Join(got, " "), test.files)
	}
}
