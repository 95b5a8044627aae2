package chart

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// contrast returns the contrast ratio of two colors, from 1 to 21, as WCAG 2 defines it.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	luminance := func(color string) float64 {
		require.Len(t, color, 7)
		sum := 0.0
		for i, weight := range []float64{.2126, .7152, .0722} {
			n, err := strconv.ParseUint(color[1+2*i:3+2*i], 16, 8)
			require.NoError(t, err)
			c := float64(n) / 255
			if c <= .04045 {
				c /= 12.92
			} else {
				c = math.Pow((c+.055)/1.055, 2.4)
			}
			sum += weight * c
		}
		return sum
	}
	la, lb := luminance(a), luminance(b)
	return (max(la, lb) + .05) / (min(la, lb) + .05)
}

// In both schemes text has a contrast of at least 4.5 and graphics of at least 3 (WCAG
// 2.2, 1.4.3 and 1.4.11).
func TestContrast(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 21, contrast(t, "#000000", "#ffffff"), 1e-9)
	for scheme, of := range palette(t) {
		least := func(least float64, over string, names ...string) {
			for _, name := range names {
				require.GreaterOrEqual(t, contrast(t, of[name], of[over]), least, "%s over %s, %s", name, over, scheme)
			}
		}
		least(4.5, "paper", "ink", "muted", "link")
		least(4.5, "panel", "ink", "muted", "link")
		least(4.5, "gone", "ink")
		least(4.5, "come", "ink")
		for i := range 5 {
			least(4.5, fmt.Sprint("q", i+1), "ink")
		}
		least(3, "paper", "edge")
		for i := range colours {
			least(3, "paper", fmt.Sprint("c", i))
		}
	}
}

// palette returns the colors of the style sheet by scheme and name.
func palette(t *testing.T) map[string]map[string]string {
	t.Helper()
	lines := strings.SplitN(rules, "\n", 3)
	all := map[string]map[string]string{"light": {}, "dark": {}}
	for i, scheme := range []string{"light", "dark"} {
		for _, c := range regexp.MustCompile("--([a-z0-9]+):(#[0-9a-f]{6});").FindAllStringSubmatch(lines[i], -1) {
			all[scheme][c[1]] = c[2]
		}
	}
	require.Len(t, all["light"], 21)
	require.Len(t, all["dark"], 21)
	return all
}

func TestStyle(t *testing.T) {
	t.Parallel()
	style := string(Style())
	rules := []string{"prefers-color-scheme:dark"}
	for i := range colours {
		rules = append(rules, fmt.Sprintf(".l%d{stroke:var(--c%d)}.band.l%d,.m%d{fill:var(--c%d)}", i, i, i, i, i))
	}
	for i := range textureCount + 1 {
		rules = append(rules, fmt.Sprintf(".g%d{stroke:url(#t%d)}", i, i))
	}
	for _, rule := range rules {
		require.Contains(t, style, rule)
	}
	require.NotContains(t, style, "</")
	require.NotContains(t, style, "http", "the page loads nothing external")
	require.Equal(t, strings.Count(style, "{"), strings.Count(style, "}"))
}
