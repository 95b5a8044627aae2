package report

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/notice"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	require.Equal(t,
		"reward 0.500  held-out 0.891  length 23.4  12345 tokens/s  trainer idle 12%  instances idle 40%  1.2s",
		Summary(Values{"step": 3, "reward/mean": .5, "response_length/mean": 23.44, "perf/tokens_per_second": 12345.4,
			"actor/loss":   .1,
			"idle/trainer": .12, "idle/instances": .4, "eval/addition/mean@1": .891, "eval/addition/pass@1": .891,
			"timing_s/step": 1.23}))
	require.Equal(t, "reward 0.000  no signal: all advantages are 0  2m03s",
		Summary(Values{"step": 3, "reward/mean": 0, "reward/no_signal_frac": 1, "timing_s/step": 123}))
	require.Equal(t, "loss 0.1234", Summary(Values{"step": 3, "actor/loss": .1234}))
	require.Equal(t, "loss 0.1234  held-out loss 3.500",
		Summary(Values{"step": 3, "actor/loss": .1234, "eval/test/loss": 3.5}))
	require.Equal(t, "held-out 0.500  a/mean@2 0.250  b/mean@2 0.750",
		Summary(Values{"eval/a/mean@2": .25, "eval/b/mean@2": .75, "eval/b/pass@2": 1}))
	require.Empty(t, Summary(Values{"step": 3}))
}

func TestConsolePlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := NewConsole(&out, 2, 5)
		c.Remember(Values{"step": 0, "eval/a/mean@1": .125})
		c.Progress(1, 8, "groups")
		<-time.After(30 * time.Second)
		c.Step(Values{"step": 3, "reward/mean": .5})
		require.Equal(t, "1m00s", c.Left())
		c.Note(notice.Progress, "checkpoint %s", "step-000003")
		<-time.After(50 * time.Second)
		c.Step(Values{"step": 4, "reward/mean": .25, "eval/a/mean@1": .75})
		c.Step(Values{"step": 5, "reward/mean": .75, "response_length/mean": 7})
		require.Empty(t, c.Left())
		c.Close()
		require.Equal(t, "step 3/5  reward 0.500  held-out 0.125 (step 0)  left 1m00s\ncheckpoint step-000003\n"+
			"step 4/5  reward 0.250  held-out 0.750  left 40s\nstep 5/5  reward 0.750  held-out 0.750 (step 4)  "+
			"length 7.0\n", out.String())
	})
}

func TestConsoleCount(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := NewConsole(&out, 0, 40)
	for i := range 40 {
		c.Count(i+1, "prompts")
	}
	require.Equal(t, 20, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), "2/40 prompts  left 0s\n4/40 prompts")
	require.True(t, strings.HasSuffix(out.String(), "\n40/40 prompts\n"))
}

// screen is what a terminal shows: finished lines and the line that is redrawn.
func screen(t *testing.T, out string) (lines []string) {
	t.Helper()
	for _, line := range strings.Split(out, "\n") {
		line = line[strings.LastIndex(line, eraseLine)+1:]
		lines = append(lines, strings.TrimPrefix(line, eraseLine[1:]))
	}
	return lines
}

func TestConsoleTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := newConsole(&out, 0, 4, func() int { return 90 })
		require.Equal(t, []string{"░░░░░░░░░░░░░░░░  step 0/4"}, screen(t, out.String()))
		c.Progress(1, 8, "prompts evaluated")
		require.Equal(t, []string{"░░░░░░░░░░░░░░░░  step 0/4  1/8 prompts evaluated"}, screen(t, out.String()))
		<-time.After(time.Minute)
		c.Step(Values{"step": 1, "reward/mean": .5, "eval/a/mean@1": .25, "response_length/mean": 7})
		require.Equal(t, []string{"████░░░░░░░░░░░░  step 1/4  reward 0.500  held-out 0.250  left 3m00s  length 7.0"},
			screen(t, out.String()))
		c.Progress(3, 8, "prompts evaluated")
		require.Contains(t, screen(t, out.String())[0],
			"step 1/4  reward 0.500  held-out 0.250  left 3m00s  3/8 prompts evaluated", "the main fields stay")
		c.Note(notice.Warning, "a note")
		require.Equal(t, string(notice.Warning)+": a note", screen(t, out.String())[0])
		require.Contains(t, screen(t, out.String())[1], "reward 0.500")
		c.Close()
		require.True(t, strings.HasSuffix(out.String(), "evaluated\n"), out.String())
	})
}

func TestConsoleCountsOnTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := newConsole(&out, 0, 4, func() int { return 30 })
	c.Count(1, "prompts")
	c.Note(notice.Warning, "a note")
	require.Contains(t, screen(t, out.String())[1], "1/4 prompts", "the line stays that of the count")
}

// The main fields stay on the line whatever its width; the rest goes first.
func TestProgressFits(t *testing.T) {
	t.Parallel()
	p := progress{total: 100, left: "1h02m"}
	p.add(Values{"step": 20, "eval/test/mean@1": .873})
	p.add(Values{"step": 27, "reward/mean": .9, "response_length/mean": 30, "idle/trainer": .05, "idle/instances": .4,
		"timing_s/step": 1})
	all := "step 27/100  reward 0.900  held-out 0.873 (step 20)  left 1h02m"
	for room, want := range map[int]string{
		200: "████░░░░░░░░░░░░  " + all + "  length 30.0  trainer idle 5%  instances idle 40%  1s",
		120: all + "  length 30.0  trainer idle 5%  instances idle 40%  1s",
		93:  all + "  length 30.0  trainer idle 5%",
		76:  all + "  length 30.0",
		63:  all,
		62:  "step 27/100  reward 0.900  held-out 0.873  left 1h02m",
		52:  "27/100 reward 0.900 held-out 0.873 1h02m",
		39:  "27/100 r 0.900 h 0.873 1h02m",
		27:  "27/100 0.900 0.873 1h02m",
		20:  "27/100 0.900 0.873 1",
		0:   "", -5: "",
	} {
		require.Equal(t, want, p.line(room, true), room)
	}
	for room := range 300 {
		line := p.line(room, true)
		require.LessOrEqual(t, width(line), room)
		if room >= 24 {
			for _, field := range []string{"27/100", "0.900", "0.873", "1h02m"} {
				require.Contains(t, line, field, room)
			}
		}
	}
}

func TestShortDuration(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"0s": 0, "59s": 59 * time.Second, "1m01s": 61 * time.Second, "1h00m": time.Hour, "2d03h": 51 * time.Hour,
	} {
		require.Equal(t, want, Duration(d))
	}
}

func TestPeakMemory(t *testing.T) {
	t.Parallel()
	peak := PeakMemory()
	require.Greater(t, peak, int64(1<<20))
	require.Less(t, peak, int64(1<<40))
}
