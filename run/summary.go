package run

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

// summary says in a few lines how a run ended: its time, its scores and where the results are.
type summary struct {
	dir         string
	first, last int           // steps done before this process started and at its end
	total       int           // steps of the configuration
	took        time.Duration // time of this process
}

// lines describes the run from the records in its folder. It omits what the folder lacks.
func (s summary) lines() []string {
	lines := []string{strings.Join(append([]string{s.extent()}, s.scores()...), "; ")}
	if model := s.model(); model != "" {
		lines = append(lines, "model:  "+model)
	}
	path := filepath.Join(s.dir, page.File)
	if _, err := os.Stat(path); err == nil {
		lines = append(lines, "report: "+path)
	}
	return lines
}

// extent returns the number of steps and the time they took.
func (s summary) extent() string {
	took := report.Duration(s.took)
	switch {
	case s.first >= s.last && s.first > 0:
		return fmt.Sprintf("%s done before", s.count())
	case s.first > 0:
		return fmt.Sprintf("%s, from step %d on in %s", s.count(), s.first+1, took)
	}
	return fmt.Sprintf("%s in %s", s.count(), took)
}

// count returns the number of completed steps in words.
func (s summary) count() string {
	switch {
	case s.last < s.total:
		return fmt.Sprintf("%d of %d steps", s.last, s.total)
	case s.last == 1:
		return "1 step"
	}
	return fmt.Sprintf("%d steps", s.last)
}

// scores returns the first and last value of each held-out score or, without evaluations,
// of the reward or the loss.
func (s summary) scores() (all []string) {
	seen := map[string][]float64{} // the first and the last value
	_ = report.EachStep(filepath.Join(s.dir, report.MetricsFile), func(values report.Values) error {
		for name, x := range values {
			if _, ok := label(name); ok {
				seen[name] = append(seen[name][:min(len(seen[name]), 1)], x)
			}
		}
		return nil
	}) // the run reports what it cannot write
	hasEval := slices.ContainsFunc(slices.Collect(maps.Keys(seen)), isEval)
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if isEval(name) != hasEval || name == "actor/loss" && len(seen["reward/mean"]) > 0 {
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
func (s summary) model() string {
	root := trainer.CheckpointRoot(s.dir)
	name := checkpoint.StepName(s.last)
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
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("@%+=:,./_-", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 && word[0] != '=' {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
