package findings

import (
	"fmt"
	"strings"

	"github.com/easyrl/easyrl/internal/bytesize"
	"github.com/easyrl/easyrl/report"
)

// String describes how the cores are divided.
func (t *Threads) String() string {
	text := fmt.Sprintf("%d for training", t.Training)
	if t.Ranks > 1 {
		text = fmt.Sprintf("%d for each of %d ranks", t.Training, t.Ranks)
	}
	if t.Idle > t.Training {
		text += fmt.Sprintf(" (%d while sampling is idle)", t.Idle)
	}
	switch {
	case t.Instances == 1:
		text += fmt.Sprintf(", %d for sampling", t.Sampling)
	case t.Instances > 1:
		text += fmt.Sprintf(", %d for each of %d instances", t.Sampling, t.Instances)
	}
	return text
}

// String describes where the run writes and where it continues.
func (f *Folder) String() string {
	if f.From == "" {
		return f.Path + ", a new run"
	}
	return fmt.Sprintf("%s, resumes after step %d from %s", f.Path, f.Step, f.From)
}

// String describes the model's size and source.
func (m *Model) String() string {
	text := fmt.Sprintf("%s parameters, %s, context of %d tokens", report.Parameters(m.Parameters), m.Type, m.Context)
	switch {
	case m.Random:
		return text + ", random weights"
	case m.Loaded:
		return text + ", weights read"
	}
	return text
}

// String counts the prompts or demonstrations.
func (d *Data) String() string {
	text := fmt.Sprintf("%d usable in %s", d.Usable, d.Key)
	if d.Dropped > 0 {
		text += fmt.Sprintf(" (%d dropped)", d.Dropped)
	}
	var sets []string
	for _, s := range d.Eval {
		sets = append(sets, fmt.Sprintf("%s (%d)", s.Name, s.Usable))
	}
	if len(sets) > 0 {
		text += "; held-out sets: " + strings.Join(sets, ", ")
	}
	return text
}

// String describes the server and whether it answers.
func (s *Server) String() string {
	text := s.URL
	if s.Kind != "" {
		text += " (" + s.Kind + ")"
	}
	switch {
	case s.Error != "":
		text += ": not available"
	case s.Capacity > 0:
		text += fmt.Sprintf(": available, %d responses at once", s.Capacity)
	}
	return text
}

// write writes the memory by purpose.
func (m *Memory) write(line func(format string, args ...any)) {
	size := bytesize.Text
	if len(m.Ranks) > 0 {
		m.writeRanks(line)
	} else if m.Gradients > 0 {
		line("memory (estimated): weights %s, gradients %s, optimizer %s, activations up to %s (%d rows)",
			size(m.Weights),
			size(m.Gradients), size(m.Moments), size(m.Activations), m.Rows)
	} else if m.Weights > 0 { // PyTorch ranks train
		line("memory of this process (estimated): published weights %s", size(m.Weights))
	}
	if m.Instances > 0 {
		owner := "of the instance"
		if m.Instances > 1 {
			owner = fmt.Sprintf("of each of %d instances", m.Instances)
		}
		line("memory %s (estimated): kv %s (%d pages), activations up to %s (%d rows)", owner, size(m.Cache), m.Pages,
			size(m.Running), m.EngineRows)
	}
	if s := m.Swap; s != nil {
		line("memory of the device (estimated): up to %s: published weights %s, beside them %s while training or %s "+
			"while sampling; swapped state in host memory %s",
			size(s.Device), size(s.Stays), size(s.Training), size(s.Sampling), size(s.Host))
	}
	if m.Sent > 0 {
		line("memory of the weights that servers receive: %s", size(m.Sent))
	}
	if m.Verified > 0 {
		line("memory of the perturbed weights that verify servers: %s", size(m.Verified))
	}
	memory := "memory"
	if m.Here < len(m.Ranks) {
		memory = "memory of this process"
	}
	line("%s in total (estimated): %s, plus %s while a checkpoint is written", memory, size(m.Most-m.Saved),
		size(m.Saved))
	if m.Limit != nil && m.Limit.Bytes > 0 {
		line("memory of %s: %s", m.Limit.Owner, size(m.Limit.Bytes))
	}
}

// writeRanks writes the memory of ranks, with one line for consecutive ranks with equal parts, and then a line
// about rank 0's process.
func (m *Memory) writeRanks(line func(format string, args ...any)) {
	size := bytesize.Text
	groups := 0 // of consecutive ranks with equal parts
	for first := 0; first < len(m.Ranks); {
		r, end := m.Ranks[first], first+1
		for ; end < len(m.Ranks); end++ {
			r.Rank = m.Ranks[end].Rank // compare all other fields
			if r != m.Ranks[end] {
				break
			}
		}
		ranks, each := fmt.Sprintf("rank %d", first), ""
		if end > first+1 {
			ranks, each = fmt.Sprintf("ranks %d-%d", first, end-1), ", each"
		}
		saved := ""
		if r.Saved > 0 {
			saved = fmt.Sprintf(", plus %s while a checkpoint is written", size(r.Saved))
		}
		groups++
		if groups <= maxLines {
			line("memory of %s (estimated%s): weights %s, gradients %s, optimizer %s, activations up to %s (%s of "+
				"%d rows)%s", ranks, each, size(r.Weights),
				size(r.Gradients), size(r.Moments), size(r.Activations),
				count(r.InFlight, "micro-batch", "micro-batches"), m.Rows, saved)
		}
		first = end
	}
	if groups > maxLines {
		line("memory of more ranks: see -json")
	}
	whole := ""
	if m.Whole > 0 {
		whole = fmt.Sprintf("; %s of the whole weights, %s", count(m.WholeCopies, "version", "versions"), size(m.Whole))
	}
	line("memory of rank 0's process (estimated): %s%s", count(m.Here, "rank", "ranks"), whole)
}
