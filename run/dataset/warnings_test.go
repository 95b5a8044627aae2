package dataset

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run/evaluate"
	"github.com/easyrl/easyrl/trainer"
)

// prompts writes rows of JSON to a file and returns its path and prompts with these answers.
func prompts(t *testing.T, rows ...string) (path string, all []rollout.Prompt) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "set.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(rows, "\n")), 0o600))
	for i, row := range rows {
		p := rollout.Prompt{ID: "set:" + string(rune('1'+i)), Text: "q", Source: "set"}
		if _, answer, ok := strings.Cut(row, `"answer":`); ok && !strings.HasPrefix(answer, "null") {
			p.Answer = []byte(strings.TrimSuffix(answer, "}"))
		}
		all = append(all, p)
	}
	return path, all
}

func TestMissingAnswersNameTheFields(t *testing.T) {
	t.Parallel()
	path, all := prompts(t, `{"question":"1","gold":"2"}`, `{"question":"1","note":{}}`)
	r, _ := graded(reward.Exact)
	_, err := r.scorable(path, all)
	require.EqualError(t, err, path+`: none of 2 prompts has a reference answer, required by reward "exact" (first `+
		`set:1); its rows have the fields "gold", "note", "question": set data.answer_key to the one with the answer`)

	path, all = prompts(t, `{"q":"1","answer":"2"}`, `{"q":"1","answer":null}`)
	r, warnings := graded(reward.Exact)
	kept, err := r.scorable(path, all)
	require.NoError(t, err)
	require.Len(t, kept, 1)
	require.Equal(t, []string{path + `: dropped 1 of 2 prompts without a reference answer (first set:2); its rows ` +
		`have the fields "answer", "q": set data.answer_key to the one with the answer`}, *warnings)

	r, warnings = graded(reward.Command)
	r.cfg.Data.AnswerKey = "answer"
	kept, err = r.scorable(path, all)
	require.NoError(t, err)
	require.Len(t, kept, 2)
	require.Equal(t, []string{path + `: 1 of 2 prompts have no reference answer, so reward "command" gets null ` +
		`(first set:2); data.answer_key is "answer" and its rows have the fields "answer", "q"`}, *warnings)

	r, warnings = graded(reward.Overlong) // compares with nothing
	_, err = r.scorable(path, all)
	require.NoError(t, err)
	require.Empty(t, *warnings)
}

func TestFormsOfAnswers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ kind, answer, want string }{
		{reward.Exact, `["4","5"]`, `are lists, which reward "exact" compares as JSON text (first set:1: ` +
			`["4","5"]); reward.kind = "math" accepts any answer of a list`},
		{reward.Prefix, `{"value":4}`, `are objects, which reward "prefix" compares as JSON text (first set:1: ` +
			`{"value":4}); set data.answer_key to the field inside`},
		{reward.Exact, `4.0`, `are whole numbers with a decimal point`},
		{reward.Exact, `4.5`, ""},
		{reward.Exact, `"4.0"`, ""},
		{reward.Exact, `4`, ""},
		{reward.Math, `["4","5"]`, ""},
		{reward.Math, `4.0`, ""},
		{reward.Command, `{"value":4}`, ""},
	} {
		path, all := prompts(t, `{"q":"1","answer":`+test.answer+`}`)
		r, warnings := graded(test.kind)
		r.warnForms(path, all)
		if test.want == "" {
			require.Empty(t, *warnings, test.answer)
			continue
		}
		require.Len(t, *warnings, 1, test.answer)
		require.Contains(t, (*warnings)[0], "1 of 1 reference answers "+test.want)
	}
}

func TestStepsLargerThanTheData(t *testing.T) {
	t.Parallel()
	r, warnings := graded(reward.Exact)
	WarnRepeats(r.warn, 4, 4, "rollout.prompts_per_step", "data.train")
	require.Empty(t, *warnings)
	WarnRepeats(r.warn, 5, 4, "rollout.prompts_per_step", "data.train")
	require.Equal(t, []string{"rollout.prompts_per_step is 5 but data.train has only 4 usable rows, so each step " +
		"repeats some. Lower rollout.prompts_per_step to 4, or add data."}, *warnings)
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	r, warnings := graded(reward.Exact)
	of := func(texts ...string) (all []rollout.Prompt) {
		for _, text := range texts {
			all = append(all, rollout.Prompt{Text: text})
		}
		return all
	}
	WarnOverlap(r.warn, of("a", "b"), []evaluate.Set{{Name: "new", Prompts: of("c")},
		{Name: "old", Prompts: of("c", "a", "a")}})
	require.Equal(t, []string{`data.eval: 2 of 3 prompts of set "old" are also in data.train, so results on them do ` +
		`not show how the model does on new ones`}, *warnings)

	r, warnings = graded(reward.Exact)
	demo := func(prompt, response int32) trainer.Demonstration {
		return trainer.Demonstration{Prompt: []int32{prompt}, Spans: rollout.Demonstrated([]int32{response})}
	}
	WarnHeldOut(r.warn, []trainer.Demonstration{demo(1, 2), demo(1, 3)},
		[]trainer.HeldOut{{Name: "held", Examples: []trainer.Demonstration{demo(1, 4), demo(1, 3)}}})
	require.Equal(t, []string{`sft.eval: 1 of 2 demonstrations of set "held" are also in sft.data, so results on ` +
		`them do not show how the model does on new ones`}, *warnings)
}
