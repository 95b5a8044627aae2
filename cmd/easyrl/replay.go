package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer"
)

func replayVerb(std streams) verb {
	v := verb{
		name:    "replay",
		summary: "Take one optimizer step from recorded groups, without sampling.",
		example: "easyrl replay -model DIR -rollouts runs/quickstart/grpo/rollouts/step-000001.jsonl -out stepped -set train.lr=1e-4",
		flags:   newFlags(),
	}
	dir := v.flags.String("model", "", "`DIR` of a Hugging Face folder; a checkpoint's optimizer state goes on, else it begins anew")
	file := v.flags.String("rollouts", "", "`FILE` of groups, one a line, as a run's rollouts/ has them")
	out := v.flags.String("out", "", "`DIR` to write: the stepped model, its optimizer state and the step's metrics.jsonl")
	set := addSettings(v.flags)
	v.run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || *dir == "" || *file == "" || *out == "" {
			return usagef("replay: expected -model DIR, -rollouts FILE, -out DIR and no other argument (see easyrl replay -h)")
		}
		resolved, err := configs.Load(nil, *set)
		if err != nil {
			return usageError{err}
		}
		resolved.Model.Path = *dir
		groups, err := readGroups(*file)
		if err != nil {
			return err
		}
		if entries, err := os.ReadDir(*out); err == nil && len(entries) > 0 {
			return usagef("replay: %s is not empty", *out)
		}
		// The step is a run of its own, of which the checkpoint is kept.
		if resolved.Run.Dir, err = os.MkdirTemp(filepath.Dir(filepath.Clean(*out)), ".replay-"); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		defer os.RemoveAll(resolved.Run.Dir) //nolint:errcheck // what is left of it is in nobody's way
		stepped, err := replay(ctx, std, &resolved.Config, groups)
		if err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(resolved.Run.Dir, report.MetricsFile), filepath.Join(stepped, report.MetricsFile)); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		if err := errors.Join(os.RemoveAll(*out), os.Rename(stepped, *out)); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		printer{std.out}.line("%s", *out)
		return nil
	}
	return v
}

// readGroups reads recorded groups, which must be of one step and version.
func readGroups(path string) ([]rollout.Group, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError{err}
	}
	var groups []rollout.Group
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var g rollout.Group
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			return nil, usagef("%s:%d: %w, expected a group as rollouts/ has them", path, n, err)
		}
		if len(g.Prompt.IDs) == 0 || len(g.Responses) == 0 {
			return nil, usagef("%s:%d: %d prompt_ids and %d responses, expected at least 1 of each", path, n, len(g.Prompt.IDs), len(g.Responses))
		}
		groups = append(groups, g)
	}
	if err := lines.Err(); err != nil {
		return nil, usagef("%s: %w", path, err)
	}
	if len(groups) == 0 {
		return nil, usagef("%s: no groups", path)
	}
	return groups, nil
}

// recorded is a stream of groups that are there already.
type recorded chan rollout.Group

func (r recorded) Groups() <-chan rollout.Group               { return r }
func (r recorded) Wait() (trainer.StreamStats, error)         { return trainer.StreamStats{}, nil }
func publishNothing(context.Context, inference.Weights) error { return nil }

// asStep is groups as those that the given step samples, the model given being
// the one that sampled them, and the length of the longest response.
func asStep(groups []rollout.Group, step int) (stream recorded, longest int, err error) {
	stream = make(recorded, len(groups))
	for _, g := range groups {
		for i := range g.Responses {
			if v := g.Responses[i].Version; v != g.Version {
				return nil, 0, usagef("prompt %s, response %d: version %d, expected %d as its group", g.Prompt.ID, i, v, g.Version)
			}
			g.Responses[i].Version = int64(step)
			longest = max(longest, len(g.Responses[i].IDs))
		}
		g.Step, g.Version = step, int64(step)
		stream <- g
	}
	close(stream)
	return stream, longest, nil
}

// replay takes the step in a run folder and returns its checkpoint.
func replay(ctx context.Context, std streams, cfg *configs.Config, groups []rollout.Group) (stepped string, err error) {
	r := &trainRun{cfg: cfg, std: std}
	defer r.close()
	if r.folder, err = openFolder(cfg.Model.Path); err != nil {
		return "", err
	}
	from := ""
	if _, err := os.Stat(filepath.Join(cfg.Model.Path, "trainer")); err == nil {
		from = cfg.Model.Path
		state, err := trainer.ReadState(from)
		if err != nil {
			return "", usageError{err}
		}
		cfg.Run.Seed = state.Seed
	}
	if err := r.openModels(from); err != nil {
		return "", err
	}
	if r.metrics, err = report.OpenMetrics(filepath.Join(cfg.Run.Dir, report.MetricsFile), 0); err != nil {
		return "", err
	}
	defer r.metrics.Close() //nolint:errcheck // its line was written
	step := r.state.Step + 1
	stream, longest, err := asStep(groups, step)
	if err != nil {
		return "", err
	}
	t, err := trainer.New(trainer.Config{
		Dir: cfg.Run.Dir, Steps: step, PromptsPerStep: len(groups), MaxTokens: longest,
		MicroBatchTokens: cfg.Train.MicroBatchTokens, MiniBatches: cfg.Train.Minibatches, Loss: cfg.Loss, Optim: cfg.Train.Config,
		CheckpointKeep: 1, Devices: 1,
	}, r.state, trainer.Deps{
		Models: r.models, Files: r.folder.files, Metrics: r.metrics, Warn: r.warn, Publish: publishNothing,
		Prompt:   func(int) rollout.Prompt { return rollout.Prompt{} },
		Produce:  func(context.Context, trainer.Period) trainer.Stream { return stream },
		Progress: func(_ int, values report.Values) { printer{std.err}.line("%s", report.Summary(values)) },
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(trainer.CheckpointRoot(cfg.Run.Dir), checkpoint.StepName(step)), t.Run(ctx)
}
