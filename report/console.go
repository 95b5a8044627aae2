package report

import (
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/easyrl/easyrl/internal/notice"
)

// Console shows the progress of a run: one line that it redraws on a terminal, one line per
// step elsewhere. It is safe for concurrent use.
type Console struct {
	mu    sync.Mutex
	out   io.Writer
	width func() int // terminal width in columns; nil if out is not a terminal
	now   progress   // what the line shows
	doing string     // progress within the current step, for terminals; set by Progress
	unit  string     // unit that Count counts; empty without Count
	first int        // number of steps done before this process started
	start time.Time  // when the console was made
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

// newConsole returns a console that redraws its line if width is not nil.
func newConsole(out io.Writer, done, total int, width func() int) *Console {
	c := &Console{out: out, now: progress{done: done, total: total}, first: done, start: time.Now(), width: width}
	c.draw()
	return c
}

// Remember records the reward and the held-out score of a step from before a resume. It draws nothing
// and does not count the step as done.
func (c *Console) Remember(values Values) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.now.done
	c.now.add(values)
	c.now.done, c.now.rest = done, nil
}

// Step shows values, whose "step" is the number of the step just finished.
func (c *Console) Step(values Values) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.add(values)
	c.now.left, c.doing = c.left(), ""
	c.show()
}

// show redraws the line or, without a terminal, prints it.
func (c *Console) show() {
	if c.width == nil {
		_, _ = fmt.Fprintln(c.out, c.line(math.MaxInt))
		return
	}
	c.draw()
}

// draw redraws the line on a terminal. The last column stays empty, because some terminals
// wrap there.
func (c *Console) draw() {
	if c.width != nil {
		_, _ = fmt.Fprint(c.out, eraseLine, c.line(c.width()-1))
	}
}

// eraseLine moves the cursor of a terminal to the start of an empty line.
const eraseLine = "\r\x1b[2K"

// line returns the progress in at most room columns.
func (c *Console) line(room int) string {
	now := c.now
	if c.doing != "" {
		now.rest = []string{c.doing}
	}
	if c.unit != "" {
		return now.count(room, c.unit, c.width != nil)
	}
	return now.line(room, c.width != nil)
}

// Progress shows, on a terminal only, how much of the current step is done, such as
// "12/32 prompts evaluated".
func (c *Console) Progress(done, of int, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doing = fmt.Sprintf("%d/%d %s", done, of, what)
	c.draw()
}

// Count shows how many of the total are done, in the unit that what names. From then on the line shows
// only the count and the time left. Without a terminal, Count prints a line every 5%.
func (c *Console) Count(done int, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, total := c.now.done, c.now.total
	c.now.done, c.unit = done, what
	c.now.left = c.left()
	if c.width != nil || total > 0 && done*20/total > before*20/total {
		c.show()
	}
}

// Note prints a message, above the progress line if there is one.
func (c *Console) Note(kind notice.Kind, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.width != nil {
		_, _ = fmt.Fprint(c.out, eraseLine)
	}
	notice.Print(c.out, kind, format, args...)
	c.draw()
}

// Close ends the progress line and leaves it on the screen. The console then prints as it does
// without a terminal.
func (c *Console) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.width != nil {
		_, _ = fmt.Fprintln(c.out)
		c.width = nil
	}
}

// Left returns the estimated time for the remaining steps, in words, from the mean
// time per step so far. It is empty before the first step and after the last.
func (c *Console) Left() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left()
}

// left implements Left. The caller holds c.mu.
func (c *Console) left() string {
	done := c.now.done - c.first
	if done <= 0 || c.now.done >= c.now.total {
		return ""
	}
	pace := time.Since(c.start) / time.Duration(done)
	return Duration(pace * time.Duration(c.now.total-c.now.done))
}
