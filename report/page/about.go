package page

import (
	"strings"

	"github.com/easyrl/easyrl/report"
)

// About says what the run in dir trains: run, model, objective and reward. It returns nil
// if the folder does not say.
func About(dir string) ([]Tile, error) {
	a, err := report.ReadAbout(dir)
	if err != nil {
		return nil, err
	}
	var tiles []Tile
	add := func(label string, parts ...string) {
		if parts[0] != "" {
			tiles = append(tiles, Tile{Label: label, Value: strings.Join(parts, ", ")})
		}
	}
	run := []string{a.Name}
	if a.Mode != "" {
		run = append(run, a.Mode)
	}
	add("run", run...)
	model := []string{a.Model}
	if a.Parameters > 0 {
		model = append(model, report.Parameters(a.Parameters)+" parameters")
	}
	add("model", model...)
	add("objective", a.Objective)
	add("reward", a.Reward)
	return tiles, nil
}
