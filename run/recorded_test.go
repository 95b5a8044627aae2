package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/rollout"
)

func TestRecordedIndices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		indices, want   []int
		prompts, failed int
		recorded, known int // number of prompts in the file, and in the settings
	}{
		{[]int{0, 1, 2}, []int{0, 1, 2}, 3, 0, 0, 0},
		{[]int{1, 3, 4}, []int{1, 3, 4}, 5, 2, 0, 0},
		{[]int{0, 0, 0}, []int{0, 1, 2}, 3, 0, 0, 0},
		{[]int{2, 1}, []int{0, 1}, 2, 0, 0, 0},
		{[]int{-1, 1}, []int{0, 1}, 2, 0, 0, 0},
		{[]int{0, 1 << 40}, []int{0, 1}, 2, 0, 0, 0},
		{[]int{0, 1, 2}, []int{0, 1, 2}, 5, 2, 5, 0},
		{[]int{0, 7}, []int{0, 7}, 8, 6, 8, 0},
		{[]int{0, 3}, []int{0, 1}, 2, 0, 3, 0},
		{[]int{0, 1}, []int{0, 1}, 2, 0, 1 << 40, 0},
		{[]int{0, 1}, []int{0, 1}, 2, 0, -1, 0},
		{[]int{0, 5}, []int{0, 5}, 6, 4, 0, 6},
		{[]int{0, 5}, []int{0, 5}, 8, 6, 8, 6},
		{[]int{0, 1, 2}, []int{0, 1, 2}, 3, 0, 0, 2},
	} {
		var groups []rollout.Group
		for i, index := range c.indices {
			groups = append(groups, rollout.Group{Index: index, Prompts: c.recorded,
				Responses: make([]rollout.Response, i+1)})
			groups[i].Responses[0].Spans = append(rollout.Sampled(make([]int32, 5-i), nil, 1),
				rollout.Span{From: rollout.Environment, IDs: make([]int32, 99)})
		}
		s := newRecordedStep(groups, c.known)
		require.Equal(t, []int{c.prompts, len(groups), 5}, []int{s.prompts, s.size, s.longest})
		stream := s.start(7)
		var got []int
		for g := range stream.Groups() {
			got = append(got, g.Index)
			require.Equal(t, []int64{7, 7, 7}, []int64{int64(g.Step), g.Version, g.Responses[0].Spans[0].Version})
		}
		require.Equal(t, c.want, got)
		stats, err := stream.Wait()
		require.NoError(t, err)
		require.Equal(t, c.failed, stats.Failed)
	}
}
