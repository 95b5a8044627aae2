package reward

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/easyrl/easyrl/reward/queue"
	"github.com/easyrl/easyrl/reward/wire"
)

// HTTP is the name of httpKind.
const HTTP = "http"

// HTTPConfig holds the keys that only kind "http" has.
type HTTPConfig struct {
	// Service URLs of "http". Requests rotate through them.
	URL []string `toml:"url"`
}

func httpKind() Kind {
	return Kind{
		Name:     HTTP,
		About:    "calls a service over JSON.",
		keys:     append([]string{"url"}, callKeys()...),
		defaults: func(t *Term) { t.CallConfig = defaultCalls() },
		example:  func(r *Rule) { r.URL = []string{"http://127.0.0.1:9000/score"} },
		check:    checkHTTP,
		build:    func(r *Rule, _ int) (Func, error) { return newServices(&r.Term), nil },
	}
}

func checkHTTP(v *validation, r *Rule) {
	v.expect(len(r.URL) > 0, "url", "is empty, expected the scorer's URL")
	for _, text := range r.URL {
		u, err := url.Parse(text)
		v.expect(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "url",
			"has %q, expected a URL such as http://127.0.0.1:9000/score", text)
	}
	checkCalls(v, r)
}

const (
	firstPause = 250 * time.Millisecond
	maxPause   = 8 * time.Second
	patience   = time.Minute // how long a service may be unavailable, for example during a deployment
)

// services scores with the services at urls, in turn. A request is
//
//	POST url
//	{"items":[{"id":1,"prompt_id":"gsm8k:7","prompt":"…","answer":…,"source":"gsm8k","response":"…",
//	"finish":"stop","length":12}]}
//
// with up to batch items. "answer" is the prompt's, any JSON value or null; "length" is
// in tokens; "finish" is "stop" or "length". The response has status 200 and one entry
// per item, in order:
//
//	{"scores":[{"id":1,"score":0.5,"right":true,"parts":{"name":1}}]}
//
// "right" and "parts" are optional; without "right", a score of 1 or more is right.
// {"id":1,"error":"why not"} means that there is no score. Status 408, 429 and 5xx, a
// lost connection, a missed deadline and a malformed response are retried. Other
// statuses, including redirects, are final. While a service does not respond at all,
// for example during a deployment, a response is retried for a minute, unless retries
// are disabled.
type services struct {
	queued
	urls   []string
	client *client
	turn   atomic.Uint64 // number of requests so far; selects the URL
}

func newServices(t *Term) *services {
	workers := cmp.Or(t.Concurrency, 8)
	s := &services{urls: t.URL, client: newClient(workers, seconds(t.Timeout))}
	cfg := queue.Config{Workers: workers, Batch: t.Batch, Retries: t.Retries, Pause: pause}
	if t.Retries > 0 {
		cfg.Patience = patience
	}
	s.start(cfg)
	return s
}

func (s *services) start(cfg queue.Config) {
	worker := func() queue.Worker[Input, Score] { return &httpWorker{services: s} }
	s.queued = queued{"reward http", queue.New(cfg, worker)}
}

// pause returns the pause after the given number of failed tries. It doubles with each try. Up to half of it is
// random, so that callers waiting for a service do not all return at once.
func pause(tries int) time.Duration {
	doublings := max(0, min(tries, 10)-1) // bounded, so that the shift cannot overflow
	d := min(firstPause<<doublings, maxPause)
	return d - rand.N(d/2)
}

// Close cancels running requests and closes connections.
func (s *services) Close() error {
	err := s.queued.Close()
	s.client.close()
	return err
}

// httpWorker is a worker of the queue of services. It makes one request at a time, to the next service in turn.
type httpWorker struct{ services *services }

// Close does nothing: all workers share the connections, which services.Close closes.
func (w *httpWorker) Close() {}

func (w *httpWorker) Ask(ctx context.Context, batch []Input) []outcome {
	s := w.services
	to := s.urls[s.turn.Add(1)%uint64(len(s.urls))]
	shown := shownURL(to)
	answers, transient, err := s.post(ctx, to, batch)
	outcomes := make([]outcome, len(batch))
	for i := range outcomes {
		if err != nil {
			outcomes[i] = outcome{Err: fmt.Errorf("%s: %w", shown, err), Transient: transient}
		} else if fault := answers[i].Check(int64(i + 1)); fault != nil {
			outcomes[i] = outcome{Err: fmt.Errorf("%s: scores[%d]: %w", shown, i, fault), Transient: true}
		} else {
			outcomes[i] = outcomeOf(&answers[i], shown)
		}
	}
	return outcomes
}

// post returns an answer for each response, which the caller checks, or an error and whether it is
// transient.
func (s *services) post(
	ctx context.Context, to string, batch []Input,
) (answers []wire.Answer, transient bool, err error) {
	var items []wire.Request
	for i, in := range batch {
		items = append(items, newRequest(int64(i+1), in))
	}
	body, err := wire.List(items)
	if err != nil {
		return nil, false, err
	}
	text, transient, err := s.client.post(ctx, to, body)
	if err == nil {
		answers, err = wire.ReadList(text, len(batch))
	}
	return answers, transient, err
}
