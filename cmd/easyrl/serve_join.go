package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/report"
)

// membership is a served instance's place in a trainer's fleet. Of a nil
// *membership drain and leave do nothing.
type membership struct {
	trainer *url.URL
	client  *fleetClient
	addr    string     // that the server listens on
	running func() int // requests that the server has
	notes   printer
	pause   time.Duration // before the second try to join
	look    time.Duration // between looks at whether the trainer has the instance

	stop context.CancelFunc
	gone chan struct{} // closed when nobody changes what follows any more
	id   string        // that the trainer knows it by; empty before it does
	boot string        // of the trainer's process that it joined
}

const (
	joinTimeout  = 10 * time.Minute // for a trainer that sends weights before it answers
	leaveTimeout = 30 * time.Second
	longestPause = 30 * time.Second
	lookEvery    = 3 * time.Second
	arriveLook   = 50 * time.Millisecond // between looks at what is on its way
)

// begin joins, and stays a member until ctx ends or leave is called.
func (m *membership) begin(ctx context.Context) {
	ctx, m.stop = context.WithCancel(ctx)
	m.gone = make(chan struct{})
	go func() {
		defer close(m.gone)
		m.stay(ctx)
	}()
}

// stay joins the trainer, and joins again where one has started that does not
// know the instance. Whom somebody drained or took out of the fleet stays out.
func (m *membership) stay(ctx context.Context) {
	if !m.join(ctx) {
		return
	}
	tick := time.NewTicker(m.look)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		boot, self, err := m.seen(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if err.Error() != told {
				told = err.Error()
				m.notes.line("easyrl: look for %s: %s; looking on", m.trainer, told)
			}
			continue
		case self == nil && boot == m.boot:
			m.notes.line("easyrl: %s took the instance out: it does not join again", m.trainer)
			return
		case self == nil:
			if !m.join(ctx) {
				return
			}
		case self.State == inference.Draining.String():
			m.notes.line("easyrl: %s drains the instance: it does not join again", m.trainer)
			return
		default:
			m.boot = boot
		}
		told = ""
	}
}

// seen is what the trainer knows of the instance, nil for nothing, and the name
// of the trainer's process.
func (m *membership) seen(ctx context.Context) (boot string, self *report.Member, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	var answer struct {
		Boot      string          `json:"boot"`
		Instances []report.Member `json:"instances"`
	}
	if err := m.client.call(ctx, http.MethodGet, "/instances?id="+url.QueryEscape(m.id), nil, &answer); err != nil {
		return "", nil, err
	}
	if len(answer.Instances) > 0 {
		self = &answer.Instances[0]
	}
	return answer.Boot, self, nil
}

// join asks the trainer until it accepts, or ctx ends: then it reports false.
// The trainer may not have started yet, and may publish its weights first.
func (m *membership) join(ctx context.Context) bool {
	told := ""
	for pause := m.pause; ; pause = min(2*pause, longestPause) {
		err := m.try(ctx)
		if err == nil {
			m.notes.line("easyrl: joined %s as %s", m.trainer, m.id)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if err.Error() != told {
			told = err.Error()
			m.notes.line("easyrl: join: %s; trying on", told)
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

func (m *membership) try(ctx context.Context) error {
	own, err := m.url(ctx)
	if err != nil {
		return err
	}
	callCtx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	var answer struct {
		ID   string `json:"id"`
		Boot string `json:"boot"`
	}
	err = m.client.call(callCtx, http.MethodPost, "/instances", map[string]string{"url": own, "kind": "easyrl"}, &answer)
	switch {
	case err != nil && ctx.Err() != nil:
		m.id = own // its URL is its name: it may have been taken all the same
		return err
	case err != nil:
		return err
	case answer.ID == "":
		return fmt.Errorf("%s answers without an id, expected the instance", m.trainer)
	}
	m.id, m.boot = answer.ID, answer.Boot
	return nil
}

// drain asks the trainer for no more requests, and returns when those that it
// has sent are here. Those of others are taken meanwhile.
func (m *membership) drain() {
	if m == nil {
		return
	}
	m.stop()
	<-m.gone
	if m.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	self := &report.Member{}
	err := m.client.call(ctx, http.MethodPost, "/instances/"+url.PathEscape(m.id)+"/drain", nil, self)
	if err != nil {
		m.notes.line("easyrl: leave: %v", err) // the trainer is gone, or will see for itself
		m.id = ""
		return
	}
	tick := time.NewTicker(arriveLook)
	defer tick.Stop()
	for self != nil && self.Requests > m.running() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if _, self, err = m.seen(ctx); err != nil {
			return
		}
	}
}

// leave takes the instance out, if it is in.
func (m *membership) leave() {
	if m == nil {
		return
	}
	m.stop()
	<-m.gone
	if m.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := m.client.call(ctx, http.MethodDelete, "/instances/"+url.PathEscape(m.id), nil, nil); err != nil {
		m.notes.line("easyrl: leave: %v", err)
	}
}

// url is where the trainer reaches the instance: where it listens everywhere, the
// address of this machine that the way to the trainer begins at.
func (m *membership) url(ctx context.Context) (string, error) {
	host, port, err := net.SplitHostPort(m.addr)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		there := m.trainer.Host
		if m.trainer.Port() == "" {
			there = net.JoinHostPort(m.trainer.Hostname(), m.trainer.Scheme)
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
