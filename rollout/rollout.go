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
	Text string // plain text, or the chat as rendered by the chat template
	// Messages are the turns of a chat; nil for plain text. Rollouts files keep only the
	// last message of the user.
	Messages []Message
	IDs      []int32         // token ids of Text
	Answer   json.RawMessage // reference answer for the reward, any JSON value; nil if there is none
	Source   string          // name of the data set; may be empty
}

// Message is one turn of a chat.
type Message struct {
	Role    string // "system", "user", "assistant", "tool", …
	Content string
	Extra   map[string]json.RawMessage // other fields, such as tool_calls; nil if none
}

// AnswerText returns the answer as text: the content of a JSON string, "" for null or no
// answer, or else the raw JSON.
func (p *Prompt) AnswerText() string {
	if len(p.Answer) == 0 || p.Answer[0] != '"' && p.Answer[0] != 'n' { // neither a string nor null
		return string(p.Answer)
	}
	var s string
	if json.Unmarshal(p.Answer, &s) == nil {
		return s
	}
	return string(p.Answer)
}

// Question returns the last message of the user, or Text if it is empty or missing.
func (p *Prompt) Question() string {
	if asked := p.Asked(); asked != "" {
		return asked
	}
	return p.Text
}

// Asked returns the last message of the user, or "" if there is none, as for plain text.
func (p *Prompt) Asked() string {
	for i := len(p.Messages) - 1; i >= 0; i-- {
		if p.Messages[i].Role == user {
			return p.Messages[i].Content
		}
	}
	return ""
}

// Chat returns the messages of a prompt that was read from a rollouts file, which keeps only
// the result of Asked.
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
	Logprobs []float32          `json:"logprobs"` // natural log-probability of each of IDs under the sampling policy
	Reward   float64            `json:"reward"`
	Parts    map[string]float64 `json:"parts,omitempty"` // components of the reward by name
	Finish   Finish             `json:"finish"`
	Version  int64              `json:"version"`  // version of the weights that sampled the response
	Instance string             `json:"instance"` // name of the instance that sampled the response
	// Advantage is the advantage that the trainer computed; nil if it did not train on the
	// response.
	Advantage *float64 `json:"advantage,omitempty"`
	// Entropies has the entropy of the policy's distribution at each of IDs, in nats, rounded
	// to four decimals. It is empty if the trainer computed none, as for an advantage of 0.
	Entropies []float32 `json:"entropies,omitempty"`
}

// Group is a prompt and its responses. It is the unit streamed to the trainer, because an
// advantage needs all rewards of its group.
type Group struct {
	Step      int   // from 1
	Index     int   // position among the step's prompts, from 0
	Prompts   int   // number of prompts of the step; 0 if unknown
	Version   int64 // version of the weights that sampled all responses
	Prompt    Prompt
	Responses []Response
	// Seed is the seed of the request that sampled the group. It names the group in the
	// trace. Rollouts files omit it.
	Seed uint64
	// Scored is the time when the last response got its reward; zero if unknown. Rollouts
	// files omit it.
	Scored time.Time
	// Replaced means that the trainer did not use the group: it had no signal, and another
	// group with the same index took its place.
	Replaced bool
	// Before holds the groups that this one replaced, in order. Rollouts files list them
	// separately.
	Before []Group
	// Reject reports to the fleet that the instance did not sample the group with the weights
	// that it claims; cause says why. It is nil if the recorded log-probabilities may differ
	// from the trainer's even with the right weights. Rollouts files omit it.
	Reject func(cause error)
}

// groupJSON is the flat form of a Group in rollouts files.
type groupJSON struct {
	Step      int             `json:"step"`
	Version   int64           `json:"version"`
	Index     int             `json:"index"`
	Prompts   int             `json:"prompts,omitempty"`
	PromptID  string          `json:"prompt_id"`
	Prompt    string          `json:"prompt"`
	Question  string          `json:"question,omitempty"` // last message of the user; "" for plain text
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
	err := e.Encode(groupJSON{
		Step: g.Step, Version: g.Version, Index: g.Index, Prompts: g.Prompts,
		PromptID: g.Prompt.ID, Prompt: g.Prompt.Text, Question: g.Prompt.Asked(), PromptIDs: g.Prompt.IDs,
		Answer: g.Prompt.Answer, Source: g.Prompt.Source,
		Responses: g.Responses, Replaced: g.Replaced,
	})
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
	*g = Group{
		Step: j.Step, Version: j.Version, Index: j.Index, Prompts: j.Prompts,
		Prompt: Prompt{ID: j.PromptID, Text: j.Prompt, Messages: Chat(j.Question), IDs: j.PromptIDs,
			Answer: j.Answer, Source: j.Source},
		Responses: j.Responses, Replaced: j.Replaced,
	}
	return nil
}
