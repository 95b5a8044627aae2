package report

import (
	"maps"
	"math"
)

// Steps stores the values of a run's steps by column, in step order: eight bytes per
// value, a tenth of the size of Values. The zero value has no steps. Steps is not safe for concurrent
// use, but one goroutine may read a Copy while another changes the original.
type Steps struct {
	n       int
	columns map[string][]float64 // NaN if a step lacks the name; short columns lack their last steps
}

// ReadSteps reads a metrics file like ReadMetrics.
func ReadSteps(path string) (*Steps, error) {
	s := &Steps{}
	err := EachStep(path, func(values Values) error {
		s.Add(values)
		return nil
	})
	return s, err
}

// Add appends a step. It skips non-finite values.
func (s *Steps) Add(values Values) {
	if s.columns == nil {
		s.columns = map[string][]float64{}
	}
	s.put("step", values["step"])
	for name, x := range values {
		if name != "step" && Finite(x) {
			s.put(name, x)
		}
	}
	s.n++
}

// put appends x to a column, after a NaN for each earlier step that lacks the name.
func (s *Steps) put(name string, x float64) {
	column := s.columns[name]
	for len(column) < s.n {
		column = append(column, math.NaN())
	}
	s.columns[name] = append(column, x)
}

// Cut drops all trailing steps numbered step or later, which a resumed run repeats.
func (s *Steps) Cut(step float64) {
	kept := s.n
	for kept > 0 && s.columns["step"][kept-1] >= step {
		kept--
	}
	if kept == s.n {
		return
	}
	old := *s
	*s = Steps{} // has new columns, because a Copy may share the old ones
	for i := range kept {
		s.Add(old.Values(i))
	}
}

// Copy returns a snapshot of s. The two share the memory of their columns, so at most one of them may
// get more steps.
func (s *Steps) Copy() *Steps { return &Steps{s.n, maps.Clone(s.columns)} }

// Len returns the number of steps.
func (s *Steps) Len() int { return s.n }

// Names returns the names of all columns, in line order.
func (s *Steps) Names() []string {
	all := Values{}
	for name := range s.columns {
		all[name] = 0
	}
	return all.Names()
}

// Values returns the values of the step at index i.
func (s *Steps) Values(i int) Values {
	values := Values{}
	for name, column := range s.columns {
		if i < len(column) && !math.IsNaN(column[i]) {
			values[name] = column[i]
		}
	}
	return values
}

// Series returns the values of two names, over as xs and name as ys, for the steps that have both.
func (s *Steps) Series(over, name string) (xs, ys []float64) {
	a, b := s.columns[over], s.columns[name]
	for i := range min(len(a), len(b)) {
		if !math.IsNaN(a[i]) && !math.IsNaN(b[i]) {
			xs, ys = append(xs, a[i]), append(ys, b[i])
		}
	}
	return xs, ys
}
