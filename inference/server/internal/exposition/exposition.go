// Package exposition writes metrics in Prometheus's format.
package exposition

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Builder is text in Prometheus's format.
type Builder struct {
	strings.Builder
	Labels string // common labels, as name="value",name="value"
}

// Family writes the header of a metric.
func (e *Builder) Family(name, kind, help string) {
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// Sample writes one value. labels follow the common labels.
func (e *Builder) Sample(name, labels string, value float64) {
	if labels = e.Labels + labels; labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(e, "%s%s %s\n", name, labels, strconv.FormatFloat(value, 'g', -1, 64))
}

// Metric writes a metric with one value.
func (e *Builder) Metric(name, kind, help string, value float64) {
	e.Family(name, kind, help)
	e.Sample(name, "", value)
}

// Process writes metrics of the whole process under the names of Prometheus's own
// clients.
func (e *Builder) Process() {
	e.Labels = ""
	e.Metric("go_goroutines", "gauge", "Number of goroutines.", float64(runtime.NumGoroutine()))
	if pages, ok := residentPages(); ok {
		e.Metric("process_resident_memory_bytes", "gauge", "Resident memory in bytes.", float64(pages)*float64(os.Getpagesize()))
	}
}

// residentPages returns the resident memory of the process, if the system has /proc.
func residentPages() (pages int64, ok bool) {
	var size int64
	data, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(data), &size, &pages)
	}
	return pages, err == nil
}
