package calls

import (
	"encoding/json"
	"strings"
)

// Call is a call of a function. Arguments is a JSON object.
type Call struct{ Name, Arguments string }

const (
	thinkOpen, thinkClose = "<think>", "</think>"
	spaces                = " \t\r\n"
	// maxTries limits how often a parser decodes a possible call, because each time it may
	// read all of the text. Calls after that stay text.
	maxTries = 256
)

// Parser separates tool calls from the text around them, as the text arrives. The result does
// not depend on how the text is divided into calls of Add. A malformed call stays text, and so
// does a call within a thought. A Parser is for one goroutine.
type Parser struct {
	format     Format
	tools      tools
	state      state
	pending    string // text that has been neither returned nor parsed
	searchFrom int    // in inCall, the offset in pending from which to search for the call's end
	tries      int    // number of possible calls that have been decoded
	gap        string // white space after the returned content; dropped if a call follows
	hasContent bool   // content has been returned
	hasCalls   bool   // calls have been returned
}

// state is the position in the text of what is pending.
type state int

const (
	atStart   state = iota // at the start, which may begin a thought
	inThought              // within a thought
	atMessage              // after the thought, if any
	inText                 // in text that may contain calls
	inCall                 // at the start of a call
	inPlain                // in text without calls, to the end
)

// NewParser returns a parser of answers to a request with these tools, a JSON array in
// OpenAI's format. If thinking is set, the text starts within a thought.
func (f Format) NewParser(list json.RawMessage, thinking bool) *Parser {
	p := &Parser{format: f, tools: parseTools(list)}
	if thinking {
		p.state = inThought
	}
	return p
}

// Add returns the content and the calls that text completes.
func (p *Parser) Add(text string) (content string, calls []Call) {
	p.pending += text
	return p.scan(false)
}

// End returns the content and the calls at the end of the text.
func (p *Parser) End() (content string, calls []Call) {
	content, calls = p.scan(true)
	if !p.hasCalls {
		content += p.gap
	}
	return content, calls
}

// scan advances as far as the pending text allows. end means that no more text follows.
func (p *Parser) scan(end bool) (content string, calls []Call) {
	for more := true; more; {
		var text string
		var found []Call
		text, found, more = p.next(end)
		content += p.content(text)
		if len(found) > 0 {
			calls = append(calls, found...)
			p.hasCalls, p.gap = true, ""
		}
	}
	return content, calls
}

// content returns the content that text adds, without white space next to calls.
func (p *Parser) content(text string) string {
	text = p.gap + text
	trimmed := strings.TrimRight(text, spaces)
	p.gap = text[len(trimmed):]
	if trimmed == "" {
		return ""
	}
	if p.hasCalls && !p.hasContent {
		trimmed = strings.TrimLeft(trimmed, spaces)
	}
	p.hasContent = true
	return trimmed
}

// take removes and returns the first n bytes of the pending text, and enters a state.
func (p *Parser) take(n int, to state) string {
	text := p.pending[:n]
	p.pending, p.state = p.pending[n:], to
	return text
}

// next advances by one step and reports whether there may be another one.
func (p *Parser) next(end bool) (text string, calls []Call, more bool) {
	rest := strings.TrimLeft(p.pending, spaces)
	switch p.state {
	case atStart:
		if !end && strings.HasPrefix(thinkOpen, rest) && rest != thinkOpen {
			return "", nil, false
		}
		p.state = atMessage
		if strings.HasPrefix(rest, thinkOpen) {
			p.state = inThought
		}
		return "", nil, true
	case inThought:
		if i := strings.Index(p.pending, thinkClose); i >= 0 {
			return p.take(i+len(thinkClose), atMessage), nil, true
		}
		return p.take(p.decided(thinkClose, end), inThought), nil, false
	case atMessage:
		switch p.format {
		case Bare:
			return p.bare(rest, end)
		case None:
			p.state = inPlain
		default:
			p.state = inText
		}
		return "", nil, true
	case inText:
		start, _ := p.format.bounds()
		if i := strings.Index(p.pending, start); i >= 0 {
			p.searchFrom = len(start)
			return p.take(i, inCall), nil, true
		}
		return p.take(p.decided(start, end), inText), nil, false
	case inCall:
		return p.call(end)
	}
	return p.take(len(p.pending), inPlain), nil, false
}

// decided returns the length of the pending text before a suffix that may be the start of
// marker. At the end of the text, that is all of it.
func (p *Parser) decided(marker string, end bool) int {
	if !end {
		for n := min(len(p.pending), len(marker)-1); n > 0; n-- {
			if strings.HasSuffix(p.pending, marker[:n]) {
				return len(p.pending) - n
			}
		}
	}
	return len(p.pending)
}

// bare reads a message in a format without tags, which is either entirely calls or entirely text. As long
// as the message may be calls, bare waits for its end.
func (p *Parser) bare(rest string, end bool) (text string, calls []Call, more bool) {
	body, tagged := strings.CutPrefix(rest, pythonTag)
	possible := tagged || strings.HasPrefix(rest, "{") || strings.HasPrefix(pythonTag, rest)
	if possible && !end {
		return "", nil, false
	}
	if possible {
		if calls = p.tools.sequence(body); calls != nil {
			p.pending = ""
		}
	}
	p.state = inPlain
	return "", calls, true
}

// call reads the calls that the pending text starts with. Their end is the first one for
// which they are well-formed JSON: an earlier one may be part of an argument.
func (p *Parser) call(end bool) (text string, calls []Call, more bool) {
	start, stop := p.format.bounds()
	length, body := 0, ""
	if i := strings.Index(p.pending[p.searchFrom:], stop); stop != "" && i >= 0 { // every text contains ""
		body = p.pending[len(start) : p.searchFrom+i]
		length = p.searchFrom + i + len(stop)
	} else if end {
		body = p.pending[len(start):]
		length = len(p.pending)
	} else {
		if stop != "" {
			p.searchFrom = max(p.searchFrom, len(p.pending)-len(stop)+1)
		}
		return "", nil, false
	}
	if p.tries++; p.tries > maxTries {
		return p.take(0, inPlain), nil, true
	}
	calls, cut := p.tools.parse(p.format, strings.Trim(body, spaces))
	switch {
	case calls != nil:
		p.take(length, inText)
		return "", calls, true
	case cut && length < len(p.pending): // the end may be a part of an argument
		p.searchFrom = length
		return "", nil, true
	case cut && !end:
		p.searchFrom = length
		return "", nil, false
	}
	return p.take(len(start), inText), nil, true
}
