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
	// renewInterval is the time between renewals of a claim. An easyrl server ends a claim after a
	// minute without renewal.
	renewInterval = 15 * time.Second
	// releaseTimeout limits the call that releases the server.
	releaseTimeout = 2 * time.Second
)

// Trainer identifies a publisher to an easyrl server, which accepts the weights of one at
// a time.
type Trainer struct {
	ID   string // does not change when the run restarts; empty means no trainer
	Name string // for people to read
}

// Claim implements Server. It does nothing, because most kinds accept any number of trainers.
func (*client) Claim(context.Context) error { return nil }

// Claim implements Server. It starts a goroutine that renews the claim until Close.
func (e *easyrl) Claim(ctx context.Context) error {
	if e.cfg.Trainer.ID == "" || e.stop != nil {
		return nil
	}
	if err := e.renewClaim(ctx); err != nil {
		return fmt.Errorf("instance %s: %w", e.url, publish.ServerError(err))
	}
	renewing, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.renewals.Go(func() {
		tick := time.NewTicker(renewInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = e.renewClaim(renewing) // the next publish reports a conflict
			case <-renewing.Done():
				return
			}
		}
	})
	return nil
}

// checkClaim returns an error if the server would refuse a claim of the trainer. It does not claim it.
func (e *easyrl) checkClaim(ctx context.Context) error {
	t := &e.cfg.Trainer
	if t.ID == "" {
		return nil
	}
	return e.http.Post(ctx, "/v1/trainer", map[string]any{"id": t.ID, "name": t.Name, "try": true}, nil)
}

// renewClaim claims the server for the trainer, or renews the claim.
func (e *easyrl) renewClaim(ctx context.Context) error {
	t := &e.cfg.Trainer
	err := e.http.Post(ctx, "/v1/trainer", map[string]any{"id": t.ID, "name": t.Name}, nil)
	if err == nil || ctx.Err() == nil { // a cancelled call proves nothing
		e.claimed.Store(err == nil)
	}
	return err
}

// Close ends all calls with inference.ErrClosed and releases the server for another
// trainer.
func (e *easyrl) Close() error {
	if e.stop != nil {
		e.stop()
		e.renewals.Wait()
	}
	if e.claimed.Load() && !e.http.Closed() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		// If the call fails, the claim ends by itself when it is not renewed.
		_ = e.http.Do(ctx, transport.Call{Method: http.MethodDelete,
			Path: "/v1/trainer?id=" + url.QueryEscape(e.cfg.Trainer.ID)}, nil)
	}
	return e.client.Close()
}
