package run

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/run/ranks"
	"github.com/easyrl/easyrl/torch/models"
	"github.com/easyrl/easyrl/trainer"
)

// loadTorch is load for train.backend = "torch": it starts the ranks, which load the models.
func (j *job) loadTorch(ctx context.Context, from string, reference *folder.Folder) (start, began string, err error) {
	kept := j.modelsConfig()
	deps := ranks.TorchDeps{Folder: j.folder, KeepStart: kept.Reference, Versions: kept.Versions, State: from,
		Temperature: float64(kept.Temperature), Spans: j.spans, Say: j.note, Warn: j.warn}
	if j.reader != nil {
		deps.Prompt = j.reader.CanaryTokens()
	}
	if deps.Dir, err = j.torchDir(); err != nil {
		return "", "", err
	}
	w, start, err := j.weightsOf(j.folder)
	began = start
	if err == nil && reference != nil {
		var of *model.Weights
		if of, began, err = j.weightsOf(reference); of != nil {
			of.Free() // the ranks read them from the folder
		}
		deps.Reference = reference.Dir
	}
	if err == nil && from != "" {
		j.state, err = trainer.ReadState(from)
		j.state.SetArithmetic(j.cfg.Identity())
		deps.Updates = j.state.Updates
	}
	if err != nil {
		return "", "", usage.Wrap(err)
	}
	r, err := ranks.StartTorch(ctx, j.cfg, &deps, w, j.dev)
	if err != nil {
		return "", "", err
	}
	if dtype := r.Ranks()[0].Ready.DType; j.reader != nil && dtype != j.cfg.Torch.DType { // otherwise read has warned
		if text := ranks.TorchTypeWarning(j.cfg, dtype); text != "" {
			j.warn("%s", text)
		}
	}
	j.models, j.torch, j.verification = r, r, r.Verification()
	j.atEnd(r.Close)
	return start, began, nil
}

// makeDir makes the run's folder for what the models write there, before the rest of the run does.
func (j *job) makeDir() error {
	if err := os.MkdirAll(j.cfg.Run.Dir, 0o755); err != nil {
		return unwritable(j.cfg.Run.Dir, err)
	}
	if j.claimed == nil { // a temporary folder, which no other process may use
		return nil
	}
	return j.lock(j.cfg.Run.Dir, true)
}

// torchDir creates the folder that trainer and ranks share. A check, which changes nothing,
// gets a temporary one.
func (j *job) torchDir() (dir string, err error) {
	if j.checks {
		if dir, err = os.MkdirTemp("", "easyrl-torch-"); err == nil {
			j.atEnd(func() { _ = os.RemoveAll(dir) })
		}
		return dir, err
	}
	if err := j.makeDir(); err != nil {
		return "", err
	}
	dir, err = filepath.Abs(cmp.Or(j.cfg.Torch.Dir, filepath.Join(j.cfg.Run.Dir, "torch")))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", usage.Errorf("torch.dir: %w", err)
	}
	return dir, nil
}

// weightsOf returns the weights of a folder and their checksum. Those of a foreign decoder are
// nil.
func (j *job) weightsOf(f *folder.Folder) (w *model.Weights, sum string, err error) {
	if f.Foreign {
		sum, err = models.Checksum(f.Dir)
		return nil, sum, err
	}
	if w, err = startWeights(j.cfg, f, j.dev); err != nil {
		return nil, "", err
	}
	sum, err = w.Sum()
	return w, sum, err
}
