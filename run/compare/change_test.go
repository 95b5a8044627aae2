package compare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/browser"
	"github.com/easyrl/easyrl/report/steptime"
)

// compared returns the findings of a comparison of the modes under settings, with step times
// scaled by mode.
func compared(t *testing.T, cores int, factors map[string]float64, settings ...string) *Comparison {
	t.Helper()
	o := options(t, "")
	o.Cores = cores
	o.Settings = append(o.Settings, settings...)
	m := &machine{t: t, slower: func(cfg *configs.Config) float64 {
		if f := factors[cfg.Run.Mode]; f > 0 {
			return f
		}
		return 1
	}}
	o.Train = m.train
	c, err := Run(t.Context(), o)
	require.NoError(t, err)
	return c
}

// What the configuration has already is not recommended as news, and a recommendation sets
// only what differs.
func TestRecommendationIsNews(t *testing.T) {
	t.Parallel()
	slowTurns := map[string]float64{configs.Colocated: 3}
	for name, test := range map[string]struct {
		cores    int
		factors  map[string]float64
		settings []string
		current  string
		want     string
		change   []string
	}{
		"default is fastest":  {2, slowTurns, nil, "periodic-async", "Keep the configuration: it already has periodic-async, 1 + 1×1 threads, the fastest", []string{}},
		"written out":         {2, slowTurns, []string{"inference.threads=1", "inference.instances=1"}, "periodic-async", "Keep the configuration: it already has", []string{}},
		"another mode is set": {2, slowTurns, []string{"run.mode=sync"}, "sync", "Recommended: periodic-async, 1 + 1×1 threads: -set run.mode=periodic-async. The measured run", []string{"run.mode=periodic-async"}},
		"swap is set": {2, slowTurns, []string{"run.mode=colocated", "train.swap=true"}, "", "Recommended: periodic-async, ",
			[]string{"run.mode=periodic-async", "train.swap=false"}},
		"within the noise": {8, map[string]float64{configs.Colocated: 1.025}, nil, "periodic-async",
			"Keep the configuration: no measured or predicted split is faster than periodic-async by more than the measurement noise.", nil},
		"turns are faster": {8, map[string]float64{configs.Colocated: .5}, nil, "periodic-async",
			"Recommended: colocated, 8 or 1×8 threads: -set run.mode=colocated", nil},
		"turns are set": {8, map[string]float64{configs.Colocated: .5}, []string{"run.mode=colocated", "device.threads=8", "inference.threads=8"}, "colocated",
			"Keep the configuration: it already has colocated, 8 or 1×8 threads", []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := compared(t, test.cores, test.factors, test.settings...)
			require.Equal(t, test.current, c.Current)
			said := advice(c)
			require.Contains(t, said, test.want)
			require.Contains(t, c.Findings, said)
			if test.change != nil {
				require.Equal(t, test.change, c.Recommend.Change)
			}
		})
	}
}

// The settings that change the configuration lead to the recommended split.
func TestChangeLeadsToTheSplit(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	c := &comparing{o: o}
	for _, share := range []steptime.Split{
		{TrainerThreads: 6, Instances: 1, InstanceThreads: 2, LendsIdle: true},
		{TrainerThreads: 8, Instances: 1, InstanceThreads: 8, Alternating: true},
		{TrainerThreads: 4, Instances: 1, InstanceThreads: 4, LendsIdle: true},
		{TrainerThreads: 4, Instances: 2, InstanceThreads: 2, LendsIdle: true},
	} {
		mode := configs.PeriodicAsync
		if share.Alternating {
			mode = configs.Colocated
		}
		all := append(settings(mode, share), "inference.max_running=7")
		needed, err := c.change(all)
		require.NoError(t, err)
		require.Contains(t, needed, "inference.max_running=7")
		require.Subset(t, all, needed)
		got, err := c.outcome(needed)
		require.NoError(t, err)
		require.Equal(t, mode, got.mode)
		require.Equal(t, share, got.share)
	}
}

// The page is readable on a phone: nothing is wider than the screen, and the table has a
// column for each run there.
func TestPageInBrowser(t *testing.T) {
	t.Parallel()
	b := browser.New(t, os.Getenv(browser.Artifacts))
	c := compared(t, 8, map[string]float64{configs.Colocated: 3})
	path, err := filepath.Abs(filepath.Join(c.Dir(), PageFile))
	require.NoError(t, err)
	b.Do(chromedp.Navigate("file://" + path))
	require.Empty(t, b.Complaints())
	b.Inspect("compare")
	b.View(375, "light")
	require.True(t, browser.Tells[bool](b, `[...document.querySelectorAll(".wide")].every(e => e.scrollWidth <= e.clientWidth)`), "three runs fit")
	require.Equal(t, "mode sync periodic-async colocated", strings.Join(strings.Fields(browser.Tells[string](b, `document.querySelector(".narrow thead").innerText`)), " "))
	b.Tour()
}
