package engine

import (
	"cmp"
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/lossy"
	"github.com/easyrl/easyrl/model"
)

// collected is what a stream emitted for one response.
type collected struct {
	c     inference.Completion
	texts []string
}

func stream(ctx context.Context, e *Engine, r inference.Request) ([]collected, []inference.Completion, error) {
	got := make([]collected, r.N)
	out, err := e.Stream(ctx, r, func(d inference.Delta) {
		g := &got[d.Index]
		g.c.IDs, g.c.Logprobs = append(g.c.IDs, d.IDs...), append(g.c.Logprobs, d.Logprobs...)
		g.c.Text += d.Text
		g.c.Top = append(g.c.Top, d.Top...)
		g.texts = append(g.texts, d.Text)
	})
	return got, out, err
}

// A stream emits, piece by piece, what Generate returns, even if preempted
// prompts run again.
func TestStreamMatchesGenerate(t *testing.T) {
	t.Parallel()
	e, _ := startFake(t, Config{MaxRunning: 9, CachePages: 12})
	var wg sync.WaitGroup
	for i := range 20 {
		r := request(1+i*3, 1+i%4, 40)
		r.Sampling.StopIDs = []int32{3}
		if i%2 == 0 {
			r.Sampling.Stop = []string{"bh", "qéx", "é", "xyz"}[i%4:]
		}
		wg.Go(func() {
			got, out, err := stream(t.Context(), e, r)
			require.NoError(t, err)
			require.Equal(t, references(1, r, 256, letters{}), out)
			for k, c := range out {
				require.Equal(t, c.IDs, got[k].c.IDs)
				require.Equal(t, c.Logprobs, got[k].c.Logprobs)
				require.Equal(t, c.Text, got[k].c.Text)
				before := strings.Join(got[k].texts[:len(got[k].texts)-1], "")
				for _, stop := range r.Sampling.Stop {
					require.NotContains(t, before, stop)
				}
			}
		})
	}
	wg.Wait()
	_, _, err := stream(t.Context(), e, request(1, 0, 1))
	require.ErrorIs(t, err, inference.ErrInvalid)
	closeFake(t, e)
	_, _, err = stream(t.Context(), e, request(1, 1, 1))
	require.ErrorIs(t, err, inference.ErrClosed)
}

// A caller that is slow to take a Delta does not delay others. A caller that
// cancels frees its pages.
func TestSlowAndCancelledStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m := startFake(t, Config{MaxRunning: 8})
		ctx, cancel := context.WithCancel(t.Context())
		hold := make(chan struct{})
		emitted := 0
		var wg sync.WaitGroup
		wg.Go(func() {
			out, err := e.Stream(t.Context(), request(20, 1, 30), func(d inference.Delta) {
				<-hold
				emitted += len(d.IDs)
			})
			require.NoError(t, err)
			require.Len(t, out[0].IDs, 30)
		})
		synctest.Wait()
		_, err := e.Generate(t.Context(), request(21, 2, 40))
		require.NoError(t, err)
		close(hold)
		wg.Wait()
		require.Equal(t, 30, emitted)

		gate := make(chan struct{}, 1)
		m.gate = gate
		emitted = 0
		wg.Go(func() {
			_, err := e.Stream(ctx, request(40, 3, 50), func(inference.Delta) { emitted++ })
			require.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		gate <- struct{}{}
		synctest.Wait()
		cancel()
		wg.Wait()
		require.Positive(t, emitted)
		gate <- struct{}{}
		synctest.Wait()
		s := e.Stats()
		require.Equal(t, s.CachePages, s.FreePages)
		require.Zero(t, s.Running+s.Waiting)
		close(gate)
		closeFake(t, e)
	})
}

// pieces is a tokenizer of byte pieces; empty pieces are special tokens. With
// spaces set, it behaves like SentencePiece: it drops a leading space and
// replaces invalid bytes with U+FFFD.
type pieces struct {
	list   []string
	spaces bool
}

func (p pieces) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(p.list[id])
	}
	if !p.spaces {
		return b.String()
	}
	return lossy.String(strings.TrimPrefix(b.String(), " "))
}

// A tail emits only whole characters that are not part of a stop string, and in
// the end the whole text, however tokens are batched.
func TestTailEmitsWholeCharacters(t *testing.T) {
	t.Parallel()
	list := []string{"", "a", "ab", " b", "é", "\xe4", "\xbd\xa0", "\xf0\x9f", "\x98", "\x80", " ", "\uFFFD",
		"END", "E", "N"}
	for round := range 3000 {
		rng := rand.New(rand.NewPCG(3, uint64(round)))
		p := pieces{list, round%2 == 1}
		stops := [][]string{nil, {"END"}, {"Na", "EN", "abab"}}[rng.IntN(3)]
		var ids []int32
		for len(ids) < 60 {
			switch id := int32(rng.IntN(len(list))); id {
			case 5:
				ids = append(ids, 5, 6)
			case 7:
				ids = append(ids, 7, 8, 9)
			case 6, 8, 9:
			default:
				ids = append(ids, id)
			}
			if containsAny(p.Decode(ids), stops) {
				break
			}
		}
		end := len(ids) - rng.IntN(min(2, len(ids))) // possibly within a character
		tail := tail{tok: p, stops: stops}
		emitted := ""
		for at := 0; at < end; {
			n := min(1+rng.IntN(3), end-at)
			at += n
			text := tail.add(ids[at-n:at], at == end)
			emitted += text
			if at < end {
				require.True(t, utf8.ValidString(text), "%q", text)
				for _, stop := range stops {
					if first := strings.Index(p.Decode(ids[:end]), stop); first >= 0 {
						require.LessOrEqual(t, len(emitted), first, "%q overlaps %q in %v", emitted, stop, ids)
					}
				}
			}
		}
		require.Equal(t, p.Decode(ids[:end]), emitted)
	}
}

// decoder is a function as a Decoder.
type decoder func(ids []int32) string

func (d decoder) Decode(ids []int32) string { return d(ids) }

// A tail replaces only sequences that no later token can complete, each once.
func TestTailReplacesBrokenSequences(t *testing.T) {
	t.Parallel()
	list := []string{"a", "é", "\xe4", "\xbd", "\xa0", "\xbd\xa0", "\xf0\x9f", "\x98\x80", "\xff", "\xed\xa0", "\uFFFD"}
	broken := decoder(func(ids []int32) string { return lossy.String(pieces{list, false}.Decode(ids)) })
	for round := range 3000 {
		rng := rand.New(rand.NewPCG(4, uint64(round)))
		ids := make([]int32, 1+rng.IntN(40))
		for i := range ids {
			ids[i] = rng.Int32N(int32(len(list)))
		}
		tail := tail{tok: broken}
		emitted := ""
		for at := 0; at < len(ids); {
			n := min(1+rng.IntN(3), len(ids)-at)
			at += n
			emitted += tail.add(ids[at-n:at], at == len(ids))
			require.True(t, strings.HasPrefix(broken.Decode(ids), emitted), "%q begins %q", broken.Decode(ids), emitted)
		}
		require.Equal(t, broken.Decode(ids), emitted)
	}
}

// If new tokens change the text of earlier ones, a tail keeps what it emitted and
// continues. Here a byte that is not UTF-8 breaks those before it.
func TestTailSurvivesChangedText(t *testing.T) {
	t.Parallel()
	list := []string{"a", "b", "\xe4", "\xbd", "\xa0", "\xff"}
	runs := decoder(func(ids []int32) string {
		out, run := "", ""
		flush := func() {
			if !utf8.ValidString(run) {
				run = strings.Repeat("\uFFFD", len(run))
			}
			out, run = out+run, ""
		}
		for _, id := range ids {
			if id < 2 {
				flush()
				out += list[id]
				continue
			}
			run += list[id]
		}
		flush()
		return out
	})
	for ids, want := range map[[6]int32]string{
		{2, 3, 4, 5, 0, 1}: "你\uFFFDab", {0, 2, 3, 4, 5, 5}: "a你\uFFFD\uFFFD",
		{2, 3, 0, 5, 1, 0}: "\uFFFD\uFFFDa\uFFFDba", {2, 3, 4, 2, 3, 4}: "你你",
	} {
		tail := tail{tok: runs}
		emitted := ""
		for i, id := range ids {
			emitted += tail.add([]int32{id}, i == len(ids)-1)
		}
		require.Equal(t, want, emitted, "%v", ids)
	}
}

// The window, and so the work per token, does not grow with the response.
func TestTailWindowIsBounded(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{"", "a", "\uFFFD", "\xe4", " "} {
		tail := tail{tok: pieces{[]string{piece}, true}}
		for range 2000 {
			tail.add([]int32{0}, false)
			require.LessOrEqual(t, len(tail.window), 3*patience)
		}
	}
}

// The prompt's log-probabilities equal the trainer's bit for bit, as do those of
// the sampled tokens among the top ones, even after preemption.
func TestScoresMatchTrainer(t *testing.T) {
	for name, c := range modelShapes() {
		t.Run(name, func(t *testing.T) {
			dev := openCPU(t, 1)
			defer func() { require.NoError(t, dev.Close()) }()
			w := newWeights(t, dev, c, 4)
			reqs := modelRequests(c.VocabSize)
			for i := range reqs {
				reqs[i].PromptLogprobs, reqs[i].TopLogprobs = i != 1, []int{0, 1, 7, 32}[i%4]
				if reqs[i].PromptLogprobs {
					reqs[i].PromptTop = []int{3, 0, 0, 1, 32, 0}[i%6]
				}
			}
			tape := model.NewTape(dev, c)
			defer tape.Close()
			for _, cfg := range []Config{{MaxRunning: 6, CachePages: 14},
				{MaxRunning: 32, CachePages: 9, PrefillRows: 7}} {
				e := openEngine(t, c, w, cfg, 2)
				for i, out := range generateAll(t, e, reqs) {
					for _, r := range out {
						checkScores(t, tape, w, reqs[i], r)
					}
				}
				reqs[0].TopLogprobs = 33
				_, err := e.Generate(t.Context(), reqs[0])
				require.ErrorContains(t, err, "33 top log-probabilities requested, expected at most 32")
				reqs[0].TopLogprobs = 0
				require.NoError(t, e.Close())
			}
		})
	}
}

// forwardLogprobs returns the trainer's log-probability of each token given those
// before it.
func forwardLogprobs(t *testing.T, tape *model.Tape, w *model.Weights, ids []int32, temperature float32) []float32 {
	t.Helper()
	var l attention.Layout
	l.Add(-1, ids, true)
	logp := make([]float32, len(l.Targets))
	require.NoError(t, tape.Forward(w, &l, temperature, false, logp, make([]float32, len(logp))))
	require.NoError(t, tape.Wait())
	return logp
}

func checkScores(t *testing.T, tape *model.Tape, w *model.Weights, req inference.Request, out inference.Completion) {
	t.Helper()
	n := len(req.PromptIDs)
	all := append(append([]int32{}, req.PromptIDs...), out.IDs...)
	if req.PromptLogprobs {
		require.Len(t, out.PromptLogprobs, n)
		require.Zero(t, out.PromptLogprobs[0])
		require.Equal(t, forwardLogprobs(t, tape, w, all, 1)[:n-1], out.PromptLogprobs[1:])
	} else {
		require.Nil(t, out.PromptLogprobs)
	}
	if req.PromptTop == 0 {
		require.Nil(t, out.PromptTop)
	} else {
		require.Len(t, out.PromptTop, n)
		require.Nil(t, out.PromptTop[0])
		checkTop(t, tape, w, all, 1, 1, req.PromptTop, out.PromptTop[1:], out.PromptLogprobs[1:])
	}
	if req.TopLogprobs == 0 {
		require.Nil(t, out.Top)
		return
	}
	checkTop(t, tape, w, all, n, cmp.Or(req.Sampling.Temperature, 1), req.TopLogprobs, out.Top, out.Logprobs)
	if req.Sampling.Temperature == 0 {
		for i, top := range out.Top {
			require.Equal(t, out.IDs[i], top[0].ID)
		}
	}
}

// checkTop checks the n likeliest tokens at the places of ids[first:], where logp are the
// log-probabilities of ids.
func checkTop(t *testing.T, tape *model.Tape, w *model.Weights, ids []int32, first int, temperature float32, n int,
	tops [][]inference.TokenLogprob, logp []float32) {
	t.Helper()
	require.Len(t, tops, len(logp))
	for i, top := range tops {
		require.Len(t, top, n)
		listed := map[int32]float32{}
		for k, candidate := range top {
			if i < 3 {
				other := append(append([]int32{}, ids[:first+i]...), candidate.ID)
				require.Equal(t, forwardLogprobs(t, tape, w, other, temperature)[first+i-1], candidate.Logprob)
			}
			if k > 0 {
				require.LessOrEqual(t, candidate.Logprob, top[k-1].Logprob)
			}
			listed[candidate.ID] = candidate.Logprob
		}
		require.Len(t, listed, n)
		if l, ok := listed[ids[first+i]]; ok {
			require.Equal(t, l, logp[i])
		} else {
			require.LessOrEqual(t, logp[i], top[n-1].Logprob)
		}
	}
}
