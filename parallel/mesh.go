// Package parallel maps ranks to the data, tensor and pipeline axes of a mesh.
//
// It is arithmetic only: it neither shards a model nor communicates.
package parallel

import (
	"errors"
	"fmt"
)

// Axis is one axis of a mesh.
type Axis int

// The axes: replicas that train different groups, shards of each matrix, and
// runs of layers.
const (
	Data Axis = iota
	Tensor
	Pipeline
)

func (a Axis) String() string { return [...]string{"dp", "tp", "pp"}[a] }

// Mesh is the sizes of the axes. Tensor ranks are next to each other, since
// they talk most, then data, then pipeline ranks: the order of Megatron-LM.
type Mesh struct {
	DP int `toml:"dp"` // replicas of the model
	TP int `toml:"tp"` // shards of each matrix
	PP int `toml:"pp"` // pipeline stages
}

// Coord is a rank's place on each axis.
type Coord struct{ DP, TP, PP int }

// Validate reports all faults of m.
func (m Mesh) Validate() error {
	var errs []error
	for _, a := range []Axis{Data, Tensor, Pipeline} {
		if n := m.size(a); n < 1 {
			errs = append(errs, fmt.Errorf("%s is %d, expected at least 1", a, n))
		}
	}
	return errors.Join(errs...)
}

// Size is the number of ranks.
func (m Mesh) Size() int { return m.DP * m.TP * m.PP }

func (m Mesh) size(a Axis) int { return [...]int{m.DP, m.TP, m.PP}[a] }

// Coord is the place of a rank, which is 0 to Size-1.
func (m Mesh) Coord(rank int) Coord {
	return Coord{TP: rank % m.TP, DP: rank / m.TP % m.DP, PP: rank / (m.TP * m.DP)}
}

// Rank is the rank at a place.
func (m Mesh) Rank(c Coord) int { return c.TP + m.TP*(c.DP+m.DP*c.PP) }

// Group is the ranks that differ from rank on one axis only, in its order,
// rank itself included: those that a collective over the axis joins.
func (m Mesh) Group(rank int, a Axis) []int {
	ranks := make([]int, m.size(a))
	for i := range ranks {
		c := m.Coord(rank)
		*[...]*int{&c.DP, &c.TP, &c.PP}[a] = i
		ranks[i] = m.Rank(c)
	}
	return ranks
}

// Layers is the half-open range of n layers that a pipeline stage holds: as
// even as can be, the earlier stages taking one more where it does not divide.
func (m Mesh) Layers(stage, n int) (from, to int) {
	each, more := n/m.PP, n%m.PP
	from = stage*each + min(stage, more)
	to = from + each
	if stage < more {
		to++
	}
	return from, to
}
