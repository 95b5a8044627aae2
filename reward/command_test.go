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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward/program"
	"github.com/easyrl/easyrl/reward/queue"
	"github.com/easyrl/easyrl/reward/wire"
	"github.com/easyrl/easyrl/rollout"
)

// TestMain also runs the test binary as the scoring program.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "score" {
		os.Exit(scorer(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

// scorer scores requests as mode says.
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
		var r wire.Request
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
		case "echo": // writes the request to standard error
			fmt.Fprint(os.Stderr, line)
			return 3
		case "once": // one reply per process
			fmt.Print(right)
			return 0
		case "crash":
			fmt.Fprint(os.Stderr, "Traceback\n  line 3\nKeyError: 'answer'\n")
			return 1
		case "poison": // exits, hangs or writes garbage on certain words
			switch r.Response {
			case "die":
				return 4
			case "hang":
				select {}
			case "rubbish":
				fmt.Println("?")
			default:
				fmt.Print(right)
			}
		case "eat": // uses up memory on the word
			if r.Response == "eat" {
				eat(len(args) > 0)
			}
			adjusted, err := os.ReadFile("/proc/self/oom_score_adj")
			if err != nil {
				return 7
			}
			fmt.Print(strings.Replace(right, `"parts":{`,
				`"parts":{"oom_score_adj":`+strings.TrimSpace(string(adjusted))+",", 1))
		case "hang": // hangs on the word, optionally with a child that keeps a file open
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
			fmt.Print(strings.Repeat("x", 2*program.MaxAnswer))
		default: // replies with mode itself
			fmt.Println(strings.ReplaceAll(mode, "ID", strconv.FormatInt(r.ID, 10)))
		}
	}
}

// A scorer may report whether a response is right independently of its score.
func TestScorersReportRight(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]struct {
		verdict Verdict
		right   bool
	}{
		`"score":1`: {Open, true}, `"score":0.9`: {Open, false}, `"score":1,"right":null`: {Open, true},
		`"score":0.2,"right":true`: {Right, true}, `"score":3,"right":false`: {Wrong, false},
	} {
		a, err := wire.ReadLine([]byte(`{"id":7,`+said+`}`), 7)
		require.NoError(t, err)
		got := outcomeOf(&a, "scorer")
		require.NoError(t, got.Err)
		require.Equal(t, want.verdict, got.Value.Verdict, said)
		require.Equal(t, want.right, got.Value.Right(), said)
	}
	all, err := wire.ReadList([]byte(`{"scores":[{"id":1,"score":0.5,"right":true}]}`), 1)
	require.NoError(t, err)
	require.Equal(t, Right, outcomeOf(&all[0], "scorer").Value.Verdict)
	_, err = wire.ReadLine([]byte(`{"id":7,"score":1,"right":"yes"}`), 7)
	require.ErrorContains(t, err, "right")
}

// eat exceeds the memory limit, in a child process if child is set.
func eat(child bool) {
	if child {
		c := exec.Command(os.Args[0], "score", "eat")
		c.Stdin = strings.NewReader(`{"id":1,"response":"eat"}` + "\n")
		_ = c.Run()
		return
	}
	held := make([]byte, 1<<29)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	for { // until it is killed
		runtime.KeepAlive(held)
		<-time.After(time.Minute)
	}
}

// holdOpen starts a child that keeps path and standard output open, and reports that
// it runs.
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

func scoring(t *testing.T, processes int, args ...string) *command {
	t.Helper()
	return scoringWith(t, Term{CallConfig: CallConfig{Concurrency: processes, Timeout: ample.Seconds(), Batch: 1}},
		args...)
}

func scoringWith(t *testing.T, term Term, args ...string) *command {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	term.Command = append([]string{self, "score"}, args...)
	c, err := newCommand(&term)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

const ample = time.Minute

// shortFor returns a short timeout for batches that contain the response and a long
// one for others, which finish in time on any machine.
func shortFor(text string) func(batch []Input) time.Duration {
	return func(batch []Input) time.Duration {
		if slices.ContainsFunc(batch, func(in Input) bool { return in.Text == text }) {
			return 50 * time.Millisecond
		}
		return ample
	}
}

func TestCommandScores(t *testing.T) {
	t.Parallel()
	c := scoring(t, 1, "right")
	for i, row := range []struct {
		answer, text string
		want         float64
	}{{"17", "17", 1}, {"17", "18", 0}, {"<a>&\n", "<a>&\n", 1}} {
		in := input(row.answer, row.text, rollout.Stop)
		in.Length = 5
		got, err := c.Score(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, Score{Value: row.want, Parts: map[string]float64{"asked": float64(i + 1), "length": 5}}, got,
			"one process scores all responses")
	}
}

func TestCommandSendsWholeInput(t *testing.T) {
	t.Parallel()
	in := Input{
		Prompt: &rollout.Prompt{ID: "gsm8k:7", Text: "a<b", Answer: json.RawMessage(`{"n":1}`), Source: "gsm8k"},
		Text:   "yes", Finish: rollout.Length, Length: 3,
	}
	_, err := scoring(t, 1, "echo").Score(t.Context(), in)
	require.ErrorContains(t, err, "exit status 3")
	want :=
		`{"id":1,"prompt_id":"gsm8k:7","prompt":"a<b","answer":{"n":1},"source":"gsm8k","response":"yes",` +
			`"finish":"length","length":3}`
	require.ErrorContains(t, err, want)
}

func TestCommandFailuresAreErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ mode, want string }{
		{"crash", "program exited without a reply: exit status 1; its standard error ends with: KeyError: 'answer'"},
		{"half", "program exited in the middle of its reply"},
		{"long", "reply is longer than"},
		{"thinking…", `reply "thinking…": expected one JSON object per line`},
		{`{"id":ID,"score":NaN}`, "expected one JSON object"},
		{`{"id":ID,"score":1e999}`, "expected one JSON object"},
		{`{"id":ID,"score":"1"}`, "expected one JSON object"},
		{`{"id":ID}`, `neither "score" nor "error"`},
		{`{"id":ID,"score":null}`, `neither "score" nor "error"`},
		{`{"score":1}`, `"id" is missing, expected 1`},
		{`{"id":7,"score":1}`, `"id" is 7, expected 1`},
		{`{"id":ID,"error":"no such\nunit"}`, "program reports: no such unit"},
	} {
		t.Run(row.mode, func(t *testing.T) {
			t.Parallel()
			c := scoring(t, 1, row.mode)
			_, err := c.Score(t.Context(), input("1", "1", rollout.Stop))
			require.ErrorContains(t, err, "reward command "+c.argv[0]+": prompt set:1: ")
			require.ErrorContains(t, err, row.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// After a missed deadline, another process scores the next response.
func TestCommandDeadline(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"hang", "deaf"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			in := input("1", "hang", rollout.Stop)
			in.Prompt.Text = strings.Repeat("long ", 100_000) // more than a pipe holds
			c := scoring(t, 1, mode)
			c.timeout = shortFor("hang")
			_, err := c.Score(t.Context(), in)
			require.ErrorIs(t, err, ErrTimeout)
			require.ErrorContains(t, err, "no reply in time: 50ms")
			if mode == "hang" {
				got, err := c.Score(t.Context(), input("1", "1", rollout.Stop))
				require.NoError(t, err)
				require.Equal(t, 1.0, got.Parts["asked"])
			}
		})
	}
}

// A program that exits after a reply is started again. One that exits before its first
// reply is not retried forever.
func TestCommandReplacesAnEndedProcess(t *testing.T) {
	t.Parallel()
	c := scoring(t, 1, "once")
	for range 3 {
		got, err := c.Score(t.Context(), input("1", "1", rollout.Stop))
		require.NoError(t, err)
		require.Equal(t, 1.0, got.Parts["asked"])
	}
}

func TestCommandBoundsProcesses(t *testing.T) {
	t.Parallel()
	c := scoring(t, 3, "right")
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
		require.Equal(t, number(i%8 == 4), scores[i].Value, "each reply reaches its own request")
		asked = max(asked, int(scores[i].Parts["asked"]))
	}
	require.GreaterOrEqual(t, asked, int(math.Ceil(n/3.0)), "at most 3 processes scored 40 responses")
}

func TestCommandClose(t *testing.T) {
	t.Parallel()
	c := scoring(t, 2, "hang")
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
	require.ErrorIs(t, <-busy, queue.ErrClosed)
	require.ErrorIs(t, <-busy, queue.ErrClosed)
	wg.Wait()
	_, err := c.Score(t.Context(), input("1", "1", rollout.Stop))
	require.ErrorIs(t, err, queue.ErrClosed)
}

// A response that makes a batch fail does not affect the other responses.
func TestCommandBatch(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ bad, want string }{
		{"die", "exit status 4 (after 3 tries)"}, {"rubbish", `reply "?"`},
		{"hang", "no reply in time: 50ms (after 3 tries)"},
	} {
		t.Run(row.bad, func(t *testing.T) {
			t.Parallel()
			c := scoringWith(t,
				Term{CallConfig: CallConfig{Concurrency: 1, Timeout: ample.Seconds(), Batch: 8, Retries: 2}}, "poison")
			c.timeout = shortFor("hang")
			const n = 20
			var wg sync.WaitGroup
			scores, errs := make([]Score, n), make([]error, n)
			for i := range n {
				text := "7"
				if i == 9 {
					text = row.bad
				}
				wg.Go(func() { scores[i], errs[i] = c.Score(t.Context(), input("7", text, rollout.Stop)) })
			}
			wg.Wait()
			for i := range n {
				if i == 9 {
					require.ErrorContains(t, errs[i], row.want)
					continue
				}
				require.NoError(t, errs[i])
				require.Equal(t, 1.0, scores[i].Value)
			}
			require.GreaterOrEqual(t, c.Retries(), int64(2))
		})
	}
}

// A program is killed if it or its child exceeds the memory limit.
func TestCommandMemory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the memory limit works only on Linux")
	}
	for _, args := range [][]string{{"eat"}, {"eat", "child"}} {
		c := scoringWith(t, Term{CommandConfig: CommandConfig{MemoryGiB: 0.25},
			CallConfig: CallConfig{Concurrency: 1, Timeout: ample.Seconds(), Batch: 1, Retries: 1}}, args...)
		_, err := c.Score(t.Context(), input("1", "eat", rollout.Stop))
		require.ErrorContains(t, err, "program used more than 256.0 MiB of memory (after 2 tries)")
		got, err := c.Score(t.Context(), input("1", "1", rollout.Stop))
		require.NoError(t, err)
		require.Equal(t, 1.0, got.Value)
		require.Equal(t, 1000.0, got.Parts["oom_score_adj"], "first victim of the out-of-memory killer")
	}
}
