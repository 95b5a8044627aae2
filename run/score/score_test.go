package score

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/jsonlines"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// Each kind of line gives its responses, with what the reward may look at.
func TestParse(t *testing.T) {
	t.Parallel()
	type want struct {
		id, prompt, promptText, question, answer, source, text string
		finish                                                 rollout.Finish
		length                                                 int
	}
	for name, test := range map[string]struct {
		line string
		want []want
	}{
		"least": {`{"prompt":"p","response":""}`, []want{{`"f:9"`, "f:9", "p", "p", "", "", "", "stop", 0}}},
		"all fields": {`{"id":"x","source":"s","finish":"length","length":7,"prompt":"p","answer":{"a": [1, ` +
			`2]},"response":"<r>"}`,
			[]want{{`"x"`, "x", "p", "p", `{"a":[1,2]}`, "s", "<r>", "length", 7}}},
		"integer id": {`{"id":12,"prompt":"p","answer":null,"response":"r"}`,
			[]want{{`12`, "12", "p", "p", "", "", "r", "stop", 0}}},
		"null id": {`{"id":null,"prompt":"p","response":"r"}`,
			[]want{{`"f:9"`, "f:9", "p", "p", "", "", "r", "stop", 0}}},
		"messages": {`{"prompt":[{"role":"system","content":"s"},{"role":"user","content":"q"}],"response":"r"}`,
			[]want{{`"f:9"`, "f:9", "s\n\nq", "q", "", "", "r", "stop", 0}}},
		"older messages": {`{"prompt":[{"from":"human","value":"q"}],"response":"r"}`,
			[]want{{`"f:9"`, "f:9", "q", "q", "", "", "r", "stop", 0}}},
		"first of a record": {`{"easyrl_eval":{"record":"2"}}`, nil},
		"rollouts": {`{"step":1,"version":1,"index":0,"prompt_id":"g:7","prompt":"<u>1+1=","question":"1+1=",` +
			`"prompt_ids":[5],"answer":"2","source":"g","responses":[` +
			`{"text":"2","ids":[7,1],"logprobs":[-0.25,-1e-7],"reward":1,"finish":"stop","version":1,` +
			`"instance":"local"},{"text":"33","ids":[8],"logprobs":[-3],"reward":0,"finish":"length",` +
			`"version":1,"instance":"local"}]}`,
			[]want{{`"g:7/1"`, "g:7", "<u>1+1=", "1+1=", `"2"`, "g", "2", "stop", 2},
				{`"g:7/2"`, "g:7", "<u>1+1=", "1+1=", `"2"`, "g", "33", "length", 1}}},
		"record": {`{"set":"t","index":0,"prompt_id":"g:7","prompt":"1+1=","answer":"2",` +
			`"responses":[{"text":"2","reward":1,"right":true,"finish":"stop","tokens":5}]}`,
			[]want{{`"g:7/1"`, "g:7", "1+1=", "1+1=", `"2"`, "", "2", "stop", 5}}},
		"group without an id": {`{"prompt":"p","responses":[{"text":"2"}]}`,
			[]want{{`"f:9/1"`, "f:9", "p", "p", "", "", "2", "stop", 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, err := parse(jsonlines.Line{Number: 9, Text: []byte(test.line)}, "f:9")
			require.NoError(t, err)
			var got []want
			for _, r := range all {
				id, err := json.Marshal(r.id)
				require.NoError(t, err)
				p := r.input.Prompt
				got = append(got, want{string(id), p.ID, p.Text, p.Question(), string(p.Answer), p.Source, r.input.Text,
					r.input.Finish, r.input.Length})
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestParseRejects(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"prompt":`:                    "not JSON: unexpected end of JSON input, expected ",
		`[1]`:                           "found a JSON array, expected ",
		`null`:                          `missing "response", expected `,
		`{"prompt":"p"}`:                `missing "response", expected `,
		`{"prompt":"p","responses":[]}`: `missing "response", expected `,
		`{"prompt":"p","response":"r","responses":[{"text":"t"}]}`: `found "response" and "responses", expected one ` +
			`of them`,
		`{"response":"r"}`:                `missing "prompt", expected `,
		`{"prompt":null,"response":"r"}`:  `missing "prompt", expected `,
		`{"prompt":3,"response":"r"}`:     "prompt: found a number, expected a list of messages",
		`{"prompt":[],"response":"r"}`:    "prompt: empty list, expected messages",
		`{"prompt":"p","response":["r"]}`: "response: found a JSON array, expected ",
		`{"prompt":"p","response":"r","id":1.5}`: `key "id" is 1.5, expected a non-empty string or an ` +
			`integer`,
		`{"prompt":"p","response":"r","finish":"eos"}`:        `finish is "eos", expected "stop" or "length"`,
		`{"prompt":"p","response":"r","length":-1}`:           "length is -1, expected 0 or more",
		`{"prompt":"p","responses":[{"text":"t"},{}]}`:        `responses[1]: missing "text"`,
		`{"prompt":"p","response":"r"}{"prompt":"p"}`:         "not JSON: invalid character '{' after top-level value",
		`{"prompt":"p","responses":[{"text":"t","ids":"7"}]}`: "responses.ids: found a JSON string, expected ",
	} {
		_, err := parse(jsonlines.Line{Number: 1, Text: []byte(line)}, "f:1")
		require.ErrorContains(t, err, want, line)
	}
}

// fake is a reward that is a function.
type fake struct {
	capacity int
	score    func(ctx context.Context, in reward.Input) (reward.Score, error)
}

func (f fake) Capacity() int { return f.capacity }

func (f fake) Score(ctx context.Context, in reward.Input) (reward.Score, error) {
	return f.score(ctx, in)
}

// lines returns n lines whose lengths count from 0.
func lines(n int) io.Reader {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id":%d,"prompt":"p","response":"r","length":%d}`+"\n", i, i)
	}
	return strings.NewReader(b.String())
}

// The reward gets as many responses at once as it takes, no more, and results keep the
// order of the input even if the first one finishes after others.
func TestOrder(t *testing.T) {
	t.Parallel()
	const n, atOnce = 500, 64 // more than cores
	var running, most, calls atomic.Int64
	full, last := make(chan struct{}), make(chan struct{})
	f := fake{atOnce, func(_ context.Context, in reward.Input) (reward.Score, error) {
		now := running.Add(1)
		defer running.Add(-1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		switch calls.Add(1) {
		case atOnce:
			close(full)
		case atOnce + 1:
			close(last)
		}
		if <-full; in.Length == 0 {
			<-last
		}
		for range 100 { // let others begin
			runtime.Gosched()
		}
		return reward.Score{Value: float64(in.Length % 2)}, nil
	}}
	var out bytes.Buffer
	counts, err := scoreAll(t.Context(), f, Options{Files: []string{Stdin}, In: lines(n), Out: &out})
	require.NoError(t, err)
	require.Equal(t, Counts{Scored: n, Right: n / 2, Total: n / 2}, counts)
	require.EqualValues(t, atOnce, most.Load())
	var want strings.Builder
	for i := range n {
		fmt.Fprintf(&want, `{"id":%d,"score":%d,"right":%v}`+"\n", i, i%2, i%2 == 1)
	}
	require.Equal(t, want.String(), out.String())
}

// A response without a score does not end the others, whatever the reward does.
func TestFailures(t *testing.T) {
	t.Parallel()
	f := fake{1, func(_ context.Context, in reward.Input) (reward.Score, error) {
		switch in.Length {
		case 1:
			return reward.Score{}, errors.New("down\nand out")
		case 2:
			panic("oops")
		case 3:
			var zero float64
			return reward.Score{Value: 1 / zero}, nil
		}
		return reward.Score{Value: 0.5, Parts: map[string]float64{"a": 1}, Answer: "<5>", Reason: "why",
			Verdict: reward.Wrong}, nil
	}}
	var out bytes.Buffer
	counts, err := scoreAll(t.Context(), f, Options{Files: []string{Stdin}, In: lines(5), Out: &out})
	require.NoError(t, err)
	require.Equal(t, "scored 2, mean score 0.5000, right 0, errors 3", counts.String())
	require.EqualError(t, counts.Err(), "3 of 5 responses have no score; the first is stdin:2: down; and out")
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, got, 5)
	const scored = `,"score":0.5,"right":false,"parts":{"a":1},"answer":"<5>","reason":"why"}`
	require.Equal(t, []string{`{"id":0` + scored, `{"id":1,"error":"down\nand out"}`,
		`{"id":3,"error":"reward is +Inf, expected a number from -1000000 to 1000000"}`, `{"id":4` + scored},
		[]string{got[0], got[1], got[3], got[4]})
	require.Contains(t, got[2], `{"id":2,"error":"panic: oops`)
}

// A malformed line ends the scoring after the results of those before it.
func TestMalformedLine(t *testing.T) {
	t.Parallel()
	f := fake{0, func(context.Context, reward.Input) (reward.Score, error) { return reward.Score{}, nil }}
	var out bytes.Buffer
	in := io.MultiReader(lines(20), strings.NewReader("\n{}\n"), lines(20))
	_, err := scoreAll(t.Context(), f, Options{Files: []string{Stdin}, In: in, Out: &out})
	require.ErrorContains(t, err, `stdin:22: missing "response"`)
	require.True(t, usage.Is(err))
	require.Equal(t, 20, strings.Count(out.String(), "\n"))
}

// full is an output that takes one line.
type full struct{ once sync.Once }

var errFull = errors.New("no space left")

func (f *full) Write(p []byte) (n int, err error) {
	err = errFull
	f.once.Do(func() { n, err = len(p), nil })
	return n, err
}

// endless returns lines without end.
func endless(t *testing.T) io.Reader {
	in, feed := io.Pipe()
	t.Cleanup(func() { _ = in.Close() }) // ends the writer
	go func() {
		for {
			if _, err := io.Copy(feed, lines(10)); err != nil {
				return
			}
		}
	}()
	return in
}

// An output that fails and a cancelled context end the scoring before the input ends.
func TestScoringEnds(t *testing.T) {
	t.Parallel()
	f := fake{0, func(context.Context, reward.Input) (reward.Score, error) { return reward.Score{}, nil }}
	_, err := scoreAll(t.Context(), f, Options{Files: []string{Stdin}, In: endless(t), Out: &full{}})
	require.ErrorIs(t, err, errFull)
	require.ErrorContains(t, err, "write scores: ")

	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	stopped := errors.New("stopped")
	f.score = func(ctx context.Context, _ reward.Input) (reward.Score, error) {
		cancel(stopped)
		return reward.Score{}, ctx.Err()
	}
	counts, err := scoreAll(ctx, f, Options{Files: []string{Stdin}, In: endless(t), Out: io.Discard})
	require.ErrorIs(t, err, stopped)
	require.Zero(t, counts.Failed, "a stop is no failure of the reward")
}
