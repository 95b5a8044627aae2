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
		case "echo": // what was asked, through standard error
			fmt.Fprint(os.Stderr, line)
			return 3
		case "once": // one answer a process
			fmt.Print(right)
			return 0
		case "crash":
			fmt.Fprint(os.Stderr, "Traceback\n  line 3\nKeyError: 'answer'\n")
			return 1
		case "poison": // dies of a word, hangs or speaks rubbish on others
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
		case "eat": // memory, on the word
			if r.Response == "eat" {
				eat(len(args) > 0)
			}
			adjusted, err := os.ReadFile("/proc/self/oom_score_adj")
			if err != nil {
				return 7
			}
			fmt.Print(strings.Replace(right, `"parts":{`, `"parts":{"oom_score_adj":`+strings.TrimSpace(string(adjusted))+",", 1))
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
			fmt.Print(strings.Repeat("x", 2*program.MaxAnswer))
		default: // answers with its mode
			fmt.Println(strings.ReplaceAll(mode, "ID", strconv.FormatInt(r.ID, 10)))
		}
	}
}

// A scorer may say whether a response is right, whatever its score.
func TestScorersSayWhatIsRight(t *testing.T) {
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

// eat takes more memory than it may; with a child, that does it.
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

func scoring(t *testing.T, processes int, args ...string) *command {
	t.Helper()
	return scoringWith(t, Term{CallConfig: CallConfig{Concurrency: processes, Timeout: ample.Seconds(), Batch: 1}}, args...)
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

// shortFor is a little time for batches with a response, and ample for others:
// they end in time however slow the machine is.
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
		require.Equal(t, Score{Value: row.want, Parts: map[string]float64{"asked": float64(i + 1), "length": 5}}, got, "one process serves all")
	}
}

func TestCommandSendsTheWholeInput(t *testing.T) {
	t.Parallel()
	in := Input{
		Prompt: &rollout.Prompt{ID: "gsm8k:7", Text: "a<b", Answer: json.RawMessage(`{"n":1}`), Source: "gsm8k"},
		Text:   "yes", Finish: rollout.Length, Length: 3,
	}
	_, err := scoring(t, 1, "echo").Score(t.Context(), in)
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
			c := scoring(t, 1, row.mode)
			_, err := c.Score(t.Context(), input("1", "1", rollout.Stop))
			require.ErrorContains(t, err, "reward command "+c.argv[0]+": prompt set:1: ")
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
			c := scoring(t, 1, mode)
			c.timeout = shortFor("hang")
			_, err := c.Score(t.Context(), in)
			require.ErrorIs(t, err, ErrTimeout)
			require.ErrorContains(t, err, "no answer in time: 50ms")
			if mode == "hang" {
				got, err := c.Score(t.Context(), input("1", "1", rollout.Stop))
				require.NoError(t, err)
				require.Equal(t, 1.0, got.Parts["asked"])
			}
		})
	}
}

// A program that ends after an answer is started again, and one that ends
// before its first answer is not asked for ever.
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
		require.Equal(t, number(i%8 == 4), scores[i].Value, "each answer reaches its own request")
		asked = max(asked, int(scores[i].Parts["asked"]))
	}
	require.GreaterOrEqual(t, asked, int(math.Ceil(n/3.0)), "40 responses were shared by 3 processes at most")
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

// One response that a batch fails of spoils no other, whatever it does.
func TestCommandBatch(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ bad, want string }{
		{"die", "exit status 4 (after 3 tries)"}, {"rubbish", `answer "?"`}, {"hang", "no answer in time: 50ms (after 3 tries)"},
	} {
		t.Run(row.bad, func(t *testing.T) {
			t.Parallel()
			c := scoringWith(t, Term{CallConfig: CallConfig{Concurrency: 1, Timeout: ample.Seconds(), Batch: 8, Retries: 2}}, "poison")
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

// A program that takes memory without end is killed, also where its child does.
func TestCommandMemory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("memory is watched on Linux")
	}
	for _, args := range [][]string{{"eat"}, {"eat", "child"}} {
		c := scoringWith(t, Term{CommandConfig: CommandConfig{MemoryGiB: 0.25}, CallConfig: CallConfig{Concurrency: 1, Timeout: ample.Seconds(), Batch: 1, Retries: 1}}, args...)
		_, err := c.Score(t.Context(), input("1", "eat", rollout.Stop))
		require.ErrorContains(t, err, "program had more than 0.25 GiB of memory (after 2 tries)")
		got, err := c.Score(t.Context(), input("1", "1", rollout.Stop))
		require.NoError(t, err)
		require.Equal(t, 1.0, got.Value)
		require.Equal(t, 1000.0, got.Parts["oom_score_adj"], "the kernel takes it first")
	}
}
