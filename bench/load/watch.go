package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// slack is how many more goroutines an idle server may have than before: the runtime
// starts and stops some.
const slack = 8

// look is a sample of the server's metrics.
type look struct {
	at         time.Duration // since the load began
	running    float64       // running and waiting responses
	cache      float64       // share of cache pages in use
	goroutines float64
	memory     float64 // resident, MiB
	version    float64
}

func (k look) String() string {
	return fmt.Sprintf("%6.0f goroutines, %7.1f MiB resident, %5.1f%% of the cache in use, %6.0f responses running or waiting, version %.0f",
		k.goroutines, k.memory, 100*k.cache, k.running, k.version)
}

// mostMemory returns the limit for a later idle server, in MiB.
func (k look) mostMemory() float64 { return 1.15*k.memory + 16 }

// look reads /metrics.
func (s *server) look(ctx context.Context) (look, error) {
	req, err := s.request(ctx, http.MethodGet, "/metrics", http.NoBody)
	if err != nil {
		return look{}, err
	}
	res, err := s.client.Do(req)
	if err != nil {
		return look{}, fmt.Errorf("check the server: %w", err)
	}
	defer res.Body.Close() //nolint:errcheck // already read
	values := map[string]float64{}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			values[name] = v
		}
	}
	if err := lines.Err(); err != nil || res.StatusCode != http.StatusOK {
		return look{}, errors.Join(fmt.Errorf("check the server: status %d", res.StatusCode), err)
	}
	for _, name := range []string{"vllm:num_requests_running", "vllm:kv_cache_usage_perc", "go_goroutines", "process_resident_memory_bytes"} {
		if _, ok := values[name]; !ok {
			return look{}, fmt.Errorf("check the server: /metrics has no %s", name)
		}
	}
	return look{running: values["vllm:num_requests_running"] + values["vllm:num_requests_waiting"], cache: values["vllm:kv_cache_usage_perc"],
		goroutines: values["go_goroutines"], memory: values["process_resident_memory_bytes"] / (1 << 20), version: values["easyrl:weight_version"]}, nil
}

// watch samples the server until ctx ends.
func (l *load) watch(ctx context.Context) error {
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		k, err := l.server.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		k.at = time.Since(l.began)
		l.looks = append(l.looks, k)
		fmt.Printf("%6.0f s: %v\n", k.at.Seconds(), k)
	}
}

// settle waits until the server is idle. If before is set, it also waits until the
// server has released what it took since, for at most five minutes: Go returns memory
// at its next collection, which runs at least every two minutes.
func (l *load) settle(ctx context.Context, before *look) (look, error) {
	patience := 30 * time.Second
	if before != nil {
		patience = 5 * time.Minute
	}
	deadline := time.Now().Add(patience)
	for {
		l.server.client.CloseIdleConnections()
		k, err := l.server.look(ctx)
		if err != nil {
			return k, err
		}
		idle := k.running == 0 && k.cache == 0
		if before != nil {
			idle = idle && k.goroutines <= before.goroutines+slack && k.memory <= before.mostMemory()
		} else {
			idle = idle && k.goroutines < 50
		}
		if idle || time.Now().After(deadline) {
			if before != nil {
				fmt.Printf("idle after %v: %v\n", (patience - time.Until(deadline)).Round(time.Second), k)
			}
			return k, nil
		}
		select {
		case <-ctx.Done():
			return k, context.Cause(ctx)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// halves returns the peak memory in the first and in the second half of the load. ok is
// false if there are too few samples.
func (l *load) halves() (early, late float64, ok bool) {
	n := len(l.looks) / 2
	for i, k := range l.looks {
		if i < n {
			early = max(early, k.memory)
		} else {
			late = max(late, k.memory)
		}
	}
	return early, late, n >= 2
}

// put uploads weights, with a checksum if one is given.
func (s *server) put(ctx context.Context, version int64, checksum string, data []byte) error {
	req, err := s.request(ctx, http.MethodPut, fmt.Sprintf("/v1/weights?version=%d", version), bytes.NewReader(data))
	if err != nil {
		return err
	}
	if checksum != "" {
		req.Header.Set("X-Checksum", checksum)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("put weights: %w", err)
	}
	defer res.Body.Close() //nolint:errcheck // already read
	return each(res, func(data []byte) error {
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("put weights: status %d: %.200q", res.StatusCode, data)
		}
		if e.Error != nil {
			return refused(res, e.Error.Type, e.Error.Message)
		}
		return nil
	})
}

// update alternates the weights until ctx ends. Each good update is followed by one
// with a wrong checksum, which must change nothing.
func (l *load) update(ctx context.Context) {
	tick := time.NewTicker(l.pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.version++
		data := l.server.weights[l.version&1]
		switch err := l.server.put(ctx, l.version, "", data); {
		case ctx.Err() != nil:
			l.version++ // may have arrived or not; skip it, so that the next version has the other weights
			return
		case err != nil:
			l.tally.fault("update", err)
		default:
			l.tally.count("update", "200")
		}
		var no *refusal
		switch err := l.server.put(ctx, l.version+1, "0123456789abcdef", data); {
		case ctx.Err() != nil:
			return
		case errors.As(err, &no) && no.status == http.StatusBadRequest:
			l.tally.count("update, wrong checksum", no.Error())
		default:
			l.tally.fault("update, wrong checksum", errors.Join(errors.New("expected 400"), err))
		}
	}
}
