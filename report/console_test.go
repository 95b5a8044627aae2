package report

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	require.Equal(t, "addition/mean@1 0.891  reward 0.500  length 23.4  12345 tokens/s  trainer idle 12%  instances idle 40%  1.2s",
		Summary(Values{"step": 3, "reward/mean": .5, "response_length/mean": 23.44, "perf/tokens_per_second": 12345.4, "actor/loss": .1,
			"idle/trainer": .12, "idle/instances": .4, "eval/addition/mean@1": .891, "eval/addition/pass@1": .891, "timing_s/step": 1.23}))
	require.Equal(t, "reward 0.000  no signal: all advantages are 0  2m03s",
		Summary(Values{"step": 3, "reward/mean": 0, "reward/no_signal_frac": 1, "timing_s/step": 123}))
	require.Equal(t, "loss 0.1234", Summary(Values{"step": 3, "actor/loss": .1234}))
	require.Empty(t, Summary(Values{"step": 3}))
}

func TestConsolePlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := NewConsole(&out, 2, 5)
		c.Progress(1, 8, "groups")
		<-time.After(30 * time.Second)
		c.Step(Values{"step": 3, "reward/mean": .5})
		require.Equal(t, "1m00s", c.Left())
		c.Note("checkpoint %s", "step-000003")
		<-time.After(50 * time.Second)
		c.Step(Values{"step": 4, "reward/mean": .25})
		c.Step(Values{"step": 5, "reward/mean": .75})
		require.Empty(t, c.Left())
		c.Close()
		require.Equal(t, "step 3/5  reward 0.500  left 1m00s\ncheckpoint step-000003\n"+
			"step 4/5  reward 0.250  left 40s\nstep 5/5  reward 0.750\n", out.String())
	})
}

func TestConsoleTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := newConsole(&out, 0, 4, func() int { return 60 })
	c.Progress(1, 8, "groups")
	require.Contains(t, out.String(), "step 1: 1/8 groups")
	c.Step(Values{"step": 1, "reward/mean": .5})
	require.Contains(t, out.String(), "(1/4)")
	require.Contains(t, out.String(), "reward 0.500")
	c.Note("a note")
	require.Contains(t, out.String(), "a note\n")
	c.Close()
	c.Step(Values{"step": 2, "reward/mean": .5})
	require.True(t, strings.HasSuffix(out.String(), "s\n"), out.String())
}

func TestFit(t *testing.T) {
	t.Parallel()
	parts := []string{"reward", "length", "idle", "left"}
	for room, want := range map[int]string{99: "reward  length  idle  left", 26: "reward  length  idle  left", 25: "reward  length  left",
		19: "reward  left", 11: "left", 3: "", -9: ""} {
		require.Equal(t, want, fit(parts, room), room)
	}
	require.Equal(t, []string{"reward", "length", "idle", "left"}, parts)
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
