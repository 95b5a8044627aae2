package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// membership is a served instance's place in a trainer's fleet.
type membership struct {
	trainer *url.URL
	client  *fleetClient
	addr    string // that the server listens on
	notes   printer
	pause   time.Duration // before the second try

	id string // that the trainer knows it by; empty before it does
}

const (
	joinTimeout  = 10 * time.Minute // for a trainer that sends weights before it answers
	leaveTimeout = 30 * time.Second
	longestPause = 30 * time.Second
)

// join asks the trainer until it accepts or ctx ends. The trainer may not have
// started yet, and may publish its weights first.
func (m *membership) join(ctx context.Context) {
	told := ""
	for pause := m.pause; ; pause = min(2*pause, longestPause) {
		err := m.try(ctx)
		if err == nil {
			m.notes.line("easyrl: joined %s as %s", m.trainer, m.id)
			return
		}
		if ctx.Err() != nil {
			return
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
			return
		}
	}
}

func (m *membership) try(ctx context.Context) error {
	own, err := m.url(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	var answer struct {
		ID string `json:"id"`
	}
	if err := m.client.call(ctx, http.MethodPost, "/instances", map[string]string{"url": own, "kind": "easyrl"}, &answer); err != nil {
		return err
	}
	if answer.ID == "" {
		return fmt.Errorf("%s answers without an id, expected the instance", m.trainer)
	}
	m.id = answer.ID
	return nil
}

// leave takes the instance out, if it is in.
func (m *membership) leave() error {
	if m.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := m.client.call(ctx, http.MethodDelete, "/instances/"+url.PathEscape(m.id), nil, nil); err != nil {
		m.notes.line("easyrl: leave: %v", err) // the trainer is gone, or will see for itself
	}
	return nil
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
