package reward

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/rollout"
)

// script is an asker that takes a minute for each batch and fails where it is
// told to.
type script struct {
	fails   func(texts []string, try int) []error // by response
	batches []string                              // their texts
	at      []time.Duration
	began   time.Time
	closed  int
}

func (s *script) ask(ctx context.Context, in []Input) []outcome {
	var texts []string
	for i := range in {
		texts = append(texts, in[i].Text)
	}
	s.batches = append(s.batches, strings.Join(texts, " "))
	s.at = append(s.at, time.Since(s.began))
	out := make([]outcome, len(in))
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
		for i := range out {
			out[i] = outcome{err: context.Cause(ctx), again: true}
		}
		return out
	}
	var errs []error
	if s.fails != nil {
		errs = s.fails(texts, len(s.batches))
	}
	for i := range out {
		out[i] = outcome{score: Score{Value: 1}}
		if i < len(errs) && errs[i] != nil {
			out[i] = outcome{err: errs[i], again: !errors.Is(errs[i], errFinal)}
		}
	}
	return out
}

func (s *script) close() { s.closed++ }

var (
	errDown  = errors.New("down")
	errFinal = errors.New("final")
)

// asked is what happens to responses that are asked for at once, after one that
// keeps the only asker busy.
func asked(t *testing.T, s *script, size, retries int, pause func(int) time.Duration, texts ...string) (errs map[string]error, retried int64) {
	t.Helper()
	errs = map[string]error{}
	synctest.Test(t, func(t *testing.T) {
		s.began = time.Now()
		q := newQueue("reward test", 1, size, retries, pause, func() asker { return s })
		type end struct {
			text string
			err  error
		}
		ends := make(chan end)
		for _, text := range append([]string{"first"}, texts...) {
			go func() {
				_, err := q.Score(t.Context(), input("1", text, rollout.Stop))
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

func TestQueueTakesWhatWaits(t *testing.T) {
	t.Parallel()
	s := &script{}
	errs, retried := asked(t, s, 3, 0, nil, "a", "b", "c", "d", "e")
	require.Equal(t, []string{"first", "a b c", "d e"}, s.batches)
	require.Equal(t, []time.Duration{0, time.Minute, 2 * time.Minute}, s.at, "nothing is waited for")
	for text, err := range errs {
		require.NoError(t, err, text)
	}
	require.Zero(t, retried)
}

// Of a batch that fails each response is asked alone, and only that counts.
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
	require.EqualError(t, errs["bad"], "reward test: prompt set:1: down (after 3 tries)")
	require.EqualError(t, errs["no"], "reward test: prompt set:1: final")
	require.Equal(t, int64(5), retried)
}

// What a failure kept from being asked is asked again without blame.
func TestQueueUnasked(t *testing.T) {
	t.Parallel()
	s := &script{fails: func(texts []string, try int) []error {
		if try == 2 {
			return []error{nil, errDown, errUnasked}
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

// A response that waits an hour for its turn still has all its time; one that
// nobody waits for is not asked, and ends what is asked for it alone.
func TestQueueWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{began: time.Now()}
		q := newQueue("reward test", 1, 4, 0, nil, func() asker { return s })
		score := func(ctx context.Context, text string) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := q.Score(ctx, input("1", text, rollout.Stop))
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
		require.ErrorIs(t, <-busy, errClosed)
		require.ErrorIs(t, <-waiting, errClosed)
		require.ErrorIs(t, <-score(t.Context(), "late"), errClosed)
		require.Equal(t, 1, s.closed)
	})
}
