// Package rollout names what flows from the producer to the trainer: prompts,
// responses, groups and the policy version that wrote them.
package rollout

import (
	"bytes"
	"encoding/json"
	"time"
)

// Prompt is one task of the data set.
type Prompt struct {
	ID       string          // unique in the data set, stable between runs
	Text     string          // as the template rendered it
	Messages []Message       // of a chat, which Text is rendered from; nil where the data set has text. Rollouts files leave them out
	IDs      []int32         // token ids of Text
	Answer   json.RawMessage // what the reward compares with, any JSON value
	Source   string          // data set it came from; may be empty
}

// Message is one turn of a chat.
type Message struct {
	Role    string                     // "system", "user", "assistant", "tool", …
	Content string                     // its text
	Extra   map[string]json.RawMessage // what else it has, such as tool_calls; nil where nothing
}

// AnswerText is the answer as text: a JSON string's content, or the JSON itself.
func (p *Prompt) AnswerText() string {
	if len(p.Answer) == 0 || (p.Answer[0] != '"' && p.Answer[0] != 'n') { // neither a string nor null
		return string(p.Answer)
	}
	var s string
	if json.Unmarshal(p.Answer, &s) == nil {
		return s
	}
	return string(p.Answer)
}

// Finish says why a response ended.
type Finish string

// The reasons a response ends: a stop token or string, or the length limit.
const (
	Stop   Finish = "stop"
	Length Finish = "length"
)

// Response is one sampled answer and its score.
type Response struct {
	Text     string             `json:"text"`
	IDs      []int32            `json:"ids"`      // includes the stop token where one ended it
	Logprobs []float32          `json:"logprobs"` // of IDs, natural log, under the policy that sampled them
	Reward   float64            `json:"reward"`
	Parts    map[string]float64 `json:"parts,omitempty"` // the reward's components by name
	Finish   Finish             `json:"finish"`
	Version  int64              `json:"version"` // of the weights that sampled it
	Instance string             `json:"instance"`
}

// Group is a prompt and its responses: the unit that streams to the trainer,
// since an advantage needs all rewards of its group.
type Group struct {
	Step      int   // that it belongs to, from 1
	Index     int   // its place among the step's prompts, from 0
	Version   int64 // of the weights, equal in all responses
	Prompt    Prompt
	Responses []Response
	// Seed is that of the request which sampled it, and its name in the trace.
	// Rollouts files leave it out.
	Seed uint64
	// Scored is when its last response had its reward; zero where that is not
	// known. Rollouts files leave it out.
	Scored time.Time
	// Replaced says that the group was not trained: its rewards were all equal,
	// and another of the same index took its place.
	Replaced bool
}

type groupJSON struct {
	Step      int             `json:"step"`
	Version   int64           `json:"version"`
	Index     int             `json:"index"`
	PromptID  string          `json:"prompt_id"`
	Prompt    string          `json:"prompt"`
	PromptIDs []int32         `json:"prompt_ids"`
	Answer    json.RawMessage `json:"answer,omitempty"`
	Source    string          `json:"source,omitempty"`
	Responses []Response      `json:"responses"`
	Replaced  bool            `json:"replaced,omitempty"`
}

// MarshalJSON writes the flat form of a run's rollouts files, with < and > as
// they are: people read it.
func (g Group) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(groupJSON{g.Step, g.Version, g.Index, g.Prompt.ID, g.Prompt.Text, g.Prompt.IDs,
		g.Prompt.Answer, g.Prompt.Source, g.Responses, g.Replaced})
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// UnmarshalJSON reads the flat form.
func (g *Group) UnmarshalJSON(b []byte) error {
	var j groupJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*g = Group{Step: j.Step, Version: j.Version, Index: j.Index, Responses: j.Responses, Replaced: j.Replaced,
		Prompt: Prompt{ID: j.PromptID, Text: j.Prompt, IDs: j.PromptIDs, Answer: j.Answer, Source: j.Source}}
	return nil
}
