package trainer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/filetype"
)

// Leaf names a leaf of a step: responses of a group.
type Leaf struct {
	Update    int   `json:"update"` // number of the update in the step, from 1; those without a gradient do not count
	Group     int   `json:"group"`  // index of the group in the step
	Responses []int `json:"responses"`
}

// Same reports whether l and o are the same leaf.
func (l Leaf) Same(o Leaf) bool {
	return l.Update == o.Update && l.Group == o.Group && slices.Equal(l.Responses, o.Responses)
}

// LeafSums has the linear sums of a leaf's gradient (see backend.LinearSums), by tensor.
type LeafSums struct {
	Leaf
	Sums Hexes `json:"sums"`
}

// UpdateSums has the linear sums of an update's gradients, by tensor.
type UpdateSums struct {
	Leaves []LeafSums // in the order of their passes
	Total  Hexes      // of the sums with which the update was made
}

// Hexes are 64-bit integers that JSON has as hexadecimal texts.
type Hexes []uint64

// MarshalJSON implements json.Marshaler.
func (h Hexes) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, v := range h {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "\"%016x\"", v)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Hexes) UnmarshalJSON(text []byte) error {
	var texts []string
	if err := json.Unmarshal(text, &texts); err != nil {
		return err
	}
	*h = make(Hexes, len(texts))
	for i, s := range texts {
		v, err := strconv.ParseUint(s, 16, 64)
		if err != nil {
			return fmt.Errorf("sum %d is %.40q, expected 16 hexadecimal digits", i, s)
		}
		(*h)[i] = v
	}
	return nil
}

// leaf returns the only leaf of m, of the step's next update.
func (m *micro) leaf(s *step) Leaf {
	return Leaf{Update: s.updates + 1, Group: m.groups[0].Index, Responses: m.indices}
}

// selects reports whether a leaf of the step's next update is to be trained.
func (r *rollouts) selects(s *step, l leaf) bool {
	if r.Select == nil {
		return true
	}
	m := &micro{}
	m.add(l)
	return r.Select(s.number, m.leaf(s))
}

// updated implements source: it keeps the linear sums of the update.
func (r *rollouts) updated(s *step, b *miniBatch) {
	sums := r.t.Models.LinearSums()
	if r.Leaves == nil || sums == nil {
		return
	}
	u := UpdateSums{Total: sums.Total}
	for i, l := range b.leaves {
		u.Leaves = append(u.Leaves, LeafSums{l, sums.Passes[i]})
	}
	s.sums = append(s.sums, u)
}

// LeavesPath returns the path of the linear sums of a step of the run in dir.
func LeavesPath(dir string, step int) string {
	return filepath.Join(dir, "leaves", checkpoint.StepName(step)+".jsonl")
}

// leavesHead is the first line of a file of linear sums. Each further line is a LeafSums or, at the end of an update,
// a totalLine.
type leavesHead struct {
	Step    int      `json:"step"`
	Seed    uint64   `json:"seed"`    // of the run
	Tensors []string `json:"tensors"` // names of the tensors of all sums
}

type totalLine struct {
	Update int   `json:"update"`
	Total  Hexes `json:"total"`
}

// WriteLeaves writes the linear sums of a step to the folder of its run, replacing those of an earlier try. tensors
// names the tensors of the sums.
func WriteLeaves(dir string, step int, seed uint64, tensors []string, updates []UpdateSums) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	err := e.Encode(leavesHead{step, seed, tensors})
	for i, u := range updates {
		for _, l := range u.Leaves {
			if err == nil {
				err = e.Encode(l)
			}
		}
		if err == nil {
			err = e.Encode(totalLine{i + 1, u.Total})
		}
	}
	path := LeavesPath(dir, step)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		if err = os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			_ = os.Remove(path) // a partial file would be mistaken for a complete one
		}
	}
	if err != nil {
		return fmt.Errorf("log leaves: %w", err)
	}
	return nil
}

// maxLeavesLine bounds a line of a file of linear sums, in bytes.
const maxLeavesLine = 64 << 20

// ReadLeaves reads what WriteLeaves wrote, and checks that all lines are of the step and have a sum for each tensor.
func ReadLeaves(dir string, step int, seed uint64, tensors []string) (updates []UpdateSums, err error) {
	path := LeavesPath(dir, step)
	file, err := filetype.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read leaves: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLeavesLine)
	n, open := 0, UpdateSums{}
	fault := func(err error) error { return fmt.Errorf("read leaves %s:%d: %w", path, n, err) }
	for lines.Scan() {
		n++
		if n == 1 {
			var head leavesHead
			if err := json.Unmarshal(lines.Bytes(), &head); err != nil {
				return nil, fault(err)
			}
			if head.Step != step || head.Seed != seed || !slices.Equal(head.Tensors, tensors) {
				return nil, fault(fmt.Errorf("step %d, seed %d and %d tensors, expected step %d, seed %d and the "+
					"%d of the model", head.Step, head.Seed, len(head.Tensors), step, seed, len(tensors)))
			}
			continue
		}
		var line struct {
			LeafSums
			Total Hexes `json:"total"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fault(err)
		}
		sums := line.Sums
		if line.Total != nil {
			sums = line.Total
		}
		if line.Update != len(updates)+1 || len(sums) != len(tensors) {
			return nil, fault(fmt.Errorf("update %d and %d sums, expected update %d and %d", line.Update, len(sums),
				len(updates)+1, len(tensors)))
		}
		if line.Total == nil {
			open.Leaves = append(open.Leaves, line.LeafSums)
			continue
		}
		open.Total = line.Total
		updates = append(updates, open)
		open = UpdateSums{}
	}
	if err := lines.Err(); err != nil {
		return nil, fault(err)
	}
	if n == 0 || len(open.Leaves) > 0 {
		n++
		return nil, fault(fmt.Errorf("the file ends, expected the total of update %d", len(updates)+1))
	}
	return updates, nil
}
