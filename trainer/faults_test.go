package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer/verify"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

func (s *script) steps(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(CheckpointRoot(s.dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A far too long step ends the run before its weights are saved. The newest checkpoint is
// that of the step before.
func TestNonFiniteWeightsAreNotSaved(t *testing.T) {
	s := newScript(t)
	tr := s.trainer(5, func(c *Config) { c.CheckpointEvery, c.CheckpointKeep = 1, 1 })
	s.during = func(step, _ int) {
		if step == 3 {
			tr.schedule.Peak = 1e30
		}
	}
	err := tr.Run(t.Context())
	require.ErrorIs(t, err, model.ErrNotFinite)
	require.ErrorContains(t, err, "step 3: after an update at lr 1e+30: weights of ")
	require.Equal(t, []string{"step-000002"}, s.steps(t))
	require.NoError(t, checkpoint.Verify(filepath.Join(CheckpointRoot(s.dir), "step-000002")))
	resumed := tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
	_, err = Resume(t.Context(), filepath.Join(CheckpointRoot(s.dir), "step-000002"), resumed)
	require.NoError(t, err)
	require.Equal(t, s.hashes[2], resumed.Policy.Weights.Checksum())
}

// spoil puts a value out of range into the gradient of each step from first on, before anything
// is added to it.
func spoil(tr *Trainer, first int64, value float64) {
	publish := sampled(tr).Publish
	sampled(tr).Publish = func(ctx context.Context, w inference.Weights) error {
		if w.Version() >= first {
			own(tr.Models).Policy.Gradients.Params[0].Mark.Int64s()[0] = int64(math.Float32bits(float32(value)))
		}
		return publish(ctx, w)
	}
}

// A gradient that is not finite or out of range is named and changes nothing. Too many in a row
// end the run. Meanwhile no checkpoint replaces an older one.
func TestUnusableGradients(t *testing.T) {
	for _, c := range []struct {
		name      string
		most      int // in a row
		value     float64
		advantage string
		beta      float64
		want      string
	}{
		{"not finite", 3, math.Inf(1), loss.GroupAdvantage, 0, "a value of a leaf is +Inf: not finite"},
		{"the first", 1, math.NaN(), loss.GroupAdvantage, 0, "a value of a leaf is NaN: not finite"},
		{"out of range", 3, 1e9, loss.GroupAdvantage, 0,
			"a value of a leaf is 1e+09 in magnitude, expected at most 1.678e+07, " +
				"the bound of the fixed-point sums of gradients (remedy: a lower train.lr)"},
		{"out of range, with large rewards", 3, 1e9, loss.RewardAdvantage, 0.1,
			"a value of a leaf is 1e+09 in magnitude, expected at most 1.678e+07, " +
				"the bound of the fixed-point sums of gradients (remedy: smaller rewards or loss.advantage = " +
				"\"group\" or a smaller loss.beta or a lower train.lr)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			if c.beta > 0 {
				s.models = tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Reference: true, Temperature: 1})
			}
			tr := s.trainer(9, func(cfg *Config) {
				cfg.CheckpointEvery, cfg.CheckpointKeep, cfg.MaxNonFinite = 1, 1, c.most%3
			})
			source := sampled(tr)
			source.Loss.Advantage, source.Loss.Beta = c.advantage, c.beta
			spoil(tr, 3, c.value)
			err := tr.Run(t.Context())
			require.ErrorIs(t, err, optim.ErrNonFinite)
			require.ErrorContains(t, err, fmt.Sprintf(
				"step %d: gradient of model.embed_tokens.weight: %s, %d in a row", 2+c.most, c.want, c.most))
			require.Equal(t, []string{"step-000002"}, s.steps(t))
			for _, hash := range s.hashes[3:] {
				require.Equal(t, s.hashes[2], hash)
			}
			require.Equal(t, c.most-1, strings.Count(strings.Join(s.events, "\n"), c.want+"; skipped this update"))
			steps, err := report.ReadMetrics(filepath.Join(s.dir, report.MetricsFile))
			require.NoError(t, err)
			for _, line := range steps {
				_, measured := line["actor/grad_norm"]
				require.Equal(t, line["step"] < 3, measured, "a skipped update has no norm")
				require.Contains(t, line, "actor/lr")
			}
		})
	}
}

// If a checkpoint cannot be written in the background, the run ends at the next step,
// whenever the next checkpoint is due.
func TestFailedCheckpointIsReported(t *testing.T) {
	s := newScript(t)
	tr := s.trainer(30, func(c *Config) { c.CheckpointEvery = 2 })
	s.during = func(step, group int) {
		if step == 2 && group == 0 {
			require.NoError(s.t, os.WriteFile(CheckpointRoot(s.dir), []byte("a file"), 0o644))
		}
		if step == 3 {
			tr.checkpoints.inFlight.Wait()
		}
	}
	require.ErrorContains(t, tr.Run(t.Context()), "save checkpoint \"step-000002\"")
	require.Equal(t, 3, tr.Step())
}

// A run that stops at its newest checkpoint does not write it again, unless that checkpoint
// failed.
func TestStopWritesMissingCheckpoint(t *testing.T) {
	c := checkpoints{root: filepath.Join(t.TempDir(), "c"),
		models: tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})}
	at := func(name string) os.FileInfo {
		info, err := os.Stat(filepath.Join(c.root, name))
		require.NoError(t, err)
		return info
	}
	require.NoError(t, c.saveNow(t.Context(), State{Step: 1}))
	first := at("step-000001")
	require.NoError(t, c.saveNow(t.Context(), State{Step: 1}))
	require.True(t, os.SameFile(first, at("step-000001")))
	require.NoError(t, c.saveNow(t.Context(), State{Step: 1, Pending: report.Values{"step": 1}}))
	require.False(t, os.SameFile(first, at("step-000001")), "it keeps more than before")

	c.start(func() written { return written{2, errors.New("full"), nil} })
	require.NoError(t, c.saveNow(t.Context(), State{Step: 2}))
	at("step-000002")
	c.start(func() written { return written{3, errors.New("full"), nil} })
	require.EqualError(t, c.wait(), "full")
	require.NoError(t, c.wait(), "once")
}

// If a signal interrupts an evaluation, the resumed run repeats it, and its step still has
// only one line.
func TestInterruptedEvaluationIsRepeated(t *testing.T) {
	s := newScript(t)
	ctx, cancel := context.WithCancel(t.Context())
	tr := s.trainer(2, func(c *Config) { c.EvalEvery = 1 })
	evaluate := sampled(tr).Evaluate
	sampled(tr).Evaluate = func(ctx context.Context, step int) (map[string]float64, float64, error) {
		if step == 2 {
			cancel()
			return nil, 0, ctx.Err()
		}
		return evaluate(ctx, step)
	}
	require.ErrorIs(t, tr.Run(ctx), ErrStopped)
	dir := filepath.Join(CheckpointRoot(s.dir), "step-000002")
	state, err := ReadState(dir)
	require.NoError(t, err)
	require.Equal(t, 2.0, state.Pending["step"])
	require.Contains(t, state.Pending, "reward/mean")
	lines := func() (steps []float64) {
		all, err := report.ReadMetrics(filepath.Join(s.dir, report.MetricsFile))
		require.NoError(t, err)
		for _, values := range all {
			require.Contains(t, values, "eval/x/mean@1")
			steps = append(steps, values["step"])
		}
		return steps
	}
	require.Equal(t, []float64{0, 1}, lines())

	s.events = nil
	path := filepath.Join(s.dir, report.MetricsFile)
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	again := s.trainer(2, func(c *Config) { c.EvalEvery = 1 })
	again.Models = tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
	again.checkpoints.models = again.Models
	state, err = Resume(t.Context(), dir, again.Models)
	require.NoError(t, err)
	continueFrom(again, state)
	require.NoError(t, os.WriteFile(path, written, 0o644)) // a new run drops existing metrics
	again.Metrics, err = report.OpenMetrics(path, state.Step)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, again.Metrics.Close()) })
	require.NoError(t, again.Run(t.Context()))
	require.Equal(t, []string{"publish 3", "evaluate 2", "done 2"}, s.events)
	require.Equal(t, []float64{0, 1, 2}, lines())
	require.NoError(t, report.EachLine(path, func(l report.Line) error {
		require.NotEmpty(t, l.Checksum, "step %v", l.Values["step"])
		return nil
	}))
	state, err = ReadState(dir)
	require.NoError(t, err)
	require.Nil(t, state.Pending)
}

// unpublished are models that cannot publish a version.
type unpublished struct {
	backend.Models
	version int64
}

func (m unpublished) Publish(ctx context.Context, version int64) (inference.Weights, error) {
	if version == m.version {
		return nil, errors.New("out of memory")
	}
	return m.Models.Publish(ctx, version)
}

// If the weights after a step cannot be copied, the run saves the step and ends, and does not try again. The resumed
// run writes the step's line.
func TestFailedCopyEndsTheRun(t *testing.T) {
	s := newScript(t)
	tr := s.trainer(3, func(*Config) {})
	tr.Models = unpublished{tr.Models, 3}
	require.EqualError(t, tr.Run(t.Context()),
		"out of memory; saved a checkpoint after step 2, -resume continues from it")
	dir := filepath.Join(CheckpointRoot(s.dir), "step-000002")
	path := filepath.Join(s.dir, report.MetricsFile)
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	again := s.trainer(3, func(*Config) {})
	again.Models = tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
	again.checkpoints.models = again.Models
	state, err := Resume(t.Context(), dir, again.Models)
	require.NoError(t, err)
	require.Contains(t, state.Pending, "reward/mean")
	continueFrom(again, state)
	require.NoError(t, os.WriteFile(path, written, 0o644)) // a new run drops existing metrics
	again.Metrics, err = report.OpenMetrics(path, state.Step)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, again.Metrics.Close()) })
	require.NoError(t, again.Run(t.Context()))
	var steps []float64
	require.NoError(t, report.EachLine(path, func(l report.Line) error {
		require.NotEmpty(t, l.Checksum)
		steps = append(steps, l.Values["step"])
		return nil
	}))
	require.Equal(t, []float64{1, 2, 3}, steps)
}

func TestReadStateRefusesInvalid(t *testing.T) {
	dir := t.TempDir()
	_, err := ReadState(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "trainer"), 0o755))
	for text, want := range map[string]string{
		`{"step":-1}`: "state.json: step -1, updates 0, position 0, best step 0, total 0, expected 0 or more of " +
			"each",
		`{"total":-1}`:    "total -1, expected 0 or more",
		`{"position":-3}`: "position -3",
		`{"step":`:        "unexpected end of JSON input",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, stateFile), []byte(text), 0o644))
		_, err := ReadState(dir)
		require.ErrorContains(t, err, want)
	}
}

const recordedGroup = `{"step":2,"version":2,"prompt_id":"p","prompt":"1","prompt_ids":[3,0],"answer":"2",` +
	`"responses":[{"text":"2","ids":[5,1],"logprobs":[-0.5,-0.25],"reward":1,"finish":"stop","version":2,` +
	`"instance":"i"},` +
	`{"text":"","ids":[1],"logprobs":[0.0001],"reward":-1e3,"finish":"length","version":2}]}`

func TestParseGroups(t *testing.T) {
	t.Parallel()
	shape := tinyShape()
	groups, _, err := parseGroups([]byte("\n"+recordedGroup+"\r\n\n"+recordedGroup), shape)
	require.NoError(t, err)
	require.Len(t, groups, 2)
	require.Equal(t, []int32{5, 1}, groups[1].Responses[0].Spans[0].IDs)
	const spanless = `"ids":[5,1],"logprobs":[-0.5,-0.25],"reward":1,"finish":"stop","version":2`
	spans := func(logprob, trained, id string) string {
		return fmt.Sprintf(`"spans":[{"from":"environment","ids":[5,6]},{"from":"policy","ids":[%s],"logprobs":[%s],`+
			`"version":2,"trained":%s}],"reward":1,"finish":"stop"`, id, logprob, trained)
	}
	for _, test := range []struct{ old, replacement, want string }{
		{`"version":2,"prompt_id"`, `"version":7,"prompt_id"`, "response 0: version is 2, expected 7"},
		{`"version":2,"instance"`, `"version":3,"instance"`, "response 0: version is 3, expected 2"},
		{`"step":2`, `"step":9`, "step 9 and version 2, expected step 2 and version 2 as on line 1"},
		{`"prompt_ids":[3,0]`, `"prompt_ids":[]`, "0 prompt_ids and 2 responses, expected at least 1 of each"},
		{`"prompt_ids":[3,0]`, `"prompt_ids":[3,37]`, "prompt_ids[1] is 37, expected 0 to 36"},
		{`"prompt_ids":[3,0]`, `"prompt_ids":[null]`, "prompt_ids[0] is null, expected a number"},
		{`"prompt_ids":[3,0]`, `"prompt_ids":"3"`,
			"prompt_ids is a JSON string, expected a group as recorded in rollouts/"},
		{`"ids":[5,1]`, `"ids":[5,-1]`, "response 0: ids[1] is -1, expected 0 to 36"},
		{`"ids":[5,1]`, `"ids":[5,null]`, "response 0: ids[1] is null, expected a number"},
		{`"ids":[5,1]`, `"ids":[5]`, "response 0: 1 ids and 2 logprobs, expected equally many, at least 1"},
		{`"ids":[5,1],"logprobs":[-0.5,-0.25]`, `"ids":[],"logprobs":[]`,
			"response 0: 0 ids and 0 logprobs, expected equally many, at least 1"},
		{`-0.25`, `0.25`, "response 0: logprobs[1] is 0.25, expected -745 to 0"},
		{`-0.25`, `-200.5`, ""},
		{`-0.25`, `-744.9`, ""},
		{`-0.25`, `-745.1`, "response 0: logprobs[1] is -745.1, expected -745 to 0"},
		{`-0.25`, `-9999`, "response 0: logprobs[1] is -9999, expected -745 to 0"},
		{`-0.25`, `-1e30`, "response 0: logprobs[1] is -1e+30, expected -745 to 0"},
		{`-0.25`, `0.002`, "response 0: logprobs[1] is 0.002, expected -745 to 0"},
		{`-0.25`, `Infinity`, "response 0: logprobs[1] is Infinity, expected -745 to 0"},
		{`-0.25`, `-Infinity`, "response 0: logprobs[1] is -Infinity, expected -745 to 0"},
		{`-0.25`, `"nan"`, "response 0: logprobs[1] is nan, expected -745 to 0"},
		{`-0.25`, `"low"`, "responses.logprobs is a JSON string, expected a group as recorded in rollouts/"},
		{`[0.0001]`, `[-inf]`, "response 1: logprobs[0] is -inf, expected -745 to 0"},
		{`-0.25`, `null`, "response 0: logprobs[1] is null, expected a number"},
		{`-0.25`, `NaN`, "response 0: logprobs[1] is NaN, expected -745 to 0"},
		{spanless, spans(`-0.25`, `true`, `1`), ""},
		{spanless, spans(`-0.25`, `false`, `1`), "response 0: no trained tokens, expected at least 1"},
		{spanless, spans(`NaN`, `true`, `1`), "response 0: spans[1]: logprobs[0] is NaN, expected -745 to 0"},
		{spanless, spans(`7`, `true`, `1`), "response 0: spans[1]: logprobs[0] is 7, expected -745 to 0"},
		{spanless, spans(`null`, `true`, `1`), "response 0: spans[1]: logprobs[0] is null, expected a number"},
		{spanless, spans(`-0.25`, `true`, `99`), "response 0: spans[1]: ids[0] is 99, expected 0 to 36"},
		{`"ids":[5,1]`, `"ids":[5,1],"spans":[{"from":"environment","ids":[5]}]`,
			`response 0: found "spans" beside "ids", "logprobs" or "version", expected one or the other`},
		{`"answer":"2"`, `"answer":NaN`, "not JSON: invalid character 'N' looking for beginning of value"},
		{`"reward":1`, `"reward":NaN`, "response 0: reward is NaN, expected a finite number"},
		{`"reward":1`, `"reward":1e999`, "response 0: reward is 1e999, expected a finite number"},
		{`-0.25`, `-1e39`, "response 0: logprobs[1] is -1e39, expected -745 to 0"},
		{`"reward":1`, `"reward":null`, "response 0 has no reward, expected a number"},
		{`"reward":1`, `"rewards":1`, "response 0 has no reward, expected a number"},
		{`"reward":1`, `"reward":"1"`, "responses.reward is a JSON string, expected a group as recorded in rollouts/"},
		{`"stop"`, `"bored"`, `response 0: finish is "bored", expected "stop" or "length"`},
		{`[5,1],"logprobs":[-0.5`, `[5` + strings.Repeat(",1", 130) + `],"logprobs":[-0.5` + strings.Repeat(
			",-0.5", 129), "response 0: 133 tokens including the prompt, but the model's context is 128"},
		{recordedGroup, `[]`, "the line is a JSON array, expected a group as recorded in rollouts/"},
		{recordedGroup, `null`, "0 prompt_ids and 0 responses, expected at least 1 of each"},
		{recordedGroup, `{"step":2,`, "not JSON: unexpected end of JSON input"},
	} {
		bad := strings.Replace(recordedGroup, test.old, test.replacement, 1)
		require.NotEqual(t, recordedGroup, bad, test.old)
		_, n, err := parseGroups([]byte(recordedGroup+"\n\n"+bad+"\n"), shape)
		if test.want == "" {
			require.NoError(t, err, test.replacement)
			continue
		}
		require.EqualError(t, err, test.want, test.replacement)
		require.Equal(t, 3, n)
	}
	_, _, err = parseGroups([]byte(recordedGroup+"\n"+strings.Replace(recordedGroup, "-0.25", "NaN", 1)), shape)
	require.EqualError(t, err, "response 0: logprobs[1] is NaN, expected -745 to 0",
		"a last line without a line break is not cut off")
	_, err = ParseGroups("empty.jsonl", []byte("\n \n"), shape)
	require.EqualError(t, err, "empty.jsonl has no groups, expected one per line")
	_, err = ReadRollouts(filepath.Join(t.TempDir(), "none.jsonl"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Accepted groups can be trained on: ids are within the model's vocabulary, and numbers are
// finite.
func FuzzParseGroups(f *testing.F) {
	f.Add([]byte(recordedGroup))
	f.Add([]byte(recordedGroup + "\n" + recordedGroup))
	f.Add(
		[]byte(
			`{"step":1,"version":1,"prompt_ids":[0],"responses":[{"ids":[1],"logprobs":[-1e-45],"reward":-0,` +
				`"finish":"length","version":1}]}`))
	shape := tinyShape()
	f.Fuzz(func(t *testing.T, text []byte) {
		groups, _, err := parseGroups(text, shape)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		for i := range groups {
			require.NoError(t, verify.OnPolicy(&groups[i], groups[i].Step, groups[i].Version))
			require.Equal(t, groups[0].Version, groups[i].Version)
			for _, r := range groups[i].Responses {
				for j, id := range r.Spans[0].IDs {
					require.True(t, id >= 0 && int(id) < shape.VocabSize && r.Spans[0].Logprobs[j] >= -745 &&
						r.Spans[0].Logprobs[j] <= 1e-3)
				}
			}
		}
	})
}

func TestClaim(t *testing.T) {
	t.Parallel()
	var notes []string
	claim := func(dir string, resume bool) (string, error) {
		notes = nil
		return Claim(dir, resume, func(format string,
			args ...any) {
			notes = append(notes, fmt.Sprintf(format, args...))
		})
	}
	dir := t.TempDir()
	from, err := claim(filepath.Join(dir, "new"), false)
	require.NoError(t, err)
	require.Empty(t, from)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err = claim(file, false)
	require.ErrorContains(t, err, "is a file, expected a folder")
	_, err = claim(filepath.Join(file, "below"), true)
	require.ErrorContains(t, err, "run.dir ")

	run := filepath.Join(dir, "run")
	require.NoError(t, os.Mkdir(run, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(run, report.MetricsFile), []byte("no JSON"), 0o644))
	_, err = claim(run, false)
	require.ErrorContains(t, err, " already contains a run. Continue it with -resume, or set another run.dir")
	from, err = claim(run, true)
	require.NoError(t, err)
	require.Empty(t, from)
	require.Equal(t, []string{"no checkpoint in " + run + "; starting from the beginning"}, notes)

	c := checkpoints{root: CheckpointRoot(run),
		models: tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1}),
		files:  map[string][]byte{"config.json": []byte("{}")}}
	for step := 1; step <= 2; step++ {
		require.NoError(t, c.saveNow(t.Context(), State{Step: step, Seed: 3, Task: "train"}))
	}
	first, second := filepath.Join(c.root, "step-000001"), filepath.Join(c.root, "step-000002")
	from, err = claim(run, true)
	require.NoError(t, err)
	require.Equal(t, second, from)

	require.NoError(t, CheckResume(from, State{Seed: 3, Task: "train"}, c.files, "m"))
	require.EqualError(t, CheckResume(from, State{Seed: 3, Task: "sft"}, c.files, "m"),
		"resume: "+from+" was written by easyrl train, expected a checkpoint of easyrl sft")
	require.EqualError(t, CheckResume(from, State{Seed: 4, Task: "train"}, c.files, "m"),
		"resume: run.seed is 4, expected the run's original 3")
	require.EqualError(t, CheckResume(from, State{Seed: 3, Task: "train"},
		map[string][]byte{"config.json": []byte("[]")}, "m"),
		"resume: config.json in m differs from the one in "+from+": different model")

	require.NoError(t, os.Truncate(filepath.Join(second, "model.safetensors"), 100))
	from, err = claim(run, true)
	require.NoError(t, err)
	require.Equal(t, first, from)
	require.Len(t, notes, 1)
	require.Contains(t, notes[0], second)
	require.NoError(t, os.Remove(filepath.Join(first, "trainer", "manifest.json")))
	_, err = claim(run, true)
	require.ErrorContains(t, err, "resume: none of the 2 checkpoints in ")
}

// Rewards whose statistics overflow end the run with the step, the prompt and the statistic.
// The largest rewards that a scorer may give do not.
func TestRewardsThatOverflow(t *testing.T) {
	for _, row := range []struct {
		advantage string
		rewards   []float64 // of prompt p2 in step 2
		want      string    // the error
	}{
		{loss.GroupAdvantage, []float64{1e300, 0, 0},
			"prompt p2: advantage of response 0 is NaN, expected a finite number"},
		{loss.GroupMeanAdvantage, []float64{1e300, 0, 0},
			"prompt p2: advantage of response 0 is +Inf, expected a finite number"},
		{loss.GroupMeanAdvantage, []float64{-1e39, 0, 0},
			"prompt p2: advantage of response 0 is -Inf, expected a finite number"},
		{loss.LeaveOneOutAdvantage, []float64{1e308, -1e308, 0},
			"prompt p2: advantage of response 0 is +Inf, expected a finite number"},
		{loss.RewardAdvantage, []float64{0, 1e39, 0},
			"prompt p2: advantage of response 1 is +Inf, expected a finite number"},
		{loss.BatchAdvantage, []float64{1e200, 1e200, 1e200},
			"prompt p0: advantage of response 0 is NaN, expected a finite number"},
		{loss.BatchBaselineAdvantage, []float64{1e200, 0, 0},
			"prompt p0: advantage of response 0 is NaN, expected a finite number"},
		{loss.GroupAdvantage, []float64{1e200, 1e200, 1e200}, "prompt p2: reward/std is NaN, expected a finite number"},
		{loss.GroupAdvantage, []float64{reward.MaxScore, -reward.MaxScore, 0}, ""},
		{loss.GroupAdvantage, []float64{reward.MaxScore, reward.MaxScore, reward.MaxScore - 1e-4}, ""},
		{loss.RewardAdvantage, []float64{reward.MaxScore, -reward.MaxScore, 0}, ""},
		{loss.LeaveOneOutAdvantage, []float64{reward.MaxScore, -reward.MaxScore, 0}, ""},
		{loss.BatchAdvantage, []float64{reward.MaxScore, -reward.MaxScore, 0}, ""},
	} {
		t.Run(fmt.Sprint(row.advantage, row.rewards), func(t *testing.T) {
			s := newScript(t)
			tr := s.trainer(2, func(c *Config) { c.MaxNonFinite = 0 })
			source := sampled(tr)
			source.Loss.Advantage = row.advantage
			produce := source.Produce
			source.Produce = func(ctx context.Context, p rollout.Batch) rollout.Stream {
				whole := produce(ctx, p)
				out := &stream{groups: make(chan rollout.Group, len(p.Prompts))}
				for g := range whole.Groups() {
					for i := range g.Responses {
						if p.Number == 2 && g.Prompt.ID == "p2" {
							g.Responses[i].Reward = row.rewards[i]
						}
					}
					out.groups <- g
				}
				close(out.groups)
				return out
			}
			err := tr.Run(t.Context())
			if row.want == "" {
				require.NoError(t, err)
				text, err := os.ReadFile(filepath.Join(s.dir, report.MetricsFile))
				require.NoError(t, err)
				require.NotContains(t, string(text), "null")
				require.NotContains(t, strings.Join(s.events, "\n"), "skipped this update")
				return
			}
			require.ErrorContains(t, err, "step 2: "+row.want)
			require.Equal(t, 1, tr.Step())
			require.Equal(t, s.hashes[1], own(tr.Models).Policy.Weights.Checksum(), "the weights of step 1")
		})
	}
}
