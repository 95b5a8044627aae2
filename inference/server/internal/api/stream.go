package api

import (
	"bufio"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/tokenizer/chat/calls"
)

// Stream writes the events of one job as they come.
type Stream struct {
	*Writer
	out     *bufio.Writer
	choices []sent
	tokens  int // tokens sent
	// Weights that the first event named. checksum is empty before it.
	version  int64
	checksum string
}

// NewStream returns a stream of w's job that writes to out and never flushes it.
func (w *Writer) NewStream(out *bufio.Writer) *Stream {
	return &Stream{Writer: w, out: out, choices: make([]sent, len(w.job.Prompts)*w.job.N)}
}

// sent is the part of a choice that has been sent.
type sent struct {
	begun  bool
	ids    int    // tokens
	out    int    // bytes of text
	held   string // text after them, not yet sent
	offset int    // characters of tokens
	parser *calls.Parser
	calls  int
	marked bool // a token marks a tool call: all text from it on waits for the end
}

// event writes one event. out keeps any error.
func (o *Stream) event(value any) {
	data, err := json.Marshal(value)
	if err != nil {
		data = []byte(NotJSON)
	}
	_, _ = o.out.WriteString("data: ")
	_, _ = o.out.Write(data)
	_, _ = o.out.WriteString("\n\n")
}

// chunk sends parts of choices.
func (o *Stream) chunk(usage bool, parts ...choice) {
	object := "text_completion"
	if o.job.Chat {
		object = "chat.completion.chunk"
	}
	a := o.header(object, o.version, o.checksum)
	a.Choices = append(a.Choices, parts...)
	if usage {
		a.Usage = usageOf(o.job, o.tokens)
	}
	o.event(a)
}

// Part sends the tokens and text of d. It holds back what ends the response, which may
// not be part of the text.
func (o *Stream) Part(d inference.Delta) {
	if *o.job.MaxTokens == 0 {
		return
	}
	if o.checksum == "" {
		o.version, o.checksum = d.Version, d.Checksum
	}
	st := &o.choices[d.Index]
	st.held += d.Text
	text := st.held
	if n := len(d.IDs); n > 0 && slices.Contains(o.job.Each.Sampling.StopIDs, d.IDs[n-1]) {
		text = ""
	}
	// No stop string starts in the text already sent.
	if before, _, ok := cut(st.held, o.job.Stop, o.job.IncludeStop); ok {
		text = text[:min(len(text), len(before))]
	}
	if st.marked = st.marked || slices.ContainsFunc(d.IDs, o.marks); st.marked {
		text = ""
	}
	st.held = st.held[len(text):]
	st.out += len(text)
	if len(d.IDs) > 0 || text != "" {
		d.Text = text
		o.part(d, nil)
	}
}

// part sends tokens and text of a choice, and its ending if e is not nil.
func (o *Stream) part(d inference.Delta, e *ending) {
	j, st := o.job, &o.choices[d.Index]
	index, ids, text := d.Index, d.IDs, d.Text
	c := choice{Index: index}
	if j.ReturnIDs {
		c.IDs = ids
	}
	if j.Chat {
		if !st.begun {
			empty := ""
			o.chunk(j.UsageSoFar, choice{Index: index, Delta: &delta{Role: "assistant", Content: &empty}})
			st.parser = o.parser()
		}
		c.Delta = o.delta(st, text, e)
		if j.Logprobs != nil && len(ids) > 0 {
			c.Logprobs = o.chatEntries(ids, d.Logprobs, d.Top)
		}
	} else {
		if !st.begun && j.ReturnIDs {
			c.PromptIDs = j.Prompts[index/j.N]
		}
		if !st.begun && j.Echo {
			text = j.Texts[index/j.N] + text
			st.offset = utf8.RuneCountInString(j.Texts[index/j.N])
		}
		c.Text = &text
		if j.Logprobs != nil && len(ids) > 0 {
			c.Logprobs, st.offset = o.textEntries(ids, d.Logprobs, d.Top, st.offset)
		}
	}
	st.begun = true
	st.ids += len(ids)
	o.tokens += len(ids)
	if e != nil {
		c.Finish, c.Stop = &e.reason, e.stop
	}
	o.chunk(j.UsageSoFar, c)
}

// delta returns the part of a message that text completes. e is the ending after the last
// part.
func (o *Stream) delta(st *sent, text string, e *ending) *delta {
	if st.parser == nil {
		return &delta{Content: &text}
	}
	content, found := st.parser.Add(text)
	if e != nil {
		rest, last := st.parser.End()
		content, found = content+rest, append(found, last...)
	}
	d := &delta{Calls: o.callsOf(found, st.calls)}
	if content != "" {
		d.Content = &content
	}
	for i := range d.Calls {
		index := st.calls
		d.Calls[i].Index = &index
		st.calls++
	}
	if e != nil && st.calls > 0 {
		e.called()
	}
	return d
}

// End sends the rest of each choice and how it ended, or the failure that ended the request.
func (o *Stream) End(out []inference.Completion, f *Failure) {
	if f == nil && o.checksum == "" {
		o.version, o.checksum = out[0].Version, out[0].Checksum
	}
	if f == nil && out[0].Checksum != o.checksum {
		f = Stale("the weights of version %d were replaced during the answer", o.version)
	}
	if f != nil {
		o.event(f.body())
		return
	}
	for i := range out {
		c, st := &out[i], &o.choices[i]
		if *o.job.MaxTokens == 0 {
			*c = inference.Completion{Finish: "length"}
			st.ids = 0
		}
		e := o.endingOf(c)
		rest := min(st.ids, len(c.IDs))
		o.part(inference.Delta{Index: i, IDs: c.IDs[rest:], Logprobs: c.Logprobs[rest:],
			Top: c.Top[min(rest, len(c.Top)):], Text: e.text[min(st.out, len(e.text)):]}, &e)
	}
	if o.job.Usage {
		o.chunk(true)
	}
	_, _ = o.out.WriteString("data: [DONE]\n\n")
}
