package chat

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Templates that loop forever, allocate too much or nest too deep are stopped.
func TestLimits(t *testing.T) {
	t.Parallel()
	doubling := func(n int, what string) string {
		return "{% set ns = namespace(x=" + what + ") %}{% for i in range(" + strings.Repeat("9", n) +
			") %}{% set ns.x = ns.x + ns.x %}{% endfor %}"
	}
	loops := func(depth int) string {
		return strings.Repeat("{% for i in range(90000) %}", depth) + strings.Repeat("{% endfor %}", depth)
	}
	for name, source := range map[string]string{
		"nested loops":      loops(4),
		"endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"mutual recursion": "{% macro f() %}{{ caller }}{{ g() }}{% endmacro %}{% macro g() %}{% call f() %}{% " +
			"endcall %}{% endmacro %}{{ f() }}",
		"recursive loop":  "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
		"doubled string":  doubling(3, "'ab'"),
		"doubled list":    doubling(3, "[1]"),
		"doubled tuple":   doubling(3, "(1, 2)"),
		"repeated string": "{{ 'abc' * 9999999999 }}",
		"repeated list":   "{{ [1] * 999999999999 }}",
		"repeated lists": "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = ns.x + ['x' " +
			"* 1000000] %}{% endfor %}",
		"much output":        "{% for i in range(90000) %}{{ 'x' * 10000 }}{% endfor %}",
		"wide field":         "{{ '%999999999d' % 1 }}",
		"wide field by star": "{{ '%*d' % (999999999, 1) }}",
		"wide format":        "{{ '{:>999999999}'.format(1) }}",
		"precise format":     "{{ '{:.999999999f}'.format(1.5) }}",
		"center":             "{{ 'a' | center(99999999999) }}",
		"ljust":              "{{ 'a'.ljust(99999999999) }}",
		"zfill":              "{{ 'a'.zfill(99999999999) }}",
		"expandtabs":         "{{ '\t'.expandtabs(99999999999) }}",
		"indent filter":      "{{ 'a\nb' | indent(99999999999) }}",
		"indent of tojson":   "{{ [[1]] | tojson(indent=99999999999) }}",
		"replace":            "{{ ('a' * 100000).replace('', 'x' * 100000) }}",
		"join":               "{{ range(100000) | join('x' * 100000) }}",
		"batch":              "{{ [1] | batch(99999999999, 0) | list }}",
		"slice":              "{{ [1] | slice(99999999999) | list }}",
		"large power":        "{{ 9 ** (9 ** 9) }}",
		"repeated squares": "{% set ns = namespace(x=3) %}{% for i in range(100) %}{% set ns.x = ns.x * ns.x " +
			"%}{% endfor %}",
		"self-containing":    "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
		"self-containing eq": "{% set a = namespace() %}{% set a.x = [a] %}{{ [a] | string }}",
		"deep list": "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% " +
			"endfor %}{{ ns.x }}",
		"deep list to JSON": "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% " +
			"endfor %}{{ ns.x | tojson }}",
		"deep comparison": "{% set a = namespace(x=[], y=[]) %}{% for i in range(90000) %}{% set a.x = [a.x] " +
			"%}{% set a.y = [a.y] %}{% endfor %}{{ a.x == a.y }}",
		"long chain":      "{{ 1" + strings.Repeat(" + 1", 20000) + " }}",
		"long attribute":  "{{ d" + strings.Repeat("|string", 20000) + " }}",
		"quadratic index": "{% set s = 'é' * 100000 %}{% for i in range(100000) %}{{ s[i] }}{% endfor %}",
		"deep map": "{% set ns = namespace(x=[1]) %}{% for i in range(90000) %}{% set ns.x = ns.x | " +
			"map('string') %}{% endfor %}{{ ns.x | list }}",
		"exponential repr": "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] " +
			"%}{% endfor %}{{ ns.x }}",
		"exponential compare": "{% set a = namespace(x=[1], y=[1]) %}{% for i in range(90) %}{% set a.x = [a.x, " +
			"a.x] %}{% set a.y = [a.y, a.y] %}{% endfor %}{{ a.x == a.y }}",
		"exponential hash": "{% set ns = namespace(x=(1,)) %}{% for i in range(90) %}{% set ns.x = (ns.x, ns.x) " +
			"%}{% endfor %}{{ {ns.x: 1} }}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tmpl, err := Parse(source, nil)
			require.NoError(t, err)
			text, err := tmpl.RenderVariables(json.RawMessage(`{}`), when())
			require.ErrorIs(t, err, ErrLimit, "%d bytes", len(text))
		})
	}
}

// Sources that exceed the parser's limits are refused.
func TestSourceLimits(t *testing.T) {
	t.Parallel()
	many := func(s string) string { return strings.Repeat(s, 5000) }
	for name, source := range map[string]string{
		"parentheses": "{{ " + many("(") + "1" + many(")") + " }}",
		"lists":       "{{ " + many("[") + many("]") + " }}",
		"signs":       "{{ " + many("-") + "1 }}",
		"nots":        "{{ " + many("not ") + "1 }}",
		"inline ifs":  "{{ " + many("1 if 1 else ") + "1 }}",
		"ifs":         many("{% if 1 %}") + many("{% endif %}"),
		"size":        strings.Repeat("x", 2<<20),
		"long number": "{{ 1" + many("0") + " }}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(source, nil)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "TemplateSyntaxError", e.Kind)
		})
	}
}

func TestDeepData(t *testing.T) {
	t.Parallel()
	tmpl, err := Parse("{{ x | tojson }}", nil)
	require.NoError(t, err)
	deep := func(n int) json.RawMessage {
		return json.RawMessage(`{"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}")
	}
	text, err := tmpl.RenderVariables(deep(500), time.Time{})
	require.NoError(t, err)
	require.Len(t, text, 1000)
	_, err = tmpl.RenderVariables(deep(5000), time.Time{})
	require.ErrorIs(t, err, ErrLimit)
}

// A long conversation is far from the limits.
func TestLongConversation(t *testing.T) {
	t.Parallel()
	tmpl, err := Parse(
		"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content | trim + '<|im_end|>\n' }}{% endfor %}",
		nil)
	require.NoError(t, err)
	in := Input{}
	for range 500 {
		in.Messages = append(in.Messages, Message{Role: "user", Content: strings.Repeat("words ", 3000)})
	}
	text, err := tmpl.Render(in)
	require.NoError(t, err)
	require.Greater(t, len(text), 8<<20)
}
