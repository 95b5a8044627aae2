package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward/program"
)

// script is a worker that takes a minute per batch and fails as fails says.
type script struct {
	fails   func(texts []string, try int) []error // errors by response
	batches []string                              // their texts, joined
	at      []time.Duration
	began   time.Time
	closed  int
}

func (s *script) Ask(ctx context.Context, texts []string) []Outcome[float64] {
	s.batches = append(s.batches, strings.Join(texts, " "))
	s.at = append(s.at, time.Since(s.began))
	out := make([]Outcome[float64], len(texts))
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
		for i := range out {
			out[i] = Outcome[float64]{Err: context.Cause(ctx), Transient: true}
		}
		return out
	}
	var errs []error
	if s.fails != nil {
		errs = s.fails(texts, len(s.batches))
	}
	for i := range out {
		out[i] = Outcome[float64]{Value: 1}
		if i < len(errs) && errs[i] != nil {
			out[i] = Outcome[float64]{Err: errs[i], Transient: !errors.Is(errs[i], errFinal)}
		}
	}
	return out
}

func (s *script) Close() { s.closed++ }

var (
	errDown  = errors.New("down")
	errFinal = errors.New("final")
)

// asked submits texts while the only worker is busy with a first one. It returns each
// text's error and the number of retries.
func asked(t *testing.T, s *script, size, retries int, pause func(int) time.Duration, texts ...string) (
	errs map[string]error, retried int64) {
	t.Helper()
	errs = map[string]error{}
	synctest.Test(t, func(t *testing.T) {
		s.began = time.Now()
		q := New(Config{Workers: 1, Batch: size, Retries: retries, Pause: pause},
			func() Worker[string, float64] { return s })
		type end struct {
			text string
			err  error
		}
		ends := make(chan end)
		for _, text := range append([]string{"first"}, texts...) {
			go func() {
				_, err := q.Do(t.Context(), text, true)
				ends <- end{text, err}
			}()
			synctest.Wait()
		}
		for range len(texts) + 1 {
			e := <-ends
			errs[e.text] = e.err
		}
		retried = q.Retries()
		require.NoError(t, q.Close())
		require.Equal(t, 1, s.closed)
	})
	return errs, retried
}

func TestQueueBatchesWaitingInputs(t *testing.T) {
	t.Parallel()
	s := &script{}
	errs, retried := asked(t, s, 3, 0, nil, "a", "b", "c", "d", "e")
	require.Equal(t, []string{"first", "a b c", "d e"}, s.batches)
	require.Equal(t, []time.Duration{0, time.Minute, 2 * time.Minute}, s.at, "a worker never waits to fill a batch")
	for text, err := range errs {
		require.NoError(t, err, text)
	}
	require.Zero(t, retried)
}

// If a batch fails, each of its responses is retried alone, and only those tries count.
func TestQueueRetries(t *testing.T) {
	t.Parallel()
	s := &script{fails: func(texts []string, _ int) []error {
		errs := make([]error, len(texts))
		for i, text := range texts {
			switch text {
			case "bad":
				for k := range errs {
					errs[k] = errDown
				}
			case "no":
				errs[i] = errFinal
			}
		}
		return errs
	}}
	double := func(tries int) time.Duration { return time.Hour << tries }
	errs, retried := asked(t, s, 3, 2, double, "a", "bad", "b", "no")
	require.Equal(t, []string{"first", "a bad b", "a", "bad", "bad", "bad", "b", "no"}, s.batches)
	require.Equal(t, []time.Duration{
		0, time.Minute, time.Hour + 2*time.Minute, time.Hour + 3*time.Minute, 3*time.Hour + 4*time.Minute,
		7*time.Hour + 5*time.Minute, 7*time.Hour + 6*time.Minute, 7*time.Hour + 7*time.Minute}, s.at)
	require.NoError(t, errs["a"])
	require.NoError(t, errs["b"])
	require.EqualError(t, errs["bad"], "down (after 3 tries)")
	require.EqualError(t, errs["no"], "final")
	require.Equal(t, int64(5), retried)
}

// Responses that a failure left unasked are asked again, and the try does not count.
func TestQueueUnasked(t *testing.T) {
	t.Parallel()
	s := &script{fails: func(texts []string, try int) []error {
		if try == 2 {
			return []error{nil, errDown, ErrUnasked}
		}
		return nil
	}}
	errs, retried := asked(t, s, 3, 0, nil, "a", "b", "c")
	require.Equal(t, []string{"first", "a b c", "b", "c"}, s.batches)
	for text, err := range errs {
		require.NoError(t, err, text)
	}
	require.Equal(t, int64(1), retried)
}

// Waiting for a turn does not use up a response's time. An abandoned response is not
// asked, and abandoning a batch's only response cancels it.
func TestQueueWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{began: time.Now()}
		q := New(Config{Workers: 1, Batch: 4}, func() Worker[string, float64] { return s })
		score := func(ctx context.Context, text string) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := q.Do(ctx, text, true)
				done <- err
			}()
			synctest.Wait()
			return done
		}
		ctx, cancel := context.WithCancel(t.Context())
		soon, leave := context.WithCancel(t.Context())
		first, second, third := score(ctx, "first"), score(soon, "second"), score(t.Context(), "third")
		leave()
		require.ErrorIs(t, <-second, context.Canceled)
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		require.NoError(t, <-third)
		require.Equal(t, []string{"first", "third"}, s.batches)
		require.Equal(t, []time.Duration{0, 0}, s.at)
		require.ErrorIs(t, <-score(ctx, "fourth"), context.Canceled)
		busy, waiting := score(t.Context(), "fifth"), score(t.Context(), "sixth")
		require.NoError(t, q.Close())
		require.NoError(t, q.Close())
		require.ErrorIs(t, <-busy, ErrClosed)
		require.ErrorIs(t, <-waiting, ErrClosed)
		require.ErrorIs(t, <-score(t.Context(), "late"), ErrClosed)
		require.Equal(t, 1, s.closed)
	})
}

// flaky is a worker that answers at once, except when down returns an error.
type flaky struct {
	began time.Time
	down  func(text string, at time.Duration) error
}

func (f *flaky) Ask(_ context.Context, texts []string) []Outcome[float64] {
	out := make([]Outcome[float64], len(texts))
	for i, text := range texts {
		out[i] = Outcome[float64]{Value: 1}
		if err := f.down(text, time.Since(f.began)); err != nil {
			out[i] = Outcome[float64]{Err: err, Transient: true}
		}
	}
	return out
}

func (f *flaky) Close() {}

// The queue waits for a worker that answers nothing at all, but not for a response that
// alone fails.
func TestQueuePatience(t *testing.T) {
	t.Parallel()
	until := func(end time.Duration, err error) func(string, time.Duration) error {
		return func(_ string, at time.Duration) error {
			if at < end {
				return err
			}
			return nil
		}
	}
	poison := func(text string, _ time.Duration) error {
		if text == "bad" {
			return errDown
		}
		return nil
	}
	for name, c := range map[string]struct {
		down  func(string, time.Duration) error
		texts []string // one second apart, after one at 0
		trial bool
		want  string // error of "a", "b" or "bad"
		at    time.Duration
	}{
		"away for half a minute": {until(30*time.Second, errDown), []string{"a"}, false, "", 31 * time.Second},
		"away for long": {until(time.Hour, errDown), []string{"a"}, false, "down (after 32 tries)",
			63 * time.Second},
		"away since before": {until(time.Hour, errDown), append(make([]string, 70), "b"), false,
			"down (after 3 tries)", 75 * time.Second},
		"tried before the run": {until(30*time.Second, errDown), []string{"a"}, true, "down (after 3 tries)",
			5 * time.Second},
		"no reply in time": {until(time.Hour, program.ErrTimeout), []string{"a"}, false,
			"no reply in time (after 3 tries)", 5 * time.Second},
		"one answer among failures": {func(text string, at time.Duration) error {
			if text == "a" && at < 10*time.Second {
				return errDown
			}
			return nil
		}, []string{"c", "a", "c"}, false, "", 10 * time.Second},
		"its own fault, among others": {poison, []string{"bad", "c", "c", "c"}, false, "down (after 3 tries)",
			5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &flaky{began: time.Now(), down: c.down}
				q := New(Config{Workers: 200, Batch: 1, Retries: 2,
					Pause: func(int) time.Duration { return 2 * time.Second }, Patience: time.Minute},
					func() Worker[string, float64] { return f })
				type end struct {
					err error
					at  time.Duration
				}
				last, others := make(chan end, 1), make(chan end, 100)
				for _, text := range append([]string{"first"}, c.texts...) {
					to := others
					if slices.Contains([]string{"a", "b", "bad"}, text) {
						to = last
					}
					go func() {
						_, err := q.Do(t.Context(), text, !c.trial)
						to <- end{err, time.Since(f.began)}
					}()
					<-time.After(time.Second)
				}
				got := <-last
				if c.want == "" {
					require.NoError(t, got.err)
				} else {
					require.EqualError(t, got.err, c.want)
				}
				require.Equal(t, c.at, got.at)
				require.NoError(t, q.Close())
				synctest.Wait()
			})
		})
	}
}
