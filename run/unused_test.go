package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
)

// resolve returns a valid run with settings.
func resolve(t *testing.T, task configs.Task, files []string, settings ...string) *configs.Resolved {
	t.Helper()
	r, err := configs.Load(files,
		append([]string{"run.name=r", "model.path=m", "model.init.config=", "data.train=t", "sft.data=d"}, settings...))
	require.NoError(t, err)
	require.NoError(t, r.Validate(task))
	return r
}

func TestUnusedSettings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		task     configs.Task
		settings []string
		want     []string
	}{
		{configs.TrainTask, nil, nil},
		{configs.TrainTask, []string{"loss.kl=k2"}, []string{`loss.kl = "k2" has no effect: loss.beta is 0`}},
		{configs.TrainTask, []string{"loss.kl=k3"}, nil}, // its default
		{configs.TrainTask, []string{"loss.kl=k2", "loss.beta=0.1"}, nil},
		{configs.SFTTask, []string{"loss.kl=k2"}, nil},
		{configs.TrainTask, []string{"train.min_lr=0.1"},
			[]string{`train.min_lr = 0.1 has no effect: train.schedule is "constant", which never lowers the rate`}},
		{configs.SFTTask, []string{"train.min_lr=0.1"},
			[]string{`train.min_lr = 0.1 has no effect: train.schedule is "constant", which never lowers the rate`}},
		{configs.TrainTask, []string{"train.min_lr=0.1", "train.schedule=linear"}, nil},
		{configs.TrainTask, []string{"loss.correction_high=3"},
			[]string{`loss.correction_high = 3.0 has no effect: loss.correction is "none"`}},
		{configs.TrainTask, []string{"loss.kind=reinforce", "loss.epsilon_high=0.3"},
			[]string{`loss.epsilon_high = 0.3 has no effect: loss.kind is "reinforce", which has no clip`}},
		{configs.TrainTask, []string{"loss.kind=cispo", "loss.dual_clip=3"},
			[]string{`loss.dual_clip = 3.0 has no effect: loss.kind is "cispo"`}},
		{configs.TrainTask, []string{"inference.token_file=f"},
			[]string{`inference.token_file = "f" has no effect: the run has no servers`}},
		{configs.TrainTask, []string{"inference.token_file=f", "inference.kind=vllm", "inference.endpoints=http://h:1"},
			nil},
		{configs.TrainTask, []string{"control.token_file=f"},
			[]string{`control.token_file = "f" has no effect: control.listen is not set`}},
		{configs.TrainTask, []string{"eval.k=4"}, []string{"eval.k = 4 has no effect: data.eval is not set"}},
		{configs.TrainTask, []string{"eval.k=4", "data.eval=e"}, nil},
		{configs.TrainTask, []string{"data.template=none", "data.system=s"},
			[]string{`data.system = "s" has no effect: data.template is "none"`}},
		{configs.TrainTask, []string{"train.warmup=101"},
			[]string{"train.warmup is 101 and run.steps is 100, so the learning rate never gets to train.lr. Lower " +
				"train.warmup"}},
		{configs.SFTTask, []string{"train.warmup=20", "sft.steps=10"},
			[]string{"train.warmup is 20 and sft.steps is 10, so the learning rate never gets to train.lr. Lower " +
				"train.warmup"}},
		{configs.TrainTask, []string{"train.swap=true", "run.mode=colocated"},
			[]string{`train.swap = true has no effect: device.kind is "cpu", whose memory is the host's`}},
		{configs.TrainTask, []string{"train.swap=true", "run.mode=colocated", "device.kind=cuda"}, nil},
		{configs.TrainTask, []string{"train.swap=true", "run.mode=colocated", "device.kind=cuda",
			"inference.kind=easyrl", "inference.endpoints=http://h:1"},
			[]string{`train.swap = true has no effect: the run has no embedded instances`}},
		{configs.TrainTask, []string{"train.lr=0"}, []string{"train.lr is 0, so the weights stay as they are"}},
	} {
		require.Equal(t, test.want, unusedSettings(resolve(t, test.task, nil, test.settings...), test.task),
			test.settings)
	}
}

// No shipped run file has settings without effect, nor does the resolved file of a run.
func TestShippedFilesHaveNoUnusedSettings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "configs", "*.toml"))
	require.NoError(t, err)
	require.Greater(t, len(files), 3)
	for _, file := range files {
		for _, task := range []configs.Task{configs.TrainTask, configs.SFTTask} {
			r, err := configs.Load([]string{file}, nil)
			require.NoError(t, err)
			if r.Validate(task) != nil {
				continue // of the other task
			}
			require.Empty(t, unusedSettings(r, task), file)
			dir := t.TempDir()
			require.NoError(t, r.WriteFile(dir))
			again, err := configs.Load([]string{filepath.Join(dir, configs.RunFile)}, nil)
			require.NoError(t, err)
			require.Empty(t, unusedSettings(again, task), file)
			require.NoError(t, os.RemoveAll(dir))
		}
	}
}
