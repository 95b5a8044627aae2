// Package rollout defines the data that flows from the producer to the trainer: prompts,
// responses, groups and the policy version that sampled them.
package rollout

import (
	"bytes"
	"encoding/json"
	"time"
)

// Prompt is one task of the data set.
type Prompt struct {
	ID   string // unique in the data set, stable between runs
	Text string // rendered by the template
	// of a chat, from which Text is rendered; nil for plain text. Rollouts files keep only the question
	Messages []Message
	IDs      []int32         // token ids of Text
	Answer   json.RawMessage // reference answer for the reward, any JSON value
	Source   string          // data set it comes from; may be empty
}

// Message is one turn of a chat.
type Message struct {
	Role    string // "system", "user", "assistant", "tool", …
	Content string
	Extra   map[string]json.RawMessage // other fields, such as tool_calls; nil if none
}

// AnswerText returns the answer as text: the content of a JSON string, or the raw JSON.
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

// Question returns the last message of the user or, without messages, the text.
func (p *Prompt) Question() string {
	if asked := p.Asked(); asked != "" {
		return asked
	}
	return p.Text
}

// Asked returns the last message of the user, or "" for plain text.
func (p *Prompt) Asked() string {
	for i := len(p.Messages) - 1; i >= 0; i-- {
		if p.Messages[i].Role == user {
			return p.Messages[i].Content
		}
	}
	return ""
}

// Chat returns the messages of a recorded prompt, which has only the question that Asked returns.
func Chat(asked string) []Message {
	if asked == "" {
		return nil
	}
	return []Message{{Role: user, Content: asked}}
}

const user = "user"

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
	IDs      []int32            `json:"ids"`      // includes the stop token if one ended it
	Logprobs []float32          `json:"logprobs"` // of IDs, natural log, under the policy that sampled them
	Reward   float64            `json:"reward"`
	Parts    map[string]float64 `json:"parts,omitempty"` // the reward's components by name
	Finish   Finish             `json:"finish"`
	Version  int64              `json:"version"` // of the weights that sampled it
	Instance string             `json:"instance"`
	// Advantage is what the trainer gave the response; nil if it was not trained on.
	Advantage *float64 `json:"advantage,omitempty"`
	// Entropies are those of the policy's distribution at each of IDs, in nats, to four
	// decimals. They are empty if the trainer computed none, as for an advantage of 0.
	Entropies []float32 `json:"entropies,omitempty"`
}

// Group is a prompt and its responses. It is the unit streamed to the trainer, because an
// advantage needs all rewards of its group.
type Group struct {
	Step      int   // from 1
	Index     int   // position among the step's prompts, from 0
	Prompts   int   // number of prompts of the step; 0 if unknown
	Version   int64 // of the weights, equal in all responses
	Prompt    Prompt
	Responses []Response
	// Seed is the seed of the request that sampled the group. It names the group in the
	// trace. Rollouts files omit it.
	Seed uint64
	// Scored is when the last response got its reward; zero if unknown. Rollouts files omit
	// it.
	Scored time.Time
	// Replaced means that the group was not trained on: it had no signal, and another group
	// with the same index took its place.
	Replaced bool
	// Before holds the groups that this one replaced, in order. Rollouts files list them
	// separately.
	Before []Group
	// Reject reports that the instance did not sample the group with the weights that it
	// claims, because of cause. It is nil if the recorded log-probabilities may differ from
	// the trainer's even with the right weights. Rollouts files omit it.
	Reject func(cause error)
}

type groupJSON struct {
	Step      int             `json:"step"`
	Version   int64           `json:"version"`
	Index     int             `json:"index"`
	Prompts   int             `json:"prompts,omitempty"`
	PromptID  string          `json:"prompt_id"`
	Prompt    string          `json:"prompt"`
	Question  string          `json:"question,omitempty"` // of a chat: the last message of the user
	PromptIDs []int32         `json:"prompt_ids"`
	Answer    json.RawMessage `json:"answer"` // null if there is none
	Source    string          `json:"source,omitempty"`
	Responses []Response      `json:"responses"`
	Replaced  bool            `json:"replaced,omitempty"`
}

// MarshalJSON writes the flat form of a run's rollouts files. It leaves < and > unescaped,
// because people read these files.
func (g Group) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(groupJSON{g.Step, g.Version, g.Index, g.Prompts, g.Prompt.ID, g.Prompt.Text, g.Prompt.Asked(),
		g.Prompt.IDs,
		g.Prompt.Answer, g.Prompt.Source, g.Responses, g.Replaced})
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// UnmarshalJSON reads the flat form.
func (g *Group) UnmarshalJSON(b []byte) error {
	var j groupJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if string(j.Answer) == "null" {
		j.Answer = nil
	}
	*g = Group{Step: j.Step, Version: j.Version, Index: j.Index, Prompts: j.Prompts, Responses: j.Responses,
		Replaced: j.Replaced,
		Prompt: Prompt{ID: j.PromptID, Text: j.Prompt, Messages: Chat(j.Question), IDs: j.PromptIDs, Answer: j.Answer,
			Source: j.Source}}
	return nil
}
