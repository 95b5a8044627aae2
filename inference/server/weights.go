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

	"github.com/easyrl/easyrl/inference/server/internal/fields"
	"github.com/easyrl/easyrl/inference/server/internal/lease"
	"github.com/easyrl/easyrl/inference/server/internal/reply"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

const (
	checksumHeader = "X-Checksum"
	updateTimeout  = 30 * time.Minute // for an update of the weights
	updateStall    = time.Minute      // for a client to send some bytes of it
	updateTurn     = 20 * time.Second // for the update before it, whose client may have gone, to end
	longestName    = 4 << 10          // of a trainer, in bytes
)

// weights answers the calls that publish weights and say whose they are.
type weights struct {
	ctx      context.Context // the server's
	backend  Backend
	bodies   *bodies
	served   *counters
	boot     string        // names this process
	lease    lease.Lease   // of the trainer whose weights are taken
	updating chan struct{} // one for the update that runs
}

// update takes new weights from the body, or from a file of this machine for a
// client that is on it too.
func (w *weights) update(ctx *fasthttp.RequestCtx) error {
	args := ctx.QueryArgs()
	version, err := strconv.ParseInt(string(args.Peek("version")), 10, 64)
	if err != nil || version < 1 {
		return reply.Invalid("version", "version %.40q, expected an integer of at least 1", args.Peek("version"))
	}
	if err := w.turn(); err != nil {
		return err
	}
	defer func() { <-w.updating }()
	if err := w.lease.Check(string(args.Peek("trainer")), time.Now()); err != nil {
		return othersTrainer(err)
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
	reply.JSON(ctx, fasthttp.StatusOK, holding{Version: version, Checksum: checksum, Config: w.backend.Info().Config})
	return nil
}

// turn waits for the update that runs. Whose turn it is takes w.updating's token back.
func (w *weights) turn() error {
	late := time.NewTimer(updateTurn)
	defer late.Stop()
	select {
	case w.updating <- struct{}{}:
		return nil
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	case <-late.C:
		return &reply.Failure{Status: fasthttp.StatusConflict, Kind: "update_in_progress", Code: "update_in_progress", Retry: true,
			Message: "other weights are being read, expected one update at a time"}
	}
}

func (w *weights) updateFile(updateCtx context.Context, ctx *fasthttp.RequestCtx, version int64, path string) (string, error) {
	if !ctx.RemoteIP().IsLoopback() {
		return "", &reply.Failure{Status: fasthttp.StatusForbidden, Kind: reply.InvalidRequest, Param: "path",
			Message: "a path is taken from clients on this machine only, expected the weights as body"}
	}
	if !filepath.IsAbs(path) {
		return "", reply.Invalid("path", "path %.200q, expected an absolute one", path)
	}
	watched, stop := updateCtx, func() {}
	if c, ok := ctx.Conn().(*wire.Conn); ok && ctx.Request.Header.ContentLength() <= 0 {
		watched, stop = c.Watch(updateCtx)
	}
	defer stop()
	checksum, err := w.backend.UpdateFile(watched, version, path)
	if err != nil {
		return "", fmt.Errorf("update to version %d: %w", version, err)
	}
	return checksum, nil
}

func (w *weights) updateStream(updateCtx context.Context, ctx *fasthttp.RequestCtx, version int64, deadline time.Time) (string, error) {
	size := int64(ctx.Request.Header.ContentLength())
	if !ctx.Request.IsBodyStream() || size == 0 {
		return "", reply.Invalid("", "no body, expected a safetensors file")
	}
	want := func() string {
		if query := ctx.QueryArgs().Peek(checksumHeader); len(query) > 0 {
			return string(query)
		}
		return string(ctx.Request.Header.Peek(checksumHeader)) // a trailer is there when the body has ended
	}
	if size > 0 && want() == "" {
		want = nil // no trailer follows a body of known length; a published file carries a checksum of its own
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
	case errors.Is(body.Err(), wire.ErrChecksum): // whatever the backend made of it
		f := reply.Invalid(checksumHeader, "update to version %d: %v", version, body.Err())
		f.Code = "checksum_mismatch"
		return "", f
	case body.Err() != nil && !errors.Is(body.Err(), io.EOF):
		return "", reply.Invalid("", "update to version %d: %v", version, body.Err())
	case err != nil:
		return "", fmt.Errorf("update to version %d: %w", version, err)
	case body.Err() == nil:
		return "", fmt.Errorf("update to version %d: the backend did not read all of the body", version)
	}
	return checksum, nil
}

// holding is which weights serve, and what of.
type holding struct {
	Version  int64  `json:"version"`
	Checksum string `json:"checksum"`
	Config   string `json:"config,omitempty"`
	Boot     string `json:"boot,omitempty"`
	Capacity int    `json:"capacity,omitempty"`
	Trainer  string `json:"trainer,omitempty"` // whose weights are taken
	Layout   string `json:"layout,omitempty"`
}

// held tells which weights serve, and which process it is that says so.
func (w *weights) held(ctx *fasthttp.RequestCtx) error {
	version, checksum := w.backend.Held()
	info := w.backend.Info()
	reply.JSON(ctx, fasthttp.StatusOK, holding{Version: version, Checksum: checksum, Config: info.Config,
		Boot: w.boot, Capacity: w.backend.Capacity(), Trainer: w.lease.Holder(time.Now()), Layout: info.Layout})
	return nil
}

// take makes the server a trainer's, or keeps it so: it takes weights of no other.
func (w *weights) take(ctx *fasthttp.RequestCtx) error {
	data, release, err := w.bodies.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	var id, name string
	if err := fields.Decode(data, []fields.Field{fields.To("id", &id, "a string"), fields.To("name", &name, "a string")}); err != nil {
		return err
	}
	switch {
	case id == "":
		return reply.Invalid("id", "no id, expected what tells the trainer from others")
	case len(id) > longestName || len(name) > longestName: // both are kept
		return reply.Invalid("", "id of %d bytes and name of %d, expected at most %d", len(id), len(name), longestName)
	}
	if err := w.lease.Take(id, name, time.Now()); err != nil {
		return othersTrainer(err)
	}
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{})
	return nil
}

// free ends what take began.
func (w *weights) free(ctx *fasthttp.RequestCtx) error {
	w.lease.Free(string(ctx.QueryArgs().Peek("id")))
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{})
	return nil
}

func othersTrainer(err error) error {
	return &reply.Failure{Status: fasthttp.StatusConflict, Kind: "other_trainer", Code: "other_trainer", Message: err.Error()}
}
