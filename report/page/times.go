package page

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// Share is a part of a run's time.
type Share struct {
	Name    string
	Seconds float64
	Of      float64 // the fraction of the whole
}

// Times says where the trainer's time went, from the steps' timing_s/…: the parts
// of all steps, what came after them, and the rest; and how much of the steps each
// side was idle, from idle/…. Both are nil where nothing was recorded.
func Times(steps []report.Values) (parts, idle []Share) {
	sum := func(name string) (seconds float64) {
		for _, values := range steps {
			seconds += values["timing_s/"+name]
		}
		return seconds
	}
	inSteps := sum("step")
	whole := inSteps + sum("eval") + sum("checkpoint")
	if inSteps <= 0 {
		return nil, nil
	}
	rest := whole
	for _, name := range []string{"publish", "wait", "train", "optimizer", "checkpoint", "eval"} {
		if seconds := sum(name); seconds > 0 {
			parts = append(parts, Share{name, seconds, seconds / whole})
			rest -= seconds
		}
	}
	if rest > whole/1000 {
		parts = append(parts, Share{"other", rest, rest / whole})
	}
	for _, name := range allNames(steps) {
		side, ok := strings.CutPrefix(name, "idle/")
		if !ok {
			continue
		}
		seconds := 0.0
		for _, values := range steps {
			seconds += values[name] * values["timing_s/step"]
		}
		idle = append(idle, Share{side, seconds, seconds / inSteps})
	}
	return parts, idle
}

// section is a part of the page: numbers that belong together.
type section struct {
	Title  string
	Curves []curve
	Same   []Row // those that never change
}

// sections puts all numbers into sections, in the order of a line.
func sections(steps []report.Values) []section {
	all := []section{{Title: "Learning"}, {Title: "Optimisation"}, {Title: "Speed"}, {Title: "The rest"}}
	place := func(name string) *section {
		group, _, _ := strings.Cut(name, "/")
		switch {
		case slices.Contains([]string{"reward", "eval", "response_length", "prompt_length"}, group):
			return &all[0]
		case slices.Contains([]string{"actor", "mismatch", "staleness"}, group):
			return &all[1]
		case slices.Contains([]string{"timing_s", "idle", "perf", "tokens"}, group):
			return &all[2]
		}
		return &all[3]
	}
	for _, name := range allNames(steps) {
		if slices.Contains([]string{"step", "time", "version"}, name) {
			continue
		}
		s := place(name)
		xs, ys := series(steps, name)
		if slices.Min(ys) == slices.Max(ys) {
			s.Same = append(s.Same, Row{Name: name, First: ys[0], Last: ys[0], FirstStep: int(xs[0]), LastStep: int(xs[len(xs)-1])})
			continue
		}
		s.Curves = append(s.Curves, draw(name, xs, ys))
	}
	return slices.DeleteFunc(all, func(s section) bool { return len(s.Curves)+len(s.Same) == 0 })
}
