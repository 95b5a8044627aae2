package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run/cores"
	"github.com/easyrl/easyrl/run/ranks"
	"github.com/easyrl/easyrl/trainer"
)

// Replayed names the folders and files of a replay.
type Replayed struct {
	// Model is a model folder. If it is a checkpoint of a run like easyrl train, its
	// optimizer state continues.
	Model     string
	Rollouts  string // file of groups
	Run       string // folder of the run whose settings apply; empty for the run that contains Rollouts
	Reference string // folder of the reference model; empty for the model that the run started from
	Out       string // new or empty folder
}

// Replay takes one optimizer step on recorded groups, without sampling. Its settings are those with which
// the run took the step, overridden by settings of the form section.key=value. It writes the stepped model,
// its optimizer state and the step's metrics.
func Replay(ctx context.Context, of Replayed, settings []string, opts Options) error {
	if err := CheckOut(of.Out); err != nil {
		return usage.Wrap(err)
	}
	text, err := trainer.ReadRollouts(of.Rollouts)
	if err != nil {
		return usage.Wrap(err)
	}
	state, written, err := readState(of.Model)
	if err != nil {
		return err
	}
	resolved, file, err := of.settings(cmp.Or(trainer.StepOf(text), state.Step+1), settings)
	if err != nil {
		return err
	}
	resolved.Inference.Instances = 0 // all threads are the trainer's
	resolved.Log.Audit = false
	if resolved.Torch.Listen == "" {
		resolved.Torch.Dir = "" // the run may be using it
	}
	j := replay{job: newJob(resolved, opts, task{}), of: of, file: file}
	defer j.close()
	if written && state.Task != "" && state.Task != trainTask {
		// Its moments estimate other gradients.
		j.warn("%s was written by easyrl %s: replay starts from its weights, and the optimizer state from zero",
			of.Model, state.Task)
	} else if written {
		j.from, j.state = of.Model, state
	}
	if err := j.read(text); err != nil {
		return err
	}
	return j.stepTo(ctx)
}

// replay is a job that takes one step from recorded groups.
type replay struct {
	*job
	of     Replayed
	file   string        // path of the run's settings; empty if there are none
	was    parallel.Mesh // the mesh of the settings, which chooseMesh may replace
	groups *recordedStep
	start  *folder.Folder    // folder of the run's starting weights; nil if not needed, or if it is the model's
	files  map[string][]byte // files of the model's folder
}

// readState reads the state of a checkpoint of any task. written is false for a plain model folder.
func readState(dir string) (state trainer.State, written bool, err error) {
	if _, err := os.Stat(filepath.Join(dir, "trainer")); err != nil {
		return state, false, nil
	}
	state, err = trainer.ReadState(dir)
	return state, true, usage.Wrap(err)
}

// read checks the settings, the model folders and the groups. text is the content of the rollouts file.
func (j *replay) read(text []byte) (err error) {
	if j.of.Reference != "" && j.needsStart() == "" {
		return usage.Errorf("-reference is set but loss.beta is 0, expected more than 0: the loss uses no reference")
	}
	if j.folder, err = openFolder(j.cfg, j.of.Model); err != nil {
		return err
	}
	groups, err := trainer.ParseGroups(j.of.Rollouts, text, j.folder.Shape)
	if err != nil {
		return usage.Wrap(err)
	}
	if line := report.CutOff(j.of.Rollouts); line != "" {
		j.warn("%s", line)
	}
	if err := j.checkKnown(); err != nil {
		return err
	}
	if err := j.fit(groups); err != nil {
		return err
	}
	return j.prepare()
}

// prepare checks that this process can train the model of j.folder with the settings, and opens the starting
// weights if the step needs them.
func (j *replay) prepare() error {
	j.files = j.folder.Files
	if err := ranks.CheckTorch(j.cfg, j.folder); err != nil {
		return err
	}
	if err := j.chooseMesh(); err != nil {
		return err
	}
	return j.openStart()
}

// CheckOut returns an error if the output folder has content.
func CheckOut(out string) error {
	entries, err := os.ReadDir(out)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("-out %s is not empty, expected a new folder", out)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("-out %s cannot be read as a folder: %w", out, err)
	}
	return nil
}

// stepTo takes the step in a temporary run folder beside -out and moves its checkpoint there.
func (j *replay) stepTo(ctx context.Context) error {
	path, err := filepath.Abs(j.of.Out)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		j.cfg.Run.Dir, err = os.MkdirTemp(filepath.Dir(path), ".replay-")
	}
	if err != nil {
		return usage.Errorf("replay: create -out: %w", err)
	}
	defer os.RemoveAll(j.cfg.Run.Dir) //nolint:errcheck // leftovers are harmless
	stepped, err := j.takeStep(ctx)
	if errors.Is(err, trainer.ErrStopped) {
		return context.Canceled
	}
	if err == nil {
		err = os.Rename(filepath.Join(j.cfg.Run.Dir, report.MetricsFile), filepath.Join(stepped, report.MetricsFile))
	}
	if err != nil {
		return err
	}
	j.torch.End()
	// CheckOut has found that -out is empty or missing; Rename needs it to be missing.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replay: %w", err)
	}
	if err := os.Rename(stepped, path); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	_, _ = fmt.Fprintln(j.opts.Out, j.of.Out)
	return nil
}

// scheduleSteps returns the number of steps that the learning-rate schedule spans: run.steps if it is known,
// otherwise the checkpoint's.
func (j *replay) scheduleSteps(step int) (int, error) {
	if !j.known("run.steps") {
		return max(j.state.Total, step), nil
	}
	steps := j.cfg.Run.Steps
	if steps < step && j.cfg.Train.Schedule != optim.Constant {
		return 0, usage.Errorf("%s: run.steps is %d, expected at least %d, the step to take",
			j.resolved.Origin("run.steps"), steps, step)
	}
	return steps, nil
}

// needsStart says why the step needs the starting weights of the run. It is empty if the step needs none.
func (j *replay) needsStart() string {
	switch c := j.cfg; {
	case c.Loss.Beta > 0: // they are the reference
		return fmt.Sprintf("loss.beta is %v", c.Loss.Beta)
	case c.Train.Backend == configs.PyTorch && c.Torch.LoRARank > 0: // the checkpoint's adapter changes them
		return fmt.Sprintf("torch.lora_rank is %d", c.Torch.LoRARank)
	}
	return ""
}

// openStart opens the folder of the starting weights: that of -reference, or of the model in the run's settings.
// Without a checkpoint, the model itself is the start.
func (j *replay) openStart() (err error) {
	why := j.needsStart()
	own := why == "" || j.from == "" && j.of.Reference == ""
	settings := j.cfg.Model
	if own || j.of.Reference != "" {
		j.cfg.Model = configs.Model{} // errors about models name no key
	}
	switch {
	case own:
		return nil
	case j.of.Reference != "":
		j.start, err = openFolder(j.cfg, j.of.Reference)
	case settings == (configs.Model{}):
		return usage.Errorf("%s but %s lacks the reference weights of its run; "+
			"add -reference DIR, the model that the run started from", why, j.from)
	default:
		for _, path := range []*string{&j.cfg.Model.Path, &j.cfg.Model.Init.Config} {
			*path = j.find(*path)
		}
		j.start, err = openModel(j.cfg)
	}
	if err == nil {
		err = named(j.cfg, j.start.CheckWeights())
	}
	switch {
	case err != nil && j.of.Reference != "":
		return usage.Prefix("-reference", err)
	case err != nil:
		return usage.Errorf("%s, so the step needs the model that the run started from; "+
			"add -reference DIR, or start replay where the run was started: %w", why, err)
	case folder.Fingerprint(j.start.Shape) != folder.Fingerprint(j.folder.Shape):
		return usage.Errorf("%s: config.json describes another model than that in %s", j.startName(), j.of.Model)
	case j.from == "" && j.cfg.Parallel.Mesh().Size() > 1 && j.cfg.Train.Backend == configs.EasyRL:
		return usage.Errorf("-reference is set, %s is no checkpoint and [parallel] sets %s, expected one rank",
			j.of.Model, j.cfg.Parallel.Mesh())
	}
	return nil
}

// find resolves a relative path of the run's settings. It is relative to the directory in which the run was
// started, which may not be this process's. find returns path if that exists here. Otherwise it tries the
// directory from which run.dir leads to the folder of the settings.
func (j *replay) find(path string) string {
	if path == "" || filepath.IsAbs(path) || exists(path) {
		return path
	}
	dir, err := filepath.Abs(filepath.Dir(j.file))
	startDir, ok := strings.CutSuffix(dir, string(filepath.Separator)+filepath.Clean(j.cfg.Run.Dir))
	if there := filepath.Join(startDir, path); err == nil && ok && exists(there) {
		return there
	}
	return path
}

// exists reports whether a file or folder exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// load loads the models and, from a checkpoint, the state.
func (j *replay) load(ctx context.Context) error {
	if err := j.openDevice(); err != nil {
		return err
	}
	reference := j.start
	if j.from != "" && reference != nil {
		// Load as a resumed run does: first the model that it started from, then the checkpoint.
		j.folder, reference = reference, nil
	}
	_, began, err := j.job.load(ctx, j.from, reference)
	if err != nil {
		return err
	}
	switch state := &j.state; {
	case j.from == "" || state.Reference == "":
		state.Reference = began
	case j.start != nil && state.Reference != began:
		return usage.Errorf("%s is not the model that the run of %s started from: its weights differ",
			j.startName(), j.from)
	}
	j.state.Seed, j.state.Pending = j.cfg.Run.Seed, nil
	return nil
}

// startName names the starting model and where it was set.
func (j *replay) startName() string {
	switch {
	case j.of.Reference != "":
		return "-reference " + j.of.Reference
	case j.file == "":
		return j.start.Source
	}
	return j.start.Source + " of " + j.file
}

// noteSettings logs which settings the step has.
func (j *replay) noteSettings() {
	if j.file != "" {
		j.note("settings of %s", j.file)
	}
	if now := j.cfg.Parallel.Mesh(); now != j.was {
		j.note("%s instead of %s: the bits are the same", now, j.was)
	}
}

// takeStep takes the step in the temporary folder and returns the path of its checkpoint.
func (j *replay) takeStep(ctx context.Context) (stepped string, err error) {
	step := j.state.Step + 1
	steps, err := j.scheduleSteps(step)
	if err != nil {
		return "", err
	}
	if err := j.load(ctx); err != nil {
		return "", err
	}
	j.noteSettings()
	if was := j.groups.step; was > 0 && was != step {
		j.warn("%s is from step %d, but the step after %s is step %d: this repeats no step of a run",
			j.of.Rollouts, was, j.of.Model, step)
	}
	progress := func(_ int, values report.Values) { _, _ = fmt.Fprintln(j.opts.Log, report.Summary(values)) }
	err = j.train(ctx, trainer.Config{Steps: step, ScheduleSteps: steps, MaxNonFinite: 1}, progress, trainer.Rollouts{
		Publish: func(context.Context, inference.Weights) error { return nil },
		Produce: func(context.Context, rollout.Batch) rollout.Stream { return j.groups.start(step) },
	})
	return filepath.Join(trainer.CheckpointRoot(j.cfg.Run.Dir), checkpoint.StepName(step)), err
}

// train takes steps in the temporary folder, to which it writes their metrics. It completes cfg and r.
func (j *replay) train(
	ctx context.Context, cfg trainer.Config, progress func(step int, values report.Values), r trainer.Rollouts,
) (err error) {
	c := j.cfg
	cfg.Dir, cfg.PromptsPerStep, cfg.MiniBatches = c.Run.Dir, c.Rollout.PromptsPerStep, c.Train.Minibatches
	cfg.MicroBatchTokens, cfg.Optim, cfg.CheckpointKeep = c.Train.MicroBatchTokens, c.Train.Config, 1
	cfg.Settings = j.resolved.Shown("")
	r.Loss, r.MaxTokens = c.Loss, c.Rollout.MaxTokens
	r.Cores = func() int { return cores.Busy(c.Device.Threads) }
	r.Prompt = func(int) rollout.Prompt { return rollout.Prompt{} }
	if j.metrics, err = report.OpenMetrics(filepath.Join(cfg.Dir, report.MetricsFile), 0); err != nil {
		return err
	}
	defer j.metrics.Close() //nolint:errcheck // its lines are already written
	t, err := trainer.New(cfg, j.state,
		trainer.Deps{Models: j.models, Files: j.files, Metrics: j.metrics, Warn: j.warn, Progress: progress}, r)
	if err != nil {
		return err
	}
	return t.Run(ctx)
}
