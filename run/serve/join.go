package serve

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
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/report/control"
)

// joinConfig names the trainer and the instance that joins it.
type joinConfig struct {
	Trainer *url.URL // control address
	// Call sends a request to the trainer, with in as its JSON body, and decodes the answer
	// into out. in and out may be nil.
	Call    func(ctx context.Context, method, path string, in, out any) error
	Addr    string     // address that the instance listens on
	Running func() int // number of requests that the instance is serving
	Say     notice.Printer

	pause, look time.Duration // 0 selects firstPause and lookEvery; tests set shorter ones
}

// registration is an instance's membership in a trainer's fleet: it joins at the trainer's
// control address, rejoins after the trainer restarts, and drains before it leaves. drain and
// leave do nothing on a nil *registration. A background goroutine owns id and boot until it closes done.
type registration struct {
	cfg  joinConfig
	stop context.CancelFunc
	done chan struct{}
	id   string // the trainer's name for the instance; empty before it joins
	boot string // identifies the trainer's process
}

const (
	joinTimeout  = 10 * time.Minute // the trainer sends weights before it answers
	callTimeout  = 30 * time.Second // for all other calls
	firstPause   = time.Second      // before the second attempt to join; doubles after each
	longestPause = 30 * time.Second
	lookEvery    = 3 * time.Second       // pause between checks that the trainer still has the instance
	arriveLook   = 50 * time.Millisecond // pause between checks that sent requests have arrived
)

// joinFleet joins in the background. The instance stays in the fleet until ctx ends or drain or
// leave is called.
func joinFleet(ctx context.Context, cfg joinConfig) *registration {
	cfg.pause, cfg.look = cmp.Or(cfg.pause, firstPause), cmp.Or(cfg.look, lookEvery)
	r := &registration{cfg: cfg, done: make(chan struct{})}
	ctx, r.stop = context.WithCancel(ctx)
	go func() {
		defer close(r.done)
		r.stay(ctx)
	}()
	return r
}

// stay joins the trainer and rejoins when a restarted trainer does not know the instance.
// An instance that a user drained or removed stays out.
func (r *registration) stay(ctx context.Context) {
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
				r.cfg.Say(notice.Warning, "lost contact with %s: %s; retrying", r.cfg.Trainer, lastNote)
			}
			continue
		case self == nil && boot == r.boot:
			r.cfg.Say(notice.Warning, "%s removed the instance; it will not rejoin", r.cfg.Trainer)
			return
		case self == nil:
			if !r.join(ctx) {
				return
			}
		case self.State == fleet.Draining.String() || self.State == fleet.Drained:
			r.cfg.Say(notice.Warning, "%s is draining the instance; it will not rejoin", r.cfg.Trainer)
			return
		default:
			r.boot = boot
		}
		lastNote = ""
	}
}

// seen returns the trainer's record of the instance, or nil, and the ID of the trainer's
// process. boot is empty if the trainer evicted the instance, which may then join as a new
// one. boot is r.boot if a user removed the instance, even under an earlier process, so
// that it does not rejoin.
func (r *registration) seen(ctx context.Context) (boot string, self *control.Instance, err error) {
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

// join retries until the trainer accepts the instance and returns false if ctx ends first.
// The trainer may not have started yet, and may publish its weights before it answers.
func (r *registration) join(ctx context.Context) bool {
	lastNote := ""
	for pause := r.cfg.pause; ; pause = min(2*pause, longestPause) {
		err := r.try(ctx)
		if err == nil {
			r.cfg.Say(notice.Progress, "joined %s as %s", r.cfg.Trainer, r.id)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if err.Error() != lastNote {
			lastNote = err.Error()
			r.cfg.Say(notice.Warning, "join: %s; retrying", lastNote)
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

// try makes one attempt to join and sets id and boot.
func (r *registration) try(ctx context.Context) error {
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
		r.id = own // its URL is its ID; the trainer may have added it despite the error
		return err
	case err != nil:
		return err
	case answer.ID == "":
		return fmt.Errorf("%s returned no instance id", r.cfg.Trainer)
	}
	r.id, r.boot = answer.ID, answer.Boot
	return nil
}

// stopRejoining stops the background goroutine and reports whether the instance may be in the trainer's fleet.
func (r *registration) stopRejoining() bool {
	if r == nil {
		return false
	}
	r.stop()
	<-r.done
	return r.id != ""
}

// drain makes the trainer stop sending requests and returns when those already sent have
// arrived. Meanwhile the instance still serves other callers.
func (r *registration) drain() {
	if !r.stopRejoining() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	self := &control.Instance{}
	err := r.cfg.Call(ctx, http.MethodPost, "/instances/"+url.PathEscape(r.id)+"/drain", nil, self)
	if err != nil {
		r.cfg.Say(notice.Warning, "leave: %v", err) // the trainer has exited, or will notice
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

// leave removes the instance from the fleet if it has joined.
func (r *registration) leave() {
	if !r.stopRejoining() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := r.cfg.Call(ctx, http.MethodDelete, "/instances/"+url.PathEscape(r.id), nil, nil); err != nil {
		r.cfg.Say(notice.Warning, "leave: %v", err)
	}
}

// url returns the URL at which the trainer reaches the instance. If the instance listens on
// all addresses, the host is the local address of the route to the trainer.
func (r *registration) url(ctx context.Context) (string, error) {
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
		c, err := d.DialContext(ctx, "udp", there) // a UDP dial sends nothing
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
