package page

import (
	"fmt"
	"math"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// lately is the number of steps over which a recent idle share is averaged.
const lately = 10

// Tile is a headline number of a run, formatted for display.
type Tile struct {
	Label string `json:"label"`
	Value string `json:"value"`
	Name  string `json:"name"` // metric name
}

// Glance returns the headline numbers of a run. They show whether it learns, and whether the trainer or
// the instances wait.
func Glance(steps *report.Steps) []Tile {
	var tiles []Tile
	for _, name := range steps.Names() {
		set, kind, ok := report.Evaluation(name)
		if ok && (strings.HasPrefix(kind, "mean@") || kind == "loss") && len(tiles) < 3 {
			tiles = append(tiles, change(steps, "held-out "+set, name))
		}
	}
	usual := [][2]string{{"reward", "reward/mean"}, {"response length", "response_length/mean"},
		{"entropy", "actor/entropy"}}
	if _, ys := steps.Series("step", "reward/mean"); len(ys) == 0 {
		usual = [][2]string{{"loss", "actor/loss"}}
	}
	for _, u := range append(usual, [2]string{"tokens per second", "perf/tokens_per_second"}) {
		if _, ys := steps.Series("step", u[1]); len(ys) > 0 {
			tiles = append(tiles, change(steps, u[0], u[1]))
		}
	}
	for _, side := range [][2]string{{"trainer", "trainer idle"}, {"instances", "instances idle"}} {
		name := "idle/" + side[0]
		shares, of := steps.Series(name, "timing_s/step")
		if sum(of) <= 0 {
			continue
		}
		value := fmt.Sprintf("%.0f%%", 100*weighed(shares, of)/sum(of))
		if last := len(of) - lately; last > 0 && sum(of[last:]) > 0 {
			value += fmt.Sprintf(", lately %.0f%%", 100*weighed(shares[last:], of[last:])/sum(of[last:]))
		}
		tiles = append(tiles, Tile{side[1], value, name})
	}
	return tiles
}

// change returns a tile with the first and last value of a metric that at least one
// step has.
func change(steps *report.Steps, label, name string) Tile {
	row := rowOf(steps, name)
	tile := Tile{label, brief(row.Last), name}
	if row.FirstStep < row.LastStep {
		tile.Value = brief(row.First) + " → " + tile.Value
	}
	return tile
}

// brief formats x with about three digits, or two below 0.1.
func brief(x float64) string {
	x += 0 // turns -0 into 0
	switch size := math.Abs(x); {
	case size >= 1e4 && size < 1e9:
		return report.Number(math.Round(x/100)/10) + "k"
	case size >= 1000:
		return report.Number(x)
	case size >= .1:
		return fmt.Sprintf("%.3g", x)
	}
	return fmt.Sprintf("%.2g", x)
}

// sum returns the sum of xs.
func sum(xs []float64) (all float64) {
	for _, x := range xs {
		all += x
	}
	return all
}
