// Package join keeps a served instance in a trainer's fleet: it joins at the
// trainer's control address, joins again when the trainer was started again
// without it, and leaves in order.
package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/report/control"
)

// Config says who joins whom.
type Config struct {
	Trainer *url.URL // its control address
	// Call asks the trainer for method and path with in as its body, and reads
	// the answer into out; both may be nil.
	Call    func(ctx context.Context, method, path string, in, out any) error
	Addr    string     // that the instance listens on
	Running func() int // requests that the instance has
	Note    func(format string, args ...any)

	pause, look time.Duration // of tests
}

// Registration is an instance's place in a fleet. Of a nil *Registration Drain and Leave do
// nothing.
type Registration struct {
	cfg  Config
	stop context.CancelFunc
	done chan struct{} // closed when nobody changes what follows any more
	id   string        // that the trainer knows it by; empty before it does
	boot string        // of the trainer's process that it joined
}

const (
	joinTimeout  = 10 * time.Minute // for a trainer that sends weights before it answers
	callTimeout  = 30 * time.Second // for all else
	firstPause   = time.Second      // before the second try to join; each further one is twice as long
	longestPause = 30 * time.Second
	lookEvery    = 3 * time.Second       // at whether the trainer has the instance
	arriveLook   = 50 * time.Millisecond // at what is on its way
)

// Begin joins, and the instance stays a member until ctx ends, Drain or Leave.
func Begin(ctx context.Context, cfg Config) *Registration {
	cfg.pause, cfg.look = cmp.Or(cfg.pause, firstPause), cmp.Or(cfg.look, lookEvery)
	r := &Registration{cfg: cfg, done: make(chan struct{})}
	ctx, r.stop = context.WithCancel(ctx)
	go func() {
		defer close(r.done)
		r.stay(ctx)
	}()
	return r
}

// stay joins the trainer, and joins again where one has started that does not
// know the instance. Whom somebody drained or took out of the fleet stays out.
func (r *Registration) stay(ctx context.Context) {
	if !r.join(ctx) {
		return
	}
	tick := time.NewTicker(r.cfg.look)
	defer tick.Stop()
	lastNote := ""
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		boot, self, err := r.seen(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if err.Error() != lastNote {
				lastNote = err.Error()
				r.cfg.Note("look for %s: %s; looking on", r.cfg.Trainer, lastNote)
			}
			continue
		case self == nil && boot == r.boot:
			r.cfg.Note("%s took the instance out: it does not join again", r.cfg.Trainer)
			return
		case self == nil:
			if !r.join(ctx) {
				return
			}
		case self.State == fleet.Draining.String():
			r.cfg.Note("%s drains the instance: it does not join again", r.cfg.Trainer)
			return
		default:
			r.boot = boot
		}
		lastNote = ""
	}
}

// seen is what the trainer knows of the instance, nil for nothing, and the name
// of the trainer's process: none where it has given the instance up, which may
// join it as it would another, and the one that it joined where somebody took it
// out, be it in a process before.
func (r *Registration) seen(ctx context.Context) (boot string, self *control.Instance, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var answer struct {
		Boot      string             `json:"boot"`
		GivenUp   bool               `json:"given_up"`
		TakenOut  bool               `json:"taken_out"`
		Instances []control.Instance `json:"instances"`
	}
	if err := r.cfg.Call(ctx, http.MethodGet, "/instances?id="+url.QueryEscape(r.id), nil, &answer); err != nil {
		return "", nil, err
	}
	if len(answer.Instances) > 0 {
		self = &answer.Instances[0]
	}
	switch {
	case answer.GivenUp && self == nil:
		answer.Boot = ""
	case answer.TakenOut:
		answer.Boot = r.boot
	}
	return answer.Boot, self, nil
}

// join asks the trainer until it accepts, or ctx ends: then it reports false.
// The trainer may not have started yet, and may publish its weights first.
func (r *Registration) join(ctx context.Context) bool {
	lastNote := ""
	for pause := r.cfg.pause; ; pause = min(2*pause, longestPause) {
		err := r.try(ctx)
		if err == nil {
			r.cfg.Note("joined %s as %s", r.cfg.Trainer, r.id)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if err.Error() != lastNote {
			lastNote = err.Error()
			r.cfg.Note("join: %s; trying on", lastNote)
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return false
		}
	}
}

func (r *Registration) try(ctx context.Context) error {
	own, err := r.url(ctx)
	if err != nil {
		return err
	}
	callCtx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	var answer struct {
		ID   string `json:"id"`
		Boot string `json:"boot"`
	}
	err = r.cfg.Call(callCtx, http.MethodPost, "/instances", map[string]string{"url": own, "kind": "easyrl"}, &answer)
	switch {
	case err != nil && ctx.Err() != nil:
		r.id = own // its URL is its name: it may have been taken all the same
		return err
	case err != nil:
		return err
	case answer.ID == "":
		return fmt.Errorf("%s answers without an id, expected the instance", r.cfg.Trainer)
	}
	r.id, r.boot = answer.ID, answer.Boot
	return nil
}

// stopped stops looking after the trainer and reports whether it has the instance.
func (r *Registration) stopped() bool {
	if r == nil {
		return false
	}
	r.stop()
	<-r.done
	return r.id != ""
}

// Drain asks the trainer for no more requests, and returns when those that it
// has sent are here. Those of others are taken meanwhile.
func (r *Registration) Drain() {
	if !r.stopped() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	self := &control.Instance{}
	err := r.cfg.Call(ctx, http.MethodPost, "/instances/"+url.PathEscape(r.id)+"/drain", nil, self)
	if err != nil {
		r.cfg.Note("leave: %v", err) // the trainer is gone, or will see for itself
		r.id = ""
		return
	}
	tick := time.NewTicker(arriveLook)
	defer tick.Stop()
	for self != nil && self.Requests > r.cfg.Running() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if _, self, err = r.seen(ctx); err != nil {
			return
		}
	}
}

// Leave takes the instance out, if it is in.
func (r *Registration) Leave() {
	if !r.stopped() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := r.cfg.Call(ctx, http.MethodDelete, "/instances/"+url.PathEscape(r.id), nil, nil); err != nil {
		r.cfg.Note("leave: %v", err)
	}
}

// url is where the trainer reaches the instance: where it listens everywhere, the
// address of this machine that the way to the trainer begins at.
func (r *Registration) url(ctx context.Context) (string, error) {
	host, port, err := net.SplitHostPort(r.cfg.Addr)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		there := r.cfg.Trainer.Host
		if r.cfg.Trainer.Port() == "" {
			there = net.JoinHostPort(r.cfg.Trainer.Hostname(), r.cfg.Trainer.Scheme)
		}
		var d net.Dialer
		c, err := d.DialContext(ctx, "udp", there) // sends nothing
		if err != nil {
			return "", err
		}
		host, _, err = net.SplitHostPort(c.LocalAddr().String())
		if err := errors.Join(err, c.Close()); err != nil {
			return "", err
		}
	}
	return "http://" + net.JoinHostPort(host, port), nil
}
