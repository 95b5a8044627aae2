package dataset

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// graded returns a reader of prompts with a kind of reward, and its warnings.
func graded(kind string) (r *Reader, warnings *[]string) {
	cfg := configs.Default()
	cfg.Reward.Kind = kind
	warnings = new([]string)
	return New(nil, &cfg, 0, func(format string, args ...any) {
		*warnings = append(*warnings, fmt.Sprintf(format, args...))
	}), warnings
}

// Prompts with a wrong reference answer are dropped. More than 1% of them fail the file.
func TestWrongReferenceAnswers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		kind           string
		prompts, wrong int
		warning, fault string
	}{
		{kind: "math", prompts: 100},
		{kind: "math", prompts: 100, wrong: 1,
			warning: `f: dropped 1 of 100 prompts whose reference answer reward "math" finds wrong (first f:1: no ` +
				`answer)`},
		{kind: "gsm8k", prompts: 200, wrong: 2, warning: `f: dropped 2 of 200 prompts whose reference answer reward ` +
			`"gsm8k" finds wrong (first f:1: no answer, f:2: no answer)`},
		{kind: "math", prompts: 1200, wrong: 12, warning: `f: dropped 12 of 1200 prompts whose reference answer ` +
			`reward "math" finds wrong (first f:1: no answer, f:2: no answer, ` +
			`f:3: no answer, f:4: no answer, f:5: no answer, f:6: no answer, f:7: no answer, f:8: no answer, f:9: ` +
			`no answer, f:10: no answer)`},
		{kind: "math", prompts: 99, wrong: 1, fault: `f: reward "math" finds 1 of 99 reference answers wrong, ` +
			`expected at most 1% (first f:1: no answer); correct or remove them, or set another reward.kind`},
		{kind: "math", prompts: 1, wrong: 1, fault: `f: reward "math" finds 1 of 1 reference answers wrong`},
		{kind: "exact", prompts: 100, wrong: 100},
	} {
		t.Run(fmt.Sprint(row.kind, row.prompts, row.wrong), func(t *testing.T) {
			t.Parallel()
			r, warnings := graded(row.kind)
			var all []rollout.Prompt
			for i := range row.prompts {
				answer := fmt.Sprint(i)
				if i < row.wrong {
					answer = "}"
				}
				b, err := json.Marshal(answer)
				require.NoError(t, err)
				all = append(all, rollout.Prompt{ID: fmt.Sprintf("f:%d", i+1), Text: "?", Answer: b})
			}
			kept, err := r.scorable("f", all)
			if row.fault != "" {
				require.True(t, usage.Is(err))
				require.ErrorContains(t, err, row.fault)
				return
			}
			require.NoError(t, err)
			if row.warning == "" {
				require.Equal(t, all, kept)
				require.Empty(t, *warnings)
				return
			}
			require.Equal(t, all[row.wrong:], kept)
			require.Equal(t, []string{row.warning}, *warnings)
		})
	}
}

// The reference answers of published data grade as right.
func TestPublishedReferenceAnswers(t *testing.T) {
	t.Parallel()
	root := os.Getenv("EASYRL_TESTDATA")
	if root == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	for kind, patterns := range map[string][]string{reward.Math: {"gsm8k/*.jsonl", "math/*.json",
		"word_problems/*.jsonl"}, reward.GSM8K: {"gsm8k/*.jsonl", "word_problems/*.jsonl"}} {
		for _, pattern := range patterns {
			files, err := filepath.Glob(filepath.Join(root, "prompts", pattern))
			require.NoError(t, err)
			require.NotEmpty(t, files, pattern)
			lists, err := data.ReadAll(files, data.Options{})
			require.NoError(t, err)
			for i, all := range lists {
				r, warnings := graded(kind)
				_, err := r.scorable(files[i], all)
				require.NoError(t, err)
				for _, warning := range *warnings { // a few rows have no answer
					require.Contains(t, warning, "without a reference answer", kind)
				}
			}
		}
	}
}

func BenchmarkScorable(b *testing.B) {
	r, _ := graded(reward.Math)
	all := make([]rollout.Prompt, 100_000)
	for i := range all {
		all[i] = rollout.Prompt{ID: "f:1", Text: "How many apples are in the box?",
			Answer: json.RawMessage(fmt.Sprintf(`"The box holds %d + 1 apples.\n#### %d"`, i-1, i))}
	}
	for b.Loop() {
		_, err := r.scorable("f", all)
		require.NoError(b, err)
	}
}
