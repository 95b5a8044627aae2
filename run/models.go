package run

import (
	"context"
	"path/filepath"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/run/ranks"
	"github.com/easyrl/easyrl/trainer"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// load loads the policy and, if from is not empty, the state of the checkpoint in that folder. reference is the
// folder of the reference model, nil if the policy's starting weights are the reference. start and began are the
// checksums of the policy's starting weights and of the reference.
func (j *job) load(ctx context.Context, from string, reference *folder.Folder) (start, began string, err error) {
	if j.cfg.Train.Backend == configs.PyTorch {
		return j.loadTorch(ctx, from, reference)
	}
	if j.cfg.Parallel.Mesh().Size() > 1 && !j.checks {
		return j.loadMesh(ctx, from)
	}
	policy, err := j.folder.Masters(j.dev)
	err = named(j.cfg, err)
	if err != nil {
		return "", "", err
	}
	if start, err = policy.Sum(); err != nil {
		return "", "", err
	}
	models, err := trimodel.New(j.dev, policy, j.modelsConfig())
	if err != nil {
		return "", "", err
	}
	j.models = models
	began = start
	if reference != nil {
		w, err := reference.Masters(j.dev)
		if err != nil {
			return "", "", usage.Prefix("-reference", err)
		}
		defer w.Free()
		models.Reference.CopyFrom(w)
		if began, err = w.Sum(); err != nil {
			return "", "", err
		}
	}
	return start, began, j.restore(ctx, from)
}

// loadMesh is load for several ranks of easyrl's kernels.
func (j *job) loadMesh(ctx context.Context, from string) (start, began string, err error) {
	deps := &ranks.MeshDeps{Device: j.dev, Models: j.modelsConfig(), Track: j.spans.Track,
		Peers: ranks.Peers{Silence: j.opts.Silence, Note: j.note},
		Shape: j.folder.Shape, Warn: j.warn,
		Each: func(use source.Use) error { return named(j.cfg, j.folder.Each(use)) }}
	deps.Whole = j.task.name == trainTask && j.cfg.Inference.Instances > 0
	if j.task.name == trainTask && !deps.Whole {
		deps.Canary = canary.Prompt(j.folder.Shape, j.reader.CanaryTokens(), publish.CanaryTokens)
	}
	deps.Recovery = func() (string, error) { return filepath.Join(j.cfg.Run.Dir, "recovery"), j.makeDir() }
	models, err := ranks.StartMesh(ctx, j.cfg, deps)
	if err != nil {
		return "", "", err
	}
	j.models, j.traffic = models, models.Traffic
	if c := models.Canary(); c != nil {
		j.verification = c
	}
	j.atEnd(models.Close)
	return models.StartChecksum(), models.StartChecksum(), j.restore(ctx, from)
}

// restore loads the state of a checkpoint, if from is not empty.
func (j *job) restore(ctx context.Context, from string) (err error) {
	if from != "" {
		if j.state, err = trainer.Resume(ctx, from, j.models); err != nil {
			return ranks.UsageUnlessRank(err)
		}
		if was := j.state.Arithmetic(); was != j.cfg.Identity() { // of a replay, or of PyTorch ranks
			j.warn("%s was trained in %s, now in %s. The weights will differ by rounding from those of an "+
				"uninterrupted run", from, arithmeticName(was), j.cfg.Identity())
		}
		if step := j.state.Step; j.cfg.Loss.OldPolicy == loss.PreviousStep && j.task.name != sftTask && step > 0 &&
			!trimodel.HasSampled(from) {
			j.warn("loss.old_policy is %q, but %s lacks the policy that sampled step %d: step %d uses its own instead",
				j.cfg.Loss.OldPolicy, from, step, step+1)
		}
	}
	j.state.SetArithmetic(j.cfg.Identity())
	return nil
}

// arithmeticName names the arithmetic of a checkpoint.
func arithmeticName(a npu.Identity) string {
	if a == (npu.Identity{}) {
		return "unknown numerics (PyTorch ranks, or easyrl before version 2 of its numerics)"
	}
	return a.String()
}

// open loads the models of a prepared run and the state of the checkpoint that it resumes.
func (j *job) open(ctx context.Context) error {
	start, _, err := j.load(ctx, j.from, nil)
	if err != nil {
		return err
	}
	if began := j.state.Reference; began != "" && began != start {
		return usage.Errorf("resume: %s is not the model that the run started from: its weights differ",
			j.folder.Source)
	}
	id := &j.identity
	j.state.Reference, j.state.Seed, j.state.Run = start, id.Seed, id.Run
	j.state.Task, j.state.Data, j.state.Prompts = id.Task, id.Data, id.Prompts
	return nil
}
