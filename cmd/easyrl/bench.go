package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

func benchVerb(std streams) verb {
	v := verb{
		name:    "bench",
		summary: "Measure the machine's ceilings and where each phase of training and sampling stands under them.",
		example: `easyrl bench
			easyrl bench -model models/my-qwen3 -threads 1 -json > bench.json`,
		flags: newFlags(),
	}
	dir := v.flags.String("model", "", "`DIR` of a Hugging Face folder; by default random weights in the quickstart's shape")
	threads := v.flags.Int("threads", 0, "`N` threads; 0 takes all cores")
	asJSON := v.flags.Bool("json", false, "print JSON: the unit of a time is a second, of work an operation or a byte")
	v.run = func(ctx context.Context, args []string) error {
		if len(args) > 0 {
			return usagef("bench: unexpected argument %s", args[0])
		}
		f, err := benchFolder(*dir)
		if err != nil {
			return err
		}
		dev, err := openDevice(configs.CPU, *threads)
		if err != nil {
			return err
		}
		defer dev.Close() //nolint:errcheck // nothing is left to do with it
		r := benchReport{Device: dev.Name(), Model: f.source, Parameters: f.shape.NumParams()}
		if r.Ceilings, err = cpu.Ceilings(dev.Threads()); err != nil {
			return err
		}
		b := &bench{ctx: ctx, folder: f, dev: dev, ceilings: &r.Ceilings}
		if err := b.measure(); err != nil {
			return err
		}
		r.Phases = b.stands
		if !*asJSON {
			return r.print(std.out)
		}
		out := json.NewEncoder(std.out)
		out.SetIndent("", "  ")
		return out.Encode(&r)
	}
	return v
}

// benchFolder is the model to measure: dir's, or the quickstart's with random
// weights.
func benchFolder(dir string) (*folder, error) {
	if dir != "" {
		f, err := openFolder(dir)
		if err == nil && f.shape.MaxPositions < 4 {
			err = usagef("bench: %s has a context of %d tokens, expected 4 or more", dir, f.shape.MaxPositions)
		}
		return f, err
	}
	config, err := initConfig(configs.Init{HiddenSize: 128, FFN: 384, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32, VocabSize: 53})
	if err != nil {
		return nil, err
	}
	shape, err := model.ParseConfig(config)
	return &folder{source: "the quickstart's shape", shape: shape, seed: 1}, err
}

// phase is a part of training or sampling with the work that it cannot do
// without.
type phase struct {
	name  string
	rows  int     // tokens that go through; of an optimizer step none
	flops float64 // of matrix products and attention, or of what is done to each value
	read  float64 // bytes, each once
	write float64 // bytes, each once
	set   float64 // different bytes read or written; 0 for read + write
	// before, where set, is run before each run, outside the time.
	before, run func() error
}

// The ceiling that a phase is nearer to.
const (
	fmaBound       = "fma"
	bandwidthBound = "bandwidth"
)

// stand is a phase under the ceilings of all threads.
type stand struct {
	Phase          string  `json:"phase"`
	Rows           int     `json:"rows"`
	Seconds        float64 `json:"seconds"` // the fastest of several runs
	FLOPs          float64 `json:"flops"`
	FLOPS          float64 `json:"flops_per_second"`
	FMAShare       float64 `json:"fma_share"` // of the ceiling's
	Bytes          float64 `json:"bytes"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	Bandwidth      float64 `json:"bandwidth"` // of going over a set of the phase's size
	BandwidthShare float64 `json:"bandwidth_share"`
	Bound          string  `json:"bound"`
}

// under says where a phase that takes d stands under a peak in operations a
// second and a bandwidth.
func (p *phase) under(d time.Duration, peak, bandwidth float64) stand {
	s := stand{Phase: p.name, Rows: p.rows, Seconds: d.Seconds(), FLOPs: p.flops, Bytes: p.read + p.write, Bandwidth: bandwidth, Bound: bandwidthBound}
	s.FLOPS, s.BytesPerSecond = s.FLOPs/s.Seconds, s.Bytes/s.Seconds
	s.FMAShare, s.BandwidthShare = s.FLOPS/peak, s.BytesPerSecond/bandwidth
	if s.FMAShare > s.BandwidthShare {
		s.Bound = fmaBound
	}
	return s
}

// bench measures phases one after the other.
type bench struct {
	ctx      context.Context // of the command line
	folder   *folder
	dev      npu.Device
	ceilings *npu.Ceilings
	stands   []stand
}

// time runs each phase several times and keeps where it stands.
func (b *bench) time(phases ...phase) error {
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
		read, copied, err := cpu.Bandwidth(b.dev.Threads(), int64(set))
		if err != nil {
			return err
		}
		if p.write > p.read/2 { // nearer to copying than to reading
			read = copied
		}
		b.stands = append(b.stands, p.under(d, b.ceilings.All.FLOPS, read))
	}
	return nil
}

// fastest is the time of p's fastest run. Of long phases there are fewer.
func (b *bench) fastest(p *phase) (time.Duration, error) {
	const runs, least, enough, most = 100, 3, 200 * time.Millisecond, 5 * time.Second
	best := time.Duration(math.MaxInt64)
	for n, began := 0, time.Now(); n < runs; n++ {
		if spent := time.Since(began); n > 0 && (spent > most || n >= least && spent > enough) {
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

// benchReport is what the verb prints.
type benchReport struct {
	Device     string       `json:"device"`
	Model      string       `json:"model"`
	Parameters int64        `json:"parameters"`
	Ceilings   npu.Ceilings `json:"ceilings"`
	Phases     []stand      `json:"phases"`
}

// print shows the report as two tables.
func (r *benchReport) print(w io.Writer) error {
	p := printer{w}
	p.line("%s; %s, %.3g M parameters", r.Device, r.Model, float64(r.Parameters)/1e6)
	p.line("")
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	rows := printer{t}
	at := []*npu.Ceiling{&r.Ceilings.One, &r.Ceilings.All}
	if at[1].Threads == 1 {
		at = at[:1]
	}
	row := func(name, format string, value func(*npu.Ceiling) any) {
		line := fmt.Sprintf("%-29s\t", name)
		for _, c := range at {
			line += fmt.Sprintf(format+"\t", value(c))
		}
		rows.line("%s", line)
	}
	row("threads", "%d", func(c *npu.Ceiling) any { return c.Threads })
	row("fused multiply-adds, GFLOP/s", "%.1f", func(c *npu.Ceiling) any { return c.FLOPS / 1e9 })
	row("memory read, GB/s", "%.1f", func(c *npu.Ceiling) any { return c.Read / 1e9 })
	row("memory copied, GB/s", "%.1f", func(c *npu.Ceiling) any { return c.Copy / 1e9 })
	if err := t.Flush(); err != nil {
		return err
	}
	p.line("")
	rows.line("%-10s\trows\tms\tGFLOP/s\tof peak\tGB/s\tof GB/s\tshare\tbound\t", "phase")
	for i := range r.Phases {
		s := &r.Phases[i]
		rows.line("%-10s\t%d\t%.3g\t%.1f\t%.1f%%\t%.1f\t%.1f\t%.1f%%\t%s\t", s.Phase, s.Rows, 1e3*s.Seconds, s.FLOPS/1e9,
			100*s.FMAShare, s.BytesPerSecond/1e9, s.Bandwidth/1e9, 100*s.BandwidthShare, s.Bound)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	p.line("")
	p.line("GB/s are what must be moved at least, of what the threads reach going over a set of that size,")
	p.line("in caches where it fits. The bound is the ceiling that the phase is nearer to.")
	return nil
}
