package report

import (
	"maps"
	"math"
	"slices"
)

// Steps are the numbers of a run's steps, in the order of the steps: eight bytes
// each, a tenth of what Values take. A copy may be read while the original grows.
type Steps struct {
	n       int
	columns map[string][]float64 // NaN where a step lacks the name, which a short one does behind its end
}

// ReadSteps reads a metrics file as ReadMetrics does.
func ReadSteps(path string) (*Steps, error) {
	s := &Steps{}
	err := EachStep(path, func(values Values) error {
		s.Add(values)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Add appends a step. What is not finite is lacking, as in a file.
func (s *Steps) Add(values Values) {
	if s.columns == nil {
		s.columns = map[string][]float64{}
	}
	s.put("step", values["step"])
	for name, x := range values {
		if name != "step" && x-x == 0 {
			s.put(name, x)
		}
	}
	s.n++
}

func (s *Steps) put(name string, x float64) {
	column := s.columns[name]
	for len(column) < s.n {
		column = append(column, math.NaN())
	}
	s.columns[name] = append(column, x)
}

// Cut drops the last steps, those from step on.
func (s *Steps) Cut(step float64) {
	kept := s.n
	for kept > 0 && s.columns["step"][kept-1] >= step {
		kept--
	}
	if kept == s.n {
		return
	}
	s.n = kept
	for name, column := range s.columns {
		column = slices.Clip(column[:min(len(column), kept)]) // a copy keeps what is added behind
		for len(column) > 0 && math.IsNaN(column[len(column)-1]) {
			column = column[:len(column)-1]
		}
		s.columns[name] = slices.Clip(column)
		if len(column) == 0 {
			delete(s.columns, name)
		}
	}
}

// Copy is s as it is now.
func (s *Steps) Copy() *Steps { return &Steps{s.n, maps.Clone(s.columns)} }

// Len is the number of steps.
func (s *Steps) Len() int { return s.n }

// Names are the names that any step has, in the order of a line.
func (s *Steps) Names() []string {
	all := Values{}
	for name := range s.columns {
		all[name] = 0
	}
	return all.Names()
}

// Values are those of the step at place i.
func (s *Steps) Values(i int) Values {
	values := Values{}
	for name, column := range s.columns {
		if i < len(column) && !math.IsNaN(column[i]) {
			values[name] = column[i]
		}
	}
	return values
}

// Series are the values of name and, of the same length, those of over in the same
// steps, where both are. They belong to s.
func (s *Steps) Series(over, name string) (xs, ys []float64) {
	xs, ys = s.columns[over], s.columns[name]
	n := min(len(xs), len(ys))
	xs, ys = xs[:n], ys[:n]
	lacks := func(i int) bool { return math.IsNaN(xs[i]) || math.IsNaN(ys[i]) }
	whole := 0
	for whole < n && !lacks(whole) {
		whole++
	}
	if whole == n {
		return xs, ys
	}
	xs, ys = slices.Clip(xs[:whole]), slices.Clip(ys[:whole])
	for i := whole; i < n; i++ {
		if x, y := s.columns[over][i], s.columns[name][i]; x-x == 0 && y-y == 0 {
			xs, ys = append(xs, x), append(ys, y)
		}
	}
	return xs, ys
}
