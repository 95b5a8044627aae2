// Package rollout defines the data that flows from the producer to the trainer: prompts,
// responses, groups and the policy version that sampled them.
package rollout

import (
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

// Response is one sampled answer to a prompt and its score.
type Response struct {
	Text     string
	Spans    Trajectory // a span of the policy includes the stop token that ended it, if any
	Reward   float64
	Parts    map[string]float64 // components of the reward by name
	Finish   Finish
	Instance string // name of the instance that sampled the response
	// Advantage is the advantage that the trainer computed; nil if it did not train on the group.
	Advantage *float64
	// Entropies has the entropy of the policy's distribution at each trained token, in nats,
	// rounded to four decimals. It is empty if the trainer computed none, as for an advantage of 0.
	Entropies []float32
}

// Group is a prompt and its responses. It is the unit streamed to the trainer, because an
// advantage needs all rewards of its group.
type Group struct {
	Step      int   // number of the step that trains the group, from 1; 0 until it does
	Batch     int   // number of the batch, from 1
	Index     int   // position among the batch's prompts, from 0
	Prompts   int   // number of prompts of the batch; 0 if unknown
	Version   int64 // version of the weights that the batch asked for
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
