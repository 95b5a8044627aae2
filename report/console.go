package report

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Console shows a run while it goes: a progress bar with the numbers that
// matter on a terminal, one plain line a step elsewhere. It is safe for
// concurrent use.
type Console struct {
	mu    sync.Mutex
	out   io.Writer
	bar   *progressbar.ProgressBar // nil where out is no terminal
	total int
	first int // steps that were done before this process
	last  int // steps that are done
	start time.Time
}

// NewConsole shows steps done+1 to total on out.
func NewConsole(out io.Writer, done, total int) *Console {
	file, ok := out.(*os.File)
	return newConsole(out, done, total, ok && term.IsTerminal(int(file.Fd())))
}

func newConsole(out io.Writer, done, total int, terminal bool) *Console {
	c := &Console{out: out, total: total, first: done, last: done, start: time.Now()}
	if terminal && total > 0 {
		c.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(out),
			progressbar.OptionSetWidth(20),
			progressbar.OptionShowCount(),
			progressbar.OptionShowDescriptionAtLineEnd(),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(false),
			progressbar.OptionUseANSICodes(true),
			progressbar.OptionSetTheme(progressbar.ThemeUnicode))
		_ = c.bar.Set(done)
	}
	return c
}

// Step shows that values' step is done.
func (c *Console) Step(values Values) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = int(values["step"])
	text := Summary(values)
	if left := c.left(); left != "" {
		text += "  left " + left
	}
	if c.bar == nil {
		_, _ = fmt.Fprintf(c.out, "step %d/%d  %s\n", c.last, c.total, text)
		return
	}
	c.bar.Describe(text)
	_ = c.bar.Set(c.last)
}

// Progress shows, on a terminal, how much of the step under way is done, as in
// "12/32 groups".
func (c *Console) Progress(done, of int, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		c.bar.Describe(fmt.Sprintf("step %d: %d/%d %s", c.last+1, done, of, what))
	}
}

// Note prints a line of its own.
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

// Close leaves the last line on the screen.
func (c *Console) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		_, _ = fmt.Fprintln(c.out)
		c.bar = nil
	}
}

// left is the time that the remaining steps take at the mean pace so far.
func (c *Console) left() string {
	done := c.last - c.first
	if done <= 0 || c.last >= c.total {
		return ""
	}
	pace := time.Since(c.start) / time.Duration(done)
	return shortDuration(pace * time.Duration(c.total-c.last))
}

// shortDuration is d in its two largest units.
func shortDuration(d time.Duration) string {
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

// Summary is the line of numbers that matter among values: evaluations, reward,
// loss, lengths, speed and who was idle. Names that are not there are left out.
func Summary(values Values) string {
	var parts []string
	add := func(name, format string, scale float64) {
		if x, ok := values[name]; ok {
			parts = append(parts, fmt.Sprintf(format, x*scale))
		}
	}
	for _, name := range values.names() {
		if short, ok := strings.CutPrefix(name, "eval/"); ok {
			parts = append(parts, fmt.Sprintf("%s %.3f", short, values[name]))
		}
	}
	add("reward/mean", "reward %.3f", 1)
	if _, ok := values["reward/mean"]; !ok {
		add("actor/loss", "loss %.4f", 1)
	}
	add("response_length/mean", "length %.1f", 1)
	add("perf/tokens_per_second", "%.0f tokens/s", 1)
	add("idle/trainer", "trainer idle %.0f%%", 100)
	add("idle/instances", "instances idle %.0f%%", 100)
	add("timing_s/step", "%.2gs", 1)
	return strings.Join(parts, "  ")
}
