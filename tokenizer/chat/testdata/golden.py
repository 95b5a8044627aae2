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

# One template a line; {{ }} is put around those that have no tag.
EXPRESSIONS = r'''
1 + 2 * 3 - 4
2 ** 10
2 ** 3 ** 2
-2 ** 2
2 ** -1
7 / 2
8 / 2
-7 // 2
7 // -2
-7 % 3
7 % -3
-7.5 // 2
7.5 % -2
5.0 // 0.1
1e16
1e15
1.5e-5
0.0001
123456789.123456789
1e400
-1e400
0.1 + 0.2
1_000
0x1F
0b11
0o17
1.
1.e5
1e5
10 // 0
1 / 0
5 % 0
1.0 / 0
1.0 % 0
0 ** -1
big
big + 1
big * big
big // 7
big % 1000
-big
9223372036854775807 + 1
-9223372036854775807 - 2
9223372036854775807 * 2
4611686018427387904 * 2
big / 3
big == 123456789012345678901234567890.0
true + true
true == 1
1 == 1.0
"1" == 1
none == none
undefined == undefined2
[1, 2] == [1, 2.0]
(1, 2) == [1, 2]
{"a": 1, "b": 2} == {"b": 2, "a": 1}
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2 != 1
"a" < "b"
"a" < 1
none < 1
[1, 2] < [1, 3]
(1, 2) < (1, 2, 3)
[1] < [none]
{} < {}
1 in [1, 2] in [[1, 2]]
not 1 in [2]
1 not in [2]
"x" in d
"b" in d
1 in d
[1] in d
"ell" in s
1 in s
1 in n
"a" in undefined
undefined in "abc"
undefined in [1, undefined]
"a" in none
1 in range(3)
1 in (1, 2)
"b" in d.keys()
1 in d.values()
("b", 1) in d.items()
"a" ~ 1 ~ none ~ 1.0 ~ [1, "x"] ~ undefined ~ true
"a" + "b"
"a" + 1
1 + "a"
"a" + none
none + "a"
[1] + [2]
[1] + (2,)
(1,) + (2, 3)
"ab" * 3
3 * "ab"
"ab" * -1
[1, 2] * 2
(1,) * 3
"a" * "b"
"a" * 1.5
"a" - "b"
[1] - [1]
{} + {}
undefined + 1
1 + undefined
"a" + undefined
undefined ~ "x"
-undefined
+true
-"a"
undefined.x
undefined["x"]
undefined()
undefined.x.y
d.nope
d.nope.nope
d["nope"]
d.nope + "x"
n.nope
n.nope.nope
none.x
none.x.y
none["x"]
l[10]
l[10] + 1
l["x"]
l.x.y
l[-1]
l[-4]
l[1.0]
l[true]
s[0]
s[-1]
s[100]
s[8]
s[1:5]
s[::-1]
s[-3:]
s[:-3]
s[5:2]
s[::2]
s[10:0:-3]
s[::0]
s["x":]
s[undefined:]
s[none:3]
l[1:]
l[::-1]
l[:100]
l[-100:2]
range(10)[2:5]
range(10)[::-1] | list
range(10)[3]
range(5)
range(1, 5)
range(1, 10, 3)
range(5) | list
range(5, 0, -1) | list
range(0)| list
range(1, 2, 0)
range(100001)
range(100000) | length
range("a")
range(1.0)
range(undefined)
(1, 2, 3)[1:]
(1,)
()
[]
{}
(1, (2, 3), [4])
{"a": 1, 'b': [1, 2, {"c": none}]}
{1: "x", 1.0: "y", true: "z"}
{(1, 2): 3}
{[1]: 2}
{"a": 1}.a
{"a": 1}["a"]
{"a": 1, "a": 2}
{1: 2}[1.0]
[1, "a", 1.0, none, true, undefined, "it's", 'say "hi"', "both ' and \""]
["\n\t\r\\", "\x00\x7f", "é", "\u2028", "\U0001F600"]
"\x41\u00e9\101\q\
"
"a" "b" 'c'
'it''s'
"tab\there"
d
d.items
d["items"]
d.items()
d.keys()
d.values()
d.items() | list
d.keys() | list | length
d.items() | length
d.items()[0]
d.get("b")
d.get("q")
d.get("q", 5)
d.get("q", default=5)
d.get()
d.get([1])
d.a.x
d.a["x"][0]
d.copy()
d.update({"a": 1})
d.pop("a")
d.clear
l.append(1)
l.count(1)
l.index(2)
l.index(9)
l.pop
l.copy()
l.nope()
s.nope()
s()
n()
none()
l.sort()
"".__class__
"".__class__.__mro__
d.__init__
s.upper()
s.lower()
s.title()
s.capitalize()
s.swapcase()
uni.upper()
uni.lower()
uni.title()
uni.capitalize()
uni.casefold() == uni.casefold()
uni.strip()
uni.split()
"they're bill's".title()
"they're bill's" | title
"a-b (c) [d] {e} <f> g_h i.j" | title
"hello WORLD" | title
"hello WORLD" | capitalize
"  x ".strip()
"xxaxx".strip("x")
"xyaxy".lstrip("yx")
"xyaxy".rstrip("yx")
"abc".strip(1)
"a,b,,c".split(",")
"a,b,,c".split(",", 1)
"a,b,,c".rsplit(",", 1)
" a  b c ".split()
" a  b c ".split(none, 1)
" a  b c ".rsplit(none, 1)
" a  b c ".split(" ")
"a,b".split("")
"".split()
"".split(",")
"abc".split(1)
"a b c".split(maxsplit=1)
"a b c".split(sep=" ", maxsplit=1)
"a\nb\r\nc\x0bd\n".splitlines()
"a\nb\n".splitlines(true)
"a=b=c".partition("=")
"a=b=c".rpartition("=")
"abc".partition("=")
"abc".rpartition("=")
"abc".startswith("a")
"abc".startswith(("x", "ab"))
"abc".startswith("b", 1)
"abc".startswith(1)
"abc".endswith("bc")
"abc".endswith(("x", "c"))
"abc".endswith("b", 0, 2)
"abc".find("c")
"abc".find("x")
"äbc".find("c")
"abcabc".rfind("b")
"abc".find("", 4)
"abc".rfind("", 2, 1)
"abc".count("", 4)
"abc".startswith("", 4)
"abc".endswith("", 2, 1)
"abc".find("", 3)
"abc".find("", -9, -8)
"abc".index("x")
"abcabc".index("c", 3)
"abcabc".count("b")
"abc".count("")
"aaa".replace("a", "b")
"aaa".replace("a", "b", 2)
"abc".replace("", "-")
"abc".replace("a")
"abc".replace(1, 2)
"abc".replace(undefined, "x")
"abc".replace("a", none)
"-".join(["a", "b"])
"-".join("abc")
"-".join([1, 2])
"-".join(1)
"-".join(d)
"5".zfill(3)
"-5".zfill(4)
"+5".zfill(1)
"a".center(4)
"ab".center(5, "*")
"a".center(5, "xy")
"a".ljust(3) ~ "|"
"a".rjust(3, "0")
"a\tb".expandtabs()
"a\tb".expandtabs(4)
"abc".isalpha()
"ab1".isalnum()
"12".isdigit()
"１２".isdigit()
"x".isspace()
" ".isspace()
"".isspace()
"Abc".istitle()
"abc".islower()
"ABC1".isupper()
"1".isupper()
"abc_1".isidentifier()
"1a".isidentifier()
"12".isnumeric()
"12".isdecimal()
"abc".isascii()
"é".isascii()
"abc".isprintable()
"prefix_x".removeprefix("prefix_")
"x_suffix".removesuffix("_suffix")
"abc".encode
"{} {}".format(1, "a")
"{1} {0}".format(1, "a")
"{a} {b!r}".format(a=1, b="x")
"{:>5}|{:<5}|{:^5}|{:*^5}".format("a", "b", "c", "d")
"{:05d} {:+d} {:,} {:x} {:#x} {:b} {:o}".format(42, 42, 1234567, 255, 255, 5, 8)
"{:.2f} {:8.3f} {:e} {:g} {:%} {:.0f}".format(3.14159, 2.5, 12345.678, 0.0001, 0.25, 2.5)
"{0[a]} {0[b]}".format({"a": 1, "b": 2})
"{0.x}".format({"x": 1})
"{{}}".format()
"{}".format()
"{".format()
"}".format()
"{:d}".format("a")
"{:s}".format(1)
"{:{w}}|".format("a", w=4)
"{:10.3}|".format("abcdef")
"{a}".format(b=1)
"{!s:>4}".format(1)
"{:,.2f}".format(1234567.891)
"{:g} {:g} {:g}".format(1e10, 100000.0, 1234567.0)
"{}".format(1.0)
"{:5}|{:5}".format(1, true)
"{:n}".format(5)
"{:c}".format(65)
"{x}".format_map({"x": 2})
"%s and %s" % ("a", 1)
"%s" % "a"
"%d" % 3.7
"%5d|%-5d|%05d|%+d" % (1, 2, 3, 4)
"%.2f %e %g %x %X %o %c %r %%" % (1.005, 12345.678, 0.00001, 255, 255, 8, "a", "b")
"%(a)s %(b)d" % {"a": 1, "b": 2}
"%(c)s" % {"a": 1}
"%s %s" % ("a",)
"%s" % ("a", "b")
"%d" % "a"
"%z" % 1
"%" % 1
"%s" % [1, 2]
"%s" % undefined
"%d" % undefined
"%*d" % (5, 1)
"%s %s" | format("a", 2)
"%(x)s" | format(x=3)
"%.3s|%10.2s|" % ("abcdef", "abc")
"%i %u" % (1, 2)
"%#x %#o" % (255, 8)
"% d" % 5
true and "x" or "y"
0 or none or "z"
not none
not ""
1 if t else 2
1 if e else 2
1 if e
(1 if e) is defined
(1 if e) + 1
"a" if 0 else "b" if 0 else "c"
1 if true
l | length
s | length
n | length
none | length
undefined | length
d | length
d | count
l | first
l | last
[] | first
[] | last
[] | first + 1
"abc" | first
"abc" | last
d | first
d | last
1 | first
undefined | first
undefined | last
l | map("string") | last
l | join(", ")
words | join
users | join(", ", attribute="name")
l | join(0)
"abc" | join("-")
none | join
undefined | join
[1, none, 2.0] | join("|")
l | sort
words | sort
words | sort(case_sensitive=true)
words | sort(reverse=true)
users | sort(attribute="age") | map(attribute="name") | list
users | sort(attribute="age,name") | map(attribute="name") | list
users | sort(attribute="nope")
[1, "a"] | sort
[none, 1] | sort
d | sort
"hello" | sort
users | sort
words | unique | list
words | unique(case_sensitive=true) | list
[1, 1.0, true, 2] | unique | list
users | unique(attribute="age") | map(attribute="name") | list
[[1], [1]] | unique | list
l | min
l | max
words | min
words | max(case_sensitive=true)
[] | min
users | min(attribute="age")
[1, "a"] | max
l | sum
users | sum(attribute="age")
[[1], [2]] | sum(start=[])
["a"] | sum
[1.5, 2] | sum
l | reverse | list
"abc" | reverse
d | reverse | list
(1, 2) | reverse | list
l | reverse | length
n | reverse
l | map("string") | reverse
l | map("upper") | list
l | map("nope") | list
l | map | list
l | map("nope") is defined
users | map(attribute="name") | join(",")
users | map(attribute="tags") | list
users | map(attribute="tags", default="none") | list
users | map(attribute="tags.0", default="-") | list
users | map(attribute="tags.0") | list
users | map(attribute="nope.x") | list
users | map(attribute="name", foo=1) | list
words | map("replace", "a", "b") | list
words | map("length") | list
l | map("float") | map("string") | join(" ")
none | map("upper") | list
(l | map("string")) | length
(l | map("string"))[0]
(l | map("string"))[:1]
(l | map("string")) is iterable
(l | map("string")) is sequence
(l | select("odd")) and "true even if empty"
[] | select("odd") and "still true"
l | select("odd") | list
l | reject("odd") | list
[0, 1, "", "a", none] | select | list
[0, 1, "", "a", none] | reject | list
l | select(">", 1) | list
l | select("in", [1, 2]) | list
l | select("nope") | list
words | select("equalto", "Apple") | list
users | selectattr("tags") | map(attribute="name") | list
users | selectattr("tags", "defined") | map(attribute="name") | list
users | selectattr("age", "gt", 30) | map(attribute="name") | list
users | selectattr("age", "==", 30) | list
users | rejectattr("tags") | map(attribute="name") | list
users | rejectattr("age", "gt", 30) | map(attribute="name") | list
users | selectattr | list
messages | selectattr("role", "equalto", "user") | map(attribute="content") | first
messages | rejectattr("role", "in", ["system"]) | list | length
l | batch(2) | list
l | batch(2, 0) | list
l | slice(2) | list
l | slice(2, "x") | list
range(10) | slice(3) | map("list") | list
l | batch(2) | length
users | groupby("age") | list
users | groupby("age") | map(attribute="grouper") | list
users | groupby("name") | map(attribute="list") | map("length") | list
users | groupby("nope") | list
users | groupby("nope", default="z") | length
d | dictsort
d | dictsort(by="value")
d | dictsort(true)
d | dictsort(by="nope")
l | dictsort
undefined | dictsort
d | items | list
d | items | first
l | items
l | items | list
undefined | items | list
d | list
s | list
n | list
none | list
undefined | list
d | string
n | string
1.0 | string
undefined | string | length
s | upper
s | lower
s | trim
"xxaxx" | trim("x")
n | upper
none | upper
undefined | upper
n | trim
s | replace("l", "L")
s | replace("l", "L", 1)
12321 | replace(2, "x")
none | replace("o", "0")
s | center(30) ~ "|"
s | wordcount
"foo bar baz qux www" | truncate(9)
"foo bar baz qux www" | truncate(9, true)
"foo bar baz qux www" | truncate(11, false, "..", 0)
"foo bar" | truncate(9)
"foo bar baz" | truncate(2)
lines | indent
lines | indent(2, true)
lines | indent(2, blank=true)
lines | indent("> ")
lines | indent(width=1, first=true, blank=true)
"" | indent
"" | indent(first=true)
n | indent
undefined | indent
"a\n" | indent
"3" | int
"3.9" | int
"x" | int
"x" | int(5)
"x" | int(default=none)
"0x1f" | int(0, 16)
"0x1f" | int(base=16)
"11" | int(base=2)
" 42 " | int
"1_000" | int
3.99 | int
-3.99 | int
none | int
[] | int
true | int
undefined | int
"1e3" | int
"inf" | int
"nan" | int
"3.5" | float
"x" | float
"x" | float(none)
"1e5" | float
"inf" | float
"nan" | float
"-Infinity" | float
none | float
undefined | float
3 | float
-3 | abs
-3.5 | abs
"a" | abs
undefined | abs
2.5 | round
3.5 | round
2.567 | round(2)
2.567 | round(2, "floor")
2.561 | round(2, "ceil")
1234.5 | round(-2)
42 | round
42 | round(1, "ceil")
"a" | round
2.5 | round(0, "nope")
2.675 | round(2)
-0.4 | round
undefined | default("x")
undefined | d("x")
none | default("x")
"" | default("x")
"" | default("x", true)
d.nope | default("x")
d.nope.nope | default("x")
undefined | default
undefined | default(undefined2) | default(3)
d | tojson
d | tojson(indent=2)
d | tojson(indent=0)
d | tojson(indent="\t")
d | tojson(ensure_ascii=true)
d | tojson(true)
d | tojson(sort_keys=true)
d | tojson(separators=(",", ":"))
d | tojson(separators=[",", ":"], indent=1)
d | tojson(indent=none)
nested | tojson
nested | tojson(indent=4)
[] | tojson(indent=2)
{} | tojson(indent=2)
[[], {}] | tojson(indent=2)
s | tojson
"\u007f\u0080\x1f/" | tojson
"\u007f\u0080\x1f/😀" | tojson(ensure_ascii=true)
1.0 | tojson
1e100 | tojson
big | tojson
none | tojson
true | tojson
("a", 1) | tojson
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
{(1, 2): 3} | tojson
{2: 1, "a": 1} | tojson(sort_keys=true)
undefined | tojson
[undefined] | tojson
range(3) | tojson
(l | map("string")) | tojson
d.items() | tojson
"inf" | float | tojson
"nan" | float | tojson
d | tojson(nope=1)
d | tojson | length
messages[2].tool_calls | tojson
messages | tojson(indent=1)
"<a>" | tojson
"<a>" | safe
"<a>" | e
"<a>" | escape | e
"<a>" | escape | forceescape
("<a>" | safe) + "<b>"
"<b>" + ("<a>" | safe)
("<a>" | safe) ~ "<b>"
("<a>" | safe) | upper + "<b>"
("<a>" | safe) | tojson
[("<a>" | safe)]
("<a>" | safe) == "<a>"
("<a>" | safe).upper() + "&"
("<a>%s" | safe) % "<b>"
("<a>{}" | safe).format("<b>")
("-" | safe).join(["<a>", "b"])
["<a>", "<b>" | safe] | join("<br>")
("<a>" | safe) * 2 + "<"
("<a>" | safe)[0] + "<"
("<a>" | safe).replace("a", "<")
("a b" | safe).split()
("<a>" | safe) is string
("<a>" | safe) is escaped
"<a>" is escaped
("<a>" | safe) | replace("<", "&")
("<a>" | safe) | trim + "<"
("<a>" | safe) in ["<a>"]
html | striptags
"a b&c/d?é" | urlencode
{"a b": "c&d", "e": 1} | urlencode
[("a", "b/c")] | urlencode
5 | urlencode
1000000 | filesizeformat
1 | filesizeformat
999 | filesizeformat
1536 | filesizeformat(true)
123456789 | filesizeformat
d | attr("items") is callable
d | attr("b")
s | attr("upper") is defined
l | nope
l is nope
n is defined
q is defined
d.q is defined
d.a is defined
d["q"] is undefined
none is none
none is defined
q is none
1 is number
true is number
1.0 is number
"1" is number
1 is integer
true is integer
1.0 is integer
big is integer
1.0 is float
1 is float
true is boolean
1 is boolean
none is boolean
true is true
1 is true
false is false
0 is false
"a" is string
1 is string
d is mapping
l is mapping
d.items() is mapping
l is sequence
(1,) is sequence
d is sequence
s is sequence
n is sequence
undefined is sequence
range(3) is sequence
d.items() is sequence
l is iterable
s is iterable
d is iterable
n is iterable
none is iterable
undefined is iterable
range is callable
s.upper is callable
s is callable
undefined is callable
namespace() is callable
namespace() is mapping
namespace() is iterable
3 is odd
3 is even
"a" is odd
3 is divisibleby 3
3 is divisibleby(2)
4 is divisibleby 2 and true
"abc" is lower
"ABC" is upper
1 is lower
1 is eq 1
1 is equalto 2
1 is ne 2
1 is lt 2
1 is lessthan 2
2 is gt 1
2 is greaterthan 3
1 is ge 1
1 is le 0
1 is in [1, 2]
1 is in([1, 2])
"a" is in "abc"
none is sameas none
1 is sameas 1
true is sameas true
l is sameas l
1 is not sameas 2
"upper" is filter
"nope" is filter
"odd" is test
"nope" is test
n is not none and n is number
n is number is string
not n is string
n is in
1 is divisibleby
d is defined("x")
namespace(a=1).a
namespace(a=1)
namespace({"a": 1}, b=2).a
namespace(a=1).b
namespace(a=1).b.c
namespace(a=1)["a"]
"a" in namespace(a=1)
namespace(a=1) | length
dict(a=1, b=[1])
dict({"a": 1}, b=2)
dict([("a", 1), ["b", 2]])
dict([1])
dict([(1, 2, 3)])
dict(1)
dict()
cycler("a", "b").next()
cycler("a", "b").current
cycler()
joiner()
joiner("-")() ~ "x"
strftime_now("%Y-%m-%d %H:%M:%S %B %b %A %a %d %j %y %I %p %%")
strftime_now("%-d %-m %-H %-I %-j %e %F %T %D %R %u %w %U %W %V %G %C")
strftime_now("%d %b %Y")
strftime_now("")
strftime_now("100%")
strftime_now("%x %X %c %h %f %n%t|")
strftime_now(1)
raise_exception("no: " ~ n)
raise_exception(5)
raise_exception()
loop
loop.index
caller()
nope()
nope.x()
range is defined
(1, 2)[0]
[1, 2][0]
[[1, 2], [3]][0][1]
"abc"[1]
{"a": [1, 2]}.a[1]
d.a.x.0
l.0
l.5
s.upper().lower().title()
(s | upper).lower()
-n | abs
-(n | abs)
n | abs - 1
-1 | abs + 1
2 * n | abs
1 + 2 | string + "x"
"a" + 2 | string
not t and e
1 ~ 2 + 3
1 + 2 ~ 3
1 == 1 ~ ""
[1, 2,]
{"a": 1,}
(1, 2,)
[,]
f(x=1, 2)
range(*[1, 4]) | list
range(*[1], *[4])
dict(**{"a": 1})
dict(**{1: 2})
dict(**[1])
dict(a=1, **{"a": 2})
range(1, 2, 3, 4)
range()
s.upper(1)
s.split(nope=1)
l | join(nope=1)
l | length(1)
l | first(1)
1 2
1 +
(1
1)
[1
{"a"}
{"a": }
"abc
a..b
a.
a[
a[]
a b
$
a ? b
&
a!b
1 = 2
a = 1
x |
x | 1
x is
x is not
in
if
not
and
else
"a" if
for
"\x4"
"\u12"
"\N{DASH}"
"\400"
"\8"
a.1.2
1.2.3
1..2
..1
é
l[1:2:3:4]
l[:, 1]
l[1, 2]
d["a", "b"]
d[none]
d[1.5]
d[l]
True
False
None
TRUE
true.x
1.5.x
5.x
"a".x
"a".0
none | upper | lower
n if n > 5 else none
[n if n > 5 else none, 2]
n in [7] and "yes" or "no"
n not in [7] or not n in [8]
not (n in [7])
- n
--n
+-n
not not n
2 - -2
2 -- 2
2**-1
n//2
n %2
"%s"%n
"a"~"b"~1
1<2
1<2>1
n==7==true
(n) (1)
[1,2,3] | select("odd") | map("string") | join("+") ~ "!"
(l | sort)[0]
(words | map("lower") | sort | unique | list)[-1]
messages[0].content.strip()
messages[0]["content"] | trim
messages[-1].content.split("</think>")[-1].lstrip("\n")
messages[1:] | map(attribute="role") | join(" ")
messages[::-1][0].role
messages | map(attribute="content") | map("trim") | map("length") | list
(messages | last).role
messages[2].tool_calls[0].function.arguments | tojson
messages[2].tool_calls[0].function.arguments.items() | list
messages[2].get("reasoning", "none")
messages[2].reasoning_content is defined and messages[2].reasoning_content is not none
messages[5].role
messages[5] is defined
(messages[5] | default({})).role is defined
'''

# Whole templates, between lines of ====.
TEMPLATES = r'''
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ x }};{% endfor %}
====
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}
====
{% for x in l %}{{ loop.previtem.x }}{% endfor %}
====
{% for x in [1,1,2,2,1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{{ loop.cycle("a", "b") }}{% endfor %}
====
{% for x in l %}{{ loop.cycle() }}{% endfor %}
====
{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}
====
{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}
====
{% for x in [] %}{{ x }}{% else %}empty{% endfor %}
====
{% for x in undefined %}{{ x }}{% else %}empty{% endfor %}
====
{% for x in none %}{% endfor %}
====
{% for x in 5 %}{% endfor %}
====
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
====
{% for k in d %}{{ k }};{% endfor %}
====
{% for k, v in d %}{{ k }}{% endfor %}
====
{% for a, b in [[1, 2, 3]] %}{% endfor %}
====
{% for a, b in [1] %}{% endfor %}
====
{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}
====
{% for a, b, in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}
====
{% for c in "héy" %}{{ c }}-{% endfor %}
====
{% for x in l %}{% for y in l %}{{ loop.index }}{% if y == 1 %}{% break %}{% endif %}{% endfor %}|{{ loop.index }} {% endfor %}
====
{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% else %}never{% endfor %}
====
{% break %}
====
{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
====
{% for x in l %}{% set y %}a{% break %}{% endset %}{% endfor %}{{ y is defined }}
====
{% for t in tree recursive %}{{ t.n }}{{ loop.depth }}{{ loop.depth0 }}[{{ loop(t.c) }}]{% endfor %}
====
{% for t in tree %}{{ loop(t.c) }}{% endfor %}
====
{% for x in l %}{% set y = x %}{% endfor %}{{ y }}
====
{% set y = 0 %}{% for x in l %}{{ y }}{% set y = x %}{{ y }}{% endfor %}{{ y }}
====
{% set ns = namespace(y=0) %}{% for x in l %}{% set ns.y = ns.y + x %}{% endfor %}{{ ns.y }}
====
{% set n.x = 1 %}
====
{% set nope.x = 1 %}
====
{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}
====
{% set a, b = 1, 2 %}{{ a }}{{ b }}
====
{% set a = 1, 2 %}{{ a }}
====
{% set a, b = 1 %}
====
{% set (a, b) = (1, 2) %}{{ a + b }}
====
{% set 1 = 2 %}
====
{% set a.b.c = 2 %}
====
{% set a[0] = 2 %}
====
{% set true = 2 %}
====
{% set x %}a{{ n }}
b{% endset %}[{{ x }}]
====
{% set x | upper | replace("A", "-") %}a{{ n }}b{% endset %}[{{ x }}]
====
{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}
====
{% if n == 1 %}a{% elif n == 7 %}b{% else %}c{% endif %}
====
{% if e %}a{% elif z %}b{% endif %}
====
{% if true %}{% set q = 5 %}{% endif %}{{ q }}
====
{% if n %}
  a
{% else %}
  b
{% endif %}
c
====
  {% if n %}
    x
  {%- endif %}

y
====
a
  {%+ if n %}x{% endif +%}
b
====
a   {{- n -}}   b   {{ n }}   c
====
{#- c -#}  a {# b #}
 {# whole line #}
x {#- y #}
z
====
{# unclosed
====
{% raw %}{{ x }}{% if %}{% endraw %}
z
====
a
  {%- raw -%}  {{ x }}  {%- endraw -%}  b
====
{% raw %} x
====
{% macro m(a, b=2, c=a) %}{{ a }},{{ b }},{{ c }};{% endmacro %}{{ m() }}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=5) }}{{ m(1, 2, 3) }}
====
{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}
====
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
====
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
====
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}
====
{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, x=3) }}
====
{% macro m(a, b) %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.caller }}{{ m is callable }}
====
{% macro m(a=1, b) %}{% endmacro %}
====
{% macro m(a, 1) %}{% endmacro %}
====
{% macro m(x) %}[{{ caller() }}|{{ x }}]{% endmacro %}{% call m(1) %}in{{ n }}{% endcall %}
====
{% macro m(x) %}{% for i in x %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(a, b=0) m(l) %}<{{ a }}{{ b }}>{% endcall %}
====
{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}
====
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
====
{% macro m() %}{{ caller is defined }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ m() }}{% call m() %}c{% endcall %}
====
{% macro m(caller=none) %}{% if caller %}{{ caller() }}{% else %}no{% endif %}{% endmacro %}{{ m() }}{% call m() %}c{% endcall %}
====
{% call s %}{% endcall %}
====
{% call s.upper() %}{% endcall %}
====
{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
====
{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}
====
{% macro f() %}{{ x }}{% endmacro %}{% for x in l %}{{ f() }}{% endfor %}
====
{% for x in l %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% endfor %}{{ f is defined }}
====
{% macro f() %}{% set x = 1 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}
====
{% macro f(x) %}{{ x }}{% endmacro %}{{ f("<a>") + "<b>" }}{{ f(1) is string }}{{ f(2) | int + 1 }}
====
{% filter upper %}a{{ s }}{% endfilter %}
====
{% filter upper | replace("A", "b") %}a{% endfilter %}
====
{% filter nope %}a{% endfilter %}
====
{% filter indent(2) %}a
b
{% endfilter %}
====
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}
====
{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}
====
{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}
====
{% generation %}{{ s }}{% set q = 1 %}{% endgeneration %}|{{ q }}
====
{% for x in l %}{% generation %}
{{ x }}
{% endgeneration %}
{% endfor %}
====
{% block a %}x{{ n }}{% endblock %}y
====
{% block a %}x{% endblock a %}y
====
{% print n %}
====
{% print n, s %}
====
{% include "x" %}
====
{% import "x" as y %}
====
{% nope %}
====
{% endfor %}
====
{% if n %}x
====
{% if n %}x{% endfor %}
====
{% for x in l %}{{ x }}{% endif %}
====
{% if %}x{% endif %}
====
{% for %}x{% endfor %}
====
{% for x l %}x{% endfor %}
====
{% set %}
====
{% set x %}
====
{% do l.append(1) %}
====
{% if n: %}x{% endif %}
====
{% for x in l: %}{{ x }}{% endfor %}
====
{% if false %}{{ n | nope }}{% endif %}ok
====
{% if true %}{{ n | nope }}{% endif %}ok
====
{% if false %}{{ n is nope }}{% endif %}ok
====
{{ n | nope if false else "ok" }}
====
{% for loop in l %}{% endfor %}
====
{% set loop = 5 %}{{ loop }}
====
{{ loop }}{% for x in l %}{{ loop is defined }}{% endfor %}
====
{% for x in l %}{{ loop }}{% endfor %}
====
{% for x in l %}{{ loop.nope }}{{ loop.length }}{% endfor %}
====
{% for x in l | map("string") %}{{ loop.length }}{{ loop.last }}{{ x }}{% endfor %}
====
{% for x in d | items %}{{ loop.last }}{{ x[0] }}{% endfor %}
====
{% for x in l | reverse %}{{ loop.revindex }}{{ x }}{% endfor %}
====
{% set g = l | map("string") %}{{ g | first }}{{ g | list }}{{ g | list }}
====
{% set g = l | map("string") %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% else %}gone{% endfor %}
====
{% set c = cycler("a", "b") %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}
====
{% set j = joiner("|") %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}
====
{% set ns = namespace(items=[]) %}{% for x in l %}{% set ns.items = ns.items + [x] %}{% endfor %}{{ ns.items }}
====
{% set ns = namespace() %}{% set ns.a = namespace(b=1) %}{{ ns.a.b }}{{ ns }}
====
{{ n
}}
====
{{ "a
b" }}
====
{%
set x = 1
%}{{ x }}
====
line1
{{ undefined.x }}
====
line1

{% if true %}
  {{ l + 1 }}
{% endif %}
====
x {{ "%}" }} {{ '}}' }} {% set q = "%}" %}{{ q }}
====
{{ {"a": {"b": 1}}.a.b }}{{ {"a": {"b": {}}} }}
====
{{}}
====
{{ }}
====
{%%}
====
{% %}
====
{{ n }
====
{{ n %}
====
{% if n }}
====
{{ (n }}
====
{{ n) }}
====
{{ [n) }}
====
}} %} #} { % {
====
{
====
{{
====
{%
====
a{%- set x = 1 -%}
  b
====
{%- for m in messages -%}
{{ "<|im_start|>" + m.role + "\n" }}
{%- if m.content is string %}{{ m.content | trim }}{% endif -%}
{{ "<|im_end|>\n" }}
{%- endfor -%}
====
{% for m in messages %}
    {% if loop.first %}
        {{ "first" }}
    {% endif %}
	{%- if m.tool_calls %}
{% for c in m.tool_calls %}
{{ c.function | tojson(indent=4) }}
{% endfor %}
	{%- endif %}
{% endfor %}
end
====
{% set x = "a" %}{% if x == "a" %}{% set x = "b" %}{% endif %}{{ x }}

====



====
trailing newline

====
two trailing newlines


====
{{ n }}
====
{{ n -}}

x
====
{{ s }} {{ s.nope }}{{ d.nope }}{{ none }}{{ true }}
====
{% set content = messages[2].content %}{% if "</think>" in content %}{% set r = content.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n") %}{% set content = content.split("</think>")[-1].lstrip("\n") %}{% endif %}[{{ r }}][{{ content }}]
====
{%- macro json(x) -%}{{- x | tojson -}}{%- endmacro -%}
{%- for c in messages[2].tool_calls %}{%- set f = c.function -%}
{{ '{"name": "' ~ f.name ~ '", "arguments": ' }}{{ json(f.arguments) }}{{ "}" }}
{%- endfor %}
====
{{ raise_exception("stop") if n == 7 else "go on" }}
====
{% for x in l %}{% if x == 1 %}{{ raise_exception("x is " ~ x) }}{% endif %}{{ x }}{% endfor %}
====
{{ messages | selectattr("role", "equalto", "user") | list | length }}{{ (messages | selectattr("content", "undefined") | list) }}
====
{% for group in users | groupby("age") %}{{ group.grouper }}:{{ group.list | map(attribute="name") | join(",") }};{{ group[0] }} {% endfor %}
====
{% for age, us in users | groupby("age") %}{{ age }}{{ us | length }}{% endfor %}
====
{% autoescape false %}{{ "<" }}{% endautoescape %}
====
{{ "a" if n }}{{ ("a" if not n) ~ "x" }}
====
{% set x = [1, 2] %}{% set y = x %}{{ x is sameas y }}{{ x == y }}
====
{% set a = "x" %}{% macro m() %}{% set a = "y" %}{{ a }}{% endmacro %}{{ m() }}{{ a }}
====
{% macro outer() %}{% macro inner() %}i{{ n }}{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}
====
{% macro m(x, y=x ~ "!") %}{{ y }}{% endmacro %}{{ m("a") }}{{ m("a", "b") }}
====
{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}
====
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*[1]) }}{{ m(**{"x": 2}) }}{{ [1, 2] | map("string") | map("upper") | list }}
====
{% if not (z is defined and z) %}a{% endif %}{% if z is not none %}b{% else %}c{% endif %}
====
{% if "a" in "abc" and not "z" in "abc" or false %}y{% endif %}
====
{{ "a" "b" }}{{ 'x' ~ 'y' "z" }}
====
{% set ns=namespace(a=1,b=namespace(c=[])) %}{% set ns.a=ns.a+1 %}{{ns.a}}{{ns.b.c}}
====
{%set x=1%}{{x}}{%-set x=2-%}{{x}}
====
{% for i in range(3) %}{% for j in range(i) %}{{ i }}{{ j }}{{ loop.index }}{% else %}none{% endfor %},{% endfor %}
====
{% for x in l %}{% set outer = loop %}{% for y in "ab" %}{{ outer.index }}{{ y }}{% endfor %}{% endfor %}
====
{% for x in l %}
    {% if x == 3 %}
        three
    {% else %}
        other
    {% endif %}
{% endfor %}
done
====
{% macro m() %}{{ s }}{% endmacro %}[{{ m() }}]{% set s = 1 %}[{{ m() }}]
====
{{ s }}{% macro m() %}{{ s }}{% endmacro %}[{{ m() }}]{% set s = 1 %}[{{ m() }}]
====
{% for x in l %}{% for y in l %}{{ n }}{% endfor %}{% set n = x %}{{ n }}{% endfor %}{{ n }}
====
{% if e %}{% set n = 1 %}{% endif %}{{ n }}{% for x in l %}{% if x == 1 %}{% set n = x %}{% endif %}{{ n }}{% endfor %}
====
{% set s %}{{ s }}{% endset %}[{{ s }}]
====
{% set n = n + 1 %}{{ n }}{% for n in l %}{{ n }}{% endfor %}{{ n }}
====
{% with n = n + 1 %}{{ n }}{% set s = s ~ n %}{{ s }}{% endwith %}{{ n }}{{ s }}
====
{% macro m(x=s) %}{{ x }}{% set s = 2 %}{{ s }}{% endmacro %}{{ m() }}{{ s }}
====
{{ ("<b>" | safe) | list }}{{ "%s" % [1] }}{{ "x" % l }}{{ "ß".casefold() }}
====
<div>
    {# comment #}
    {% if true %}   
    text
    {% endif %}	
</div>
'''


def values():
    for line in EXPRESSIONS.strip("\n").split("\n"):
        # a line that ends in a backslash goes on in the next one
        if values.pending is not None:
            line, values.pending = values.pending + "\n" + line, None
        elif line == r'"\q\ '.strip():
            values.pending = line
            continue
        yield "{{ " + line + " }}"
    for template in TEMPLATES.strip("\n").split("\n====\n"):
        yield template


values.pending = None


def main():
    here = pathlib.Path(__file__).parent
    with open(here / "golden.jsonl", "w", encoding="utf-8") as out:
        out.write(json.dumps({"context": CONTEXT}, ensure_ascii=False) + "\n")
        for template in values():
            row = {"template": template}
            try:
                row["expected"] = environment().from_string(template).render(**json.loads(json.dumps(CONTEXT)))
                if " at 0x" in row["expected"]:
                    continue
            except RecursionError:
                continue
            except Exception as error:
                row["error"] = type(error).__name__
                row["message"] = str(error)
                if getattr(error, "lineno", None):
                    row["line"] = error.lineno
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
