package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// tally counts the outcomes of the clients' actions.
type tally struct {
	mu     sync.Mutex
	counts map[string]map[string]int // by action and outcome
	faults []string                  // the first ones
	failed int
}

// right is the outcome of a correctly answered question.
const right = "right"

func (t *tally) count(what, outcome string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]map[string]int{}
	}
	if t.counts[what] == nil {
		t.counts[what] = map[string]int{}
	}
	t.counts[what][outcome]++
}

// fault counts an outcome that must not happen.
func (t *tally) fault(what string, err error) {
	t.count(what, "WRONG")
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed++; len(t.faults) < 20 {
		t.faults = append(t.faults, fmt.Sprintf("%s: %v", what, err))
	}
}

// restart clears the counts but keeps the faults.
func (t *tally) restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts = nil
}

func (t *tally) wrong() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func (t *tally) right() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, outcomes := range t.counts {
		n += outcomes[right]
	}
	return n
}

// print lists the counts over d, and the faults.
func (t *tally) print(out io.Writer, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := 0
	for _, what := range slices.Sorted(maps.Keys(t.counts)) {
		var parts []string
		for _, outcome := range slices.Sorted(maps.Keys(t.counts[what])) {
			n := t.counts[what][outcome]
			all += n
			parts = append(parts, fmt.Sprintf("%d %s", n, outcome))
		}
		fmt.Fprintf(out, "%-26s %s\n", what, strings.Join(parts, ", "))
	}
	fmt.Fprintf(out, "%d in %v, %.0f a second\n", all, d, float64(all)/d.Seconds())
	for _, fault := range t.faults {
		fmt.Fprintln(out, "WRONG", fault)
	}
	if more := t.failed - len(t.faults); more > 0 {
		fmt.Fprintf(out, "and %d more\n", more)
	}
}
