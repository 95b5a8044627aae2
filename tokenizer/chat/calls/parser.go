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

// Parser separates tool calls from the text around them, as the text arrives. How the
// text is divided does not matter. What is not a well-formed call stays text, and so does
// a call within a thought.
type Parser struct {
	format  Format
	tools   tools
	state   state
	held    string // undecided text
	closing int    // offset in held to look for the end of a call from
	tries   int
	gap     string // white space after the content, dropped next to calls
	spoke   bool   // content has been returned
	called  bool
}

// state is the position of a Parser in the text.
type state int

const (
	atStart   state = iota // before anything but white space
	inThought              // before the end of a thought
	atMessage              // before the message
	inText                 // outside of calls
	inCall                 // held starts with a call
	inPlain                // only text follows
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
	p.held += text
	return p.scan(false)
}

// End returns the content and the calls at the end of the text.
func (p *Parser) End() (content string, calls []Call) {
	content, calls = p.scan(true)
	if !p.called {
		content += p.gap
	}
	return content, calls
}

func (p *Parser) scan(end bool) (content string, calls []Call) {
	for more := true; more; {
		var text string
		var found []Call
		text, found, more = p.next(end)
		content += p.content(text)
		if len(found) > 0 {
			calls = append(calls, found...)
			p.called, p.gap = true, ""
		}
	}
	return content, calls
}

// content returns text without white space next to calls.
func (p *Parser) content(text string) string {
	text = p.gap + text
	trimmed := strings.TrimRight(text, spaces)
	p.gap = text[len(trimmed):]
	if trimmed == "" {
		return ""
	}
	if p.called && !p.spoke {
		trimmed = strings.TrimLeft(trimmed, spaces)
	}
	p.spoke = true
	return trimmed
}

// take removes the first n bytes of the held text and enters a state.
func (p *Parser) take(n int, to state) string {
	text := p.held[:n]
	p.held, p.state = p.held[n:], to
	return text
}

// next advances by one step and reports whether there may be another one.
func (p *Parser) next(end bool) (text string, calls []Call, more bool) {
	rest := strings.TrimLeft(p.held, spaces)
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
		if i := strings.Index(p.held, thinkClose); i >= 0 {
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
		if i := strings.Index(p.held, start); i >= 0 {
			p.closing = len(start)
			return p.take(i, inCall), nil, true
		}
		return p.take(p.decided(start, end), inText), nil, false
	case inCall:
		return p.call(end)
	}
	return p.take(len(p.held), inPlain), nil, false
}

// decided returns the length of the held text before what may be the start of marker.
func (p *Parser) decided(marker string, end bool) int {
	if !end {
		for n := min(len(p.held), len(marker)-1); n > 0; n-- {
			if strings.HasSuffix(p.held, marker[:n]) {
				return len(p.held) - n
			}
		}
	}
	return len(p.held)
}

// bare reads a message that is either calls as a whole or text.
func (p *Parser) bare(rest string, end bool) (text string, calls []Call, more bool) {
	body, tagged := strings.CutPrefix(rest, pythonTag)
	possible := tagged || strings.HasPrefix(rest, "{") || strings.HasPrefix(pythonTag, rest)
	if possible && !end {
		return "", nil, false
	}
	if possible {
		if calls = p.tools.sequence(body); calls != nil {
			p.held = ""
		}
	}
	p.state = inPlain
	return "", calls, true
}

// call reads calls up to the first end after which they are complete.
func (p *Parser) call(end bool) (text string, calls []Call, more bool) {
	start, stop := p.format.bounds()
	length, body := 0, ""
	if i := strings.Index(p.held[p.closing:], stop); stop != "" && i >= 0 {
		body = p.held[len(start) : p.closing+i]
		length = p.closing + i + len(stop)
	} else if end {
		body = p.held[len(start):]
		length = len(p.held)
	} else {
		if stop != "" {
			p.closing = max(p.closing, len(p.held)-len(stop)+1)
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
	case cut && length < len(p.held): // the end may be a part of an argument
		p.closing = length
		return "", nil, true
	case cut && !end:
		p.closing = length
		return "", nil, false
	}
	return p.take(len(start), inText), nil, true
}
