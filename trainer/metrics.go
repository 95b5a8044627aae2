package trainer

import (
	"math"

	"github.com/easyrl/easyrl/internal/exactsum"
	"github.com/easyrl/easyrl/report"
)

// kind says how the samples of a metric are combined.
type kind int

const (
	mean      kind = iota
	deviation      // unbiased standard deviation
	largest
	total
)

// metric accumulates the samples of one name.
type metric struct {
	kind    kind
	n       float64 // number of samples
	sum     exactsum.Sum
	squares exactsum.Sum // used by deviation
	maximum float64      // used by largest
}

// metrics accumulates numbers by name where they are measured. Their sums are exact, so the
// order of the calls does not change a metric. The zero value is empty.
type metrics struct {
	byName map[string]*metric
}

// get returns the metric of a name. The first call creates it with kind k.
func (m *metrics) get(name string, k kind) *metric {
	if m.byName == nil {
		m.byName = map[string]*metric{}
	}
	if m.byName[name] == nil {
		m.byName[name] = &metric{kind: k}
	}
	return m.byName[name]
}

// Mean adds n samples with the given sum to a mean.
func (m *metrics) Mean(name string, sum, n float64) {
	e := m.get(name, mean)
	e.sum.Add(sum)
	e.n += n
}

// MeanOf adds n samples with the given exact sum to a mean.
func (m *metrics) MeanOf(name string, sum *exactsum.Sum, n float64) {
	e := m.get(name, mean)
	e.sum.Merge(sum)
	e.n += n
}

// Share adds a sample to a fraction: the share of samples with hit = true.
func (m *metrics) Share(name string, hit bool) {
	sample := 0.0
	if hit {
		sample = 1
	}
	m.Mean(name, sample, 1)
}

// Std adds a sample to a standard deviation.
func (m *metrics) Std(name string, v float64) {
	e := m.get(name, deviation)
	e.sum.Add(v)
	e.squares.AddSquare(v)
	e.n++
}

// Max adds a sample and keeps the largest.
func (m *metrics) Max(name string, v float64) {
	e := m.get(name, largest)
	if e.n == 0 {
		e.maximum = v
	}
	e.maximum = max(e.maximum, v)
	e.n++
}

// Sum adds v to a sum. A sum counts as data even if it is 0.
func (m *metrics) Sum(name string, v float64) {
	e := m.get(name, total)
	e.sum.Add(v)
	e.n++
}

// totals returns the sum of a metric's samples and their number.
func (m *metrics) totals(name string) (sum, n float64) {
	if e := m.byName[name]; e != nil {
		return e.sum.Float64(), e.n
	}
	return 0, 0
}

// merge adds the samples of o.
func (m *metrics) merge(o *metrics) {
	for name, from := range o.byName {
		e := m.get(name, from.kind)
		if e.n == 0 {
			e.maximum = from.maximum
		}
		e.maximum = max(e.maximum, from.maximum)
		e.n += from.n
		e.sum.Merge(&from.sum)
		e.squares.Merge(&from.squares)
	}
}

// into adds the metrics to values. Metrics without samples are omitted: no data is
// not 0.
func (m *metrics) into(values report.Values) {
	for name, e := range m.byName {
		if e.n > 0 {
			values[name] = e.value()
		}
	}
}

// value combines the samples. There must be at least one.
func (e *metric) value() float64 {
	switch e.kind {
	case mean:
		return e.sum.Float64() / e.n
	case deviation:
		return math.Sqrt(exactsum.Variance(&e.sum, &e.squares, e.n))
	case largest:
		return e.maximum
	default:
		return e.sum.Float64()
	}
}
