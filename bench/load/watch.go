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

// slack is how many goroutines more an idle server may have than before: the
// runtime has some that come and go.
const slack = 8

// look is what the server says of itself.
type look struct {
	at         time.Duration // since the load began
	running    float64       // responses that run or wait
	cache      float64       // share of its pages in use
	goroutines float64
	memory     float64 // resident, MiB
	version    float64
}

func (k look) String() string {
	return fmt.Sprintf("%6.0f goroutines, %7.1f MiB resident, %5.1f%% of the cache in use, %6.0f responses run or wait, version %.0f",
		k.goroutines, k.memory, 100*k.cache, k.running, k.version)
}

// mostMemory is what an idle server that had k's may have later, in MiB.
func (k look) mostMemory() float64 { return 1.15*k.memory + 16 }

// look reads /metrics.
func (s *server) look(ctx context.Context) (look, error) {
	req, err := s.request(ctx, http.MethodGet, "/metrics", http.NoBody)
	if err != nil {
		return look{}, err
	}
	res, err := s.client.Do(req)
	if err != nil {
		return look{}, fmt.Errorf("look at the server: %w", err)
	}
	defer res.Body.Close() //nolint:errcheck // was read
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
		return look{}, errors.Join(fmt.Errorf("look at the server: status %d", res.StatusCode), err)
	}
	for _, name := range []string{"vllm:num_requests_running", "vllm:kv_cache_usage_perc", "go_goroutines", "process_resident_memory_bytes"} {
		if _, ok := values[name]; !ok {
			return look{}, fmt.Errorf("look at the server: /metrics has no %s", name)
		}
	}
	return look{running: values["vllm:num_requests_running"] + values["vllm:num_requests_waiting"], cache: values["vllm:kv_cache_usage_perc"],
		goroutines: values["go_goroutines"], memory: values["process_resident_memory_bytes"] / (1 << 20), version: values["easyrl:weight_version"]}, nil
}

// watch looks at the server until ctx ends.
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

// settle waits until the server has no more to do and, where there is a look at
// it from before, has given back what it took since: five minutes at most, since
// Go returns memory when it next collects, which is every two at least.
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

// halves are the most memory that the server had in the first and the last half
// of the load, where there were looks enough.
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

// put gives the server weights, with a checksum where one is given.
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
	defer res.Body.Close() //nolint:errcheck // was read
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

// update changes the weights to and fro until ctx ends. Behind each good update
// comes one with a wrong checksum, which must change nothing.
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
			l.version++ // it may have come or not, and the next one is of the other weights
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
