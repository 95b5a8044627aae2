package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/evaluate"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/page"
)

// heldSamples is how many prompts of a set have their answers kept.
const heldSamples = 4

// evaluateStep evaluates the weights after a step. The answers to the first
// prompts of each set are kept, so that they can be compared over the steps.
func (r *trainRun) evaluateStep(ctx context.Context, step int, sets []evaluate.Set, deps evaluate.Deps) (map[string]float64, float64, error) {
	var kept []*evaluate.Result
	deps.Done = func(result *evaluate.Result) {
		if result.Index < heldSamples {
			kept = append(kept, result)
		}
	}
	metrics, score, err := evaluate.Run(ctx, int64(step)+1, evalConfig(r.cfg, r.folder), sets, deps, nil)
	if errors.Is(err, evaluate.ErrFailed) { // counted in metrics: no reason to end a run
		r.warn("evaluate after step %d: left out: %v", step, err)
		score, err = math.NaN(), nil
	}
	if err == nil && r.cfg.Log.Rollouts {
		if err := keepHeld(filepath.Join(r.cfg.Run.Dir, page.HeldOut), step, kept); err != nil {
			r.warn("%v", err) // the run does not need them
		}
	}
	return metrics, score, err
}

// keepHeld writes results as one file of a folder, a line each in the order of the
// sets' names and the prompts.
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
			return fmt.Errorf("keep held-out answers: %w", err)
		}
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = report.ReplaceFile(filepath.Join(dir, fmt.Sprintf("step-%06d.jsonl", step)), lines.Bytes())
	}
	if err != nil {
		return fmt.Errorf("keep held-out answers: %w", err)
	}
	return nil
}
