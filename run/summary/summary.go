// Package summary says what a run trains and, in a few lines, how it ended: its time, its
// scores, where the results are, and the command that continues it.
package summary

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/page"
	"github.com/easyrl/easyrl/trainer"
)

// Run is a run that ended.
type Run struct {
	Dir         string
	First, Last int           // steps done before this process started and at its end
	Total       int           // steps of the configuration
	Took        time.Duration // time of this process
}

// Lines describes the run from the records in its folder. What is missing there is
// omitted.
func (r Run) Lines() []string {
	lines := []string{strings.Join(append([]string{r.extent()}, scores(r.Dir)...), "; ")}
	if model := r.model(); model != "" {
		lines = append(lines, "model:  "+model)
	}
	path := filepath.Join(r.Dir, page.File)
	if _, err := os.Stat(path); err == nil {
		lines = append(lines, "report: "+path)
	}
	return lines
}

// extent says how far the run came.
func (r Run) extent() string {
	took := report.Duration(r.Took)
	switch {
	case r.First >= r.Last && r.First > 0:
		return fmt.Sprintf("%s done before", r.count())
	case r.First > 0:
		return fmt.Sprintf("%s, from step %d on in %s", r.count(), r.First+1, took)
	}
	return fmt.Sprintf("%s in %s", r.count(), took)
}

func (r Run) count() string {
	switch {
	case r.Last < r.Total:
		return fmt.Sprintf("%d of %d steps", r.Last, r.Total)
	case r.Last == 1:
		return "1 step"
	}
	return fmt.Sprintf("%d steps", r.Last)
}

// scores returns the first and last value of each held-out score or, without evaluations,
// of the reward or the loss.
func scores(dir string) (all []string) {
	seen := map[string][]float64{} // the first and the last value
	_ = report.EachStep(filepath.Join(dir, report.MetricsFile), func(values report.Values) error {
		for name, x := range values {
			if _, ok := label(name); ok {
				seen[name] = append(seen[name][:min(len(seen[name]), 1)], x)
			}
		}
		return nil
	}) // the run reports what it cannot write
	held := slices.ContainsFunc(slices.Collect(maps.Keys(seen)), isEval)
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if isEval(name) != held || name == "actor/loss" && len(seen["reward/mean"]) > 0 {
			continue
		}
		text, _ := label(name)
		for i, x := range seen[name] {
			text += fmt.Sprintf([]string{" %.3f", " → %.3f"}[i], x)
		}
		all = append(all, text)
	}
	return all
}

func isEval(name string) bool { return strings.HasPrefix(name, "eval/") }

// label names a score in words.
func label(name string) (text string, ok bool) {
	switch name {
	case "reward/mean":
		return "reward", true
	case "actor/loss":
		return "loss", true
	}
	set, kind, ok := strings.Cut(strings.TrimPrefix(name, "eval/"), "/")
	if !ok || !isEval(name) || !strings.HasPrefix(kind, "mean@") && kind != "loss" {
		return "", false
	}
	if kind == "loss" {
		return "held-out loss on " + set, true
	}
	return "held-out " + set, true
}

// model returns the path of the last checkpoint and, if another one is better, of the best.
func (r Run) model() string {
	root := trainer.CheckpointRoot(r.Dir)
	name := checkpoint.StepName(r.Last)
	if _, err := os.Stat(filepath.Join(root, name)); err != nil {
		return ""
	}
	text := filepath.Join(root, name)
	switch best, err := os.Readlink(filepath.Join(root, trainer.BestLink)); {
	case err != nil:
	case best == name:
		text += ", the best"
	default:
		text += fmt.Sprintf(" (best: %s, %s)", filepath.Join(root, trainer.BestLink), best)
	}
	return text
}

// Command returns a command line that a shell splits into words.
func Command(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = quote(word)
	}
	return strings.Join(quoted, " ")
}

// quote quotes a word for a POSIX shell if it needs to be.
func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./_-", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 && word[0] != '=' {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
