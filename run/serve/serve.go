// Package serve runs an inference instance as a process: a model folder, or a
// simulation of one, over HTTP, in a trainer's fleet if asked to join.
package serve

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	api "github.com/easyrl/easyrl/inference/server"
	"github.com/easyrl/easyrl/inference/simulate"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/report/control/client"
)

// Config sets what Run serves.
type Config struct {
	Model      string // folder; empty for a simulation without a model
	Simulate   string // simulation spec; empty for a real model
	Device     string // kind of the device; see configs.Device
	Numerics   string // name of the numerics
	Threads    int
	MaxRunning int      // maximum number of responses sampled at once
	Join       *url.URL // control address of the trainer to join; nil for none
	Server     api.Config
	// Say receives messages for users.
	Say notice.Printer
}

// backend returns the backend and its tokenizer and chat template, nil if the model has no tokenizer. open loads
// the weights; call it before the backend serves.
func (c *Config) backend(ctx context.Context) (b api.Backend, text api.Text, open func() error, err error) {
	var f *folder.Folder
	name := "simulated"
	if c.Model != "" {
		if f, err = folder.Open(c.Model); err != nil {
			return nil, nil, nil, err
		}
		path, err := filepath.Abs(c.Model)
		if err != nil {
			return nil, nil, nil, usage.Wrap(err)
		}
		name = filepath.Base(path)
		if f.Tokenizer != nil {
			text = textOf{f}
		}
	}
	if c.Simulate != "" {
		var m *simulate.Model
		if f != nil {
			m = &simulate.Model{Dir: f.Dir, Vocab: f.Shape.VocabSize, Positions: f.Shape.MaxPositions}
			if f.Tokenizer != nil {
				m.Decode = f.Tokenizer.Decode
			}
		}
		b, err := simulate.NewBackend(c.Simulate, name, m)
		if err != nil {
			return nil, nil, nil, usage.Errorf("-simulate: %w", usage.OneLine(err))
		}
		return b, text, func() error { return nil }, nil
	}
	h := &hosted{}
	return h, text, func() error { return h.open(ctx, f, name, c) }, nil
}

// Run serves until ctx ends, then drains: it waits until running requests end or the
// drain timeout passes.
func Run(ctx context.Context, cfg Config) (err error) {
	served, text, open, err := cfg.backend(ctx)
	if err != nil {
		return err
	}
	srv, err := api.New(cfg.Server, served, text) // bind first, so that a bad address fails before weights load
	if err != nil {
		return usage.Wrap(usage.OneLine(err))
	}
	if err := open(); err != nil {
		return errors.Join(err, srv.Close())
	}
	defer func() { err = errors.Join(err, served.Close()) }()
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve() }()
	cfg.Say(notice.Progress, "serving %s at http://%s", served.ID(), srv.Addr())
	if cfg.Server.Insecure && cfg.Server.Token == "" {
		cfg.Say(notice.Warning, "anyone with access to %s can sample and replace the weights", srv.Addr())
	}
	m := cfg.enter(ctx, srv)
	select {
	case err = <-ended:
		m.leave()
		return errors.Join(err, srv.Close())
	case <-ctx.Done():
	}
	m.drain()
	cfg.Say(notice.Progress, "draining: waiting up to %s for %d requests to finish", short(cfg.Server.DrainTimeout),
		srv.Running())
	err = srv.Drain(context.Background())
	m.leave()
	return errors.Join(err, srv.Close(), <-ended)
}

// enter joins the trainer's fleet, if one is configured.
func (c *Config) enter(ctx context.Context, srv *api.Server) *registration {
	if c.Join == nil {
		return nil
	}
	return joinFleet(ctx, joinConfig{Trainer: c.Join, Call: client.New(c.Join.String(), c.Server.Token).Call,
		Addr:    srv.Addr(),
		Running: srv.Running, Say: c.Say})
}

// short formats a duration without trailing zero units.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
