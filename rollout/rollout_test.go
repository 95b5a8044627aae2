package rollout

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// line is a line of a rollouts file.
const line = `{"step":1,"version":1,"prompt_id":"gsm8k:7","prompt":"1+1=","prompt_ids":[5,6,5],"answer":"2",` +
	`"responses":[{"text":"2","ids":[7,1],"logprobs":[-0.25,-1e-7],"reward":1.0,"finish":"stop","version":1,` +
	`"instance":"local"},` +
	`{"text":"33","ids":[8,8],"logprobs":[-3.5,-0.125],"reward":0.5,"finish":"length","version":1,` +
	`"instance":"http://10.0.0.2:8000"}]}`

func TestGroupUnmarshalsContract(t *testing.T) {
	t.Parallel()
	var g Group
	require.NoError(t, json.Unmarshal([]byte(line), &g))
	require.Equal(t, Group{
		Step: 1, Batch: 1, Version: 1,
		Prompt: Prompt{ID: "gsm8k:7", Text: "1+1=", IDs: []int32{5, 6, 5}, Answer: json.RawMessage(`"2"`)},
		Responses: []Response{
			{Text: "2", Spans: Sampled([]int32{7, 1}, []float32{-0.25, -1e-7}, 1), Reward: 1, Finish: Stop,
				Instance: "local"},
			{Text: "33", Spans: Sampled([]int32{8, 8}, []float32{-3.5, -0.125}, 1), Reward: 0.5, Finish: Length,
				Instance: "http://10.0.0.2:8000"},
		},
	}, g)
}

// Marshaling writes every key of the contract. The test lists all keys added to it.
func TestGroupMarshalsContract(t *testing.T) {
	t.Parallel()
	var g Group
	require.NoError(t, json.Unmarshal([]byte(line), &g))
	written, err := json.Marshal(g)
	require.NoError(t, err)
	require.NotContains(t, string(written), "\n")

	var want, got map[string]any
	require.NoError(t, json.Unmarshal([]byte(line), &want))
	require.NoError(t, json.Unmarshal(written, &got))
	want["index"] = 0.0
	require.Equal(t, want, got)

	g.Batch, g.Index, g.Prompt.Source, g.Prompt.Messages = 2, 3, "gsm8k",
		[]Message{{Role: "system", Content: "s"}, {Role: "user", Content: "1+1="}}
	g.Responses[0].Parts = map[string]float64{"format": 1}
	g.Responses[0].Advantage, g.Responses[0].Entropies = new(float64), []float32{0.5, 0}
	written, err = json.Marshal(g)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(written, &got))
	require.Equal(t, []string{
		"answer", "batch", "index", "prompt", "prompt_id", "prompt_ids", "question", "responses", "source", "step",
		"version",
	}, slices.Sorted(maps.Keys(got)))
	response, ok := got["responses"].([]any)[0].(map[string]any)
	require.True(t, ok)
	require.Equal(t, []string{
		"advantage", "entropies", "finish", "ids", "instance", "logprobs", "parts", "reward", "text", "version",
	}, slices.Sorted(maps.Keys(response)))
}

// A group survives a round trip, with log-probabilities and rewards equal to the bit.
func TestGroupRoundTrip(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 9))
	texts := []string{"", "plain", "a\"b\\c\n\t\x00", "<think>é😀\u2028</think>&", "\ufffd"}
	answers := []json.RawMessage{nil, json.RawMessage(`"x"`), json.RawMessage(`43.0`),
		json.RawMessage(`{"a":[1,null]}`), json.RawMessage(`""`)}
	for i := range 200 {
		g := Group{
			Step: 1 + i, Batch: max(1, i+rng.IntN(2)), Index: rng.IntN(9), Version: rng.Int64(),
			Prompt: Prompt{
				ID: texts[1+rng.IntN(4)], Text: texts[rng.IntN(5)], IDs: []int32{0, rng.Int32()},
				Answer: answers[rng.IntN(5)], Source: texts[rng.IntN(5)],
			},
		}
		for range rng.IntN(4) {
			r := Response{
				Text: texts[rng.IntN(5)], Reward: rng.NormFloat64(), Finish: []Finish{Stop, Length}[rng.IntN(2)],
				Spans: Sampled(nil, nil, g.Version), Instance: texts[rng.IntN(5)],
			}
			s := &r.Spans[0]
			for range 1 + rng.IntN(20) {
				s.IDs = append(s.IDs, rng.Int32())
				s.Logprobs = append(s.Logprobs, -math.Float32frombits(rng.Uint32N(0x7f800000)))
			}
			if rng.IntN(3) == 0 { // another turn
				r.Spans = append(r.Spans, Span{From: Environment, IDs: []int32{rng.Int32()}},
					Span{From: Policy, IDs: []int32{rng.Int32()}, Logprobs: []float32{-1}, Version: 2,
						Trained: rng.IntN(2) == 0})
			}
			if rng.IntN(2) == 0 {
				r.Parts = map[string]float64{"a": rng.Float64(), "b": math.SmallestNonzeroFloat64}
			}
			g.Responses = append(g.Responses, r)
		}
		written, err := json.Marshal(g)
		require.NoError(t, err)
		var back Group
		require.NoError(t, json.Unmarshal(written, &back))
		require.Equal(t, g, back)
		again, err := json.Marshal(&back)
		require.NoError(t, err)
		require.True(t, bytes.Equal(written, again))
	}
}

// A recorded group keeps the question of its prompt, whatever the template adds to it.
func TestGroupKeepsQuestion(t *testing.T) {
	t.Parallel()
	user := func(text string) Message { return Message{Role: "user", Content: text} }
	for _, messages := range [][]Message{nil, {{Role: "system", Content: "be brief"}}, {user("<1>")},
		{user("1"), {Role: "assistant", Content: "2"}, user("3"), {Role: "assistant", Content: "4"}}} {
		g, back := Group{Prompt: Prompt{Text: "<|user|>rendered", Messages: messages}}, Group{}
		written, err := json.Marshal(g)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(written, &back))
		require.Equal(t, g.Prompt.Question(), back.Prompt.Question())
		require.Equal(t, g.Prompt.Text, back.Prompt.Text)
	}
}

func TestGroupRejectsInvalid(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `{`, `[]`, `{"step":"1"}`, `{"step":1.5}`, `{"prompt_ids":[1.5]}`,
		`{"prompt_ids":[3000000000]}`, `{"responses":[{"reward":"1"}]}`} {
		var g Group
		require.Error(t, json.Unmarshal([]byte(text), &g), text)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		_, err := json.Marshal(Group{Responses: []Response{{Reward: bad}}})
		require.Error(t, err)
		_, err = json.Marshal(Group{Responses: []Response{{Spans: Sampled(nil, []float32{float32(bad)}, 1)}}})
		require.Error(t, err)
	}
}

func TestAnswerText(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`"7,2"`: "7,2", `"a\n\u00e9"`: "a\né", `43.0`: "43.0", `["a"]`: `["a"]`, `true`: "true", `""`: "", ``: "",
		`null`: "", `nothing`: "nothing", `"open`: `"open`,
	} {
		p := Prompt{Answer: json.RawMessage(raw)}
		require.Equal(t, want, p.AnswerText(), raw)
	}
}

func FuzzGroup(f *testing.F) {
	f.Add([]byte(line))
	f.Add([]byte(`{"responses":[{}],"answer":{"a":1.50}}`))
	f.Add([]byte(`{"responses":[{"spans":[{"from":"policy","ids":[1],"logprobs":[-1],"version":2,"trained":true}]},` +
		`{"spans":[{"from":"environment","ids":[1]}],"ids":null}]}`))
	f.Add([]byte(`{"answer":null,"prompt":"\ud800"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var g, back Group
		if json.Unmarshal(text, &g) != nil {
			return
		}
		first, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(first, &back); err != nil {
			t.Fatal(err)
		}
		second, err := json.Marshal(back)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%s became %s, %v", first, second, err)
		}
	})
}

// A recorded group always has an answer, null if its prompt has none.
func TestGroupsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(Group{Prompt: Prompt{Text: "q"}})
	require.NoError(t, err)
	require.Contains(t, string(b), `"answer":null`)
	var g Group
	require.NoError(t, json.Unmarshal(b, &g))
	require.Nil(t, g.Prompt.Answer)
}
