package page

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report/trace"
)

func TestTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := trace.New(100)
		wait := func(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }
		trainer, engine := s.Track("trainer"), s.Track("engine")
		s.Track("nobody")
		for step := 1; step <= 2; step++ {
			begin := time.Now()
			whole, first := trainer.Begin(step, "step"), trainer.Begin(step, "wait")
			wait(100 * step)
			first.End()
			forward := trainer.Begin(step, "forward")
			wait(100)
			forward.End()
			whole.End()
			engine.Add("decode", begin.Add(-50*time.Millisecond), 250*time.Millisecond)
			engine.Add("pass", begin, 10*time.Microsecond)
		}
		dir := t.TempDir()
		require.NoError(t, s.WriteFile(filepath.Join(dir, trace.File)))
		drawn := readTimeline(dir)
		require.Equal(t, 2, drawn.Step)
		require.InDelta(t, .3, drawn.Seconds, 1e-9)
		grey, blue, amber := "#8885", "#2563eb", "#f59e0b"
		require.Equal(t, []timelineRow{
			{"trainer", []timelinePiece{{"wait", 0, 667, grey}, {"forward", 667, 333, blue}}},
			{"engine", []timelinePiece{{"decode", 0, 667, amber}}},
		}, drawn.Rows)
		require.Equal(t, []timelinePiece{{Name: "wait", Color: grey}, {Name: "forward", Color: blue}, {Name: "decode", Color: amber}}, drawn.Legend)
	})
}

func TestTimelineNeedsAStep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.Nil(t, readTimeline(dir))
	for _, content := range []string{"", "[]", `{"traceEvents":[{"name":"wait","ph":"X","ts":1,"dur":2,"tid":1}]}`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, trace.File), []byte(content), 0o644))
		require.Nil(t, readTimeline(dir))
	}
}
