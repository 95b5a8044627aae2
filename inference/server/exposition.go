package server

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// exposition builds a text in Prometheus's format.
type exposition struct {
	strings.Builder
	labels string // common labels of all samples, as name="value",name="value"
}

// family writes the header of a metric.
func (e *exposition) family(name, kind, help string) {
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample writes one value. labels are further labels after the common ones; unless empty, they begin
// with a comma.
func (e *exposition) sample(name, labels string, value float64) {
	labels = e.labels + labels
	if labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(e, "%s%s %s\n", name, labels, strconv.FormatFloat(value, 'g', -1, 64))
}

// metric writes a metric with a single value, after its header.
func (e *exposition) metric(name, kind, help string, value float64) {
	e.family(name, kind, help)
	e.sample(name, "", value)
}

// process writes metrics of the process, named as in Prometheus's own clients. They have no common
// labels: process clears these, so it must be called last.
func (e *exposition) process() {
	e.labels = ""
	e.metric("go_goroutines", "gauge", "Number of goroutines.", float64(runtime.NumGoroutine()))
	if pages, ok := residentPages(); ok {
		e.metric("process_resident_memory_bytes", "gauge", "Resident memory in bytes.",
			float64(pages)*float64(os.Getpagesize()))
	}
}

// residentPages returns the resident memory in pages. It reports false on a system without
// /proc/self/statm (see proc(5)).
func residentPages() (pages int64, ok bool) {
	var size int64 // the first number in the file; the second is the resident memory
	data, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(data), &size, &pages)
	}
	return pages, err == nil
}
