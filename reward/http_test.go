package reward

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward/queue"
	"github.com/easyrl/easyrl/rollout"
)

// serve starts a scorer. handle answers request n, counted from 1.
func serve(t *testing.T, handle func(n int64, w http.ResponseWriter, body []byte)) string {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		handle(n.Add(1), w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// right responds like a scorer that compares texts.
func right(w io.Writer, body []byte) {
	var asked struct {
		Items []struct {
			ID       int64
			Answer   string
			Response string
		}
	}
	if json.Unmarshal(body, &asked) != nil {
		return
	}
	var entries []string
	for _, item := range asked.Items {
		entries = append(entries, fmt.Sprintf(`{"id":%d,"score":%v,"parts":{"batch":%d}}`, item.ID,
			number(item.Answer == item.Response), len(asked.Items)))
	}
	fmt.Fprintf(w, `{"scores":[%s]}`, strings.Join(entries, ","))
}

func calling(t *testing.T, term Term, urls ...string) *services {
	t.Helper()
	term.URL = urls
	if term.Timeout == 0 {
		term.Timeout = ample.Seconds()
	}
	term.Concurrency, term.Batch = max(term.Concurrency, 1), max(term.Batch, 1)
	s := newServices(&term)
	s.start(queue.Config{Workers: term.Concurrency, Batch: term.Batch, Retries: term.Retries}) // without pauses
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestHTTPScores(t *testing.T) {
	t.Parallel()
	var bodies []string
	s := calling(t, Term{}, serve(t, func(_ int64, w http.ResponseWriter, body []byte) {
		bodies = append(bodies, string(body))
		right(w, body)
	}))
	in := Input{Prompt: &rollout.Prompt{ID: "gsm8k:7", Text: "a<b", Answer: json.RawMessage(`"5"`), Source: "gsm8k"},
		Text: "5", Finish: rollout.Length, Length: 3}
	got, err := s.Score(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, Score{Value: 1, Parts: map[string]float64{"batch": 1}}, got)
	require.Equal(t,
		[]string{`{"items":[{"id":1,"prompt_id":"gsm8k:7","prompt":"a<b","answer":"5","source":"gsm8k",` +
			`"response":"5","finish":"length","length":3}]}` + "\n"}, bodies)
}

func TestHTTPBatch(t *testing.T) {
	t.Parallel()
	most := 0.0
	arrived, gate := make(chan struct{}), make(chan struct{})
	s := calling(t, Term{CallConfig: CallConfig{Batch: 7}}, serve(t, func(n int64, w http.ResponseWriter, body []byte) {
		if n == 1 {
			close(arrived)
			<-gate
		}
		right(w, body)
	}))
	const n = 30
	var wg sync.WaitGroup
	scores, errs := make([]Score, n), make([]error, n)
	for i := range n {
		wg.Go(func() { scores[i], errs[i] = s.Score(t.Context(), input("3", fmt.Sprint(i%5), rollout.Stop)) })
		if i == 0 {
			<-arrived
		}
	}
	require.Eventually(t, func() bool { return s.Waiting() == n-1 }, ample, time.Millisecond)
	close(gate)
	wg.Wait()
	for i := range n {
		require.NoError(t, errs[i])
		require.Equal(t, number(i%5 == 3), scores[i].Value)
		most = max(most, scores[i].Parts["batch"])
	}
	require.Equal(t, 7.0, most)
}

// Transient failures are retried, at the next URL if there are several.
func TestHTTPRetries(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(w http.ResponseWriter){
		"500":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"429":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) },
		"408":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusRequestTimeout) },
		"rubbish": func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") },
		"empty":   func(w http.ResponseWriter) { fmt.Fprint(w, `{}`) },
		"no id":   func(w http.ResponseWriter) { fmt.Fprint(w, `{"scores":[{"score":1}]}`) },
		"cut": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"scores":[`)
		},
		"lost": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := calling(t, Term{CallConfig: CallConfig{Retries: 2}},
				serve(t, func(n int64, w http.ResponseWriter, body []byte) {
					if n <= 2 {
						fail(w)
						return
					}
					right(w, body)
				}))
			got, err := s.Score(t.Context(), input("1", "1", rollout.Stop))
			require.NoError(t, err)
			require.Equal(t, 1.0, got.Value)
			require.Equal(t, int64(2), s.Retries())
		})
	}
	t.Run("another", func(t *testing.T) {
		t.Parallel()
		there := serve(t, func(_ int64, w http.ResponseWriter, body []byte) { right(w, body) })
		c, err := net.Dial("tcp", strings.TrimPrefix(there, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		nowhere := "http://" + c.LocalAddr().String() // nothing can listen on a connection's local address
		s := calling(t, Term{CallConfig: CallConfig{Retries: 1}}, nowhere, there)
		for range 4 {
			got, err := s.Score(t.Context(), input("1", "1", rollout.Stop))
			require.NoError(t, err)
			require.Equal(t, 1.0, got.Value)
		}
		require.Positive(t, s.Retries())
	})
}

func TestHTTPFailures(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		answer func(w http.ResponseWriter)
		want   string
		tries  int64
	}{
		{"404", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "no\nsuch page")
		}, "status 404 Not Found: no such page, expected 200", 1},
		{"moved", func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://elsewhere/")
			w.WriteHeader(http.StatusFound)
		}, "status 302 Found to http://elsewhere/, expected 200", 1},
		{"down", func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
			"status 503 Service Unavailable, expected 200 (after 2 tries)", 2},
		{"error", func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"scores":[{"id":1,"error":"no\nverdict"}]}`)
		}, "reports: no verdict", 1},
		{"list", func(w http.ResponseWriter) { fmt.Fprint(w, `[1.0]`) },
			`reply "[1.0]": expected {"scores":[{"id":1,"score":…},…]}`, 2},
		{"numbers", func(w http.ResponseWriter) { fmt.Fprint(w, `{"scores":[1]}`) },
			`expected {"scores":[{"id":1,"score":…},…]}`, 2},
		{"two", func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"scores":[{"id":1,"score":1},{"id":2,"score":1}]}`)
		}, "has 2 scores, expected 1", 2},
		{"huge number", func(w http.ResponseWriter) { fmt.Fprint(w, `{"scores":[{"id":1,"score":1e999}]}`) },
			"expected {", 2},
		{"no score", func(w http.ResponseWriter) { fmt.Fprint(w, `{"scores":[{"id":1,"score":null}]}`) },
			`scores[0]: neither "score" nor "error"`, 2},
		{"endless", func(w http.ResponseWriter) {
			for block := make([]byte, 1<<20); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, "reply is longer than 64.0 MiB", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int64
			s := calling(t, Term{CallConfig: CallConfig{Retries: 1}},
				serve(t, func(n int64, w http.ResponseWriter, _ []byte) {
					tries.Store(n)
					row.answer(w)
				}))
			_, err := s.Score(t.Context(), input("1", "1", rollout.Stop))
			require.ErrorContains(t, err, "reward http: prompt set:1: "+s.urls[0])
			require.ErrorContains(t, err, row.want)
			require.NotContains(t, err.Error(), "\n")
			require.Equal(t, row.tries, tries.Load())
		})
	}
}

// A service that sends nothing, or one byte at a time, is abandoned at the deadline.
func TestHTTPDeadline(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]func(w http.ResponseWriter, over <-chan struct{}){
		"silent": func(_ http.ResponseWriter, over <-chan struct{}) { <-over },
		"slow": func(w http.ResponseWriter, over <-chan struct{}) {
			fmt.Fprint(w, `{"scores":[`)
			_ = http.NewResponseController(w).Flush()
			<-over
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			over := make(chan struct{})
			url := serve(t, func(_ int64, w http.ResponseWriter, _ []byte) { handle(w, over) })
			t.Cleanup(func() { close(over) })
			s := calling(t, Term{CallConfig: CallConfig{Timeout: 0.05}}, url)
			_, err := s.Score(t.Context(), input("1", "1", rollout.Stop))
			require.ErrorIs(t, err, ErrTimeout)
			require.ErrorContains(t, err, url+": no reply in time: 50ms")
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err = s.Score(ctx, input("1", "1", rollout.Stop))
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	for range 100 {
		for tries, most := range map[int]time.Duration{0: 250 * time.Millisecond, 1: 250 * time.Millisecond,
			3: time.Second, 100: maxPause} {
			require.LessOrEqual(t, pause(tries), most)
			require.Greater(t, pause(tries), most/2)
		}
	}
}

func TestShownURL(t *testing.T) {
	t.Parallel()
	require.Equal(t, "http://user:xxxxx@host/", shownURL("http://user:secret@host/"))
}
