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
	// beat is how often an easyrl server hears of its trainer. It forgets one that
	// it has not heard of for a minute.
	beat = 15 * time.Second
	// farewell is how long the last word may take.
	farewell = 2 * time.Second
)

// Trainer names who publishes to an easyrl server, which takes the weights of one
// at a time.
type Trainer struct {
	ID   string // the same when the run is started again; empty for nobody
	Name string // what people know it by
}

// hold makes the server the trainer's, until Close.
func (e *easyrl) hold(ctx context.Context) error {
	if e.cfg.Trainer.ID == "" {
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
				_ = e.take(beats) // who has it else, the next publish says
			case <-beats.Done():
				return
			}
		}
	})
	return nil
}

// take says that the trainer is there.
func (e *easyrl) take(ctx context.Context) error {
	err := e.http.Post(ctx, "/v1/trainer", map[string]string{"id": e.cfg.Trainer.ID, "name": e.cfg.Trainer.Name}, nil)
	if err == nil || ctx.Err() == nil { // a call that was broken off leaves it open
		e.heard.Store(err == nil)
	}
	return err
}

// Close ends all calls with inference.ErrClosed, and lets the server go to another
// trainer.
func (e *easyrl) Close() error {
	if e.stop != nil {
		e.stop()
		e.beats.Wait()
	}
	if e.heard.Load() && !e.http.Closed() {
		ctx, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		// A server that does not hear it forgets the trainer.
		_ = e.http.Do(ctx, transport.Call{Method: http.MethodDelete, Path: "/v1/trainer?id=" + url.QueryEscape(e.cfg.Trainer.ID)}, nil)
	}
	return e.client.Close()
}
