package run

import (
	"context"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
)

// Sample runs one request on a temporary engine on a device of the given kind and numerics, with the given
// number of CPU threads, 0 for all.
func Sample(ctx context.Context, f *folder.Folder, kind, numerics string, threads int, req inference.Request) (
	[]inference.Completion, error) {
	dev, err := OpenDevice(kind, numerics, threads)
	if err != nil {
		return nil, err
	}
	defer dev.Close() //nolint:errcheck // only read from
	w, err := f.Weights(dev)
	if err != nil {
		return nil, err
	}
	// Size the cache for the request, not for the model's context. The inner min prevents an overflow.
	length := min(f.Shape.MaxPositions, len(req.PromptIDs)+min(req.Sampling.MaxTokens, f.Shape.MaxPositions))
	e, err := StartEngine(f, engine.Config{ID: "local", MaxRunning: min(req.N, 64), Context: length}, dev, threads)
	if err != nil {
		return nil, err
	}
	defer e.Close() //nolint:errcheck // the process's exit frees its memory
	if _, err := e.Publish(ctx, model.NewSnapshot(w, 1)); err != nil {
		return nil, err
	}
	return e.Generate(ctx, req)
}
