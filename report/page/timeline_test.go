package page

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report/chart"
	"github.com/easyrl/easyrl/report/trace"
)

const twoSteps = `{"otherData":{"traceEvents":[1]},"traceEvents":[
	{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"easyrl"}},
	{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"engine","track":"engine"}},
	{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"trainer"}},
	{"ph":"M","name":"thread_name","pid":1,"tid":9,"args":{"name":"nobody"}},
	{"ph":"M","name":"thread_name","pid":1,"tid":8,"args":"odd"},
	{"ph":"X","name":"step","pid":1,"tid":1,"ts":1e6,"dur":1e6,"args":{"step":7}},
	{"ph":"X","name":"forward policy 3","pid":1,"tid":1,"ts":1.5e6,"dur":5e5,"args":{"step":7,"what":[1]}},
	{"ph":"X","name":"train","pid":1,"tid":1,"ts":1.25e6,"dur":75e4},
	{"ph":"X","name":"decode","pid":1,"tid":2,"ts":5e5,"dur":1e6},
	{"ph":"s","name":"answer","pid":1,"tid":2,"ts":5e5,"id":1},
	{"ph":"X","name":"step","pid":1,"tid":1,"ts":2.1e6,"dur":1e6,"args":{"step":8}},
	{"ph":"X","name":"12","pid":2,"tid":1,"ts":2.1e6,"dur":1e6}
]}`

func readTrace(t *testing.T, text string) (*timeline, error) {
	t.Helper()
	got := &timeline{rows: map[[2]int]*timelineRow{}}
	return got, got.read([]byte(text))
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	got, err := readTrace(t, twoSteps)
	require.NoError(t, err)
	require.Equal(t, []chart.Row{
		{Name: "trainer", Bars: []chart.Span{{Name: "train", From: 1.25, To: 2},
			{Name: "forward policy", From: 1.5, To: 2}}},
		{Name: "engine", Bars: []chart.Span{{Name: "decode", From: .5, To: 1.5}}},
		{Name: "row 1", Bars: []chart.Span{{Name: "12", From: 2.1, To: 3.1}}},
	}, got.shown())
	require.Equal(t, []chart.Span{{Name: "step 7", From: 1, To: 2.1}, {Name: "step 8", From: 2.1, To: 3.1}},
		got.windows())
}

func TestTimelineBoundsLanes(t *testing.T) {
	t.Parallel()
	got := &timeline{rows: map[[2]int]*timelineRow{}}
	for i := range 40 {
		row := got.row([2]int{1, i})
		row.track, row.order, row.Bars = "lanes", i, []chart.Span{{Name: "a", To: 1}}
		got.row([2]int{2, i}).Bars = []chart.Span{{Name: "a", To: 1}}
	}
	require.Len(t, got.shown(), maxRows)
	got.rows = map[[2]int]*timelineRow{}
	for i := range 40 {
		row := got.row([2]int{1, i})
		row.track, row.Bars = "lanes", []chart.Span{{Name: "a", To: 1}}
	}
	require.Len(t, got.shown(), maxLanes)
}

func TestWindowsOmitLongGaps(t *testing.T) {
	t.Parallel()
	got := timeline{steps: []chart.Span{{Name: "b", From: 10, To: 12}, {Name: "a", From: 0, To: 2}}}
	require.Equal(t, []chart.Span{{Name: "a", From: 0, To: 3}, {Name: "b", From: 10, To: 12}}, got.windows())
}

func TestKind(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"decode": "decode", "prompt 12": "prompt", "forward (rank 2)": "forward",
		"12": "12", "publish/3": "publish"} {
		require.Equal(t, want, kind(name))
	}
}

func TestTimelineNeedsStep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	drawn, err := drawTimeline(dir)
	require.NoError(t, err)
	require.Empty(t, drawn, "no trace exists")
	path := filepath.Join(dir, trace.File)
	require.NoError(t, os.WriteFile(path, []byte(`{"traceEvents":[{"name":"wait","ph":"X","ts":1,"dur":2,"tid":1}]}`),
		0o644))
	drawn, err = drawTimeline(dir)
	require.NoError(t, err)
	require.Empty(t, drawn)
	for _, content := range []string{"", "[]", `{"traceEvents":7}`, `{"traceEvents":[{]}`} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		drawn, err = drawTimeline(dir)
		require.ErrorContains(t, err, trace.File)
		require.Empty(t, drawn)
	}
}
