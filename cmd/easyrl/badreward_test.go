package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// scoreBadly is a reward command with a fault, which mode says; with "once-"
// before it, for one prompt only.
func scoreBadly(mode string) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked struct {
			ID       int64  `json:"id"`
			Prompt   string `json:"prompt"`
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
		bad, _ := strings.CutPrefix(mode, "once-")
		if bad != mode && asked.Prompt != "7,0" {
			bad = ""
		}
		switch bad {
		case "":
			fmt.Printf(`{"id":%d,"score":0.5}`+"\n", asked.ID)
		case "crash":
			fmt.Fprintln(os.Stderr, "out of ideas")
			os.Exit(3)
		case "hang":
			select {}
		case "garbage":
			fmt.Println("Traceback (most recent call last):")
		case "late":
			fmt.Printf(`{"id":%d,"score":1}`+"\n", asked.ID-1)
		case "nan":
			fmt.Printf(`{"id":%d,"score":NaN}`+"\n", asked.ID)
		case "null":
			fmt.Printf(`{"id":%d,"score":null}`+"\n", asked.ID)
		case "reports":
			fmt.Printf(`{"id":%d,"error":"no verdict"}`+"\n", asked.ID)
		}
	}
}

// gatedPrompt is what the mode "gate:FOLDER" gives no score to before a test
// allows it, through the pipes in the folder; where there are none it may.
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

// needsEnv skips where no program sets a variable for another.
func needsEnv(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("env"); err != nil {
		t.Skip("needs the program env")
	}
}

func rewardSettings(mode string) []string {
	timeout := 100.0 // no wait is that long
	if mode == "hang" {
		timeout = 0.5
	}
	return []string{"-set", fmt.Sprintf(`reward={kind="command",command=["env","EASYRL_TEST_AS_REWARD=%s",%q],timeout=%v}`, mode, os.Args[0], timeout)}
}

// A reward that cannot be had is never a 0: a run whose scorer fails ends and
// says why.
func TestBadRewardEndsTheRun(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := tinyRun(t)
	for mode, want := range map[string]string{
		"crash":   "program ended without an answer: exit status 3; its standard error ends: out of ideas",
		"hang":    "no answer in time: 500ms",
		"garbage": `answer "Traceback (most recent call last):": expected a JSON object a line on standard output`,
		"late":    `"id" is 0, expected 1`,
		"nan":     "expected a JSON object a line on standard output",
		"null":    `neither "score" nor "error"`,
		"reports": "program reports: no verdict",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(dir, mode)
			args := append([]string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out)}, rewardSettings(mode)...)
			code, _, errs := command(t, args...)
			require.Equal(t, exitFailed, code, errs)
			lines := strings.Split(strings.TrimSpace(errs), "\n")
			for _, line := range lines[:len(lines)-1] {
				require.Contains(t, line, "easyrl: step 1: gave up prompt ")
			}
			last := lines[len(lines)-1]
			require.Regexp(t, "^easyrl: step 1: sample: produce step 1: too many groups failed: [2-6] of 6 because of their prompt or reward", last)
			require.Contains(t, last, want)
			steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
			require.NoError(t, err)
			require.Empty(t, steps, "no reward was made up")
		})
	}
}

// One group may be given up: it is named and counted, and its prompt is not in
// the record.
func TestBadRewardOfOnePrompt(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := tinyRun(t)
	for _, mode := range []string{"once-crash", "once-garbage", "once-reports"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(dir, mode)
			args := append([]string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out), "-set", "run.steps=4"}, rewardSettings(mode)...)
			code, _, errs := command(t, args...)
			require.Zero(t, code, errs)
			require.Contains(t, errs, "gave up prompt prompts.jsonl:8: reward of response ")
			steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
			require.NoError(t, err)
			failed := 0.0
			for _, values := range steps {
				failed += values["groups/failed"]
				require.Equal(t, 6.0, values["groups/trained"]+values["groups/failed"])
				require.Equal(t, 0.5, values["reward/mean"])
			}
			require.Equal(t, 1.0, failed)
			rollouts, err := filepath.Glob(filepath.Join(out, "rollouts", "*"))
			require.NoError(t, err)
			for _, path := range rollouts {
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NotContains(t, string(b), `"prompts.jsonl:8"`)
			}
		})
	}
}
