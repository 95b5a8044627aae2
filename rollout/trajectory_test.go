package rollout

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// turns is a response of three spans: the policy calls a tool, reads the result, and answers.
func turns() Trajectory {
	return Trajectory{
		{From: Policy, IDs: []int32{5, 6}, Logprobs: []float32{-1, -2}, Version: 3, Trained: true},
		{From: Environment, IDs: []int32{7, 8, 9}},
		{From: Policy, IDs: []int32{10}, Logprobs: []float32{-0.5}, Version: 3},
	}
}

func TestTrajectory(t *testing.T) {
	t.Parallel()
	s := turns()
	require.Equal(t, []int{6, 3, 2}, []int{s.Tokens(), s.Count(IsPolicy), s.Count(IsTrained)})
	require.Equal(t, []int32{5, 6, 7, 8, 9, 10}, s.IDs())
	require.Equal(t, []float32{-1, -2, -0.5}, s.Logprobs(IsPolicy))
	require.Equal(t, []float32{-1, -2}, s.Logprobs(IsTrained))
	require.Empty(t, Demonstrated([]int32{1}).Logprobs(IsTrained))
	require.NoError(t, s.CheckSampled(3))
	s.SetVersion(4)
	require.Equal(t, []int64{4, 0, 4}, []int64{s[0].Version, s[1].Version, s[2].Version})
}

func TestCheckSampledRefuses(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(s Trajectory) Trajectory{
		"spans[0]: 2 ids and 1 logprobs, expected equally many, at least 1": func(s Trajectory) Trajectory {
			s[0].Logprobs = s[0].Logprobs[1:]
			return s
		},
		"spans[2]: 0 ids and 0 logprobs, expected equally many, at least 1": func(s Trajectory) Trajectory {
			s[2].IDs, s[2].Logprobs = nil, nil
			return s
		},
		"spans[1]: 3 logprobs, version 0 and trained false, expected none, 0 and false for an environment": func(
			s Trajectory) Trajectory {
			s[1].Logprobs = make([]float32, 3)
			return s
		},
		"spans[1]: 0 logprobs, version 0 and trained true, expected none, 0 and false for an environment": func(
			s Trajectory) Trajectory {
			s[1].Trained = true
			return s
		},
		`spans[1]: from is "tool", expected "policy" or "environment"`: func(s Trajectory) Trajectory {
			s[1].From = "tool"
			return s
		},
		"spans[2]: version is 2, expected 3": func(s Trajectory) Trajectory {
			s[2].Version = 2
			return s
		},
		"3 tokens, none of the policy, expected at least 1": func(s Trajectory) Trajectory { return s[1:2] },
		"0 tokens, none of the policy, expected at least 1": func(Trajectory) Trajectory { return nil },
	} {
		require.EqualError(t, spoil(turns()).CheckSampled(3), want)
	}
}

// A response of one trained span is recorded without the name span, and others with it.
func TestSpansInFiles(t *testing.T) {
	t.Parallel()
	g := Group{Responses: []Response{
		{Text: "a", Spans: turns(), Finish: Stop},
		{Text: "b", Spans: turns()[2:], Finish: Stop},
		{Text: "c", Spans: turns()[:1], Finish: Stop},
	}}
	text, err := json.Marshal(g)
	require.NoError(t, err)
	var lines struct{ Responses []json.RawMessage }
	require.NoError(t, json.Unmarshal(text, &lines))
	require.Len(t, lines.Responses, 3)
	require.JSONEq(t, `{"text":"a","spans":[`+
		`{"from":"policy","ids":[5,6],"logprobs":[-1,-2],"version":3,"trained":true},`+
		`{"from":"environment","ids":[7,8,9]},{"from":"policy","ids":[10],"logprobs":[-0.5],"version":3}],`+
		`"reward":0,"finish":"stop","instance":""}`, string(lines.Responses[0]))
	require.JSONEq(t, `{"text":"b","spans":[{"from":"policy","ids":[10],"logprobs":[-0.5],"version":3}],`+
		`"reward":0,"finish":"stop","instance":""}`, string(lines.Responses[1]))
	require.Equal(t, `{"text":"c","ids":[5,6],"logprobs":[-1,-2],"reward":0,"finish":"stop","version":3,"instance":""}`,
		string(lines.Responses[2]))
	var back Group
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, g, back)
	err = json.Unmarshal([]byte(`{"responses":[{"spans":[{"from":"environment","ids":[1]}],"ids":[2]}]}`), &back)
	require.ErrorContains(t, err, `found "spans" beside "ids"`)
}
