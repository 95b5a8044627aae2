package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/browser"
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

// What the configuration has already is not recommended as news.
func TestRecommendationIsNews(t *testing.T) {
	t.Parallel()
	slowTurns := map[string]float64{configs.Colocated: 3}
	for name, test := range map[string]struct {
		cores    int
		factors  map[string]float64
		settings []string
		current  string
		want     string
	}{
		"default is fastest": {2, slowTurns, nil, "periodic-async",
			"Keep the configuration: it already has periodic-async, 1 " +
				"+ 1×1 threads, the fastest of the measured ones."},
		"written out": {2, slowTurns, []string{"inference.threads=1", "inference.instances=1"},
			"periodic-async", "Keep the configuration: it already has"},
		"another mode is set": {2, slowTurns, []string{"run.mode=sync"}, "sync",
			"Recommended: periodic-async, 1 + 1×1 threads: -set run.mode=periodic-async. It is 1.29× as fast as sync."},
		"swap is set": {2, slowTurns, []string{"run.mode=colocated", "train.swap=true"}, "", "train.swap=false"},
		"within the noise": {8, map[string]float64{configs.Colocated: 1.025}, nil, "periodic-async",
			"Keep the configuration: nothing measured is faster than " +
				"periodic-async by more than the measurement noise."},
		"turns are faster": {8, map[string]float64{configs.Colocated: .5}, nil, "periodic-async",
			"Recommended: colocated, 8 or 1×8 threads: -set run.mode=colocated -set device.threads=8 -set " +
				"inference.threads=8."},
		"turns are set": {8, map[string]float64{configs.Colocated: .5},
			[]string{"run.mode=colocated", "device.threads=8", "inference.threads=8"}, "colocated",
			"Keep the configuration: it already has colocated, 8 or 1×8 threads"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := compared(t, test.cores, test.factors, test.settings...)
			require.Equal(t, test.current, c.Current)
			require.Contains(t, c.Findings[len(c.Findings)-1], test.want)
		})
	}
}

// No recommendation needs more cores than the machine has.
func TestRecommendationsFitTheMachine(t *testing.T) {
	t.Parallel()
	none := 0
	for cores := 1; cores <= 4; cores++ {
		for _, keys := range [][]string{nil, {"inference.instances=3"}, {"device.threads=4", "inference.threads=4"},
			{"device.threads=1", "inference.threads=1", "inference.instances=5"}} {
			for _, modes := range [][]string{nil, {configs.Sync}, {configs.PeriodicAsync}, {configs.Colocated}} {
				o := options(t, "")
				o.Cores, o.Settings, o.Modes, o.Train = cores, keys, modes, (&machine{t: t}).train
				c, err := Run(t.Context(), o)
				require.NoError(t, err)
				if c.Recommend == nil {
					none++
					require.Contains(t, strings.Join(c.Findings, "\n"),
						fmt.Sprintf("than the %d cores of this machine", cores))
					continue
				}
				require.LessOrEqual(t, c.Recommend.Share.Threads(), cores, "%s %v: %v", keys, modes,
					c.Recommend.Settings)
				require.LessOrEqual(t, c.Runs[0].Cores, cores)
			}
		}
	}
	require.Positive(t, none)
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
	require.True(t, browser.Tells[bool](b,
		`[...document.querySelectorAll(".wide")].every(e => e.scrollWidth <= e.clientWidth)`), "three runs fit")
	require.Equal(t, "mode sync periodic-async colocated",
		strings.Join(strings.Fields(browser.Tells[string](b, `document.querySelector(".narrow thead").innerText`)),
			" "))
	b.Tour()
}
