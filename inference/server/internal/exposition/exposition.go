// Package exposition writes metrics in Prometheus's format.
package exposition

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Text is text in Prometheus's format.
type Text struct {
	strings.Builder
	Labels string // in front of each metric's own, as name="value",name="value"
}

// Family begins a metric.
func (e *Text) Family(name, kind, help string) {
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// Sample writes one value with labels of its own behind the common ones.
func (e *Text) Sample(name, labels string, value float64) {
	if labels = e.Labels + labels; labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(e, "%s%s %s\n", name, labels, strconv.FormatFloat(value, 'g', -1, 64))
}

// One writes a metric of one value.
func (e *Text) One(name, kind, help string, value float64) {
	e.Family(name, kind, help)
	e.Sample(name, "", value)
}

// Process tells of the whole process, under the names that Prometheus's own
// clients give it.
func (e *Text) Process() {
	e.Labels = ""
	e.One("go_goroutines", "gauge", "Goroutines, now.", float64(runtime.NumGoroutine()))
	if pages, ok := residentPages(); ok {
		e.One("process_resident_memory_bytes", "gauge", "Resident memory, now.", float64(pages)*float64(os.Getpagesize()))
	}
}

// residentPages is the memory of the process, where the system has /proc.
func residentPages() (pages int64, ok bool) {
	var size int64
	data, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(data), &size, &pages)
	}
	return pages, err == nil
}
