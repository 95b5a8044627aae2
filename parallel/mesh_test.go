package parallel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMeshOrder(t *testing.T) {
	m := Mesh{DP: 3, TP: 2, PP: 2}
	require.Equal(t, 12, m.Size())
	for _, row := range []struct {
		rank  int
		coord Coord
	}{{0, Coord{0, 0, 0}}, {1, Coord{0, 1, 0}}, {2, Coord{1, 0, 0}}, {5, Coord{2, 1, 0}}, {6, Coord{0, 0, 1}},
		{11, Coord{2, 1, 1}}} {
		require.Equal(t, row.coord, m.Coord(row.rank))
		require.Equal(t, row.rank, m.Rank(row.coord))
	}
	require.Equal(t, []int{8, 9}, m.Group(9, Tensor))
	require.Equal(t, []int{7, 9, 11}, m.Group(9, Data))
	require.Equal(t, []int{3, 9}, m.Group(9, Pipeline))
}

// The groups of each axis partition the ranks.
func TestGroupsPartitionRanks(t *testing.T) {
	for _, m := range []Mesh{{1, 1, 1}, {4, 1, 1}, {1, 8, 4}, {2, 3, 5}} {
		for _, a := range []Axis{Data, Tensor, Pipeline} {
			for rank := range m.Size() {
				group := m.Group(rank, a)
				require.Contains(t, group, rank)
				for _, other := range group {
					require.Equal(t, group, m.Group(other, a))
				}
			}
		}
	}
}

func TestValidate(t *testing.T) {
	require.NoError(t, Mesh{1, 1, 1}.Validate())
	require.ErrorContains(t, Mesh{1, 0, -2}.Validate(), "tp is 0, expected at least 1\npp is -2, expected at least 1")
}
