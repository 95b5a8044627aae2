package attention

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// These tests follow section 4.2 of Lu 2025, "Periodic Asynchrony: An Effective Method for
// Accelerating On-Policy Reinforcement Learning". They use the example of its figure 2: a
// prompt and two responses.

var (
	prompt    = []int32{11, 12, 13}
	responses = [][]int32{{21, 22}, {31, 32, 33}}
)

func paperLayout() *Layout {
	var l Layout
	l.AddGroup(prompt, responses)
	return &l
}

// "Concatenate the shared prompt with the token IDs of multiple responses.
// Correspondingly, the labels used for computing probabilities should also be
// concatenated, except that the prompt portion does not need to be included in
// the labels" (eq. 10).
func TestPaperConcatenation(t *testing.T) {
	t.Parallel()
	l := paperLayout()
	require.Equal(t, []int32{11, 12, 13, 21, 22, 31, 32, 33}, l.Tokens)
	var labels []int32
	for _, target := range l.Targets {
		labels = append(labels, target.Token)
	}
	require.Equal(t, []int32{21, 22, 31, 32, 33}, labels)
}

// "The position IDs need to be rearranged. For the second and subsequent
// responses, their starting positions should immediately follow the prompt,
// maintaining continuity with the prompt tokens" (eq. 11).
func TestPaperPositions(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int32{0, 1, 2, 3, 4, 3, 4, 5}, paperLayout().Positions)
}

// "In the attention module, use a group mask as illustrated in the Figure2,
// instead of the standard causal mask. This ensures that the value vectors of
// the second and subsequent responses are only aggregated with the prompt's
// value vectors, and not with the value vectors of the preceding responses"
// (eq. 12).
func TestPaperGroupMask(t *testing.T) {
	t.Parallel()
	l := paperLayout()
	figure := []string{
		"1.......",
		"11......",
		"111.....",
		"1111....",
		"11111...",
		"111..1..",
		"111..11.",
		"111..111",
	}
	for query, row := range figure {
		for key, mark := range row {
			require.Equal(t, mark == '1', l.Visible(query, key), "row %d, key %d", query, key)
		}
	}
}

// "When computing probabilities, truncate the prompt tokens and retain only the response
// portion" (eq. 13): each response token is predicted by the row that precedes it in its
// own sequence. For a response's first token, this is the prompt's last row.
func TestPaperLabels(t *testing.T) {
	t.Parallel()
	l := paperLayout()
	next := 0
	for i, response := range responses {
		sequence := append(append([]int32(nil), prompt...), response...)
		for offset, token := range response {
			target := l.Targets[next]
			require.Equal(t, Target{Row: target.Row, Token: token, Segment: int32(i + 1), Offset: int32(offset)},
				target)
			at := len(prompt) + offset - 1
			require.Equal(t, sequence[at], l.Tokens[target.Row])
			require.EqualValues(t, at, l.Positions[target.Row])
			next++
		}
		require.EqualValues(t, len(prompt)-1, l.Targets[next-len(response)].Row)
	}
	require.Len(t, l.Targets, next)
}
