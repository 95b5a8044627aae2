package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/run/evaluate"
)

func TestKeepHeld(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "heldout")
	require.NoError(t, keepHeld(dir, 10, []*evaluate.Result{
		{Set: "b", Index: 0, Prompt: "<x>"}, {Set: "a", Index: 1},
		{Set: "a", Index: 0, Responses: []evaluate.ScoredResponse{{Text: "t", Reward: 1, Tokens: 3, Finish: "stop"}}}}))
	text, err := os.ReadFile(filepath.Join(dir, "step-000010.jsonl"))
	require.NoError(t, err)
	require.Equal(t,
		`{"step":10,"set":"a","index":0,"prompt_id":"","prompt":"","responses":[{"text":"t","reward":1,`+
			`"right":false,"finish":"stop","tokens":3}]}
{"step":10,"set":"a","index":1,"prompt_id":"","prompt":"","responses":null}
{"step":10,"set":"b","index":0,"prompt_id":"","prompt":"<x>","responses":null}
`, string(text))
	require.ErrorContains(t, keepHeld(filepath.Join(dir, "step-000010.jsonl"), 1, nil), "save held-out responses")
}
