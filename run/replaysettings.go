package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run/ranks"
)

// settings returns the settings of the step: those of the run that recorded the groups, overridden by set, the
// settings of the command line. file is the path of the run's settings, empty if there are none.
func (of *Replayed) settings(step int, set []string) (resolved *configs.Resolved, file string, err error) {
	if file, err = of.settingsFile(step); err != nil {
		return nil, "", err
	}
	var files []string
	if file != "" {
		files = []string{file}
	}
	if resolved, err = Load(configs.ReplayTask, files, set); err != nil {
		return nil, "", err
	}
	if resolved.Task() != configs.TrainTask {
		return nil, "", usage.Errorf("%s is of easyrl sft, expected the settings of easyrl train", file)
	}
	return resolved, file, nil
}

// settingsFile returns the path of the settings with which the run took a step, or "" if Run is not set and
// the groups are not in the folder of a run.
func (of *Replayed) settingsFile(step int) (string, error) {
	dir, rollouts := of.Run, filepath.Dir(of.Rollouts)
	if abs, err := filepath.Abs(rollouts); dir == "" && err == nil && filepath.Base(abs) == "rollouts" {
		dir = filepath.Join(rollouts, "..")
	}
	if dir == "" {
		return "", nil
	}
	file, err := settingsOf(dir, step)
	if err == nil {
		_, err = os.Stat(file)
	}
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case missing && of.Run == "":
		return "", nil
	case missing:
		return "", usage.Errorf("-run %s has no %s, expected the folder of a run", dir, configs.RunFile)
	case err != nil:
		return "", usage.Errorf("read the settings of the run in %s: %w", dir, err)
	}
	return file, nil
}

// known reports whether a file or the command line sets a key.
func (j *replay) known(key string) bool { return j.resolved.Origin(key).File != "" }

// checkKnown returns an error that names the settings that the step depends on and that nothing sets. In a
// run's file, a missing key has its default.
func (j *replay) checkKnown() error {
	if j.file != "" {
		return nil
	}
	idle := unusedKeys(j.cfg, configs.TrainTask)
	var missing []string
	for _, key := range configs.Keys() {
		if j.known(key) || !j.decides(key) || slices.Contains(idle, key) && !strings.HasPrefix(key, "parallel.") {
			continue
		}
		missing = append(missing, key)
	}
	if len(missing) == 0 {
		return nil
	}
	return usage.Errorf("the settings of the step are unknown: %s is not in the folder of a run with a %s. "+
		"Name the run's folder with -run DIR, or add -set for each of %s",
		j.of.Rollouts, configs.RunFile, strings.Join(missing, ", "))
}

// decides reports whether the bits of the step depend on a key besides the groups and the model.
func (j *replay) decides(key string) bool {
	torch := j.cfg.Train.Backend == configs.PyTorch
	switch key {
	case "rollout.temperature":
		return true
	case "rollout.max_tokens": // it is in the loss's divisor, or bounds it, which sets the gradients' resolution
		return j.cfg.Loss.Aggregation != loss.SequenceMean
	case "run.steps":
		return j.cfg.Train.Schedule != optim.Constant && j.state.Total == 0
	case "train.recompute", "train.swap":
		return false
	case "train.micro_batch_tokens", "torch.dtype", "torch.mode", "torch.lora_rank", "torch.lora_alpha":
		return torch
	case "parallel.reduce":
		return !torch
	case "parallel.tp":
		return torch || j.cfg.Parallel.Reduce == parallel.Sum
	case "parallel.sequence":
		return !torch && j.cfg.Parallel.Reduce == parallel.Sum
	case "parallel.dp":
		return torch
	}
	return strings.HasPrefix(key, "loss.") || strings.HasPrefix(key, "train.")
}

// fit makes the groups a step, and sets the settings that nothing sets to what the groups show. It returns an
// error if the groups or the checkpoint cannot come from a run with the settings that are set.
func (j *replay) fit(groups []rollout.Group) error {
	r, prompts := &j.cfg.Rollout, 0
	if j.known("rollout.prompts_per_step") {
		prompts = r.PromptsPerStep
	}
	s := newRecordedStep(groups, prompts)
	var faults []error
	expect := func(ok bool, key string, value any, expected, in string) {
		if !ok && j.known(key) {
			origin := j.resolved.Origin(key)
			faults = append(faults,
				usage.Errorf("%s: %s is %v, expected %s as in %s", origin, key, value, expected, in))
		}
	}
	seed, minibatches, file := j.cfg.Run.Seed, j.cfg.Train.Minibatches, j.of.Rollouts
	expect(j.from == "" || j.state.Seed == seed, "run.seed", seed, fmt.Sprint(j.state.Seed), j.from)
	expect(s.prompts == r.PromptsPerStep, "rollout.prompts_per_step", r.PromptsPerStep, fmt.Sprint(s.prompts), file)
	expect(s.size == r.GroupSize, "rollout.group_size", r.GroupSize, fmt.Sprint(s.size), file)
	expect(s.longest <= r.MaxTokens, "rollout.max_tokens", r.MaxTokens, fmt.Sprintf("%d or more", s.longest), file)
	expect(minibatches <= s.prompts, "train.minibatches", minibatches, fmt.Sprintf("%d at most", s.prompts), file)
	if j.from != "" {
		j.cfg.Run.Seed = j.state.Seed
		if was := j.state.Arithmetic(); was.Name != "" && !j.known("device.numerics") &&
			j.cfg.Train.Backend == configs.EasyRL {
			j.cfg.Device.Numerics = was.Name
		}
	}
	r.PromptsPerStep, r.GroupSize, r.MaxTokens = s.prompts, s.size, max(r.MaxTokens, s.longest)
	j.groups = s
	return errors.Join(faults...)
}

// chooseMesh sets the mesh with which this process takes the step: the command line's, or else the smallest mesh
// that gives the same bits as the run's.
func (j *replay) chooseMesh() error {
	p := &j.cfg.Parallel
	j.was = p.Mesh()
	set := slices.ContainsFunc(configs.Keys(), func(key string) bool {
		return strings.HasPrefix(key, "parallel.") && j.resolved.Origin(key).FromSet()
	})
	switch {
	case j.cfg.Train.Backend == configs.PyTorch || set:
	case p.Reduce == parallel.Exact:
		*p = parallel.Default()
	default:
		p.DP, p.PP, p.Zero = 1, 1, 0
	}
	if err := ranks.CheckMesh(j.cfg, j.folder.Shape); err != nil {
		return err
	}
	process, err := ranks.Process(j.cfg)
	if err == nil && process.Size > 1 {
		err = usage.Errorf(
			"a launcher started %d processes, expected one: the ranks of a replayed step are in one process",
			process.Size)
	}
	return err
}
