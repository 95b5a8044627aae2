package rollout

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
)

// groupJSON is the form of a Group in rollouts files.
type groupJSON struct {
	Step      int             `json:"step"`
	Batch     int             `json:"batch,omitempty"` // 0 if equal to Step
	Version   int64           `json:"version"`
	Index     int             `json:"index"`
	Prompts   int             `json:"prompts,omitempty"`
	PromptID  string          `json:"prompt_id"`
	Prompt    string          `json:"prompt"`
	Question  string          `json:"question,omitempty"` // last message of the user; "" for plain text
	PromptIDs []int32         `json:"prompt_ids"`
	Answer    json.RawMessage `json:"answer"` // null if there is none
	Source    string          `json:"source,omitempty"`
	Responses []responseJSON  `json:"responses"`
	Replaced  bool            `json:"replaced,omitempty"`
}

// responseJSON is the form of a Response in rollouts files. If the response is one trained span of the policy,
// the fields ids, logprobs and version of that span replace spans. They are empty if it has no spans.
type responseJSON struct {
	Text      string             `json:"text"`
	Spans     Trajectory         `json:"spans,omitempty"`
	IDs       *[]int32           `json:"ids,omitempty"`
	Logprobs  *[]float32         `json:"logprobs,omitempty"`
	Reward    float64            `json:"reward"`
	Parts     map[string]float64 `json:"parts,omitempty"`
	Finish    Finish             `json:"finish"`
	Version   *int64             `json:"version,omitempty"`
	Instance  string             `json:"instance"`
	Advantage *float64           `json:"advantage,omitempty"`
	Entropies []float32          `json:"entropies,omitempty"`
}

// encode returns the form of r in rollouts files. It shares memory with r.
func encode(r *Response) responseJSON {
	j := responseJSON{Text: r.Text, Reward: r.Reward, Parts: r.Parts, Finish: r.Finish, Instance: r.Instance,
		Advantage: r.Advantage, Entropies: r.Entropies}
	switch {
	case len(r.Spans) == 0:
		j.IDs, j.Logprobs, j.Version = new([]int32), new([]float32), new(int64)
	case len(r.Spans) == 1 && r.Spans[0].From == Policy && r.Spans[0].Trained:
		s := &r.Spans[0]
		j.IDs, j.Logprobs, j.Version = &s.IDs, &s.Logprobs, &s.Version
	default:
		j.Spans = r.Spans
	}
	return j
}

// decode returns the response that j describes. It shares memory with j.
func (j *responseJSON) decode() (Response, error) {
	r := Response{Text: j.Text, Spans: j.Spans, Reward: j.Reward, Parts: j.Parts, Finish: j.Finish,
		Instance: j.Instance, Advantage: j.Advantage, Entropies: j.Entropies}
	flat := j.IDs != nil || j.Logprobs != nil || j.Version != nil
	if flat && j.Spans != nil {
		return r, errors.New(`found "spans" beside "ids", "logprobs" or "version", expected one or the other`)
	}
	if flat {
		s := Span{From: Policy, Trained: true}
		if j.IDs != nil {
			s.IDs = *j.IDs
		}
		if j.Logprobs != nil {
			s.Logprobs = *j.Logprobs
		}
		if j.Version != nil {
			s.Version = *j.Version
		}
		r.Spans = Trajectory{s}
	}
	return r, nil
}

// MarshalJSON returns g as a line of a rollouts file, without the newline. It leaves < and > unescaped,
// because people read these files.
func (g Group) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	j := groupJSON{
		Step: g.Step, Version: g.Version, Index: g.Index, Prompts: g.Prompts,
		PromptID: g.Prompt.ID, Prompt: g.Prompt.Text, Question: g.Prompt.Asked(), PromptIDs: g.Prompt.IDs,
		Answer: g.Prompt.Answer, Source: g.Prompt.Source, Replaced: g.Replaced,
	}
	if g.Batch != g.Step {
		j.Batch = g.Batch
	}
	if g.Responses != nil {
		j.Responses = make([]responseJSON, len(g.Responses))
	}
	for i := range g.Responses {
		j.Responses[i] = encode(&g.Responses[i])
	}
	err := e.Encode(j)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// UnmarshalJSON reads a line of a rollouts file.
func (g *Group) UnmarshalJSON(b []byte) error {
	var j groupJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if string(j.Answer) == "null" {
		j.Answer = nil
	}
	*g = Group{
		Step: j.Step, Batch: cmp.Or(j.Batch, j.Step), Version: j.Version, Index: j.Index, Prompts: j.Prompts,
		Prompt: Prompt{ID: j.PromptID, Text: j.Prompt, Messages: Chat(j.Question), IDs: j.PromptIDs,
			Answer: j.Answer, Source: j.Source},
		Replaced: j.Replaced,
	}
	if j.Responses != nil {
		g.Responses = make([]Response, len(j.Responses))
	}
	for i := range j.Responses {
		r, err := j.Responses[i].decode()
		if err != nil {
			return fmt.Errorf("response %d: %w", i, err)
		}
		g.Responses[i] = r
	}
	return nil
}
