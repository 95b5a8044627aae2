package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/transport"
	"github.com/easyrl/easyrl/rollout"
)

type brokenWeights struct{ fakeWeights }

func (brokenWeights) WriteSafetensors(w io.Writer) error {
	_, _ = w.Write([]byte("half"))
	return errors.New("device lost")
}

// samples returns the sampling path of a kind.
func samples(kind string) string {
	switch kind {
	case SGLang:
		return "/generate"
	}
	return "/v1/completions"
}

// on applies a fault to one path.
func on(path string, fault http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != path {
			return false
		}
		fault(w, r)
		return true
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds() {
		f := newFake(t, kind)
		inst := f.dial()
		for status, want := range map[int]error{
			400: inference.ErrInvalid, 413: inference.ErrInvalid, 422: inference.ErrInvalid, 409: inference.ErrStale,
			302: nil, 401: nil, 403: nil, 404: nil, 408: nil, 429: nil, 500: nil, 502: nil, 503: nil,
		} {
			f.set(func() {
				f.fault = on(samples(kind), func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Location", "http://elsewhere/")
					w.WriteHeader(status)
					_, _ = io.WriteString(w, `{"error":{"message":"what is\nwrong","type":"some"}}`)
				})
			})
			_, err := inst.Generate(t.Context(), request(1))
			require.ErrorContains(t, err, "what is wrong", status)
			require.ErrorContains(t, err, "instance http://fake:8000: ")
			for _, sentinel := range []error{inference.ErrInvalid, inference.ErrStale, inference.ErrClosed} {
				wanted := want == sentinel //nolint:errorlint // the same sentinel
				require.Equal(t, wanted, errors.Is(err, sentinel), "%d: %v", status, err)
			}
		}
	}
}

// A refused publish is not a fault of the data.
func TestPublishRefused(t *testing.T) {
	t.Parallel()
	paths := map[string]string{EasyRL: "/v1/weights", VLLM: "/collective_rpc", SGLang: "/update_weights_from_disk"}
	for _, kind := range allKinds() {
		f := newFake(t, kind)
		inst := f.dial()
		for _, status := range []int{200, 400, 422, 500} {
			f.set(func() {
				f.fault = on(paths[kind], func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					w.WriteHeader(status)
					_, _ = io.WriteString(w, `{"success":false,"message":"no such folder"}`)
				})
			})
			_, err := inst.Publish(t.Context(), fakeWeights{1, 1})
			require.Error(t, err, "%s %d", kind, status)
			require.NotErrorIs(t, err, inference.ErrInvalid)
		}
	}
}

func TestPublishBrokenWeights(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds() {
		f := newFake(t, kind)
		_, err := f.dial().Publish(t.Context(), brokenWeights{fakeWeights{1, 1}})
		require.ErrorContains(t, err, "device lost", kind)
		require.Zero(t, f.value)
	}
}

// Stalls and deadlines end calls. The server's handlers wait in the bubble's time.
func TestStalls(t *testing.T) {
	t.Parallel()
	drip := func(f *fake, path string) func(http.ResponseWriter, *http.Request) bool {
		return on(path, func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := io.WriteString(w, " "); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				select {
				case <-f.ends:
					return
				case <-time.After(time.Second):
				}
			}
		})
	}
	stopped := func(f *fake, _ string) func(http.ResponseWriter, *http.Request) bool {
		return func(http.ResponseWriter, *http.Request) bool { <-f.ends; return true }
	}
	late := func(f *fake, path string) func(http.ResponseWriter, *http.Request) bool {
		return on(path, func(http.ResponseWriter, *http.Request) { <-f.ends })
	}
	tests := []struct {
		name  string
		fault func(f *fake, path string) func(http.ResponseWriter, *http.Request) bool
		after time.Duration // from the call to its end
		want  string
	}{
		{"drips", drip, 30 * time.Second, "moved fewer than 65536 bytes in 30s"},
		{"stopped", stopped, time.Minute, "server is not responding"},
		{"late", late, 5 * time.Minute, "deadline exceeded"},
	}
	for _, test := range tests {
		for _, kind := range allKinds() {
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFake(t, kind)
					inst := f.dial()
					f.set(func() { f.fault = test.fault(f, samples(kind)) })
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					defer cancel()
					start := time.Now()
					_, err := inst.Generate(ctx, request(2))
					require.ErrorContains(t, err, test.want)
					require.Equal(t, test.after, time.Since(start))
				})
			})
		}
	}
}

// A call waits for a slow server that answers health checks.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, VLLM)
		inst := f.dial()
		f.set(func() {
			f.fault = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/v1/completions" {
					<-time.After(20 * time.Minute)
				}
				return false
			}
		})
		_, err := inst.Generate(t.Context(), request(2))
		require.NoError(t, err)
	})
}

func TestStalledUpload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, EasyRL)
		inst := f.dial()
		// the body is not read
		f.set(func() { f.fault = on("/v1/weights", func(http.ResponseWriter, *http.Request) { <-f.ends }) })
		start := time.Now()
		_, err := inst.Publish(t.Context(), largeWeights{fakeWeights{1, 1}})
		require.ErrorContains(t, err, "moved fewer than 65536 bytes in 30s")
		require.Equal(t, 30*time.Second, time.Since(start))
	})
}

type largeWeights struct{ fakeWeights }

func (largeWeights) WriteSafetensors(w io.Writer) error {
	for range 64 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	return nil
}

// A busy server's refusal of a request goes to the caller, with the time for which the
// server asks. A publish waits and tries again.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range allKinds() {
			f := newFake(t, kind)
			inst := f.dial()
			in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
			for name, c := range map[string]struct {
				status int
				after  string
				body   string
				want   time.Duration // 0 if the server is not busy
			}{
				"seconds":          {429, "7", "", 7 * time.Second},
				"date":             {429, in(20 * time.Second), "", 20 * time.Second},
				"past":             {429, in(-20 * time.Second), "", time.Second},
				"too long":         {429, "86400", "", time.Minute},
				"distant date":     {429, in(1000 * time.Hour), "", time.Minute},
				"none":             {429, "", "", time.Second},
				"not a time":       {429, "soon", "", time.Second},
				"negative":         {429, "-3", "", time.Second},
				"unavailable":      {503, "7", "", 7 * time.Second},
				"unavailable now":  {503, "", "", 0},
				"draining":         {503, "7", `{"error":{"message":"drains","type":"draining"}}`, 0},
				"without weights":  {503, "7", `{"error":{"message":"no weights yet","type":"unavailable"}}`, 0},
				"internal failure": {500, "7", "", 0},
			} {
				f.set(func() {
					f.fault = on(samples(kind), func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Retry-After", c.after)
						w.WriteHeader(c.status)
						_, _ = io.WriteString(w, c.body)
					})
				})
				start := time.Now()
				_, err := inst.Generate(t.Context(), request(1))
				require.ErrorContains(t, err, fmt.Sprint("status ", c.status), name)
				require.Zero(t, time.Since(start), name)
				var busy *inference.BusyError
				require.Equal(t, c.want > 0, errors.As(err, &busy), "%s: %v", name, err)
				if c.want > 0 {
					require.Equal(t, c.want, busy.RetryDelay(), name)
				}
			}
			_ = inst.Close()
		}
	})
}

// A publish waits for a busy server, up to a number of pauses.
func TestPublishWaitsForBusyServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, SGLang)
		inst := f.dial()
		full := 0
		f.set(func() {
			f.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost || full == 0 {
					return false
				}
				full--
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
				return true
			}
		})
		full = 3
		start := time.Now()
		_, err := inst.Publish(t.Context(), fakeWeights{1, 1})
		require.NoError(t, err)
		require.Equal(t, 21*time.Second, time.Since(start))
		full = 100
		_, err = inst.Publish(t.Context(), fakeWeights{2, 2})
		require.ErrorContains(t, err, "status 429")
		require.Equal(t, 100-transport.MaxPauses-1, full)
	})
}

// A request fails if the weights change while it runs, even if a server that lost them in
// a restart gets the same ones again.
func TestPublishDuringRequest(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{VLLM, SGLang} {
		for version := int64(1); version <= 2; version++ {
			f := newFake(t, kind)
			inst := f.dial()
			_, err := inst.Publish(t.Context(), fakeWeights{1, 1})
			require.NoError(t, err)
			entered, leave := make(chan struct{}), make(chan struct{})
			f.set(func() {
				f.fault = func(_ http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path == samples(kind) {
						close(entered)
						<-leave
					}
					return false
				}
			})
			req := request(1)
			req.Version = 1
			done := make(chan error, 1)
			go func() {
				_, err := inst.Generate(t.Context(), req)
				done <- err
			}()
			<-entered
			f.restart()
			_, err = inst.Publish(t.Context(), fakeWeights{version, float32(version)})
			require.NoError(t, err)
			close(leave)
			require.ErrorIs(t, <-done, inference.ErrStale)
		}
	}
}

// Aborted responses continue where they ended, under the same weights.
func TestAbortResumes(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{VLLM, SGLang} {
		f := newFake(t, kind)
		inst := f.dial()
		calls := 0
		f.edit = func(path string, answer any) any {
			if path != samples(kind) {
				return answer
			}
			calls++
			if calls == 1 {
				breakOff(answer, kind)
			}
			return answer
		}
		req := request(2)
		out, err := inst.Generate(t.Context(), req)
		require.NoError(t, err)
		first, firstLogprobs := f.sample(req.PromptIDs, 1, 2)
		rest, restLogprobs := f.sample(slices.Concat(req.PromptIDs, first), 0, 2)
		require.Equal(t, slices.Concat(first, rest), out[1].IDs)
		require.Equal(t, slices.Concat(firstLogprobs, restLogprobs), out[1].Logprobs)
		require.Equal(t, rollout.Length, out[1].Finish)
		require.Equal(t, "texttext", out[1].Text)
		require.Len(t, out[0].IDs, 4)
		require.Equal(t, 2, calls)

		calls = -100
		f.edit = func(path string, answer any) any {
			if path == samples(kind) {
				calls++
				none(answer, kind)
			}
			return answer
		}
		_, err = inst.Generate(t.Context(), request(1))
		require.ErrorContains(t, err, "was aborted")
		require.Equal(t, -100+1+maxResumes, calls)
	}
}

// breakOff aborts the second response after two tokens.
func breakOff(answer any, kind string) {
	if kind == SGLang {
		meta := answer.([]any)[1].(object)["meta_info"].(object)
		meta["finish_reason"] = object{"type": "abort", "message": "Abort in decode"}
		meta["output_token_logprobs"] = meta["output_token_logprobs"].([]any)[:2]
		return
	}
	ch := answer.(object)["choices"].([]any)[1].(object)
	ch["finish_reason"] = "abort"
	ch["token_ids"] = ch["token_ids"].([]int32)[:2]
	ch["logprobs"].(object)["token_logprobs"] = ch["logprobs"].(object)["token_logprobs"].([]float32)[:2]
}

// none aborts a single response before its first token.
func none(answer any, kind string) {
	if kind == SGLang {
		meta := answer.(object)["meta_info"].(object)
		meta["finish_reason"] = object{"type": "abort", "message": "Abort before prefill"}
		return
	}
	ch := answer.(object)["choices"].([]any)[0].(object)
	ch["finish_reason"], ch["token_ids"] = "abort", []int32{}
	ch["logprobs"].(object)["token_logprobs"] = []float32{}
}

// An endless answer is cut off and a truncated one refused.
func TestBodies(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds() {
		f := newFake(t, kind)
		inst := f.dial()
		f.set(func() {
			f.fault = on(samples(kind), func(w http.ResponseWriter, _ *http.Request) {
				for {
					if _, err := io.WriteString(w, strings.Repeat(" ", 1<<16)); err != nil {
						return
					}
				}
			})
		})
		_, err := inst.Generate(t.Context(), request(1))
		require.ErrorContains(t, err, "body has more than")
		f.set(func() {
			f.fault = on(samples(kind), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				_, _ = io.WriteString(w, `{"choices":[`)
			})
		})
		_, err = inst.Generate(t.Context(), request(1))
		require.ErrorContains(t, err, "unexpected EOF")
	}
}
