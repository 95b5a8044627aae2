"""Writes golden.jsonl: templates rendered by Jinja2 with the settings and
functions that Hugging Face gives to chat templates.

python3 golden.py  (needs jinja2; golden.jsonl was made with 3.1.6)
"""

import datetime
import json
import pathlib

import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime(2025, 7, 10, 12, 34, 56).strftime(f)
    return env


CONTEXT = {
    "s": "Hello, wörld!", "e": "", "n": 7, "neg": -3, "f": 2.5, "t": True, "z": None, "big": 123456789012345678901234567890,
    "l": [3, 1, 2], "words": ["banana", "Apple", "cherry", "apple"], "nested": [[1, [2, 3]], {"k": [None, True, 1.0]}],
    "d": {"b": 1, "a": {"x": [1, 2], "y": "é\"'\n\u2028<&>"}, "items": "shadowed", "C": None},
    "users": [{"name": "Bob", "age": 35, "tags": ["x"]}, {"name": "alice", "age": 30, "tags": []}, {"name": "Al", "age": 35}],
    "messages": [
        {"role": "system", "content": "  Be nice.\n"},
        {"role": "user", "content": "Hi <b>you</b> & \"me\""},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello!", "tool_calls": [{"function": {"name": "f", "arguments": {"q": "é", "n": 1.50, "k": [1, {"a": None}]}}}]},
    ],
    "html": "<p>a &amp; b</p>\n<!-- c --> <i>d</i>", "lines": "one\ntwo\n\nthree\r\nfour\n", "uni": "Straße ǅ İı ﬁ \u00a0x\u3000y",
    "tree": [{"n": "a", "c": [{"n": "b", "c": []}, {"n": "c", "c": [{"n": "d", "c": []}]}]}],
}
