// Package parallel maps ranks to the data, tensor and pipeline axes of a mesh and lets them
// communicate.
//
// A Group holds the ranks along an axis. Its collectives work on any Transport: Local connects
// goroutines of one process, packages tcp and mpi connect processes. Other packages decide how a model
// is sharded.
package parallel

import (
	"errors"
	"fmt"
)

// Axis is one axis of a mesh.
type Axis int

// The axes: replicas that train different groups, shards of each matrix, and ranges of
// layers.
const (
	Data Axis = iota
	Tensor
	Pipeline
)

func (a Axis) String() string { return [...]string{"dp", "tp", "pp"}[a] }

// Mesh holds the sizes of the axes. Ranks are ordered as in Megatron-LM: tensor ranks are
// adjacent because they communicate most, then data ranks, then pipeline ranks.
type Mesh struct {
	DP int // replicas of the model
	TP int // shards of each matrix
	PP int // pipeline stages
}

// Coord is a rank's position on each axis, from 0.
type Coord struct{ DP, TP, PP int }

// Validate returns an error that joins all faults of m.
func (m Mesh) Validate() error {
	var errs []error
	for _, a := range []Axis{Data, Tensor, Pipeline} {
		if n := m.size(a); n < 1 {
			errs = append(errs, fmt.Errorf("%s is %d, expected at least 1", a, n))
		}
	}
	return errors.Join(errs...)
}

// String returns the sizes as settings, as in "dp=2 tp=1 pp=4".
func (m Mesh) String() string { return fmt.Sprintf("dp=%d tp=%d pp=%d", m.DP, m.TP, m.PP) }

// Size returns the number of ranks.
func (m Mesh) Size() int { return m.DP * m.TP * m.PP }

func (m Mesh) size(a Axis) int { return [...]int{m.DP, m.TP, m.PP}[a] }

// Coord returns the position of a rank, which is 0 to Size-1.
func (m Mesh) Coord(rank int) Coord {
	return Coord{TP: rank % m.TP, DP: rank / m.TP % m.DP, PP: rank / (m.TP * m.DP)}
}

// Rank returns the rank at a position.
func (m Mesh) Rank(c Coord) int { return c.TP + m.TP*(c.DP+m.DP*c.PP) }

// Group returns the ranks that have the coordinates of rank except on axis a, including rank itself, in
// the order of that axis. A collective over the axis joins them.
func (m Mesh) Group(rank int, a Axis) []int {
	ranks := make([]int, m.size(a))
	for i := range ranks {
		c := m.Coord(rank)
		*[...]*int{&c.DP, &c.TP, &c.PP}[a] = i
		ranks[i] = m.Rank(c)
	}
	return ranks
}
