package report

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Console shows the progress of a run: a progress bar with the main numbers on a
// terminal, one plain line per step elsewhere. It is safe for concurrent use.
type Console struct {
	mu    sync.Mutex
	out   io.Writer
	bar   *progressbar.ProgressBar // nil if out is not a terminal
	width func() int               // terminal width in columns
	total int
	first int // steps done before this process started
	last  int // steps done so far
	start time.Time
}

// NewConsole returns a console that shows steps done+1 to total on out.
func NewConsole(out io.Writer, done, total int) *Console {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return newConsole(out, done, total, nil)
	}
	return newConsole(out, done, total, func() int {
		width, _, err := term.GetSize(int(file.Fd()))
		if err != nil || width <= 0 {
			return 80
		}
		return width
	})
}

// barWidth is the width of the bar itself, in columns.
const barWidth = 16

// newConsole returns a console that draws a bar if width is not nil.
func newConsole(out io.Writer, done, total int, width func() int) *Console {
	c := &Console{out: out, total: total, first: done, last: done, start: time.Now(), width: width}
	if width != nil && total > 0 {
		c.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(out),
			progressbar.OptionSetWidth(barWidth),
			progressbar.OptionShowCount(),
			progressbar.OptionShowDescriptionAtLineEnd(),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(false),
			progressbar.OptionUseANSICodes(true),
			progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░"}))
		_ = c.bar.Set(done)
	}
	return c
}

// Step reports the step of values as done.
func (c *Console) Step(values Values) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = int(values["step"])
	parts := summary(values)
	if left := c.left(); left != "" {
		parts = append(parts, "left "+left)
	}
	if c.bar == nil {
		_, _ = fmt.Fprintf(c.out, "step %d/%d  %s\n", c.last, c.total, strings.Join(parts, "  "))
		return
	}
	c.bar.Describe(fit(parts, c.room()))
	_ = c.bar.Set(c.last)
}

// room returns the number of columns left beside the bar, its percentage and its
// count.
func (c *Console) room() int { return c.width() - barWidth - 12 - 2*len(strconv.Itoa(c.total)) }

// fit joins parts into a line of at most room columns, because a bar cannot redraw
// a line that wraps. It drops parts from the end but keeps the last one longest.
func fit(parts []string, room int) string {
	for len(parts) > 0 {
		line := strings.Join(parts, "  ")
		if utf8.RuneCountInString(line) <= room {
			return line
		}
		parts = slices.Delete(slices.Clone(parts), max(len(parts)-2, 0), max(len(parts)-1, 1))
	}
	return ""
}

// Progress shows, on a terminal only, how much of the current step is done, such as
// "12/32 groups".
func (c *Console) Progress(done, of int, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		c.bar.Describe(fit([]string{fmt.Sprintf("step %d: %d/%d %s", c.last+1, done, of, what)}, c.room()))
	}
}

// Count reports that done of the total are done; what names the unit. Without a
// terminal it prints a line every 5%.
func (c *Console) Count(done int, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.last
	c.last = done
	line := fmt.Sprintf("%d/%d %s", done, c.total, what)
	if left := c.left(); left != "" {
		line += "  left " + left
	}
	if c.bar != nil {
		c.bar.Describe(fit([]string{line}, c.room()))
		_ = c.bar.Set(done)
	} else if c.total > 0 && done*20/c.total > before*20/c.total {
		_, _ = fmt.Fprintln(c.out, line)
	}
}

// Note prints a line, above the bar if there is one.
func (c *Console) Note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		_ = c.bar.Clear()
	}
	_, _ = fmt.Fprintf(c.out, format+"\n", args...)
	if c.bar != nil {
		_ = c.bar.RenderBlank()
	}
}

// Close ends the bar and leaves its last state on the screen.
func (c *Console) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		_, _ = fmt.Fprintln(c.out)
		c.bar = nil
	}
}

// Left returns the estimated time for the remaining steps, in words, from the mean
// time per step so far. It is empty before the first step and after the last.
func (c *Console) Left() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left()
}

func (c *Console) left() string {
	done := c.last - c.first
	if done <= 0 || c.last >= c.total {
		return ""
	}
	pace := time.Since(c.start) / time.Duration(done)
	return Duration(pace * time.Duration(c.total-c.last))
}

// Duration formats d in its two largest units.
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

// Summary returns one line with the main numbers of values: evaluations, reward,
// loss, lengths, speed and idle shares. It skips missing names.
func Summary(values Values) string { return strings.Join(summary(values), "  ") }

func summary(values Values) (parts []string) {
	add := func(name, format string, scale float64) {
		if x, ok := values[name]; ok {
			parts = append(parts, fmt.Sprintf(format, x*scale))
		}
	}
	for _, name := range values.Names() {
		if short, ok := strings.CutPrefix(name, "eval/"); ok && (strings.Contains(name, "/mean@") || strings.HasSuffix(name, "/loss")) {
			parts = append(parts, fmt.Sprintf("%s %.3f", short, values[name]))
		}
	}
	add("reward/mean", "reward %.3f", 1)
	if _, ok := values["reward/mean"]; !ok {
		add("actor/loss", "loss %.4f", 1)
	}
	if values["reward/no_signal_frac"] == 1 {
		parts = append(parts, "no signal: all advantages are 0")
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
