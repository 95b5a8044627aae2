package sample

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// response returns a completion of a token.
func response(token int32) inference.Completion {
	return inference.Completion{IDs: []int32{token}, Logprobs: []float32{-float32(token)}, Text: fmt.Sprint(token),
		Finish: rollout.Stop}
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// counting is a reward of the response's number that takes a second and remembers when
// each response was scored.
type counting struct {
	mu    sync.Mutex
	began map[string][]time.Duration // by text
	fails string
	start time.Time
}

func (c *counting) Score(_ context.Context, in reward.Input) (reward.Score, error) {
	c.mu.Lock()
	if c.began == nil {
		c.began, c.start = map[string][]time.Duration{}, time.Now()
	}
	c.began[in.Text] = append(c.began[in.Text], time.Since(c.start))
	c.mu.Unlock()
	pass(time.Second)
	if in.Text == c.fails {
		return reward.Score{}, errors.New("broken")
	}
	var value float64
	_, err := fmt.Sscan(in.Text, &value)
	return reward.Score{Value: value}, err
}

// A response is scored when it ends, once, and keeps its score if a retry gives the same
// bits.
func TestScoresResponsesAsTheyEnd(t *testing.T) {
	at := func(seconds int) []time.Duration { return []time.Duration{time.Duration(seconds) * time.Second} }
	first := func(req inference.Request, tokens ...int32) {
		for i, token := range tokens {
			req.Ended(i, response(token))
		}
	}
	other := response(1)
	other.Logprobs = []float32{-1.5}
	for name, c := range map[string]struct {
		answer func(req inference.Request) []inference.Completion // of three responses
		fails  string
		atOnce int
		began  map[string][]time.Duration // since the first score
		whole  time.Duration
		want   []float64
		err    string
	}{
		"none early": {atOnce: 2, answer: func(inference.Request) []inference.Completion {
			pass(5 * time.Second)
			return []inference.Completion{response(1), response(2), response(3)}
		}, began: map[string][]time.Duration{"1": at(0), "2": at(0), "3": at(1)}, whole: 7 * time.Second,
			want: []float64{1, 2, 3}},
		"two early": {atOnce: 1, answer: func(req inference.Request) []inference.Completion {
			first(req, 1, 2)
			pass(5 * time.Second)
			return []inference.Completion{response(1), response(2), response(3)}
		}, began: map[string][]time.Duration{"1": at(0), "2": at(1), "3": at(5)}, whole: 6 * time.Second,
			want: []float64{1, 2, 3}},
		"told twice": {atOnce: 4, answer: func(req inference.Request) []inference.Completion {
			first(req, 1)
			pass(3 * time.Second)
			first(req, 1, 2) // by another instance
			pass(3 * time.Second)
			return []inference.Completion{response(1), response(2), response(3)}
		}, began: map[string][]time.Duration{"1": at(0), "2": at(3), "3": at(6)}, whole: 7 * time.Second,
			want: []float64{1, 2, 3}},
		"other tokens in the end": {atOnce: 4, answer: func(req inference.Request) []inference.Completion {
			first(req, 9)
			pass(3 * time.Second)
			first(req, 1, 8)
			pass(3 * time.Second)
			return []inference.Completion{response(1), response(2), response(3)}
		}, began: map[string][]time.Duration{"9": at(0), "1": at(3), "8": at(3), "2": at(6), "3": at(6)},
			whole: 7 * time.Second, want: []float64{1, 2, 3}},
		"other log-probabilities in the end": {atOnce: 4, answer: func(req inference.Request) []inference.Completion {
			req.Ended(0, other)
			pass(3 * time.Second)
			return []inference.Completion{response(1), response(2), response(3)}
		}, began: map[string][]time.Duration{"1": {0, 3 * time.Second}, "2": at(3), "3": at(3)}, whole: 4 * time.Second,
			want: []float64{1, 2, 3}},
		"the reward of other tokens fails": {atOnce: 1, fails: "9",
			answer: func(req inference.Request) []inference.Completion {
				first(req, 9, 2)
				pass(500 * time.Millisecond)
				return []inference.Completion{response(1), response(2), response(3)}
			}, began: map[string][]time.Duration{"9": at(0), "2": at(1), "1": at(2), "3": at(3)},
			whole: 4 * time.Second, want: []float64{1, 2, 3}},
		"an early reward fails": {atOnce: 1, fails: "1", answer: func(req inference.Request) []inference.Completion {
			first(req, 1, 2)
			pass(5 * time.Second)
			return []inference.Completion{response(1), response(2), response(3)}
		}, began: map[string][]time.Duration{"1": at(0)}, whole: 5 * time.Second, err: "reward of response 0: broken"},
		"sampling fails": {atOnce: 1, answer: func(req inference.Request) []inference.Completion {
			first(req, 1, 2)
			pass(500 * time.Millisecond)
			return nil
		}, began: map[string][]time.Duration{"1": at(0)}, whole: time.Second, err: "too few instances"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &counting{fails: c.fails}
				s := Sampler{Fleet: answers(c.answer), Reward: r, AtOnce: c.atOnce}
				began := time.Now()
				g, err := s.Sample(t.Context(), &rollout.Prompt{}, inference.Request{N: 3})
				if err == nil {
					err = g.Score(nil)
				}
				require.Equal(t, c.whole, time.Since(began))
				require.Equal(t, c.began, r.began)
				if c.err != "" {
					require.ErrorContains(t, err, c.err)
					return
				}
				require.NoError(t, err)
				for i, want := range c.want {
					require.Equal(t, want, g.Responses[i].Reward)
					require.Equal(t, fmt.Sprint(want), g.Responses[i].Text)
				}
			})
		})
	}
}

// What an instance tells after its answer, out of range or with text that cannot be decoded
// changes nothing.
func TestIgnoresBadHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended func(int, inference.Completion)
		r := &counting{}
		s := Sampler{Reward: r, AtOnce: 2, Text: func(ids []int32) string {
			if ids[0] == 7 {
				panic("no such token")
			}
			return fmt.Sprint(ids[0])
		}, Fleet: answers(func(req inference.Request) []inference.Completion {
			ended = req.Ended
			ended(0, response(7))
			ended(-1, response(1))
			ended(2, response(1))
			return []inference.Completion{response(1), response(2)}
		})}
		g, err := s.Sample(t.Context(), &rollout.Prompt{}, inference.Request{N: 2})
		require.NoError(t, err)
		ended(0, response(5))
		require.NoError(t, g.Score(nil))
		ended(1, response(6))
		synctest.Wait()
		require.Equal(t, map[string][]time.Duration{"1": {0}, "2": {0}}, r.began)
	})
}

// A request for one response needs no hint: it ends with the response.
func TestOneResponseHasNoHint(t *testing.T) {
	t.Parallel()
	s := Sampler{Reward: &counting{}, AtOnce: 1, Fleet: answers(func(req inference.Request) []inference.Completion {
		require.Nil(t, req.Ended)
		return []inference.Completion{response(1)}
	})}
	_, err := s.Sample(t.Context(), &rollout.Prompt{}, inference.Request{N: 1})
	require.NoError(t, err)
}
