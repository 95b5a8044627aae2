package api

import (
	"bufio"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/tokenizer/chat/calls"
)

// Stream writes the answer to one job as server-sent events, while it is sampled. Its methods must
// not be called concurrently.
//
// Part sends the tokens of each Delta at once, but withholds text that might have to be removed at
// the end: the text of a stop token, everything after a stop string, and everything from a
// tool-call marker on. End knows the complete text and sends what is missing.
type Stream struct {
	*Writer
	out     *bufio.Writer
	choices []progress // per choice
	tokens  int        // number of tokens sent, over all choices
	// version and checksum are those of the weights in the first event, and go into all of them.
	// checksum is empty before the first event.
	version  int64
	checksum string
}

// NewStream returns a stream of w's job that writes to out and never flushes it.
func (w *Writer) NewStream(out *bufio.Writer) *Stream {
	return &Stream{Writer: w, out: out, choices: make([]progress, len(w.job.Prompts)*w.job.N)}
}

// progress records which part of a choice has been sent.
type progress struct {
	started  bool          // a chunk of the choice has been sent
	tokens   int           // number of tokens sent
	bytes    int           // length of the text sent, without an echoed prompt
	withheld string        // text received but not sent; it follows the text sent
	offset   int           // where the next token begins in the text, in characters; see textEntries
	parser   *calls.Parser // parses the message's text for tool calls; nil if they stay text
	calls    int           // number of tool calls sent
	marker   bool          // a token marked a tool call, so all further text is withheld
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

// newChunk returns a chunk with parts of choices and without usage.
func (o *Stream) newChunk(parts ...choice) answer {
	object := "text_completion"
	if o.job.Chat {
		object = "chat.completion.chunk"
	}
	chunk := o.header(object, o.version, o.checksum)
	chunk.Choices = append(chunk.Choices, parts...)
	return chunk
}

// sendChoice writes a chunk with a part of a choice, and the usage so far if the request asks for it.
func (o *Stream) sendChoice(part choice) {
	chunk := o.newChunk(part)
	if o.job.UsageSoFar {
		chunk.Usage = usageOf(o.job, o.tokens)
	}
	o.event(chunk)
}

// Part sends the tokens of d and the text that is certain to be part of the answer.
func (o *Stream) Part(d inference.Delta) {
	if *o.job.MaxTokens == 0 {
		return
	}
	if o.checksum == "" {
		o.version, o.checksum = d.Version, d.Checksum
	}
	p := &o.choices[d.Index]
	p.withheld += d.Text
	p.marker = p.marker || slices.ContainsFunc(d.IDs, o.isMarker)
	text := p.withheld
	if n := len(d.IDs); n > 0 && slices.Contains(o.job.Each.Sampling.StopIDs, d.IDs[n-1]) || p.marker {
		text = ""
	}
	// A stop string cannot begin in text that was sent: the text of a Delta ends before it.
	if before, _, ok := cut(text, o.job.Stop, o.job.IncludeStop); ok {
		text = before
	}
	p.withheld = p.withheld[len(text):]
	p.bytes += len(text)
	if len(d.IDs) > 0 || text != "" {
		d.Text = text
		o.sendPart(d, nil)
	}
}

// sendPart sends the tokens and text of d, and how the choice ended if e is not nil.
func (o *Stream) sendPart(d inference.Delta, e *ending) {
	j := o.job
	p := &o.choices[d.Index]
	c := choice{Index: d.Index}
	if j.ReturnIDs {
		c.IDs = d.IDs
	}
	if j.Chat {
		if !p.started {
			empty := ""
			o.sendChoice(choice{Index: d.Index, Delta: &messageDelta{Role: "assistant", Content: &empty}})
			p.parser = o.parser()
		}
		c.Delta = o.messagePart(p, d.Text, e)
		if j.Logprobs != nil && len(d.IDs) > 0 {
			c.Logprobs = o.chatEntries(d.IDs, d.Logprobs, d.Top)
		}
	} else {
		prompt := d.Index / j.N
		text := d.Text
		if !p.started && j.ReturnIDs {
			c.PromptIDs = j.Prompts[prompt]
		}
		if !p.started && j.Echo {
			text = j.Texts[prompt] + text
			p.offset = utf8.RuneCountInString(j.Texts[prompt])
		}
		c.Text = &text
		if j.Logprobs != nil && len(d.IDs) > 0 {
			c.Logprobs, p.offset = o.textEntries(d.IDs, d.Logprobs, d.Top, p.offset)
		}
	}
	p.started = true
	p.tokens += len(d.IDs)
	o.tokens += len(d.IDs)
	if e != nil {
		c.Finish, c.Stop = &e.reason, e.stop
	}
	o.sendChoice(c)
}

// messagePart returns the content and tool calls that are complete once text has been added to the
// message. e is nil except for the message's last part, which it describes; tool calls change it.
func (o *Stream) messagePart(p *progress, text string, e *ending) *messageDelta {
	if p.parser == nil {
		return &messageDelta{Content: &text}
	}
	content, found := p.parser.Add(text)
	if e != nil {
		lastContent, lastCalls := p.parser.End()
		content += lastContent
		found = append(found, lastCalls...)
	}
	m := &messageDelta{Calls: o.callsOf(found, p.calls)}
	if content != "" {
		m.Content = &content
	}
	for i := range m.Calls {
		index := p.calls
		m.Calls[i].Index = &index
		p.calls++
	}
	if e != nil && p.calls > 0 {
		e.setToolCalls()
	}
	return m
}

// End sends what is missing of each choice and how it ended, or the failure f that ended the
// request. out has the completions that the Deltas were parts of; it is unused if f is not nil.
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
		c, p := &out[i], &o.choices[i]
		if *o.job.MaxTokens == 0 { // drop the one token that the backend has to sample
			*c = inference.Completion{Finish: "length"}
		}
		e := o.endingOf(c)
		// min guards against a backend that returns less than it emitted, and against a nil Top.
		first := min(p.tokens, len(c.IDs))
		o.sendPart(inference.Delta{Index: i, IDs: c.IDs[first:], Logprobs: c.Logprobs[first:],
			Top: c.Top[min(first, len(c.Top)):], Text: e.text[min(p.bytes, len(e.text)):]}, &e)
	}
	if o.job.Usage {
		chunk := o.newChunk()
		chunk.Usage = usageOf(o.job, o.tokens)
		o.event(chunk)
	}
	_, _ = o.out.WriteString("data: [DONE]\n\n")
}
