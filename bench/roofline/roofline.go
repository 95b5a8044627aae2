// Package roofline measures each phase of training and sampling against the compute
// and memory ceilings of the machine (Williams, Waterman and Patterson 2009,
// "Roofline").
package roofline

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/device"
)

// Measure times all phases of a model of the given shape on dev, a CPU. It frees the
// weights that load returns. name is the model's name in the report. If ctx ends,
// Measure stops early and returns its error.
func Measure(ctx context.Context, dev npu.Device, shape *model.Config, name string,
	load func() (*model.Weights, error)) (*Report, error) {
	info := dev.Info()
	r := &Report{Device: info.Name, Numerics: info.Numerics.String(), Model: name, Parameters: shape.NumParams()}
	var err error
	if r.Ceilings, err = device.Ceilings(dev); err != nil {
		return nil, err
	}
	w, err := load()
	if err != nil {
		return nil, err
	}
	b := &measurement{ctx: ctx, shape: shape, dev: dev, ceilings: &r.Ceilings}
	if err := b.all(w); err != nil {
		return nil, err
	}
	r.Phases = b.points
	return r, nil
}

// phase is a part of training or sampling and the least work that it takes.
type phase struct {
	name  string
	rows  int     // tokens; 0 for an optimizer step
	flop  float64 // operations of matrix products and attention, or of elementwise work
	read  float64 // bytes, each once
	write float64 // bytes, each once
	set   float64 // distinct bytes read or written; 0 stands for read + write
	// before runs untimed before each run; it may be nil.
	before, run func() error
}

// Values of Point.Bound: the ceiling that a phase is closer to.
const (
	fmaBound       = "fma"
	bandwidthBound = "bandwidth"
)

// Point is a phase measured against the ceilings of all threads.
type Point struct {
	Phase          string  `json:"phase"`
	Rows           int     `json:"rows"`
	Seconds        float64 `json:"seconds"` // the fastest of several runs
	FLOP           float64 `json:"flops"`
	FLOPPerSecond  float64 `json:"flops_per_second"`
	FMAShare       float64 `json:"fma_share"` // of the ceiling of multiply-adds
	Bytes          float64 `json:"bytes"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	// Bandwidth is the bytes per second of a loop over as many bytes as the phase touches.
	Bandwidth      float64 `json:"bandwidth"`
	BandwidthShare float64 `json:"bandwidth_share"` // of Bandwidth
	Bound          string  `json:"bound"`
}

// point compares a phase that took d with a peak in operations per second and a
// bandwidth in bytes per second.
func (p *phase) point(d time.Duration, peak, bandwidth float64) Point {
	s := Point{Phase: p.name, Rows: p.rows, Seconds: d.Seconds(), FLOP: p.flop, Bytes: p.read + p.write,
		Bandwidth: bandwidth, Bound: bandwidthBound}
	s.FLOPPerSecond, s.BytesPerSecond = s.FLOP/s.Seconds, s.Bytes/s.Seconds
	s.FMAShare, s.BandwidthShare = s.FLOPPerSecond/peak, s.BytesPerSecond/bandwidth
	if s.FMAShare > s.BandwidthShare {
		s.Bound = fmaBound
	}
	return s
}

// measurement times phases one after another.
type measurement struct {
	ctx      context.Context // stops the measurement
	shape    *model.Config
	dev      npu.Device
	ceilings *npu.Ceilings
	points   []Point
}

// time runs each phase several times and records its point.
func (b *measurement) time(phases ...phase) error {
	for i := range phases {
		p := &phases[i]
		d, err := b.fastest(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		set := p.set
		if set == 0 {
			set = p.read + p.write
		}
		bandwidth, copying, err := device.Bandwidth(b.dev, int64(set))
		if err != nil {
			return err
		}
		if p.write > p.read/2 { // closer to copying than to reading
			bandwidth = copying
		}
		b.points = append(b.points, p.point(d, b.ceilings.All.FLOPPerSecond, bandwidth))
	}
	return nil
}

// fastest returns the time of the fastest run of p. It repeats long phases less often.
func (b *measurement) fastest(p *phase) (time.Duration, error) {
	const (
		maxRuns, minRuns = 100, 3
		enough           = 200 * time.Millisecond // after minRuns
		maxTime          = 5 * time.Second
	)
	best := time.Duration(math.MaxInt64)
	for n, began := 0, time.Now(); n < maxRuns; n++ {
		if spent := time.Since(began); n > 0 && (spent > maxTime || n >= minRuns && spent > enough) {
			break
		}
		if err := b.ctx.Err(); err != nil {
			return 0, err
		}
		if p.before != nil {
			if err := p.before(); err != nil {
				return 0, err
			}
		}
		start := time.Now()
		err := p.run()
		best = min(best, max(time.Since(start), 1))
		if err != nil {
			return 0, err
		}
	}
	return best, nil
}
