package syntax

import (
	"strings"

	"github.com/easyrl/easyrl/internal/lossy"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// maxSource is the maximum size of a template's source in bytes, far more than models have.
const maxSource = 1 << 20

// Known reports which filters and tests exist.
type Known struct{ Filter, Test func(name string) bool }

// parser parses statements.
type parser struct {
	*expressions
	loops int      // number of enclosing loops within the current macro or block
	tags  []string // names of the enclosing tags, innermost last
}

// Parse parses a template; errors are of type *py.Error.
func Parse(source string, known Known) (t *Template, err error) {
	line := 0
	defer py.Catch(&err, &line)
	if len(source) > maxSource {
		fail(0, "template has %d bytes, expected at most %d", len(source), maxSource)
	}
	tokens := lex(lossy.String(source))
	p := &parser{expressions: &expressions{cursor: &cursor{tokens: tokens}, known: known}}
	body := p.body()
	if len(p.unknown) > 0 {
		return nil, &p.unknown[0]
	}
	return &Template{Body: body, Hidden: newNames(nil).frame(body)}, nil
}

// body parses statements up to one of the tags ends, whose name becomes the current token.
// If ends is empty, it parses up to the end of the template.
func (p *parser) body(ends ...string) []Stmt {
	defer p.enter()()
	var body []Stmt
	for {
		t := p.next()
		switch t.kind {
		case kindEOF:
			if len(ends) > 0 {
				fail(t.line, "Unexpected end of template. Jinja was looking for the following tags: %s. The "+
					"innermost block that needs to be closed is %s.",
					quote(strings.Join(ends, "' or '")), quote(p.tags[len(p.tags)-1]))
			}
			return body
		case kindData:
			body = append(body, &Text{Data: t.text})
		case kindOpen:
			body = append(body, &Print{X: p.tuple(tupleOptions{cond: true}), Line: t.line})
			p.expect(kindClose)
		case kindBegin:
			if p.cur().word(ends...) {
				return body
			}
			body = append(body, p.statement(ends))
			p.expect(kindEnd)
		}
	}
}

// block parses the body of a statement: the rest of its tag, then up to an end tag, whose
// name it returns.
func (p *parser) block(ends ...string) (body []Stmt, end string) {
	p.skip(":")
	p.expect(kindEnd)
	body = p.body(ends...)
	return body, p.next().text
}

// statement parses a statement from its name to the end of its last tag, exclusive. ends are
// the tags that would end the enclosing body, for errors.
func (p *parser) statement(ends []string) Stmt {
	t := p.cur()
	if !t.is(kindName) {
		fail(t.line, "tag name expected")
	}
	p.tags = append(p.tags, t.text)
	defer func() { p.tags = p.tags[:len(p.tags)-1] }()
	p.next()
	switch t.text {
	case "for":
		return p.forLoop(t.line)
	case "if":
		return p.ifElse()
	case "set":
		return p.set(t.line)
	case "macro":
		return p.macro(t.line)
	case "call":
		return p.callBlock(t.line)
	case "filter":
		filter := p.filter(nil, true)
		body, _ := p.block("endfilter")
		return &FilterBlock{Filter: filter, Body: body}
	case "with":
		return p.with()
	case "autoescape":
		if off, ok := p.expression(true).(*Const); !ok || off.Value != false {
			fail(t.line, "autoescape is not supported in chat templates, expected false")
		}
		body, _ := p.block("endautoescape")
		return &Scope{Body: body}
	case "generation":
		body, _ := p.block("endgeneration")
		return &Scope{Body: body}
	case "block":
		return p.named()
	case "print":
		return p.print(t.line)
	case "break", "continue":
		if p.loops == 0 {
			py.RaiseAt(t.line, "SyntaxError", "'%s' outside loop", t.text)
		}
		return &Break{Continue: t.text == "continue"}
	case "include", "import", "from", "extends":
		py.RaiseAt(t.line, py.KindType,
			"no loader for this environment specified: '%s' is not supported in chat templates", t.text)
	}
	message := "Encountered unknown tag " + quote(t.text) + "."
	if len(ends) > 0 {
		message += " Jinja was looking for the following tags: " + quote(strings.Join(ends, "' or '")) + "."
	}
	fail(t.line, "%s", message)
	return nil
}

// forLoop parses a loop after the word for.
func (p *parser) forLoop(line int) Stmt {
	node := &For{Line: line, Target: p.target(tupleOptions{})}
	if assigns(node.Target, "loop") {
		py.RaiseAt(line, py.KindAssertion, "Can't assign to special loop variable in for-loop")
	}
	p.expectWord("in")
	node.Iter = p.tuple(tupleOptions{})
	if p.skipWord("if") {
		node.Filter = p.expression(true)
	}
	node.Recursive = p.skipWord("recursive")
	p.loops++
	body, end := p.block("endfor", "else")
	p.loops--
	node.Body = body
	if end == "else" {
		node.Else, _ = p.block("endfor")
	}
	return node
}

// assigns reports whether a target includes a name.
func assigns(target Expr, name string) bool {
	switch t := target.(type) {
	case *Name:
		return t.Name == name
	case *Tuple:
		for _, item := range t.Items {
			if assigns(item, name) {
				return true
			}
		}
	}
	return false
}

// ifElse parses a conditional after the word if.
func (p *parser) ifElse() Stmt {
	p.soft++
	defer func() { p.soft-- }()
	node := &If{}
	for {
		node.Tests = append(node.Tests, p.tuple(tupleOptions{}))
		body, end := p.block("elif", "else", "endif")
		node.Bodies = append(node.Bodies, body)
		switch end {
		case "elif":
			continue
		case "else":
			node.Else, _ = p.block("endif")
		}
		return node
	}
}

// set parses an assignment or a set block after the word set.
func (p *parser) set(line int) Stmt {
	target := p.target(tupleOptions{attributes: true})
	if p.skip("=") {
		return &Set{Target: target, X: p.tuple(tupleOptions{cond: true}), Line: line}
	}
	var filter Expr
	if p.cur().is("|") {
		filter = p.filter(nil, false)
	}
	body, _ := p.block("endset")
	return &SetBlock{Target: target, Filter: filter, Body: body, Line: line}
}

// with parses a with statement after the word with.
func (p *parser) with() Stmt {
	node := &Scope{}
	for !p.cur().is(kindEnd) {
		if len(node.Targets) > 0 {
			p.expect(",")
		}
		node.Targets = append(node.Targets, p.target(tupleOptions{}))
		p.expect("=")
		node.Values = append(node.Values, p.expression(true))
	}
	node.Body, _ = p.block("endwith")
	return node
}

// named parses a named block after the word block. Templates here have no inheritance, so a
// block runs in place.
func (p *parser) named() Stmt {
	name := p.expect(kindName).text
	scoped := p.skipWord("scoped")
	p.skipWord("required")
	loops := p.loops
	p.loops = 0
	body, _ := p.block("endblock")
	p.loops = loops
	p.skipWord(name)
	return &Scope{Body: body, Root: !scoped}
}

// print parses a print statement after the word print.
func (p *parser) print(line int) Stmt {
	parts := &Concat{}
	for !p.cur().is(kindEnd) {
		if len(parts.Parts) > 0 {
			p.expect(",")
		}
		parts.Parts = append(parts.Parts, p.expression(true))
	}
	return &Print{X: parts, Line: line}
}

// function parses the body of m, which has its own loops and its own use of caller,
// varargs and kwargs.
func (p *parser) function(m *Macro, end string) {
	loops := p.loops
	p.loops = 0
	p.macros = append(p.macros, m)
	m.Body, _ = p.block(end)
	p.macros = p.macros[:len(p.macros)-1]
	p.loops = loops
}

// macro parses a macro after the word macro.
func (p *parser) macro(line int) Stmt {
	m := &Macro{Name: p.expect(kindName).text, Line: line}
	p.signature(m)
	p.function(m, "endmacro")
	return m
}

// callBlock parses a call block after the word call.
func (p *parser) callBlock(line int) Stmt {
	m := &Macro{Name: "caller", Line: line}
	if p.cur().is("(") {
		p.signature(m)
	}
	call, ok := p.expression(true).(*Call)
	if !ok {
		fail(line, "expected call")
	}
	p.function(m, "endcall")
	return &CallBlock{Call: call, Macro: m}
}

// signature parses the parameters of a macro.
func (p *parser) signature(m *Macro) {
	p.expect("(")
	for !p.cur().is(")") {
		if len(m.Params) > 0 {
			p.expect(",")
		}
		m.Params = append(m.Params, p.expect(kindName).text)
		if p.skip("=") {
			m.Defaults = append(m.Defaults, p.expression(true))
		} else if len(m.Defaults) > 0 {
			fail(p.cur().line, "non-default argument follows default argument")
		}
	}
	p.expect(")")
}
