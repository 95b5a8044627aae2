package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/rollout"
)

// endings collects the responses that an instance passes to Ended.
type endings struct {
	mu  sync.Mutex
	got map[int]inference.Completion
}

func (o *endings) ended(index int, c inference.Completion) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.got == nil {
		o.got = map[int]inference.Completion{}
	}
	o.got[index] = c
}

// A request that asks for early responses has the same answer as one that does not, and
// each response that it passes to Ended is the one in the answer.
func TestEndedChangesNoAnswer(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds() {
		f := newFake(t, kind)
		inst := f.dial()
		req := request(5)
		req.Seed = 7
		want, err := inst.Generate(t.Context(), req)
		require.NoError(t, err)
		var o endings
		req.Ended = o.ended
		got, err := inst.Generate(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, want, got, kind)
		for i, c := range o.got {
			require.Equal(t, want[i], c, kind)
		}
		if kind != SGLang { // which answers once
			require.Len(t, o.got, 5, kind)
		}
	}
}

// vLLM passes each response to Ended when its own call ends.
func TestEndedOfVLLM(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, VLLM)
		inst := f.dial()
		calls := 0
		f.set(func() {
			f.fault = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/v1/completions" {
					f.mu.Lock()
					calls++
					nth := calls
					f.mu.Unlock()
					<-time.After(time.Duration(nth) * time.Second)
				}
				return false
			}
		})
		var o endings
		req, start := request(3), time.Now()
		var at []time.Duration
		req.Ended = func(index int, c inference.Completion) {
			o.ended(index, c)
			o.mu.Lock()
			defer o.mu.Unlock()
			at = append(at, time.Since(start))
		}
		got, err := inst.Generate(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, at)
		require.Equal(t, map[int]inference.Completion{0: got[0], 1: got[1], 2: got[2]}, o.got)
		require.NoError(t, inst.Close())
	})
}

// line is a line of an answer with a choice, or without one if index is negative.
func line(version, index int) string {
	choices := []any{}
	if index >= 0 {
		choices = append(choices, object{"index": index, "text": "", "finish_reason": "stop", "token_ids": []int{index},
			"logprobs": object{"tokens": []string{"x"}, "token_logprobs": []float32{-1}}})
	}
	data, _ := json.Marshal(object{"weight_version": version, "weight_checksum": fmt.Sprint("sum-", version),
		"choices": choices})
	return string(data) + "\n"
}

// easyrl sends a line with each choice as it ends.
func TestEndedOfLines(t *testing.T) {
	t.Parallel()
	pause := time.Minute // longer than a stall
	for name, c := range map[string]struct {
		lines []string // a minute apart
		ended []int
		err   string
		is    error
		after time.Duration
	}{
		"in any order": {lines: []string{line(3, 2), line(3, 0), line(3, 1), line(3, -1)}, ended: []int{0, 1, 2},
			after: 4 * pause},
		"all at once": {lines: []string{line(3, 2) + line(3, 0) + line(3, 1) + line(3, -1)}, ended: []int{0, 1, 2},
			after: pause},
		"fails": {lines: []string{line(3, 1), `{"error":{"message":"new weights"},"status":409}`},
			ended: []int{1}, err: "status 409: new weights", is: inference.ErrStale, after: 2 * pause},
		"ends early": {lines: []string{line(3, 1), line(3, 2)}, ended: []int{1, 2}, err: "2 choices, expected 3",
			after: 2 * pause},
		"cut": {lines: []string{line(3, 1), line(3, 2)[:40]}, ended: []int{1}, err: "unexpected EOF",
			after: 2 * pause},
		"hangs in a line": {lines: []string{line(3, 1) + line(3, 2)[:40], " ", " "}, ended: []int{1},
			err: "moved fewer than 65536 bytes in 30s", after: pause + 30*time.Second},
		"hangs in another": {lines: []string{line(3, 1), line(3, 2)[:40], " "}, ended: []int{1},
			err: "moved fewer than 65536 bytes in 30s", after: 2*pause + 30*time.Second},
		"not JSON": {lines: []string{line(3, 1), "<html>"}, ended: []int{1}, err: "unexpected response body",
			after: 2 * pause},
		"twice": {lines: []string{line(3, 1), line(3, 1)}, ended: []int{1},
			err: "index 1, expected each of 0 to 2 once", after: 2 * pause},
		"out of range": {lines: []string{line(3, 3)}, err: "index 3, expected", after: pause},
		"other weights": {lines: []string{line(3, 1), line(4, 2)}, ended: []int{1},
			err: "server has version 4, expected 3", is: inference.ErrStale, after: 2 * pause},
		"too long": {lines: []string{line(3, 1), `{"x":"` + strings.Repeat("x", 2<<20)}, ended: []int{1},
			err: "body has more than", after: 2 * pause},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, EasyRL)
				inst := f.dial()
				f.set(func() {
					f.fault = on("/v1/completions", func(w http.ResponseWriter, r *http.Request) {
						var body object
						_ = json.NewDecoder(r.Body).Decode(&body)
						if body["stream_choices"] != true {
							w.WriteHeader(http.StatusTeapot)
							return
						}
						for _, l := range c.lines {
							select {
							case <-f.ends:
								return
							case <-time.After(pause):
							}
							_, _ = io.WriteString(w, l)
							w.(http.Flusher).Flush()
						}
					})
				})
				var o endings
				req := request(3)
				req.Version, req.Ended = 3, o.ended
				start := time.Now()
				got, err := inst.Generate(t.Context(), req)
				require.Equal(t, c.after, time.Since(start))
				want := map[int]inference.Completion{}
				for _, i := range c.ended {
					want[i] = inference.Completion{IDs: []int32{int32(i)}, Logprobs: []float32{-1},
						Finish: rollout.Stop, Version: 3, Checksum: "sum-3"}
				}
				if len(want) > 0 {
					require.Equal(t, want, o.got)
				}
				if c.err != "" {
					require.ErrorContains(t, err, c.err)
					if c.is != nil {
						require.ErrorIs(t, err, c.is)
					}
					return
				}
				require.NoError(t, err)
				require.Equal(t, []inference.Completion{want[0], want[1], want[2]}, got)
			})
		})
	}
}

// earlyBackend passes all responses but the last to Ended and holds the answer back.
type earlyBackend struct {
	*backend
	hold chan struct{}
	err  error
}

func (b earlyBackend) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	out, err := b.backend.Generate(ctx, req)
	if req.Ended == nil {
		return out, err
	}
	for i := range len(out) - 1 {
		req.Ended(i, out[i])
	}
	select {
	case <-b.hold:
		return out, b.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// easyrl's own server sends a response when it has ended, and the answer is the same to the
// bit. An error after the first response arrives as such.
func TestServerSendsChoicesAsTheyEnd(t *testing.T) {
	t.Parallel()
	for _, fault := range []error{nil, inference.ErrStale} {
		b := earlyBackend{&backend{}, make(chan struct{}), fault}
		inst := servingBackend(t, b, nil)
		req := request(4)
		req.Sampling.MaxTokens = 30
		want, err := inst.Generate(t.Context(), req)
		require.NoError(t, err)
		early := make(chan struct{}, 4)
		var o endings
		req.Ended = func(index int, c inference.Completion) {
			o.ended(index, c)
			early <- struct{}{}
		}
		go func() {
			for range 3 {
				<-early // otherwise Generate never returns
			}
			close(b.hold)
		}()
		got, err := inst.Generate(t.Context(), req)
		if fault != nil {
			require.ErrorIs(t, err, inference.ErrStale)
			continue
		}
		require.NoError(t, err)
		_, sum := b.Held()
		for i := range want {
			want[i].Checksum = sum
			require.Equal(t, want[i], o.got[i])
		}
		require.Equal(t, want, got)
	}
}
