package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
)

// scoreBadly is a reward command with the fault that mode names. The prefix "once-" limits
// the fault to one prompt, "later-" to all but right answers. Mode "breaks" fails on the
// last three prompts, "mended" on none.
func scoreBadly(mode string) {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked struct {
			ID       int64  `json:"id"`
			Prompt   string `json:"prompt"`
			Answer   string `json:"answer"`
			Response string `json:"response"`
		}
		if json.Unmarshal(lines.Bytes(), &asked) != nil {
			os.Exit(9)
		}
		if gate, ok := strings.CutPrefix(mode, "gate:"); ok {
			if asked.Prompt == gatedPrompt {
				wait(gate)
			}
			fmt.Printf(`{"id":%d,"score":%d}`+"\n", asked.ID, len(asked.Response)%3)
			continue
		}
		if mode == "breaks" || mode == "mended" {
			if mode == "breaks" && strings.HasSuffix(asked.Prompt, ",2") {
				misbehave("garbage", asked.ID)
				continue
			}
			fmt.Printf(`{"id":%d,"score":%d}`+"\n", asked.ID, len(asked.Response)%3)
			continue
		}
		bad := mode
		if once, ok := strings.CutPrefix(mode, "once-"); ok {
			if bad = once; asked.Prompt != "7,0" {
				bad = ""
			}
		}
		if later, ok := strings.CutPrefix(mode, "later-"); ok {
			if bad = later; asked.Response == asked.Answer {
				bad = ""
			}
		}
		misbehave(bad, asked.ID)
	}
}

func misbehave(how string, id int64) {
	switch how {
	case "":
		fmt.Printf(`{"id":%d,"score":0.5}`+"\n", id)
	case "crash":
		fmt.Fprintln(os.Stderr, "out of ideas")
		os.Exit(3)
	case "hang":
		select {}
	case "eat":
		held := make([]byte, 1<<30)
		for i := 0; i < len(held); i += 4096 {
			held[i] = 1
		}
		for { // until killed
			runtime.KeepAlive(held)
			<-time.After(time.Minute)
		}
	case "garbage":
		fmt.Println("Traceback (most recent call last):")
	case "late":
		fmt.Printf(`{"id":%d,"score":1}`+"\n", id-1)
	case "nan":
		fmt.Printf(`{"id":%d,"score":NaN}`+"\n", id)
	case "null":
		fmt.Printf(`{"id":%d,"score":null}`+"\n", id)
	case "reports":
		fmt.Printf(`{"id":%d,"error":"no verdict"}`+"\n", id)
	}
}

// gatedPrompt is the prompt that mode "gate:FOLDER" scores only when a test allows it
// through the pipes in the folder, or at once if there are none.
const gatedPrompt = "9,9"

func wait(gate string) {
	asked := filepath.Join(gate, "asked")
	if _, err := os.Stat(asked); err != nil {
		return
	}
	if os.WriteFile(asked, []byte("score?"), 0o644) != nil {
		os.Exit(9)
	}
	if _, err := os.ReadFile(filepath.Join(gate, "told")); err != nil {
		os.Exit(9)
	}
}

// needsEnv skips the test unless env and sh exist.
func needsEnv(t *testing.T) {
	t.Helper()
	for _, name := range []string{"env", "sh"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs the program " + name)
		}
	}
}

// hangs is a reward command that starts faster than any Go program, so that a timeout of
// seconds does not include its start. It scores 0.5 unless it hangs.
const hangs = `hang() { while :; do sleep 60; done; }
while read -r q; do
	id=${q#*:} answer=${q#*\"answer\":\"} response=${q#*\"response\":\"}
	case $0 in
	once-hang) case $q in *'"prompt":"7,0"'*) hang ;; esac ;;
	later-hang) [ "${answer%%\"*}" = "${response%%\"*}" ] || hang ;;
	esac
	echo "{\"id\":${id%%,*},\"score\":0.5}"
done`

func rewardSettings(mode string) []string {
	command, timeout := []string{"env", "EASYRL_TEST_AS_REWARD=" + mode, os.Args[0]}, 100.0 // longer than any wait
	switch mode {
	case "hang":
		timeout = 0.5
	case "later-hang", "once-hang":
		command, timeout = []string{"sh", "-c", hangs, mode}, 3
	}
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = strconv.Quote(word)
	}
	return []string{"-set", fmt.Sprintf(`reward={kind="command",command=[%s],timeout=%v,memory_gib=0.25}`,
		strings.Join(words, ","), timeout)}
}

// faults returns the faults of a reward command and the errors expected for them.
func faults() map[string]string {
	all := map[string]string{
		"crash": "program exited without a reply: exit status 3; its standard error ends with: out of ideas " +
			"(after 3 tries)",
		"hang":    "no reply in time: 500ms (after 3 tries)",
		"garbage": `reply "Traceback (most recent call last):": expected one JSON object per line on standard output`,
		"late":    `"id" is 0, expected 1`,
		"nan":     "expected one JSON object per line on standard output",
		"null":    `neither "score" nor "error"`,
		"reports": "program reports: no verdict",
	}
	if runtime.GOOS == "linux" {
		all["eat"] = "program used more than 256.0 MiB of memory (after 3 tries)"
	}
	return all
}

// A reward that cannot score anything fails before the run changes anything.
func TestBadRewardFailsAtStart(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := tinyRun(t)
	for mode, want := range faults() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(dir, mode)
			code, _, errs := command(t,
				append([]string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out)},
					rewardSettings(mode)...)...)
			require.Equal(t, exitFailed, code, errs)
			require.True(t, strings.HasPrefix(errs,
				"error: reward start-up check: reward command env: prompt prompts.jsonl:1: "), errs)
			require.Contains(t, errs, want)
			require.Equal(t, 1, strings.Count(errs, "\n"))
			require.NoFileExists(t, filepath.Join(out, report.MetricsFile))
		})
	}
}

// A failed reward never counts as 0: a run whose scorer keeps failing ends and reports
// why.
func TestBadRewardEndsRun(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := tinyRun(t)
	for mode, want := range faults() {
		switch mode {
		case "late":
			want = `"id" is ` // the id it was asked for varies
		case "hang":
			want = strings.Replace(want, "500ms", "3s", 1)
		case "eat":
			continue // takes long and looks the same as a crash
		}
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(dir, mode)
			args := append([]string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out)},
				rewardSettings("later-"+mode)...)
			code, _, errs := command(t, args...)
			require.Equal(t, exitFailed, code, errs)
			lines := strings.Split(strings.TrimSpace(errs), "\n")
			for _, line := range lines[:len(lines)-1] {
				require.Contains(t, line, "warning: step 1: gave up on prompt ")
			}
			last := lines[len(lines)-1]
			require.Regexp(t,
				"^error: step 1: sample: produce step 1: too many groups "+
					"failed: prompt or reward failed for [2-6] of 6", last)
			require.Contains(t, last, want)
			steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
			require.NoError(t, err)
			require.Empty(t, steps, "no step is trained without rewards")
			said, err := report.ReadWarnings(filepath.Join(out, report.WarningsFile))
			require.NoError(t, err)
			require.Equal(t, []report.Warning{{Kind: "failed",
				Text: "the run failed: " + strings.TrimPrefix(last, "error: ")}}, said)
		})
	}
}

// requireOneFailed requires that one prompt's group was given up, reported, counted and
// left out of the record.
func requireOneFailed(t *testing.T, out, errs string) (retries float64) {
	t.Helper()
	require.Contains(t, errs, "gave up on prompt prompts.jsonl:8: reward of response ")
	steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
	require.NoError(t, err)
	failed := 0.0
	for _, values := range steps {
		failed += values["groups/failed"]
		retries += values["reward/retries"]
		require.Equal(t, 6.0, values["groups/trained"]+values["groups/failed"])
		require.Equal(t, 0.5, values["reward/mean"])
	}
	require.Equal(t, 1.0, failed)
	rollouts, err := filepath.Glob(filepath.Join(out, "rollouts", "*"))
	require.NoError(t, err)
	require.Len(t, rollouts, len(steps))
	for _, path := range rollouts {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotContains(t, string(b), `"prompts.jsonl:8"`)
	}
	return retries
}

// One group may fail without ending the run.
func TestBadRewardOfOnePrompt(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := tinyRun(t)
	for _, batch := range []int{1, 5} {
		for mode := range faults() {
			if batch > 1 && mode != "crash" && mode != "hang" {
				continue
			}
			t.Run(fmt.Sprint(mode, batch), func(t *testing.T) {
				t.Parallel()
				out := filepath.Join(dir, fmt.Sprint(mode, batch))
				args := append([]string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out),
					"-set", "run.steps=4"},
					rewardSettings("once-"+mode)...)
				code, _, errs := command(t, append(args, "-set", fmt.Sprintf("reward.batch=%d", batch))...)
				require.Zero(t, code, errs)
				retries := requireOneFailed(t, out, errs)
				if mode == "reports" {
					require.Zero(t, retries, "a program's verdict is not retried")
				} else {
					require.GreaterOrEqual(t, retries, 2.0)
				}
			})
		}
	}
}

// httpScorer scores 0.5, unless bad answers request n itself and returns true.
func httpScorer(t *testing.T, bad func(n int64, prompt string, w http.ResponseWriter, r *http.Request) bool) string {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Items []struct{ Prompt string } }
		if json.NewDecoder(r.Body).Decode(&asked) != nil || len(asked.Items) != 1 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if !bad(n.Add(1), asked.Items[0].Prompt, w, r) {
			fmt.Fprint(w, `{"scores":[{"id":1,"score":0.5,"parts":{"half":0.25}}]}`)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestHTTPReward(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := func(t *testing.T, url string, timeout float64) (code int, out, errs string) {
		out = filepath.Join(t.TempDir(), "run")
		code, _, errs = command(t, "train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out),
			"-set", "run.steps=4",
			"-set", fmt.Sprintf(`reward={kind="http",url=%q,timeout=%v}`, url, timeout))
		return code, out, errs
	}
	t.Run("fails twice", func(t *testing.T) {
		t.Parallel()
		code, out, errs := run(t, httpScorer(t, func(n int64, _ string, w http.ResponseWriter, _ *http.Request) bool {
			if n == 4 || n == 5 {
				w.WriteHeader(http.StatusInternalServerError)
			}
			return n == 4 || n == 5
		}), 100)
		require.Zero(t, code, errs)
		require.NotContains(t, errs, "gave up")
		steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
		require.NoError(t, err)
		require.Equal(t, 2.0, steps[0]["reward/retries"])
		for i, values := range steps {
			require.Equal(t, []float64{0, 0.5, 0.25},
				[]float64{values["groups/failed"], values["reward/mean"], values["reward/half/mean"]})
			require.True(t, i == 0 || values["reward/retries"] == 0)
		}
		rollouts, err := os.ReadFile(filepath.Join(out, "rollouts", "step-000001.jsonl"))
		require.NoError(t, err)
		require.Contains(t, string(rollouts), `"parts":{"half":0.25}`)
	})
	silent := func(_ int64, prompt string, _ http.ResponseWriter, r *http.Request) bool {
		if prompt != "7,0" {
			return false
		}
		<-r.Context().Done()
		return true
	}
	t.Run("never answers one response", func(t *testing.T) {
		t.Parallel()
		code, out, errs := run(t, httpScorer(t, silent), 3) // enough for the others to answer
		require.Zero(t, code, errs)
		require.GreaterOrEqual(t, requireOneFailed(t, out, errs), 2.0)
		require.Contains(t, errs, "no reply in time: 3s (after 3 tries)")
	})
	t.Run("never answers", func(t *testing.T) {
		t.Parallel()
		code, _, errs := run(t,
			httpScorer(t, func(n int64, _ string, w http.ResponseWriter,
				r *http.Request) bool {
				return silent(n, "7,0", w, r)
			}), 0.2)
		require.Equal(t, exitFailed, code, errs)
		require.Contains(t, errs,
			"error: reward start-up check: reward http: prompt prompts.jsonl:1: http://127.0.0.1:")
		require.Contains(t, errs, ": no reply in time: 200ms (after 3 tries)")
	})
}

// Metrics include the parts of a sum and the rewards per data source.
func TestRewardParts(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	prompts := write(t, dir, "sources.jsonl",
		strings.Repeat(`{"prompt":"1,2","answer":"3","data_source":"a"}`+"\n"+
			`{"prompt":"3,4","data_source":"b","answer":null}`+"\n", 3))
	args := []string{"train", filepath.Join(dir, "run.toml"), "-set", "data.train=" + prompts, "-set",
		fmt.Sprintf("run.dir=%q", filepath.Join(dir, "parts")),
		"-set", "run.steps=1", "-set", "data.eval=[]", "-set", "eval.every=0", "-set",
		`reward={kind="",sources={a={kind="sum",parts={right={kind="prefix",weight=2},late={kind="overlong",` +
			`buffer=1}}}}}`}
	code, _, errs := command(t, args...)
	require.Equal(t, exitUsage, code, errs)
	require.Contains(t, errs, `sources.jsonl: prompt sources.jsonl:2 has data source "b", which has no reward; set `+
		`[reward.sources."b"], or reward.kind for all other sources`)
	code, _, errs = command(t, append(args, "-set", "reward.sources.b={kind='regex',pattern='.'}")...)
	require.Zero(t, code, errs)
	require.NotContains(t, errs, "dropped", "only rewards that compare need a reference answer")
	steps, err := report.ReadMetrics(filepath.Join(dir, "parts", report.MetricsFile))
	require.NoError(t, err)
	require.Contains(t, steps[0], "reward/right/mean")
	require.Contains(t, steps[0], "reward/late/mean")
	require.LessOrEqual(t, steps[0]["reward/late/mean"], 0.0)
	sources := map[string][]float64{}
	file, err := os.Open(filepath.Join(dir, "parts", "rollouts", "step-000001.jsonl"))
	require.NoError(t, err)
	defer file.Close() //nolint:errcheck // read only
	for lines := json.NewDecoder(file); lines.More(); {
		var g rollout.Group
		require.NoError(t, lines.Decode(&g))
		for _, r := range g.Responses {
			sources[g.Prompt.Source] = append(sources[g.Prompt.Source], r.Reward)
		}
	}
	require.Len(t, sources, 2)
	for source, rewards := range sources {
		sum := 0.0
		for _, r := range rewards {
			sum += r
		}
		require.InDelta(t, sum/float64(len(rewards)), steps[0]["reward_by_source/"+source+"/mean"], 1e-12, source)
	}
}
