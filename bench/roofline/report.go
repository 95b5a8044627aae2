package roofline

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/easyrl/easyrl/npu"
)

// Report is the result of a measurement. Times are in seconds, work is in operations
// or bytes.
type Report struct {
	Device     string       `json:"device"`
	Numerics   string       `json:"numerics"`
	Model      string       `json:"model"`
	Parameters int64        `json:"parameters"`
	Ceilings   npu.Ceilings `json:"ceilings"`
	Phases     []Point      `json:"phases"`
}

// Print writes the report as two tables.
func (r *Report) Print(w io.Writer) error {
	p := lines{w}
	p.add("%s, %s; %s, %.3g M parameters", r.Device, r.Numerics, r.Model, float64(r.Parameters)/1e6)
	p.add("")
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	rows := lines{t}
	columns := []*npu.Ceiling{&r.Ceilings.One, &r.Ceilings.All}
	if columns[1].Threads == 1 {
		columns = columns[:1]
	}
	row := func(name, format string, value func(*npu.Ceiling) any) {
		line := fmt.Sprintf("%-29s\t", name)
		for _, c := range columns {
			line += fmt.Sprintf(format+"\t", value(c))
		}
		rows.add("%s", line)
	}
	row("threads", "%d", func(c *npu.Ceiling) any { return c.Threads })
	row("fused multiply-adds, GFLOP/s", "%.1f", func(c *npu.Ceiling) any { return c.FLOPPerSecond / 1e9 })
	row("memory read, GB/s", "%.1f", func(c *npu.Ceiling) any { return c.Read / 1e9 })
	row("memory copied, GB/s", "%.1f", func(c *npu.Ceiling) any { return c.Copy / 1e9 })
	if err := t.Flush(); err != nil {
		return err
	}
	p.add("")
	rows.add("%-10s\trows\tms\tGFLOP/s\tof peak\tGB/s\tof GB/s\tshare\tbound\t", "phase")
	for i := range r.Phases {
		s := &r.Phases[i]
		rows.add("%-10s\t%d\t%.3g\t%.1f\t%.1f%%\t%.1f\t%.1f\t%.1f%%\t%s\t", s.Phase, s.Rows, 1e3*s.Seconds,
			s.FLOPPerSecond/1e9,
			100*s.FMAShare, s.BytesPerSecond/1e9, s.Bandwidth/1e9, 100*s.BandwidthShare, s.Bound)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	p.add("")
	p.add("GB/s counts only the bytes that a phase must move. The threads reach \"of GB/s\" in a loop over as many")
	p.add("bytes, from caches if they fit. The bound is the ceiling that the phase is nearer to.")
	return nil
}

// lines writes lines. It ignores write errors; Print returns those of the tables.
type lines struct{ w io.Writer }

func (l lines) add(format string, args ...any) { _, _ = fmt.Fprintf(l.w, format+"\n", args...) }
