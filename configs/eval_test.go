package configs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A run with data to evaluate on evaluates ten times, unless eval.every is set, to 0 too.
func TestEvaluationsByDefault(t *testing.T) {
	t.Parallel()
	const run = "[model]\npath='m'\n[data]\ntrain='t'\n[sft]\ndata='d'\nsteps=30\n[run]\nsteps=200\n"
	for _, test := range []struct {
		task     Task
		settings []string
		want     int
	}{
		{TrainTask, nil, 0},
		{TrainTask, []string{"data.eval=e"}, 20},
		{TrainTask, []string{"data.eval=e", "run.steps=5"}, 1},
		{TrainTask, []string{"data.eval=e", "eval.every=0"}, 0},
		{TrainTask, []string{"data.eval=e", "eval.every=7"}, 7},
		{TrainTask, []string{"sft.eval=e"}, 0},
		{SFTTask, []string{"sft.eval=e"}, 3},
		{SFTTask, []string{"data.eval=e"}, 0},
		{SFTTask, []string{"sft.eval=e", "eval.every=0"}, 0},
		{AnyTask, []string{"sft.eval=e", "data.train=[]"}, 3},
		{AnyTask, []string{"data.eval=e"}, 20},
		{EvalTask, []string{"data.eval=e"}, 0},
	} {
		r, err := Load(write(t, run), test.settings)
		require.NoError(t, err)
		require.NoError(t, r.Validate(test.task), test.settings)
		require.Equal(t, test.want, r.Eval.Every, "%s %v", test.task, test.settings)
		if test.want == 0 {
			continue
		}
		// The written run keeps the interval.
		dir := t.TempDir()
		require.NoError(t, r.WriteFile(dir))
		again, err := Load([]string{dir + "/" + RunFile}, []string{"run.steps=1000"})
		require.NoError(t, err)
		require.NoError(t, again.Validate(test.task))
		require.Equal(t, test.want, again.Eval.Every)
	}
}
