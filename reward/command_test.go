package reward

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/rollout"
)

// The test binary is the scoring program too: TestMain hands over to it.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "score" {
		os.Exit(scorer(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

// scorer answers requests in the way that its mode names.
func scorer(mode string, args []string) int {
	in := bufio.NewReader(os.Stdin)
	if mode == "deaf" {
		select {}
	}
	for n := 1; ; n++ {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0
		}
		var r request
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return 9
		}
		score := 0.0
		if (&rollout.Prompt{Answer: r.Answer}).AnswerText() == r.Response {
			score = 1
		}
		right := fmt.Sprintf(`{"id":%d,"score":%v,"parts":{"asked":%d,"length":%d}}`+"\n", r.ID, score, n, r.Length)
		switch mode {
		case "right":
			fmt.Print(right)
		case "echo": // what was asked, through standard error
			fmt.Fprint(os.Stderr, line)
			return 3
		case "once": // one answer a process
			fmt.Print(right)
			return 0
		case "crash":
			fmt.Fprint(os.Stderr, "Traceback\n  line 3\nKeyError: 'answer'\n")
			return 1
		case "hang": // on the word, and with a child that holds a file open
			if r.Response == "hang" {
				if len(args) > 0 && holdOpen(args[0]) != nil {
					return 8
				}
				select {}
			}
			fmt.Print(right)
		case "half":
			fmt.Print(right[:10])
			return 0
		case "long":
			fmt.Print(strings.Repeat("x", 2*maxAnswer))
		default: // answers with its mode
			fmt.Println(strings.ReplaceAll(mode, "ID", strconv.FormatInt(r.ID, 10)))
		}
	}
}

// holdOpen starts a child that keeps path and standard output open, and says so.
func holdOpen(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	child := exec.Command(os.Args[0], "score", "deaf")
	child.Stdout, child.Stderr = f, os.Stdout
	if err := child.Start(); err != nil {
		return err
	}
	_, err = f.WriteString("open")
	return err
}

func scoring(t *testing.T, processes int, timeout time.Duration, args ...string) *command {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c, err := newCommand(append([]string{self, "score"}, args...), processes, timeout)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

const ample = time.Minute

func TestCommandScores(t *testing.T) {
	t.Parallel()
	c := scoring(t, 1, ample, "right")
	for i, row := range []struct {
		answer, text string
		want         float64
	}{{"17", "17", 1}, {"17", "18", 0}, {"<a>&\n", "<a>&\n", 1}} {
		in := input(row.answer, row.text, rollout.Stop)
		in.Length = 5
		got, err := c.Score(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, Score{Value: row.want, Parts: map[string]float64{"asked": float64(i + 1), "length": 5}}, got, "one process serves all")
	}
}

func TestCommandSendsTheWholeInput(t *testing.T) {
	t.Parallel()
	in := Input{
		Prompt: &rollout.Prompt{ID: "gsm8k:7", Text: "a<b", Answer: json.RawMessage(`{"n":1}`), Source: "gsm8k"},
		Text:   "yes", Finish: rollout.Length, Length: 3,
	}
	_, err := scoring(t, 1, ample, "echo").Score(t.Context(), in)
	require.ErrorContains(t, err, "exit status 3")
	want := `{"id":1,"prompt_id":"gsm8k:7","prompt":"a<b","answer":{"n":1},"source":"gsm8k","response":"yes","finish":"length","length":3}`
	require.ErrorContains(t, err, want)
}

func TestCommandFailuresAreErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ mode, want string }{
		{"crash", "program ended without an answer: exit status 1; its standard error ends: KeyError: 'answer'"},
		{"half", "program ended within its answer"},
		{"long", "answer is longer than"},
		{"thinking…", `answer "thinking…": expected a JSON object a line`},
		{`{"id":ID,"score":NaN}`, "expected a JSON object"},
		{`{"id":ID,"score":1e999}`, "expected a JSON object"},
		{`{"id":ID,"score":"1"}`, "expected a JSON object"},
		{`{"id":ID}`, `neither "score" nor "error"`},
		{`{"id":ID,"score":null}`, `neither "score" nor "error"`},
		{`{"score":1}`, `no "id", expected 1`},
		{`{"id":7,"score":1}`, `"id" is 7, expected 1`},
		{`{"id":ID,"error":"no such\nunit"}`, "program reports: no such unit"},
	} {
		t.Run(row.mode, func(t *testing.T) {
			t.Parallel()
			_, err := scoring(t, 1, ample, row.mode).Score(t.Context(), input("1", "1", rollout.Stop))
			require.ErrorContains(t, err, "prompt set:1: ")
			require.ErrorContains(t, err, row.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// The next response after a deadline is scored by another process.
func TestCommandDeadline(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"hang", "deaf"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			in := input("1", "hang", rollout.Stop)
			in.Prompt.Text = strings.Repeat("long ", 100_000) // more than a pipe holds
			c := scoring(t, 1, 50*time.Millisecond, mode)
			_, err := c.Score(t.Context(), in)
			require.ErrorIs(t, err, ErrTimeout)
			require.ErrorContains(t, err, "no answer in time: 50ms")
			if c.timeout = ample; mode == "hang" {
				got, err := c.Score(t.Context(), input("1", "1", rollout.Stop))
				require.NoError(t, err)
				require.Equal(t, 1.0, got.Parts["asked"])
			}
		})
	}
}

// A response that waits an hour for a process still has all its time.
func TestCommandClockStartsWithTheScoring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self, err := os.Executable()
		require.NoError(t, err)
		c, err := newCommand([]string{self, "score", "right"}, 1, ample)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		slot := <-c.slots
		var got Score
		done := make(chan error)
		go func() {
			var err error
			got, err = c.Score(t.Context(), input("1", "1", rollout.Stop))
			done <- err
		}()
		<-time.After(time.Hour) // the bubble's clock, while Score waits
		c.slots <- slot
		require.NoError(t, <-done)
		require.Equal(t, 1.0, got.Value)
	})
}

func TestCommandWaitingHeedsTheContext(t *testing.T) {
	t.Parallel()
	c := scoring(t, 1, ample, "right")
	slot := <-c.slots
	defer func() { c.slots <- slot }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Score(ctx, input("1", "1", rollout.Stop))
	require.ErrorIs(t, err, context.Canceled)
}

// A program that ends after an answer is started again, and one that ends
// before its first answer is not asked for ever.
func TestCommandReplacesAnEndedProcess(t *testing.T) {
	t.Parallel()
	c := scoring(t, 1, ample, "once")
	for range 3 {
		got, err := c.Score(t.Context(), input("1", "1", rollout.Stop))
		require.NoError(t, err)
		require.Equal(t, 1.0, got.Parts["asked"])
	}
}

func TestCommandBoundsProcesses(t *testing.T) {
	t.Parallel()
	c := scoring(t, 3, ample, "right")
	const n = 40
	var wg sync.WaitGroup
	scores, errs := make([]Score, n), make([]error, n)
	for i := range n {
		wg.Go(func() {
			scores[i], errs[i] = c.Score(t.Context(), input("4", strconv.Itoa(i%8), rollout.Stop))
		})
	}
	wg.Wait()
	asked := 0
	for i := range n {
		require.NoError(t, errs[i])
		require.Equal(t, number(i%8 == 4), scores[i].Value, "each answer reaches its own request")
		asked = max(asked, int(scores[i].Parts["asked"]))
	}
	require.GreaterOrEqual(t, asked, int(math.Ceil(n/3.0)), "40 responses were shared by 3 processes at most")
}

func TestCommandClose(t *testing.T) {
	t.Parallel()
	c := scoring(t, 2, ample, "hang")
	var f Func = c
	_, ok := f.(io.Closer)
	require.True(t, ok)
	busy := make(chan error)
	for range 2 {
		go func() {
			_, err := c.Score(context.Background(), input("1", "hang", rollout.Stop))
			busy <- err
		}()
	}
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, c.Close()) })
	wg.Go(func() { require.NoError(t, c.Close()) })
	require.ErrorIs(t, <-busy, errClosed)
	require.ErrorIs(t, <-busy, errClosed)
	wg.Wait()
	_, err := c.Score(t.Context(), input("1", "1", rollout.Stop))
	require.ErrorIs(t, err, errClosed)
}

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	var end tail
	require.Empty(t, end.lastLine())
	_, err := end.Write([]byte("first\nsecond\n\n"))
	require.NoError(t, err)
	require.Equal(t, "second", end.lastLine())
	for range 10 {
		_, err = end.Write([]byte(strings.Repeat("z", maxTail-1) + "\n"))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(end.end), maxTail)
	require.Equal(t, strings.Repeat("z", maxQuote)+"…", end.lastLine())
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"id":1,"score":0.5}`, `{"id":1,"error":"x"}`, `{"id":2}`, `[]`, `null`, `{"id":1,"score":1e999}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		a, err := decode(line, 1)
		if err != nil {
			return
		}
		if a.Error == "" && (a.Score == nil || math.IsNaN(*a.Score) || math.IsInf(*a.Score, 0)) {
			t.Fatalf("%q gave no finite score", line)
		}
	})
}
