package reward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/easyrl/easyrl/reward/program"
	"github.com/easyrl/easyrl/reward/queue"
)

const (
	maxReply    = 64 << 20 // bytes of a service's answer
	firstPause  = 250 * time.Millisecond
	longestWait = 8 * time.Second
	patience    = time.Minute // with a service that is away, as while it is deployed anew
)

// service scores with services that listen at urls, in turn. A request is
//
//	POST url
//	{"items":[{"id":1,"prompt_id":"gsm8k:7","prompt":"…","answer":…,"source":"gsm8k","response":"…","finish":"stop","length":12}]}
//
// with up to batch items: "answer" is the prompt's, any JSON value or null; "length"
// is in tokens; "finish" is "stop" or "length". The answer, with status 200, has one
// entry for each item, in their order:
//
//	{"scores":[{"id":1,"score":0.5,"right":true,"parts":{"name":1}}]}
//
// where "right", without which a score of 1 or more is right, and "parts" may be
// left out and {"id":1,"error":"why not"} says that there is
// no score. Status 408, 429 and 5xx, a lost connection, a missed deadline and an
// answer of another shape are tried again; other statuses, redirects among them,
// are final. While a service answers nothing at all, as where it is deployed
// anew, a response is tried for a minute, unless no retries are wanted.
type service struct {
	asking
	urls    []string
	client  *http.Client
	timeout time.Duration
	turn    atomic.Uint64
}

func newService(t *Term) *service {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = t.Requests
	s := &service{urls: t.URL, timeout: seconds(t.Timeout), client: &http.Client{
		Transport: transport,
		// A redirected POST would arrive as a GET without its body.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	cfg := queue.Config{Workers: t.Requests, Batch: t.Batch, Retries: t.Retries, Pause: pause}
	if t.Retries > 0 {
		cfg.Patience = patience
	}
	s.start(cfg)
	return s
}

func (s *service) start(cfg queue.Config) {
	s.asking = newAsking("reward http", cfg, func() queue.Worker[Input, Score] { return &call{service: s} })
}

// pause doubles with each try that failed. Up to half of it is left to chance,
// so that those who wait for a service do not all come back at once.
func pause(tries int) time.Duration {
	d := min(firstPause<<max(0, min(tries, 10)-1), longestWait)
	return d - rand.N(d/2)
}

// Close ends what is under way.
func (s *service) Close() error {
	err := s.asking.Close()
	s.client.CloseIdleConnections()
	return err
}

// call is one request at a time.
type call struct{ *service }

func (c *call) Close() {}

func (c *call) Ask(ctx context.Context, batch []Input) []outcome {
	at := c.urls[c.turn.Add(1)%uint64(len(c.urls))]
	answers, again, err := c.post(ctx, at, batch)
	outcomes := make([]outcome, len(batch))
	for i := range outcomes {
		if err == nil {
			if fault := answers[i].check(int64(i + 1)); fault != nil {
				outcomes[i] = outcome{Err: fmt.Errorf("%s: scores[%d]: %w", shown(at), i, fault), Again: true}
			} else {
				outcomes[i] = answers[i].outcome(shown(at))
			}
			continue
		}
		outcomes[i] = outcome{Err: fmt.Errorf("%s: %w", shown(at), err), Again: again}
	}
	return outcomes
}

// shown is a URL without its password.
func shown(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "the scorer"
	}
	return u.Redacted()
}

// post returns an answer for each response, or an error and whether it may pass.
func (c *call) post(ctx context.Context, at string, batch []Input) (answers []answer, again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var items struct {
		Items []request `json:"items"`
	}
	for i, in := range batch {
		items.Items = append(items.Items, newRequest(int64(i+1), in))
	}
	body, err := encode(items)
	if err != nil {
		return nil, false, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	r.Header.Set("Content-Type", "application/json")
	reply, err := c.client.Do(r)
	if err != nil {
		return nil, true, c.plain(ctx, err)
	}
	defer reply.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(reply.Body, maxReply+1))
	if reply.StatusCode != http.StatusOK {
		return nil, passes(reply.StatusCode), statusError(reply, text)
	}
	if err != nil {
		return nil, true, c.plain(ctx, err)
	}
	answers, err = scores(text, len(batch))
	return answers, true, err
}

// plain is an error without the URL, which is said elsewhere.
func (c *call) plain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %v", ErrTimeout, c.timeout)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// passes reports whether a status may be another one next time.
func passes(code int) bool {
	return code >= 500 || code == http.StatusRequestTimeout || code == http.StatusTooManyRequests
}

// statusError is a status that is not 200, with what the service says about it.
func statusError(reply *http.Response, text []byte) error {
	said := strconv.Itoa(reply.StatusCode) + " " + http.StatusText(reply.StatusCode)
	if to := reply.Header.Get("Location"); to != "" {
		said += " to " + program.OneLine([]byte(to))
	}
	if line := program.OneLine(text); line != "" {
		said += ": " + line
	}
	return fmt.Errorf("status %s, expected 200", said)
}

// scores reads the answer to n items.
func scores(text []byte, n int) ([]answer, error) {
	const shape = `expected {"scores":[{"id":1,"score":…},…]}`
	if len(text) > maxReply {
		return nil, fmt.Errorf("answer is longer than %d bytes", maxReply)
	}
	var reply struct {
		Scores []answer `json:"scores"`
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return nil, fmt.Errorf("answer %q: %s: %w", program.OneLine(text), shape, err)
	}
	if len(reply.Scores) != n {
		return nil, fmt.Errorf("answer %q has %d scores, expected %d: %s", program.OneLine(text), len(reply.Scores), n, shape)
	}
	return reply.Scores, nil
}
