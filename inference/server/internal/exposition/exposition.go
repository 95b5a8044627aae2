// Package exposition writes metrics in Prometheus's format.
package exposition

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Builder builds a text in Prometheus's format.
type Builder struct {
	strings.Builder
	Labels string // common labels, as name="value",name="value"
}

// Family writes the header of a metric.
func (e *Builder) Family(name, kind, help string) {
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// Sample writes one value. labels is appended to the common labels and begins with a comma
// if there are any.
func (e *Builder) Sample(name, labels string, value float64) {
	if labels = e.Labels + labels; labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(e, "%s%s %s\n", name, labels, strconv.FormatFloat(value, 'g', -1, 64))
}

// Metric writes a metric with a single value, after its header.
func (e *Builder) Metric(name, kind, help string, value float64) {
	e.Family(name, kind, help)
	e.Sample(name, "", value)
}

// Process writes metrics of the whole process, named as in Prometheus's own clients. They
// have no common labels: Process clears these, so call it last.
func (e *Builder) Process() {
	e.Labels = ""
	e.Metric("go_goroutines", "gauge", "Number of goroutines.", float64(runtime.NumGoroutine()))
	if pages, ok := residentPages(); ok {
		e.Metric("process_resident_memory_bytes", "gauge", "Resident memory in bytes.", float64(pages)*float64(os.Getpagesize()))
	}
}

// residentPages returns the resident memory in pages, if the system has /proc/self/statm.
func residentPages() (pages int64, ok bool) {
	var size int64
	data, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(data), &size, &pages)
	}
	return pages, err == nil
}
