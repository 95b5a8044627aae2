package chart

import (
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wellFormed requires that a drawing is well-formed XML and that each picture in it has
// a label or is hidden from screen readers.
func wellFormed(t *testing.T, drawing template.HTML) {
	t.Helper()
	lines := xml.NewDecoder(strings.NewReader(string(drawing)))
	for {
		token, err := lines.Token()
		if err == io.EOF { //nolint:errorlint // as the decoder says
			return
		}
		require.NoError(t, err, drawing)
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		has := map[string]string{}
		for _, a := range start.Attr {
			has[a.Name.Local] = a.Value
		}
		if start.Name.Local == "svg" {
			require.True(t, has["aria-hidden"] == "true" || has["role"] == "img" && has["aria-label"] != "", drawing)
		}
		if has["tabindex"] != "" {
			require.NotEmpty(t, has["aria-label"], "scrollable elements have names")
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	drawn := Lines(Plot{Title: "<Idle>", X: "step", Y: "a & b", Series: []Series{
		{Name: "x<y", X: []float64{0, 1, 2, 3}, Y: []float64{1, 3, math.NaN(), 2}},
		{Name: "other", X: []float64{0, 3}, Y: []float64{math.Inf(1), 1e301}},
		{Name: "third", X: []float64{0, 3}, Y: []float64{0, 4}},
	}})
	wellFormed(t, drawn)
	require.Contains(t, drawn, "&lt;Idle&gt;: a &amp; b over step. x&lt;y from 1 at step 0 to 2 at step 3, lowest 1 "+
		"at step 0, highest 3 at step 1; third from 0")
	require.Equal(t, 2, strings.Count(string(drawn), "<polyline"), "series without finite values are omitted")
	require.Contains(t, drawn, `points="60,127 154.7,49 344,88"`)
	require.Contains(t, drawn, "x&lt;y <b>2</b>", "more than one line has a key")

	one := Lines(Plot{Title: "reward", X: "step",
		Series: []Series{{Name: "reward/mean", X: []float64{4}, Y: []float64{.5}}}})
	wellFormed(t, one)
	require.Contains(t, one, `<b>reward</b><span>0.5</span><small class="muted">reward/mean</small>`)
	require.Contains(t, one, "reward/mean 0.5 at step 4")
	require.NotContains(t, one, `class="key"`)

	none := Lines(Plot{Title: "empty", X: "step"})
	wellFormed(t, none)
	require.Contains(t, none, "no values")
}

// hits returns the titles of the places that show values under the pointer.
func hits(drawn template.HTML) (titles []string) {
	for _, m := range regexp.MustCompile(
		`<g><path d="M[\d. ]+h[\d.]+v156H[\d.]+z"/><title>([^<]*)</title>`).FindAllStringSubmatch(string(drawn), -1) {
		titles = append(titles, m[1])
	}
	return titles
}

// Each value shows under the pointer, without a script.
func TestHover(t *testing.T) {
	t.Parallel()
	one := Lines(Plot{Title: "t", X: "step",
		Series: []Series{{Name: "a<b", X: []float64{1, 2, 4}, Y: []float64{.5, .25, .75}}}})
	wellFormed(t, one)
	require.Equal(t, []string{"step 1: 0.5", "step 2: 0.25", "step 4: 0.75"}, hits(one))
	require.Contains(t, one, `step 2 <tspan class="m0">0.25</tspan>`)
	require.Contains(t, one, `<path d="M154.7 153h0"/>`, "the value is marked")

	two := Lines(Plot{Title: "t", X: "step", Series: []Series{
		{Name: "a<b", X: []float64{1, 2}, Y: []float64{.5, .25}}, {Name: "c", X: []float64{2, 3}, Y: []float64{7, 8}}}})
	wellFormed(t, two)
	require.Equal(t, []string{"step 1\na&lt;b: 0.5", "step 2\na&lt;b: 0.25\nc: 7", "step 3\nc: 8"}, hits(two))

	var long Series
	for i := range 600 {
		long.X, long.Y = append(long.X, float64(i+1)), append(long.Y, float64(i%10))
	}
	all := hits(Lines(Plot{Title: "t", X: "step", Series: []Series{long}}))
	require.Len(t, all, 60)
	require.Equal(t, "step 1 to 10: 4.5 (0 to 9)", all[0])
	require.Equal(t, "step 591 to 600: 4.5 (0 to 9)", all[59])
	require.Len(t, hits(Lines(Plot{Title: "t", X: "step", Series: []Series{long}, Parts: 40})), 40)

	bars := Histogram("t", "tokens", []Sample{{"first", []float64{0, 1, 1, 1}}, {"last", []float64{1}}})
	wellFormed(t, bars)
	titles := hits(bars)
	require.Contains(t, titles[0], "first: 25.0%\nlast: 0.0%")
	require.Contains(t, titles[len(titles)-1], "first: 75.0%\nlast: 100.0%")
}

// The places for the pointer cover the whole axis without gaps.
func TestHoverCoversTheAxis(t *testing.T) {
	t.Parallel()
	f := &frame{Plot: Plot{X: "step"}}
	f.Series = []Series{{X: []float64{1, 2, 10, 11}, Y: []float64{1, 2, 3, 4}}, {X: []float64{5}, Y: []float64{1}}}
	f.scale()
	at := float64(frameLeft)
	for _, h := range f.lineHits() {
		require.InDelta(t, at, h.from, 1e-9)
		require.Greater(t, h.to, h.from)
		at = h.to
	}
	require.InDelta(t, frameRight, at, 1e-9)
}

// Charts of one axis include the same values, and ticks are round.
func TestSharedAxis(t *testing.T) {
	t.Parallel()
	drawn := Lines(Plot{Title: "t", X: "step", From: 0, To: 100,
		Series: []Series{{X: []float64{20, 40}, Y: []float64{.9, .95}}}})
	require.Contains(t, drawn, `points="116.8,166 173.6,10"`, "20 and 40 of 100, and the vertical axis fits the values")
	var labels []string
	for _, m := range regexp.MustCompile(`<text [^>]*>([^<]*)</text>`).FindAllStringSubmatch(string(drawn), -1) {
		labels = append(labels, m[1])
	}
	require.Subset(t, labels, []string{"0.9", "0.91", "0.95", "0", "20", "100"})
}

// A noisy line is drawn faintly under its trailing mean; a smooth or short one as it is.
func TestSmooth(t *testing.T) {
	t.Parallel()
	var noisy, rising Series
	for i := range 200 {
		noisy.X, noisy.Y = append(noisy.X, float64(i)), append(noisy.Y, float64(i%3))
		rising.X, rising.Y = append(rising.X, float64(i)), append(rising.Y, float64(i))
	}
	means, window := smooth(noisy)
	require.Equal(t, 10, window)
	for i, mean := range means {
		var sum float64
		for _, y := range noisy.Y[max(0, i-9) : i+1] {
			sum += y
		}
		require.InDelta(t, sum/float64(min(i+1, 10)), mean, 1e-12, i)
	}
	_, window = smooth(rising)
	require.Zero(t, window)
	_, window = smooth(Series{X: noisy.X[:19], Y: noisy.Y[:19]})
	require.Zero(t, window)
	_, window = smooth(Series{X: noisy.X[:20], Y: noisy.Y[:20]})
	require.Equal(t, 5, window)

	drawn := Lines(Plot{Title: "t", X: "step", Smooth: true, Series: []Series{noisy}})
	wellFormed(t, drawn)
	require.Equal(t, 1, strings.Count(string(drawn), `class="raw l0"`))
	require.Contains(t, drawn, "mean of 10")
	require.Contains(t, hits(drawn)[59], "(0 to 2), mean of 10: ")
	drawn = Lines(Plot{Title: "t", X: "step", Smooth: true,
		Series: []Series{noisy, {X: noisy.X[:50], Y: noisy.Y[:50]}}})
	require.Contains(t, drawn, "means of 5 to 10")
	for _, whole := range []template.HTML{Lines(Plot{Title: "t", X: "step", Series: []Series{noisy}}),
		Lines(Plot{Title: "t", X: "step", Smooth: true, Series: []Series{rising}})} {
		require.NotContains(t, whole, `class="raw`)
		require.NotContains(t, whole, "mean of")
	}
}

func TestLinesDifferWithoutColor(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range 42 {
		seen[dash(i)+marker(i)] = true
	}
	require.Len(t, seen, 42, "a pair of dash and marker stands for one line")
}

// A long series keeps its extremes but draws few points.
func TestThinKeepsExtremes(t *testing.T) {
	t.Parallel()
	s := Series{Name: "x"}
	for i := range 10_000 {
		y := math.Sin(float64(i))
		if i == 5000 {
			y = 50
		}
		s.X, s.Y = append(s.X, float64(i)), append(s.Y, y)
	}
	across := newAxis(0, 9999, frameLeft, frameRight, 5)
	line, band := thin(s, across)
	require.Len(t, line, buckets)
	require.Len(t, band, 2*buckets)
	require.Contains(t, band, point{line[100].x, 50}, "a spike stays visible")
	require.InDelta(t, 1, line[100].y, .5, "the line is the mean")
	require.Less(t, len(Lines(Plot{Title: "x", X: "step", Series: []Series{s}})), 30_000)

	few, none := thin(Series{X: s.X[:400], Y: s.Y[:400]}, across)
	require.Len(t, few, 400)
	require.Nil(t, none)

	line, _ = thin(s, newAxis(-math.MaxFloat64, math.MaxFloat64, frameLeft, frameRight, 5))
	require.Len(t, line, 1, "an axis longer than any number has one part")
}

func TestTicks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		low, high float64
		n         int
		want      string
	}{
		{0, 1, 4, "0 0.2 0.4 0.6 0.8 1"},
		{-1, 1, 4, "-1 -0.5 0 0.5 1"},
		{.09, .9, 4, "0.2 0.4 0.6 0.8"},
		{1, 10_000, 5, "2k 4k 6k 8k 10k"},
		{5, 5, 2, "4 6"},
		{0, 0, 2, "-1 0 1"},
		{131e6, 262e6, 3, "150M 200M 250M"},
		{-1e300, 1e300, 2, "-1e+300 0 1e+300"},
		{1, math.Nextafter(1, 2), 3, ""},
		{0, math.SmallestNonzeroFloat64, 3, ""},
	} {
		var got []string
		a := newAxis(test.low, test.high, 0, 1, test.n)
		for _, x := range a.ticks() {
			got = append(got, a.tick(x))
		}
		if test.want == "" {
			require.LessOrEqual(t, len(got), 100)
			continue
		}
		require.Equal(t, test.want, strings.Join(got, " "))
	}
}

func TestHistogram(t *testing.T) {
	t.Parallel()
	drawn := Histogram("Rewards", "reward", []Sample{
		{Name: "step 1", Values: []float64{1, 0, 0, 0}}, {Name: "none"},
		{Name: "step 2", Values: []float64{1, 1, math.NaN()}}})
	wellFormed(t, drawn)
	require.Contains(t, drawn, "step 1: 4 values from 0 to 1, median 0; step 2: 2 values from 1 to 1")
	s := outline(Sample{"x", []float64{0, 0, 1, 4}}, []float64{0, 1, 2, 4})
	require.Equal(t, []float64{0, 0, 1, 1, 2, 2, 4, 4}, s.X)
	require.Equal(t, []float64{0, 50, 50, 25, 25, 25, 25, 0}, s.Y)
	wellFormed(t, Histogram("x", "x", []Sample{{Name: "one", Values: []float64{7, 7}}}))
	wellFormed(t, Histogram("x", "x", nil))
}

func FuzzLines(f *testing.F) {
	f.Add(0., 1., 1., 2., 3., 3.)
	f.Add(-1e299, 1e299, 5e-324, 0., 1., 1e-300)
	f.Add(-1e300, 1e300, 5e-324, 0., -34., 1e-300)
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g float64) {
		s := []Series{{Name: "x", X: []float64{a, b, c}, Y: []float64{d, e, g}}}
		drawn := string(Lines(Plot{Title: "t", X: "x", Y: "y", Series: s})) +
			string(Histogram("t", "x", []Sample{{"x", []float64{a, b, c}}}))
		wellFormed(t, template.HTML(drawn)) //nolint:gosec // test output
		require.NotRegexp(t, regexp.MustCompile(`points="[^"]*(NaN|Inf)`), drawn)
		require.Less(t, len(drawn), 60_000, fmt.Sprint(s))
	})
}
