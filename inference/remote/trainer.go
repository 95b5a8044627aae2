package remote

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/easyrl/easyrl/inference/remote/internal/transport"
	"github.com/easyrl/easyrl/inference/remote/publish"
)

const (
	// beat is the interval of calls to an easyrl server, which forgets a trainer after a
	// minute of silence.
	beat = 15 * time.Second
	// releaseTimeout limits the call that releases the server.
	releaseTimeout = 2 * time.Second
)

// Trainer identifies a publisher to an easyrl server, which accepts the weights of one at
// a time.
type Trainer struct {
	ID   string // stays the same when the run restarts; empty means none
	Name string // for people to read
}

// Claim implements Server.
func (*client) Claim(context.Context) error { return nil }

// Claim implements Server.
func (e *easyrl) Claim(ctx context.Context) error {
	if e.cfg.Trainer.ID == "" || e.stop != nil {
		return nil
	}
	if err := e.take(ctx); err != nil {
		return fmt.Errorf("instance %s: %w", e.url, publish.Fault(err))
	}
	beats, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.beats.Go(func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = e.take(beats) // the next publish reports a conflict
			case <-beats.Done():
				return
			}
		}
	})
	return nil
}

// try returns an error if the server would refuse the trainer. It claims nothing.
func (e *easyrl) try(ctx context.Context) error {
	t := &e.cfg.Trainer
	if t.ID == "" {
		return nil
	}
	return e.http.Post(ctx, "/v1/trainer", map[string]any{"id": t.ID, "name": t.Name, "try": true}, nil)
}

// take claims the server for the trainer, or renews the claim.
func (e *easyrl) take(ctx context.Context) error {
	t := &e.cfg.Trainer
	err := e.http.Post(ctx, "/v1/trainer", map[string]any{"id": t.ID, "name": t.Name}, nil)
	if err == nil || ctx.Err() == nil { // a cancelled call proves nothing
		e.heard.Store(err == nil)
	}
	return err
}

// Close ends all calls with inference.ErrClosed and releases the server for another
// trainer.
func (e *easyrl) Close() error {
	if e.stop != nil {
		e.stop()
		e.beats.Wait()
	}
	if e.heard.Load() && !e.http.Closed() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		// A server that this call does not reach forgets the trainer anyway.
		_ = e.http.Do(ctx, transport.Call{Method: http.MethodDelete,
			Path: "/v1/trainer?id=" + url.QueryEscape(e.cfg.Trainer.ID)}, nil)
	}
	return e.client.Close()
}
