package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// progress is the content of a progress line. Its main fields, the step, the reward or loss,
// the held-out score and the time left, stay on the line at any width.
type progress struct {
	done, total int      // steps
	reward      field    // reward or loss of the last step
	held        field    // score of the last evaluation
	heldStep    int      // step of the last evaluation
	left        string   // time left, in words; may be empty
	rest        []string // details, shown as far as there is room
}

// field is a named number.
type field struct {
	name, short string // short is the name in a narrow terminal
	value       string // empty if there is none yet
}

// text returns the value after name, or "" if there is no value yet.
func (f field) text(name string) string { return prefixed(name+" ", f.value) }

// add updates the fields from the values of a step.
func (p *progress) add(values Values) {
	p.done = int(values["step"])
	if x, ok := values["reward/mean"]; ok {
		p.reward = field{"reward", "r", fmt.Sprintf("%.3f", x)}
	} else if x, ok := values["actor/loss"]; ok {
		p.reward = field{"loss", "l", fmt.Sprintf("%.4f", x)}
	}
	if name, x, ok := heldOut(values); ok {
		p.held, p.heldStep = field{name, "h", fmt.Sprintf("%.3f", x)}, p.done
	}
	p.rest = details(values)
}

// heldOut returns the mean held-out score of all sets and its name, or their mean loss if
// there is no score.
func heldOut(values Values) (name string, mean float64, ok bool) {
	for _, score := range []struct{ name, kind string }{{"held-out", "mean@"}, {"held-out loss", "loss"}} {
		sum, n := 0.0, 0
		for name, x := range values {
			if _, kind, ok := Evaluation(name); ok && strings.HasPrefix(kind, score.kind) {
				sum, n = sum+x, n+1
			}
		}
		if n > 0 {
			return score.name, sum / float64(n), true
		}
	}
	return "", 0, false
}

// Summary returns one line with the main numbers of values: reward or loss, held-out score,
// lengths, speed and idle shares. It skips missing names.
func Summary(values Values) string {
	var p progress
	p.add(values)
	return strings.Join(append(nonEmpty(p.reward.text(p.reward.name), p.held.text(p.held.name)), p.rest...), "  ")
}

// details returns the secondary numbers of a step. It skips missing names.
func details(values Values) (parts []string) {
	add := func(name, format string, scale float64) {
		if x, ok := values[name]; ok {
			parts = append(parts, fmt.Sprintf(format, x*scale))
		}
	}
	if values["reward/no_signal_frac"] == 1 {
		parts = append(parts, "no signal: all advantages are 0")
	}
	var sets []string
	for _, name := range values.Names() {
		if set, kind, ok := Evaluation(name); ok && (strings.HasPrefix(kind, "mean@") || kind == "loss") {
			sets = append(sets, fmt.Sprintf("%s/%s %.3f", set, kind, values[name]))
		}
	}
	if len(sets) > 1 {
		parts = append(parts, sets...)
	}
	add("response_length/mean", "length %.1f", 1)
	add("perf/tokens_per_second", "%.0f tokens/s", 1)
	add("idle/trainer", "trainer idle %.0f%%", 100)
	add("idle/instances", "instances idle %.0f%%", 100)
	if x, ok := values["timing_s/step"]; ok && x < 60 {
		parts = append(parts, fmt.Sprintf("%.2gs", x))
	} else if ok {
		parts = append(parts, Duration(time.Duration(x*float64(time.Second))))
	}
	return parts
}

// line returns the progress in at most room columns, because a terminal cannot redraw a
// line that wraps. It drops the bar, then the rest from the end, then shortens names.
func (p *progress) line(room int, bar bool) string {
	count := fmt.Sprintf("%d/%d", p.done, p.total)
	reward, held, left := p.reward.text(p.reward.name), p.held.text(p.held.name), prefixed("left ", p.left)
	dated := held
	if held != "" && p.heldStep < p.done {
		dated += fmt.Sprintf(" (step %d)", p.heldStep)
	}
	full := nonEmpty("step "+count, reward, dated, left)
	var lines []string // candidates, from the longest to the shortest
	for n := len(p.rest); n >= 0; n-- {
		lines = append(lines, strings.Join(slices.Concat(full, p.rest[:n]), "  "))
	}
	lines = append(lines, strings.Join(nonEmpty("step "+count, reward, held, left), "  "),
		strings.Join(nonEmpty(count, reward, held, p.left), " "),
		strings.Join(nonEmpty(count, p.reward.text(p.reward.short), p.held.text(p.held.short), p.left), " "),
		strings.Join(nonEmpty(count, p.reward.value, p.held.value, p.left), " "))
	i := slices.IndexFunc(lines, func(line string) bool { return width(line) <= room })
	if i < 0 {
		return cut(lines[len(lines)-1], room)
	}
	return p.withBar(lines[i], room, bar && i == 0)
}

// count returns a line that shows only how many of unit are done.
func (p *progress) count(room int, unit string, bar bool) string {
	line := strings.Join(nonEmpty(fmt.Sprintf("%d/%d %s", p.done, p.total, unit), prefixed("left ", p.left)), "  ")
	return p.withBar(cut(line, room), room, bar)
}

// withBar puts a bar before line if there is room.
func (p *progress) withBar(line string, room int, bar bool) string {
	n := min(barWidth, room-width(line)-2)
	if !bar || p.total <= 0 || n < minBarWidth {
		return line
	}
	full := max(min(n*p.done/p.total, n), 0)
	return strings.Repeat("█", full) + strings.Repeat("░", n-full) + "  " + line
}

// Widths of the bar, in columns.
const (
	barWidth    = 16
	minBarWidth = 6 // in less room, the line has no bar
)

// cut returns the first room columns of line.
func cut(line string, room int) string {
	if width(line) <= room {
		return line
	}
	return string([]rune(line)[:max(room, 0)])
}

// nonEmpty returns the parts that are not empty.
func nonEmpty(parts ...string) []string {
	return slices.DeleteFunc(parts, func(s string) bool { return s == "" })
}

// prefixed returns prefix and text, or "" if text is empty.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// width returns the columns that line takes on a terminal, one for each character.
func width(line string) int { return utf8.RuneCountInString(line) }

// Duration formats d in its two largest units, rounded to seconds, such as "1h05m" or "12s".
func Duration(d time.Duration) string {
	seconds := int64(math.Round(d.Seconds()))
	switch {
	case seconds >= 86400:
		return fmt.Sprintf("%dd%02dh", seconds/86400, seconds%86400/3600)
	case seconds >= 3600:
		return fmt.Sprintf("%dh%02dm", seconds/3600, seconds%3600/60)
	case seconds >= 60:
		return fmt.Sprintf("%dm%02ds", seconds/60, seconds%60)
	}
	return fmt.Sprintf("%ds", seconds)
}
