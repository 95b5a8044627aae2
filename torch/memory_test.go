package torch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/torch/fake"
	"github.com/easyrl/easyrl/torch/wire"
)

// promptGroup returns a micro-batch of a prompt of 4 rows and responses of 4 rows each.
func promptGroup(responses int) *attention.Layout {
	l := &attention.Layout{}
	root := l.Add(-1, []int32{1, 2, 3, 4}, false)
	for i := range int32(responses) {
		l.AddResponse(root, []int32{5 + i%20, 6, 7, 8, 9})
	}
	return l
}

// holds returns a memory of this many rows.
func holds(rows int) func(start int) int { return func(int) int { return rows } }

// pass passes some micro-batches, makes an update and returns its norm.
func pass(t *testing.T, s *Session, n int, layouts ...*attention.Layout) (norm float64, err error) {
	t.Helper()
	for _, l := range layouts {
		calls := 0
		err := s.Pass(t.Context(), l, func(lp backend.Outputs) (backend.Values, error) {
			calls++
			require.Equal(t, 1, calls)
			require.Len(t, lp.Values[backend.Policy], len(l.Targets))
			require.Len(t, lp.Values[backend.Reference], len(l.Targets))
			require.Len(t, lp.Entropy, len(l.Targets))
			return objective(lp), nil
		})
		if err != nil {
			return 0, err
		}
	}
	return s.Step(t.Context(), backend.Update{Number: n, Scale: 0.05, LR: 1e-2, Clip: 0.5})
}

// A rank that runs out of memory halves the micro-batch, each size once, and the update counts
// each target once. That may take more restarts than other failures have.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		dp     int
		mode   string
		memory int
		rows   []int // maximum rows after each lack of memory
	}{
		{"enough", 1, wire.Free, 264, nil},
		{"one of two in flight", 1, wire.Free, 200, []int{66}},
		{"half", 1, wire.Free, 132, []int{66}},
		{"four times", 1, wire.Free, 16, []int{66, 32, 16, 8}},
		{"replicas", 2, wire.Free, 128, []int{66}},
		{"lockstep", 2, wire.Lockstep, 128, []int{66}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir, into, weights, want := start(t), t.TempDir(), t.TempDir(), t.TempDir()
			// of 132 rows
			layouts := []*attention.Layout{promptGroup(32), promptGroup(32), promptGroup(1), promptGroup(32)}
			synctest.Test(t, func(t *testing.T) {
				st, err := play(t, configure(dir, into), &fake.Ranks{})
				defer st.end()
				require.NoError(t, err)
				_, err = pass(t, st.Session, 1, layouts...)
				require.NoError(t, err)
				require.NoError(t, st.Write(t.Context(), wire.Weights, want))
			})
			synctest.Test(t, func(t *testing.T) {
				cfg := configure(dir, into)
				cfg.DP, cfg.Mode = test.dp, test.mode
				st, err := play(t, cfg, &fake.Ranks{Memory: holds(test.memory)})
				defer st.end()
				require.NoError(t, err)
				_, err = pass(t, st.Session, 1, layouts...)
				require.NoError(t, err)
				require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
				require.Len(t, st.warnings, len(test.rows))
				last := 0
				for i, rows := range test.rows {
					require.Contains(t, st.warnings[i], "on fake: forward: out of memory: ")
					require.Contains(t, st.warnings[i],
						fmt.Sprintf(
							"rows, from now on at most %d (train.micro_batch_tokens = %[1]d avoids this); waiting",
							rows))
					last = rows
				}
				require.Equal(t, last, st.MicroBatchRows())
				require.Zero(t, st.Restarts())
				_, err = pass(t, st.Session, 2, layouts...)
				require.NoError(t, err)
				require.Len(t, st.warnings, len(test.rows), "the size stays")
			})
			requireClose(t, load(t, want), load(t, weights))
		})
	}
}

// A micro-batch of one response cannot be cut: the run ends at once, with one line.
func TestOutOfMemoryAtTheSmallest(t *testing.T) {
	t.Parallel()
	dir, into := start(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		st, err := play(t, configure(dir, into), &fake.Ranks{Memory: holds(7), Fault: func(at fake.Moment) fake.Fault {
			if at.Kind == "welcome" {
				starts++
			}
			return fake.None
		}})
		defer st.end()
		require.NoError(t, err)
		_, err = pass(t, st.Session, 1, promptGroup(8)) // of 36 rows
		require.EqualError(t, err, "torch: rank 0 on fake: forward: out of memory: 8 rows, and there is room for 7; "+
			"it held micro-batches of 8 rows, the largest a single response of 8, which cannot be cut: "+
			"set train.recompute = true, use more ranks in mode lockstep, or lower rollout.max_tokens")
		require.Equal(t, 3, starts, "with 36 rows, 16 and 8")
		require.Equal(t, err, st.Flush(t.Context()), "it stays")
	})
}

// Cutting a small micro-batch does not make room for a long response beside it, but computing one
// after the other does. What fits only alone has one restart, and what does not fit ends the run.
func TestOutOfMemoryBesideOneResponse(t *testing.T) {
	t.Parallel()
	long := &attention.Layout{}
	long.AddResponse(long.Add(-1, []int32{1, 2, 3, 4}, false), make([]int32, 37)) // of 40 rows
	for _, test := range []struct {
		name    string
		dp      int
		mode    string
		memory  int
		layouts []*attention.Layout
		held    int // rows
		rows    int // maximum of a micro-batch, in the end
		fails   bool
	}{
		{"a small micro-batch", 1, wire.Free, 45, []*attention.Layout{promptGroup(2), long, promptGroup(1)},
			52, 0, false},
		{"another response", 1, wire.Free, 45, []*attention.Layout{long, long, long}, 80, 0, false},
		{"replicas", 2, wire.Free, 45, []*attention.Layout{long, long, long, long, promptGroup(2)}, 80, 0, false},
		{"lockstep", 2, wire.Lockstep, 45, []*attention.Layout{long, long, long, long, promptGroup(2)}, 80, 0, false},
		{"a micro-batch to cut later", 1, wire.Free, 45, []*attention.Layout{promptGroup(3), long, promptGroup(16)},
			56, 34, false},
		{"too long", 1, wire.Free, 39, []*attention.Layout{promptGroup(2), long}, 52, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir, into, weights, want := start(t), t.TempDir(), t.TempDir(), t.TempDir()
			for _, memory := range []int{0, test.memory} {
				synctest.Test(t, func(t *testing.T) {
					cfg := configure(dir, into)
					cfg.DP, cfg.Mode = test.dp, test.mode
					st, err := play(t, cfg, &fake.Ranks{Memory: holds(memory)})
					defer st.end()
					require.NoError(t, err)
					_, err = pass(t, st.Session, 1, test.layouts...)
					if memory == 0 {
						require.NoError(t, err)
						require.NoError(t, st.Write(t.Context(), wire.Weights, want))
						return
					}
					require.Contains(t, st.warnings[0],
						fmt.Sprintf("forward: out of memory: %d rows, and there is room for %d; "+
							"it held 2 micro-batches, the largest a single response of 40 rows, which cannot be cut: "+
							"from now on a replica holds one at a time, which takes longer; waiting", test.held,
							test.memory))
					require.Zero(t, st.Restarts())
					require.Equal(t, test.rows, st.MicroBatchRows())
					if test.fails {
						require.ErrorContains(t, err,
							"it held micro-batches of 40 rows, the largest a single response of 40, which cannot be "+
								"cut: ")
						require.Len(t, st.warnings, 1)
						return
					}
					require.NoError(t, err)
					require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
					n := len(st.warnings)
					_, err = pass(t, st.Session, 2, test.layouts...)
					require.NoError(t, err)
					require.Len(t, st.warnings, n, "the limits stay")
				})
			}
			if !test.fails {
				requireClose(t, load(t, want), load(t, weights))
			}
		})
	}
}

// A lack of memory while updates are repeated cuts those, too.
func TestOutOfMemoryInRepetition(t *testing.T) {
	t.Parallel()
	dir, into, weights, want := start(t), t.TempDir(), t.TempDir(), t.TempDir()
	for out, memory := range map[string]int{want: 0, weights: 40} {
		synctest.Test(t, func(t *testing.T) {
			ranks := &fake.Ranks{Fault: once(fake.Die, 0, "forward", 4),
				Memory: func(start int) int { return min(start-1, 1) * memory }}
			st, err := play(t, configure(dir, into), ranks)
			defer st.end()
			require.NoError(t, err)
			_, err = pass(t, st.Session, 1, promptGroup(16), promptGroup(3))
			require.NoError(t, err)
			_, err = pass(t, st.Session, 2, promptGroup(2), promptGroup(1))
			require.NoError(t, err)
			require.NoError(t, st.Write(t.Context(), wire.Weights, out))
			if memory > 0 {
				require.Len(t, st.warnings, 2)
				require.Contains(t, st.warnings[1], "a micro-batch had 68 rows, from now on at most 34 ")
			}
		})
	}
	requireClose(t, load(t, want), load(t, weights))
}

// Updates that fit are repeated as they were made, so that the weights stay those that were published.
func TestOutOfMemoryKeepsUpdates(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{wire.Free, wire.Lockstep} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dir, into := start(t), t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cfg := configure(dir, into)
				cfg.Mode = mode
				st, err := play(t, cfg, &fake.Ranks{Memory: holds(130)})
				defer st.end()
				require.NoError(t, err)
				_, err = pass(t, st.Session, 1, promptGroup(16)) // of 68 rows
				require.NoError(t, err)
				_, err = pass(t, st.Session, 2, promptGroup(32)) // of 132 rows
				require.NoError(t, err)
				require.Len(t, st.warnings, 1)
				require.Equal(t, 66, st.MicroBatchRows())
				forwards := 0
				for _, kind := range st.ranks.Received()[0] {
					if kind == "forward" {
						forwards++
					}
				}
				require.Equal(t, 1+2*3, forwards, "the first update whole, the second twice in three parts")
			})
		})
	}
}

// A rank that runs out of memory in a score halves what it scores, and the scores are those of the
// whole, also within a derive, beside micro-batches in flight.
func TestOutOfMemoryInScore(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		dp     int
		mode   string
		within int // responses of the micro-batch whose derive scores; 0 for none
		memory int
		rows   []int // maximum rows after each lack of memory
	}{
		{"half", 1, wire.Free, 0, 40, []int{34}},
		{"twice", 1, wire.Free, 0, 20, []int{34, 16}},
		{"lockstep", 2, wire.Lockstep, 0, 40, []int{34}},
		{"within a derive", 1, wire.Free, 6, 92, []int{34}},
		{"within the derive of what is cut", 1, wire.Free, 12, 60, []int{34}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir, into := start(t), t.TempDir()
			var scores, weights [][]float32
			for _, memory := range []int{0, test.memory} {
				synctest.Test(t, func(t *testing.T) {
					cfg := configure(dir, into)
					cfg.DP, cfg.Mode = test.dp, test.mode
					st, err := play(t, cfg, &fake.Ranks{Memory: holds(memory)})
					defer st.end()
					require.NoError(t, err)
					score := func() {
						values, err := st.Score(t.Context(), promptGroup(16)) // of 68 rows
						require.NoError(t, err)
						scores = append(scores, values)
					}
					if test.within > 0 {
						passes := 0
						require.NoError(t, st.Pass(t.Context(), promptGroup(test.within),
							func(lp backend.Outputs) (backend.Values, error) {
								passes++
								score()
								return objective(lp), nil
							}))
						_, err := st.Step(t.Context(), backend.Update{Number: 1, Scale: 0.05, LR: 1e-2, Clip: 0.5})
						require.NoError(t, err)
						require.Equal(t, 1, passes)
						require.NoError(t, st.Write(t.Context(), wire.Weights, into))
						weights = append(weights, load(t, into))
					} else {
						score()
					}
					if memory == 0 {
						return
					}
					require.Len(t, st.warnings, len(test.rows))
					for i, rows := range test.rows {
						require.Contains(t, st.warnings[i], "on fake: score: out of memory: ")
						require.Contains(t, st.warnings[i], fmt.Sprintf("rows, from now on at most %d (", rows))
					}
					require.Equal(t, test.rows[len(test.rows)-1], st.MicroBatchRows())
					require.Zero(t, st.Restarts())
				})
			}
			require.Equal(t, scores[0], scores[1])
			if test.within > 0 {
				requireClose(t, weights[0], weights[1])
			}
		})
	}
}

// Ranks that wait for one which runs out of memory fail, too, and the session may hear of that first.
// The lack of memory counts, also while updates are repeated.
func TestOutOfMemoryBehindAnotherFailure(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		fault  fake.Fault // of the rank that waits
		starts int        // start in which the rank runs out of memory
		dp, tp int
	}{
		{"reported", fake.Fail, 1, 2, 1},
		{"connection closed", fake.Die, 1, 1, 2},
		{"repetition", fake.Fail, 2, 2, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir, into := start(t), t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cfg := configure(dir, into)
				cfg.DP, cfg.TP, cfg.Mode = test.dp, test.tp, wire.Lockstep
				memory := func(start int) int {
					if start < test.starts {
						return 0
					}
					return 40
				}
				var mu sync.Mutex
				starts, died := 0, false
				ranks := &fake.Ranks{Memory: memory, Fault: func(at fake.Moment) fake.Fault {
					mu.Lock()
					defer mu.Unlock()
					if at.Rank == 0 && at.Kind == "welcome" {
						starts++
					}
					switch {
					case at.Kind == "step" && starts < test.starts && at.Rank == 0 && !died:
						died = true
						return fake.Die
					case at.Kind != "forward" || starts != test.starts:
						return fake.None
					case at.Rank == 1:
						return test.fault
					}
					mu.Unlock()
					<-time.After(causeTime / 2)
					mu.Lock()
					return fake.None
				}}
				st, err := play(t, cfg, ranks)
				defer st.end()
				require.NoError(t, err)
				_, err = pass(t, st.Session, 1, promptGroup(16), promptGroup(16)) // of 68 rows
				require.NoError(t, err)
				last := st.warnings[len(st.warnings)-1]
				require.Contains(t, last, "rank 0 on fake: forward: out of memory: 68 rows, and there is room for "+
					"40; a micro-batch had 68 rows, ")
				require.Len(t, st.warnings, test.starts)
				require.Equal(t, 34, st.MicroBatchRows())
			})
		})
	}
}

// A response that cannot be cut and does not fit ends the run at once in a score, too.
func TestOutOfMemoryInScoreOfOneResponse(t *testing.T) {
	t.Parallel()
	dir, into := start(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		st, err := play(t, configure(dir, into), &fake.Ranks{Memory: holds(7)})
		defer st.end()
		require.NoError(t, err)
		_, err = st.Score(t.Context(), promptGroup(1))
		require.ErrorContains(t, err,
			"score: torch: rank 0 on fake: score: out of memory: 8 rows, and there is room for 7; it held ")
		require.Empty(t, st.warnings)
	})
}

// A lack of memory among other faults: each micro-batch counts once, and derive is called once.
func TestOutOfMemoryAmongFaults(t *testing.T) {
	t.Parallel()
	const updates = 3
	want := expected(t, updates)
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dir, into, weights := start(t), t.TempDir(), t.TempDir()
			random := rand.New(rand.NewPCG(seed, 33))
			cfg := configure(dir, into)
			cfg.DP, cfg.TP = 1+random.IntN(3), 1+random.IntN(2)
			cfg.Mode = []string{wire.Free, wire.Lockstep}[random.IntN(2)]
			var mu sync.Mutex
			left, next := random.IntN(3), 20+random.IntN(40)
			fault := func(fake.Moment) fake.Fault {
				mu.Lock()
				defer mu.Unlock()
				if next--; next > 0 || left == 0 {
					return fake.None
				}
				left--
				next = 1 + random.IntN(40)
				return []fake.Fault{fake.Die, fake.Stall, fake.Fail}[random.IntN(3)]
			}
			synctest.Test(t, func(t *testing.T) {
				// two single responses fit
				st, err := play(t, cfg, &fake.Ranks{Fault: fault, Memory: holds(22 + random.IntN(10))})
				defer st.end()
				if err != nil {
					return // a rank failed at the first start in a way that is not repeated
				}
				train(t, st, updates)
				require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
				requireClose(t, want, load(t, weights))
			})
		})
	}
}

// A session warns of a slow attention, with its cost and every reason for which it was rejected.
func TestFallback(t *testing.T) {
	t.Parallel()
	const planted = "easyrl_flex: InductorError: NoValidChoicesError: No choices"
	const elsewhere = "easyrl_flex: the check failed on another rank"
	for _, test := range []struct {
		name  string
		ready wire.Ready // of all ranks but the second's reason
		other string     // reason of the second rank
		want  string
	}{
		{"none", wire.Ready{Packed: true, Attention: "easyrl_flex"}, "", ""},
		{"slow attention", wire.Ready{Packed: true, Attention: "easyrl_segments", Reason: planted, Slowdown: 2.84},
			planted,
			"slow PyTorch ranks: passes use easyrl_segments and take 2.8 " +
				"times as long as the model's own attention on " +
				"separate sequences; rejected by the self-check: rank 0 on fake: " + planted},
		{"another rank", wire.Ready{Packed: true, Attention: "easyrl_segments", Reason: elsewhere}, planted,
			"slow PyTorch ranks: passes use easyrl_segments; rejected by the self-check: " +
				"rank 0 on fake: " + elsewhere + "; rank 1 on fake: " + planted},
		{"separate", wire.Ready{Attention: "easyrl_segments", Reason: "easyrl_segments: layers of type\nchunked",
			Slowdown: 2}, "",
			"slow PyTorch ranks: prompts are computed once for each of their responses, 2.0 times the rows for 4 " +
				"responses " +
				"half as long as their prompt; rejected by the self-check: rank 0 on fake: easyrl_segments: layers " +
				"of type chunked"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir, into := start(t), t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cfg := configure(dir, into)
				cfg.DP = 2
				st, err := play(t, cfg, &fake.Ranks{Ready: func(rank int, m *wire.Ready) {
					m.Packed, m.Attention = test.ready.Packed, test.ready.Attention
					m.Reason, m.Slowdown = test.ready.Reason, test.ready.Slowdown
					if rank == 1 {
						m.Reason = test.other
					}
				}})
				defer st.end()
				require.NoError(t, err)
				require.Equal(t, test.want, strings.Join(st.warnings, "\n"))
			})
		})
	}
}
