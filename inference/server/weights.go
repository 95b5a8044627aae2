package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/api"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
	"github.com/easyrl/easyrl/npu"
)

const (
	checksumHeader = "X-Checksum"
	updateTimeout  = 30 * time.Minute // limits the time of an update
	updateStall    = time.Minute      // limits the time in which a client sends nothing during an update
	updateWait     = 20 * time.Second // limits the wait for the previous update, whose client may have left
)

// weights answers requests that publish weights or reserve the server for a trainer.
type weights struct {
	ctx      context.Context // ends with the server
	backend  Backend
	bodies   *bodies
	served   *counters
	boot     string        // random; identifies this process
	lease    lease         // held by the trainer whose weights are accepted
	updating chan struct{} // semaphore of size 1, so that waiting can time out; full while an update runs
}

// weightsHeld describes the current weights and the server that holds them.
type weightsHeld struct {
	Version  int64  `json:"version"`
	Checksum string `json:"checksum"`
	Config   string `json:"config,omitempty"`
	Boot     string `json:"boot,omitempty"`
	Capacity int    `json:"capacity,omitempty"`
	Cores    int    `json:"cores,omitempty"`   // number of cores that sample
	Trainer  string `json:"trainer,omitempty"` // name of the lease's holder
	Layout   string `json:"layout,omitempty"`
	// Simulated means that nothing is computed with the weights.
	Simulated bool `json:"simulated,omitempty"`
	// Numerics and NumericsVersion are the arithmetic of the server.
	Numerics        string `json:"numerics,omitempty"`
	NumericsVersion int    `json:"numerics_version,omitempty"`
}

// update reads new weights from the body, or from a file that a client on the same machine names.
func (w *weights) update(ctx *fasthttp.RequestCtx) error {
	args := ctx.QueryArgs()
	version, err := strconv.ParseInt(string(args.Peek("version")), 10, 64)
	if err != nil || version < 1 {
		return api.Invalid("version", "version %.40q, expected an integer of at least 1", args.Peek("version"))
	}
	if err := w.checkNumerics(args); err != nil {
		return err
	}
	if err := w.lockUpdates(); err != nil {
		return err
	}
	defer w.unlockUpdates()
	if err := w.lease.check(string(args.Peek("trainer")), time.Now()); err != nil {
		return otherTrainerFailure(err)
	}
	deadline := time.Now().Add(updateTimeout)
	updateCtx, cancel := context.WithDeadline(w.ctx, deadline)
	defer cancel()
	start := time.Now()
	var checksum string
	if args.Has("path") {
		checksum, err = w.updateFile(updateCtx, ctx, version, string(args.Peek("path")))
	} else {
		checksum, err = w.updateStream(updateCtx, ctx, version, deadline)
	}
	if err != nil {
		return err
	}
	w.served.update(time.Since(start))
	info := w.backend.Info()
	writeJSON(ctx, fasthttp.StatusOK, weightsHeld{Version: version, Checksum: checksum, Config: info.Config,
		Simulated: info.Simulated, Numerics: info.Numerics.Name, NumericsVersion: info.Numerics.Version})
	return nil
}

// checkNumerics refuses the weights of a trainer that computes with other numerics than the backend. Weights that
// name none, such as those of a model folder, may be of any.
func (w *weights) checkNumerics(args *fasthttp.Args) error {
	own := w.backend.Info().Numerics
	if !args.Has("numerics") || own == (npu.Identity{}) {
		return nil
	}
	const key = "numerics_version"
	version, err := strconv.Atoi(string(args.Peek(key)))
	if err != nil {
		return api.Invalid(key, "numerics_version %.40q, expected an integer", args.Peek(key))
	}
	if got := (npu.Identity{Name: string(args.Peek("numerics")), Version: version}); got != own {
		return &api.Failure{Status: fasthttp.StatusConflict, Kind: "other_numerics", Code: "other_numerics",
			Message: fmt.Sprintf("the weights are of a trainer that computes in %.60q, expected %q, as this server",
				got, own)}
	}
	return nil
}

// lockUpdates waits until no other update runs. It fails with a 409 after updateWait, or with the cause of
// w.ctx. Otherwise the caller must call unlockUpdates.
func (w *weights) lockUpdates() error {
	late := time.NewTimer(updateWait)
	defer late.Stop()
	select {
	case w.updating <- struct{}{}:
		return nil
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	case <-late.C:
		return &api.Failure{Status: fasthttp.StatusConflict, Kind: "update_in_progress", Code: "update_in_progress",
			Retry: true, Message: "another update is in progress"}
	}
}

// unlockUpdates lets the next update run.
func (w *weights) unlockUpdates() { <-w.updating }

// updateFile reads new weights from the file at path and returns their checksum.
func (w *weights) updateFile(
	updateCtx context.Context, ctx *fasthttp.RequestCtx, version int64, path string,
) (string, error) {
	if !ctx.RemoteIP().IsLoopback() {
		return "", &api.Failure{Status: fasthttp.StatusForbidden, Kind: api.InvalidRequest, Param: "path",
			Message: "path is allowed only for clients on this machine; send the weights in the request body"}
	}
	if !filepath.IsAbs(path) {
		return "", api.Invalid("path", "path %.200q, expected an absolute path", path)
	}
	watched, stop := updateCtx, func() {}
	// A connection with a body cannot be watched, because Watch would read from the body.
	if c, ok := ctx.Conn().(*wire.Conn); ok && ctx.Request.Header.ContentLength() <= 0 {
		watched, stop = c.Watch(updateCtx)
	}
	defer stop()
	checksum, err := w.backend.UpdateFile(watched, version, path)
	if errors.Is(err, inference.ErrInvalid) { // the same answer for all paths, so as not to reveal which exist
		return "", api.Invalid("path",
			"path is not a file with weights of this model; send the weights in the request body")
	}
	if err != nil {
		return "", fmt.Errorf("update to version %d: %w", version, err)
	}
	return checksum, nil
}

// updateStream reads new weights from the body and returns their checksum.
func (w *weights) updateStream(
	updateCtx context.Context, ctx *fasthttp.RequestCtx, version int64, deadline time.Time,
) (string, error) {
	size := int64(ctx.Request.Header.ContentLength())
	if !ctx.Request.IsBodyStream() || size == 0 {
		return "", api.Invalid("", "no body, expected a safetensors file")
	}
	want := func() string {
		if query := ctx.QueryArgs().Peek(checksumHeader); len(query) > 0 {
			return string(query)
		}
		return string(ctx.Request.Header.Peek(checksumHeader)) // a trailer arrives after the body
	}
	if size > 0 && want() == "" {
		// No checksum was sent, and none can follow in a trailer. easyrl's own files have one in their metadata.
		want = nil
	}
	body := &wire.Checked{Source: wire.RequestBody(ctx), Size: max(size, -1), Want: want, Before: func() error {
		next := time.Now().Add(updateStall)
		if deadline.Before(next) {
			next = deadline
		}
		return errors.Join(context.Cause(updateCtx), ctx.Conn().SetReadDeadline(next))
	}}
	checksum, err := w.backend.Update(updateCtx, version, body, body.Size)
	switch {
	case errors.Is(body.Err(), wire.ErrChecksum): // before err, which is a consequence of it
		f := api.Invalid(checksumHeader, "update to version %d: %v", version, body.Err())
		f.Code = "checksum_mismatch"
		return "", f
	case body.Err() != nil && !errors.Is(body.Err(), io.EOF):
		return "", api.Invalid("", "update to version %d: %v", version, body.Err())
	case err != nil:
		return "", fmt.Errorf("update to version %d: %w", version, err)
	case body.Err() == nil:
		return "", fmt.Errorf("update to version %d: backend did not read the whole body", version)
	}
	return checksum, nil
}

// held answers with the current weights and the process that serves them.
func (w *weights) held(ctx *fasthttp.RequestCtx) error {
	version, checksum := w.backend.Held()
	info := w.backend.Info()
	writeJSON(ctx, fasthttp.StatusOK, weightsHeld{Version: version, Checksum: checksum, Config: info.Config,
		Boot: w.boot, Capacity: w.backend.Capacity(), Cores: info.Cores, Trainer: w.lease.holder(time.Now()),
		Layout: info.Layout, Simulated: info.Simulated, Numerics: info.Numerics.Name,
		NumericsVersion: info.Numerics.Version})
	return nil
}

// take reserves the server for a trainer or renews the reservation. The server then refuses weights
// from other trainers. With "try" in the body, take only checks whether this trainer could reserve it.
func (w *weights) take(ctx *fasthttp.RequestCtx) error {
	data, release, err := w.bodies.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	r, err := api.DecodeTrainer(data)
	if err != nil {
		return err
	}
	if r.Try {
		err = w.lease.check(r.ID, time.Now())
	} else {
		err = w.lease.take(r.ID, r.Name, time.Now())
	}
	if err != nil {
		return otherTrainerFailure(err)
	}
	writeJSON(ctx, fasthttp.StatusOK, struct{}{})
	return nil
}

// free ends a trainer's reservation of the server.
func (w *weights) free(ctx *fasthttp.RequestCtx) error {
	w.lease.free(string(ctx.QueryArgs().Peek("id")))
	writeJSON(ctx, fasthttp.StatusOK, struct{}{})
	return nil
}

// otherTrainerFailure returns err, an error of the lease, as a 409.
func otherTrainerFailure(err error) error {
	return &api.Failure{Status: fasthttp.StatusConflict, Kind: "other_trainer", Code: "other_trainer",
		Message: err.Error()}
}
