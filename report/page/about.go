package page

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// About describes what the run in dir trains: run, model, objective and reward. It returns nil if the
// folder has no report.About.
func About(dir string) ([]Tile, error) {
	a, err := report.ReadAbout(dir)
	if err != nil {
		return nil, err
	}
	parameters := ""
	if a.Parameters > 0 {
		parameters = report.Parameters(a.Parameters) + " parameters"
	}
	var tiles []Tile
	for _, line := range [][]string{{"run", a.Name, a.Mode}, {"model", a.Model, parameters},
		{"objective", a.Objective}, {"reward", a.Reward}} {
		if known := slices.DeleteFunc(line[1:], func(s string) bool { return s == "" }); len(known) > 0 {
			tiles = append(tiles, Tile{Label: line[0], Value: strings.Join(known, ", ")})
		}
	}
	return tiles, nil
}
