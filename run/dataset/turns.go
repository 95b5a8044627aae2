package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/tokenizer/chat"
)

// renderer renders prompts and demonstrations into the text that a model reads; conversations
// go through the model's chat template. It is safe for concurrent use.
type renderer struct {
	template *chat.Template // nil if the model has none
	model    string         // name for errors
	never    bool           // keep text unchanged and refuse conversations
	always   bool           // render text prompts too, as a user turn
	system   string         // added to conversations without a system turn, and before a text prompt
	thinking bool           // turns on thinking in templates that support it
}

// today is the fixed date passed to templates, so that a prompt does not depend
// on when a run starts, resumes or evaluates. It is the default date of Llama 3's
// templates.
func today() time.Time { return time.Date(2024, time.July, 26, 0, 0, 0, 0, time.UTC) }

// prompt renders a text or a conversation up to the start of the assistant's
// turn. If a conversation ends with an assistant turn, prompt renders up to the
// end of that turn's text, for the model to continue. rendered reports whether the
// template produced the result. If so, the result already has the beginning-of-sequence token.
func (r *renderer) prompt(text string, messages []rollout.Message) (out string, rendered bool, err error) {
	if messages == nil && !r.always {
		return r.system + text, false, nil
	}
	in, err := r.conversation(text, messages)
	if err != nil {
		return "", false, err
	}
	if last := len(messages) - 1; last >= 0 && messages[last].Role == assistant {
		out, err = r.continuation(in)
	} else {
		out, err = r.template.Render(in)
	}
	if err == nil {
		err = complete(in.Messages, out)
	}
	return out, true, err
}

// assistant is the role of the model's turns.
const assistant = "assistant"

// continuation renders a conversation up to the end of the text of its final assistant turn. To find what the
// template adds after the text, it renders the conversation again with marker in place of the text.
func (r *renderer) continuation(in chat.Input) (string, error) {
	in.AddGenerationPrompt = false
	last := len(in.Messages) - 1
	content := in.Messages[last].Content
	if strings.TrimSpace(content) == "" {
		return "", errors.New("the final assistant turn is empty, expected text to continue")
	}
	whole, err := r.template.Render(in)
	if err != nil {
		return "", err
	}
	in.Messages = slices.Clone(in.Messages)
	in.Messages[last] = chat.Message{Role: assistant, Content: marker}
	frame, err := r.template.Render(in)
	if err != nil {
		return "", err
	}
	if i := strings.LastIndex(frame, marker); i >= 0 {
		out, found := strings.CutSuffix(whole, frame[i+len(marker):])
		if found && strings.HasSuffix(strings.TrimSpace(out), strings.TrimSpace(content)) {
			return out, nil
		}
	}
	return "", fmt.Errorf("the chat template changes the final assistant turn %q, so no response can continue it",
		head(content, 30))
}

// complete returns an error if the template omits a turn with an unknown role.
func complete(messages []chat.Message, rendered string) error {
	for i, m := range messages {
		if slices.Contains([]string{"system", "user", assistant, "tool"}, m.Role) ||
			strings.TrimSpace(m.Content) == "" {
			continue
		}
		if !strings.Contains(withoutSpace(rendered), withoutSpace(m.Content)) {
			return fmt.Errorf("the chat template drops turn %d: role is %q, expected system, user, assistant or tool",
				i+1, m.Role)
		}
	}
	return nil
}

// marker is a placeholder text to locate a turn in a template's output. No template contains it by itself.
const marker = "where the message stands"

// demonstration renders a prompt and its reply. If the template renders the
// prompt, prompt and response together are the rendered conversation, so that the
// response includes the end of the turn. Otherwise the response is the reply's
// text.
func (r *renderer) demonstration(text string, messages []rollout.Message, reply rollout.Message) (
	prompt, response string, rendered bool, err error) {
	if last := len(messages) - 1; last >= 0 && messages[last].Role == assistant {
		return "", "", false, errors.New("the prompt ends with an assistant turn, expected all of it in the response")
	}
	prompt, rendered, err = r.prompt(text, messages)
	if err != nil || !rendered {
		return prompt, reply.Content, false, err
	}
	in, err := r.conversation(text, messages)
	if err != nil {
		return "", "", false, err
	}
	in.AddGenerationPrompt = false
	response, err = r.reply(in, prompt, reply)
	return prompt, response, true, err
}

// conversation returns the template's input. If messages is nil, text is the user's turn.
func (r *renderer) conversation(text string, messages []rollout.Message) (in chat.Input, err error) {
	if r.never {
		return in, errors.New(`conversations need a chat template, but data.template is "none"`)
	}
	if r.template == nil {
		return in, fmt.Errorf("conversations need a chat template, but %s has none", r.model)
	}
	if messages == nil {
		messages = []rollout.Message{{Role: "user", Content: text}}
	}
	in.AddGenerationPrompt, in.Now = true, today()
	if !r.thinking {
		in.Extra = map[string]any{"enable_thinking": false}
	}
	if r.system != "" && messages[0].Role != "system" {
		in.Messages = append(in.Messages, chat.Message{Role: "system", Content: r.system})
	}
	for _, m := range messages {
		t, err := turn(m)
		if err != nil {
			return in, err
		}
		in.Messages = append(in.Messages, t)
	}
	return in, nil
}

// turn converts a message, with extra fields as a JSON object.
func turn(m rollout.Message) (t chat.Message, err error) {
	t = chat.Message{Role: m.Role, Content: m.Content}
	if len(m.Extra) == 0 {
		return t, nil
	}
	fields := map[string]any{"role": m.Role, "content": m.Content}
	for key, value := range m.Extra {
		fields[key] = value
	}
	t.Raw, err = json.Marshal(fields)
	return t, err
}

// reply returns the assistant's turn after a rendered prompt, as rendered by the
// template. Templates may drop part of the message, such as the thoughts of past
// turns, and a prompt may already contain the message's first words, such as
// <think>. Then reply returns the rest of the message itself, with the template's
// end of turn.
func (r *renderer) reply(in chat.Input, prompt string, m rollout.Message) (string, error) {
	renderWith := func(m rollout.Message) (string, error) {
		t, err := turn(m)
		if err != nil {
			return "", err
		}
		all := in
		all.Messages = append(slices.Clone(in.Messages), t)
		return r.template.Render(all)
	}
	whole, err := renderWith(m)
	if err != nil {
		return "", err
	}
	rest, continues := strings.CutPrefix(whole, prompt)
	shared := overlap(prompt, m.Content)
	if continues && strings.Contains(withoutSpace(shared+rest), withoutSpace(m.Content)) {
		return rest, nil
	}
	frame, err := renderWith(rollout.Message{Role: m.Role, Content: marker})
	if err != nil {
		return "", err
	}
	i := strings.LastIndex(frame, marker)
	if i < 0 {
		return "", errors.New("the chat template drops the response")
	}
	begun := shared // the part of the turn that the prompt already contains
	if !strings.HasPrefix(frame, prompt) {
		begun = prompt[common(prompt, frame):]
	}
	content, follows := strings.CutPrefix(m.Content, strings.TrimSpace(begun))
	if !follows || strings.TrimSpace(begun) == "" && !continues {
		hint := ""
		if !r.thinking && strings.HasPrefix(strings.TrimSpace(m.Content), "<think>") {
			hint = "; set data.thinking = true for responses with thoughts"
		}
		return "", fmt.Errorf("the chat template ends the prompt with %q, but the response starts with %q%s",
			tail(prompt, 30), head(m.Content, 30), hint)
	}
	if begun != "" {
		content = strings.TrimLeft(content, "\n")
	}
	return content + frame[i+len(marker):], nil
}

// overlap returns the longest suffix of prompt, at most 64 bytes, that is a
// prefix of content.
func overlap(prompt, content string) string {
	for n := min(len(prompt), len(content), 64); n > 0; n-- {
		if strings.HasSuffix(prompt, content[:n]) {
			return content[:n]
		}
	}
	return ""
}

// common returns the length of the common prefix of a and b.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// withoutSpace returns s without white space.
func withoutSpace(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// tail returns the last n runes of s.
func tail(s string, n int) string {
	runes := []rune(s)
	return string(runes[max(0, len(runes)-n):])
}

// head returns the first n runes of s.
func head(s string, n int) string {
	runes := []rune(s)
	return string(runes[:min(n, len(runes))])
}
