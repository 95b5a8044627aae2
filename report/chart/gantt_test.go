package chart

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGantt(t *testing.T) {
	t.Parallel()
	rows := []Row{
		{"trainer", []Span{{"wait", 0, 1}, {"train", 1, 4}, {"back<ward", 2, 3}, {"train", 4, 8}}},
		{"engine", []Span{{"decode", -1, 3}}},
		{"nobody", nil},
	}
	drawn := Gantt(rows, []Span{{"step 1", 0, 4}, {"step 2", 4, 8}})
	wellFormed(t, drawn)
	require.Contains(t, drawn,
		"step 1, 4 s. trainer: train 50%, back&lt;ward 25%, wait 25%; engine: decode 75%; nobody: nothing")
	require.Contains(t, drawn, "step 2, 4 s. trainer: train 100%; engine: nothing")
	require.Contains(t, drawn, `<b>Workers, step 1 to step 2</b>`)
	require.Contains(t, drawn, `id="Workers-0"`)
	require.Contains(t, drawn, `<th scope="row">trainer</th><td>75.0%</td><td>0.0%</td><td>12.`)
	require.Equal(t, 1, strings.Count(string(drawn), "</svg>back&lt;ward</li>"), "the key has each kind once")
	wellFormed(t, Gantt(nil, []Span{{"step 1", 0, 0}}))
}

func TestColumns(t *testing.T) {
	t.Parallel()
	require.Equal(t, []piece{{"a", 0, 2}, {"b", 2, 1}, {"a", 3, 1}, {"", 4, 6}},
		columns([]Span{{"a", -5, 4}, {"b", 2, 3}, {"later", 11, 12}}, Span{"", 0, 10}, 10))
	require.Equal(t, []piece{{"", 0, 3}, {"short", 3, 1}, {"", 4, 6}},
		columns([]Span{{"short", 3.1, 3.2}}, Span{"", 0, 10}, 10), "short spans show if nothing else does")
}

// Patterns distinguish kinds without color, and each pair of color and pattern is unique.
func TestGanttTextures(t *testing.T) {
	t.Parallel()
	g := gantt{kinds: map[string]int{}}
	for i := range textureCount {
		require.Equal(t, i, g.texture(fmt.Sprint("kind ", i)))
	}
	require.Equal(t, textureCount, g.texture("wait"))
	require.Equal(t, textureCount, g.texture("idle"))
	require.Equal(t, 3, g.texture("kind 3"))
	require.Equal(t, 0, g.texture("one more"))
	all := textures()
	seen := map[string]bool{}
	for _, pattern := range strings.Split(all, "<pattern ")[1:] {
		_, look, _ := strings.Cut(pattern, "><")
		seen[look] = true
	}
	require.Len(t, seen, textureCount+1)
	for i := range 7 { // the first kinds
		require.Contains(t, all, fmt.Sprintf(`id="t%d" width="6" height="6" patternUnits="userSpaceOnUse"><path `+
			`class="m%d" d="M0 0h6v6h-6z"/><path class="over" d="%s"/>`, i, i, patterns()[i]))
	}
}

// Only the newest of many windows are drawn, and the page stays small.
func TestGanttIsBounded(t *testing.T) {
	t.Parallel()
	var rows []Row
	for i := range 8 {
		row := Row{Name: fmt.Sprint("engine ", i)}
		for k := range 20_000 {
			at := float64(k) / 100
			row.Bars = append(row.Bars, Span{[]string{"a", "b", "c"}[k%3], at, at + .009})
		}
		rows = append(rows, row)
	}
	var windows []Span
	for i := range 200 {
		windows = append(windows, Span{fmt.Sprint("step ", i), float64(i), float64(i + 1)})
	}
	drawn := string(Gantt(rows, windows))
	require.Less(t, len(drawn), ganttBytes+50_000)
	require.Contains(t, drawn, `id="Workers-199"`)
	require.NotContains(t, drawn, `id="Workers-0"`)
	require.Greater(t, strings.Count(drawn, `role="img"`), 10)
	require.Contains(t, drawn, `<a href="#Workers-199">step 199</a>`)
}
