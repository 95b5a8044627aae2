package run

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/paths"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/page"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run/dataset"
	"github.com/easyrl/easyrl/run/evaluate"
	"github.com/easyrl/easyrl/run/instances"
)

// Evaluate scores a model's responses to held-out prompts, using engines of this
// process, and returns the metrics and the prompts. record is the path of a file that
// receives each finished prompt and from which an evaluation resumes; it may be empty.
// With a record, a cancelled context ends the evaluation with a StoppedError.
func Evaluate(
	ctx context.Context, resolved *configs.Resolved, record string, opts Options,
) (map[string]float64, []evaluate.Set, error) {
	cfg := &resolved.Config
	warn := func(format string, args ...any) { notice.Print(opts.Log, notice.Warning, format, args...) }
	f, err := openModel(cfg)
	if err != nil {
		return nil, nil, err
	}
	reader := dataset.New(f, cfg, publish.CanaryTokens, warn)
	sets, err := reader.EvalSets(ctx)
	if err != nil {
		return nil, nil, paths.Explain(err, opts.Files...)
	}
	if len(cfg.Data.Train) == 0 { // training data is not loaded here, so its sources are unknown
		if err := reader.CheckSources(resolved); err != nil {
			return nil, nil, err
		}
	}
	reader.WarnPlainText()
	score, err := reward.New(cfg.Reward, cfg.Rollout.MaxTokens)
	if err != nil {
		return nil, nil, usage.Wrap(err)
	}
	defer score.Close() //nolint:errcheck // all scores are in
	e := evaluation{cfg: cfg, folder: f, sets: sets, reward: score, opts: opts}
	metrics, err := e.run(ctx, resolved, record, instances.Deps{CanaryTokens: reader.CanaryTokens(),
		Say: func(kind notice.Kind, format string, args ...any) { notice.Print(opts.Log, kind, format, args...) }})
	return metrics, sets, err
}

// evaluation is the state of an evaluation that runs outside training.
type evaluation struct {
	cfg    *configs.Config
	folder *folder.Folder
	sets   []evaluate.Set
	reward *reward.Scorer
	record *evaluate.Record // may be nil
	opts   Options
}

// run loads the weights, starts the instances and scores the prompts.
func (e *evaluation) run(
	ctx context.Context, resolved *configs.Resolved, record string, deps instances.Deps,
) (map[string]float64, error) {
	cfg, cores := e.cfg, runtime.GOMAXPROCS(0)
	instanceCount := max(1, cfg.Inference.Instances)
	cfg.Inference.Threads = cmp.Or(cfg.Inference.Threads, max(1, cores/instanceCount))
	dev, err := OpenDevice(cfg.Device.Kind, cfg.Device.Numerics, min(cores, cfg.Inference.Threads*instanceCount))
	if err != nil {
		return nil, err
	}
	defer dev.Close() //nolint:errcheck // only read from
	w, err := startWeights(cfg, e.folder, dev)
	if err != nil {
		return nil, err
	}
	if record != "" {
		sum, err := w.Sum()
		if err != nil {
			return nil, err
		}
		settings, err := evalSettings(resolved, e.folder, sum, e.sets)
		if err != nil {
			return nil, err
		}
		if e.record, err = evaluate.OpenRecord(record, settings); err != nil {
			return nil, usage.Wrap(err)
		}
		defer e.record.Close() //nolint:errcheck // each line is already written
	}
	if err := e.tryReward(ctx); err != nil {
		return nil, err
	}
	in, err := startInstances(ctx, e.folder, cfg, dev, e.opts.Fleet, deps)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // the process's exit frees its memory
	if err := in.Begin(ctx, nil); err != nil {
		return nil, err
	}
	if err := in.Publish(ctx, model.NewSnapshot(w, 1)); err != nil {
		return nil, err
	}
	return e.score(ctx, evaluate.Deps{Fleet: in.Fleet(), Reward: reward.ForEvaluation(e.reward, cfg.Eval.Marks),
		Text: e.folder.Text})
}

// tryReward checks, before sampling starts, that the reward can score. It does nothing
// if the record already has every prompt.
func (e *evaluation) tryReward(ctx context.Context) error {
	var prompts []rollout.Prompt
	for i := range e.sets {
		prompts = append(prompts, e.sets[i].Prompts...)
	}
	if e.record.Len() == len(prompts) {
		return nil
	}
	return e.reward.Try(ctx, prompts)
}

// score runs the evaluation and shows its progress.
func (e *evaluation) score(ctx context.Context, deps evaluate.Deps) (map[string]float64, error) {
	total, record := 0, e.record
	for i := range e.sets {
		total += len(e.sets[i].Prompts)
	}
	if n := record.Len(); n > 0 {
		notice.Print(e.opts.Log, notice.Progress, "%d of %d prompts are already done", n, total)
	}
	console := report.NewConsole(e.opts.Log, record.Len(), total)
	defer console.Close()
	deps.Warn = func(format string, args ...any) { console.Note(notice.Warning, format, args...) }
	deps.Progress = func(done, _ int) { console.Count(done, "prompts") }
	metrics, _, err := evaluate.Run(ctx, 1, evalConfig(e.cfg, e.folder), e.sets, deps, record)
	if err != nil && ctx.Err() != nil && record != nil {
		done := fmt.Sprintf("stopped after %d of %d prompts, which are in %s", record.Len(), total, record.Path())
		return nil, StoppedError{done, Command(e.opts.Command...)}
	}
	return metrics, err
}

// heldSamples is the number of prompts per set whose responses are saved.
const heldSamples = 4

// evaluateStep evaluates the weights after a step. It saves the responses to the
// first prompts of each set, for comparison across steps.
func (t *training) evaluateStep(
	ctx context.Context, step int, sets []evaluate.Set, deps evaluate.Deps,
) (map[string]float64, float64, error) {
	var kept []*evaluate.Result
	deps.Done = func(result *evaluate.Result) {
		if result.Index < heldSamples {
			kept = append(kept, result)
		}
	}
	metrics, score, err := evaluate.Run(ctx, int64(step)+1, evalConfig(t.cfg, t.folder), sets, deps, nil)
	if errors.Is(err, evaluate.ErrFailed) { // counted in the metrics; the run continues
		t.warn("evaluation after step %d is skipped: %v", step, err)
		score, err = math.NaN(), nil
	}
	if err == nil && t.cfg.Log.Rollouts {
		if err := keepHeld(filepath.Join(t.cfg.Run.Dir, page.HeldOut), step, kept); err != nil {
			t.warn("%v", err) // the run does not need them
		}
	}
	return metrics, score, err
}

// keepHeld writes the results of a step to a file in dir, one line per result, ordered
// by set name and prompt.
func keepHeld(dir string, step int, results []*evaluate.Result) error {
	slices.SortFunc(results, func(a, b *evaluate.Result) int {
		return cmp.Or(cmp.Compare(a.Set, b.Set), a.Index-b.Index)
	})
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	for _, result := range results {
		if err := enc.Encode(struct {
			Step int `json:"step"`
			*evaluate.Result
		}{step, result}); err != nil {
			return fmt.Errorf("save held-out responses: %w", err)
		}
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = report.ReplaceFile(filepath.Join(dir, fmt.Sprintf("step-%06d.jsonl", step)), lines.Bytes())
	}
	if err != nil {
		return fmt.Errorf("save held-out responses: %w", err)
	}
	return nil
}

// evalConfig returns the sampling settings of an evaluation.
func evalConfig(cfg *configs.Config, f *folder.Folder) evaluate.Config {
	return evaluate.Config{K: cfg.Eval.K, Seed: cfg.Run.Seed, Sampling: inference.Sampling{
		Temperature: float32(cfg.Eval.Temperature), TopP: float32(cfg.Eval.TopP), TopK: cfg.Eval.TopK,
		MaxTokens: cfg.Rollout.MaxTokens, Stop: cfg.Rollout.Stop, StopIDs: f.StopIDs}}
}

// evalSettings returns everything that the result of an evaluation depends on: sampling
// settings, weights, tokenized prompts and scoring. It has two bytes of a hash in place of a password: too few to
// guess the password, and enough to notice a different one.
func evalSettings(
	resolved *configs.Resolved, f *folder.Folder, weights string, sets []evaluate.Set,
) (map[string]string, error) {
	settings := known(resolved, "reward")
	for key := range settings {
		name := key[strings.LastIndexByte(key, '.')+1:]
		if slices.Contains([]string{"processes", "memory_gib", "requests", "batch", "timeout", "retries"}, name) {
			delete(settings, key) // it changes no score
		}
	}
	sampling := map[string][]string{"eval": {"k", "temperature", "top_p", "top_k"}, "rollout": {"max_tokens", "stop"},
		"run": {"seed"}}
	for section, keys := range sampling {
		values := known(resolved, section)
		for _, key := range keys {
			settings[section+"."+key] = values[section+"."+key]
		}
	}
	if numerics := resolved.Device.Numerics; numerics != npu.FP32.String() { // older records name none
		settings["device.numerics"] = numerics
	}
	settings["record"] = "2" // version 2 records whether each response is right
	settings["weights"] = weights
	settings["stop tokens"] = fmt.Sprint(f.StopIDs)
	for i := range sets {
		digest := sha256.New()
		if err := json.NewEncoder(digest).Encode(sets[i].Prompts); err != nil {
			return nil, fmt.Errorf("%s: %w", sets[i].Name, err)
		}
		settings["set "+sets[i].Name] = fmt.Sprintf("%d prompts (%.8x)", len(sets[i].Prompts), digest.Sum(nil))
	}
	return settings, nil
}

// known returns a section's values with passwords replaced by stars and two bytes of their hash.
func known(resolved *configs.Resolved, section string) map[string]string {
	values := resolved.Shown(section)
	for key, value := range resolved.Values(section) {
		if value != values[key] {
			values[key] += fmt.Sprintf(" (%.2x)", sha256.Sum256([]byte(value)))
		}
	}
	return values
}
