#!/usr/bin/env python3
"""Compares banyan's chat templates with Jinja, set up as transformers does, live.

The templates in tests/parity/templates have the constructs of the published ones of Llama 2 and 3,
Mistral, Qwen 2.5 and 3, ChatML, SmolLM, Zephyr, Gemma and Phi. They and a list of small constructs are
rendered for several conversations: texts must be equal byte for byte, and what one refuses the other
must refuse. With --transformers the texts of apply_chat_template must be the same too.

Usage: check_chat_templates.py TOOL [--transformers]
       check_chat_templates.py --golden FILE      writes the cases of the unit test
TOOL is build/debug/tests/template_tool. Exit code 0: all equal.
"""
import datetime
import glob
import json
import os
import random
import struct
import subprocess
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = datetime.datetime.fromtimestamp(1700000000)
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


class Generation(jinja2.ext.Extension):
    """{% generation %} changes nothing here."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("same"), [], [], body).set_lineno(line)

    @staticmethod
    def same(caller):
        return caller()


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


ENVIRONMENT = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
ENVIRONMENT.filters["tojson"] = tojson
ENVIRONMENT.globals["raise_exception"] = refuse
ENVIRONMENT.globals["strftime_now"] = NOW.strftime


def by_jinja(template, messages, tools, variables, prompt):
    """(text, None) or (None, error)."""
    try:
        return ENVIRONMENT.from_string(template).render(
            messages=messages, tools=tools, documents=None, add_generation_prompt=prompt, **variables), None
    except Exception as error:  # whatever Python makes of a template
        return None, f"{type(error).__name__}: {error}"


def by_banyan(tool, requests):
    data = []
    for template, messages, tools, variables, prompt in requests:
        texts = [template, json.dumps(messages, ensure_ascii=False), json.dumps(tools) if tools is not None else "",
                 json.dumps(variables), "1" if prompt else "0"]
        texts = [t.encode() for t in texts]
        data.append(struct.pack("<5I", *map(len, texts)) + b"".join(texts))
    done = subprocess.run([tool], input=b"".join(data), capture_output=True)
    if done.returncode:
        sys.exit(f"{tool}: {done.returncode} {done.stderr.decode(errors='replace')}")
    out, answers, at = done.stdout, [], 0
    while at < len(out):
        kind, length = struct.unpack_from("<II", out, at)
        answers.append((kind, out[at + 8:at + 8 + length].decode()))
        at += 8 + length
    return answers


WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "tells the weather\nof a city \u2603 <b>'&\"", "parameters": {
        "type": "object", "properties": {
            "city": {"type": "string", "description": "where"}, "days": {"type": "integer"},
            "units": {"type": ["string", "number"]}, "list": {"type": "array", "items": {"type": "boolean"}},
            "more": {"type": "object", "properties": {"a": {"type": "null"}}}},
        "required": ["city"]}}}
CLOCK = {"type": "function", "function": {
    "name": "clock", "description": "now", "parameters": {"type": "object", "properties": {}}, "return": {"a": 1.5}}}
CALL = {"id": "abcdefghi", "type": "function",
        "function": {"name": "weather", "arguments": {"city": "K\u00f6ln", "days": 2, "x": [1.0, 1e-7, None, True]}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


SYSTEM = {"role": "system", "content": " Be brief.\n"}
CONVERSATIONS = [
    [user("Hello")],
    [user("  spaces \n\n"), assistant(" an answer "), user("and\tthen?")],
    [SYSTEM, user("Hi"), assistant("Hello!"), user("\u4f60\u597d \U0001f600 e\u0301 '\"\\ {{ x }} {% if %}")],
    [SYSTEM, SYSTEM, user("two systems")],
    [SYSTEM, user("What weather?"), assistant("", tool_calls=[CALL]),
     {"role": "tool", "content": "rain", "tool_call_id": "abcdefghi"}, assistant("It rains."), user("Thanks")],
    [user("Both?"), assistant("I look.", tool_calls=[CALL, CALL]),
     {"role": "tool", "content": "rain", "tool_call_id": "abcdefghi"},
     {"role": "tool", "content": "sun", "tool_call_id": "abcdefghi"}],
    [user("think"), assistant("<think>\nso\n</think>\n\nYes."), user("again"),
     assistant("<think>hm</think>No.", reasoning_content="\nbecause\n")],
    [user([{"type": "text", "text": " parts "}, {"type": "image"}, {"type": "text", "text": "of one"}])],
    [assistant("I begin")], [user("one"), user("two")], [{"role": "other", "content": "?"}],
    [user("a"), assistant("b")], [user("x" * 3000), assistant("y\n" * 500), user("z")],
]

CONSTRUCTS = r"""
{{ 1 + 2 * 3 - 4 // 3 % 2 ** 2 }}|{{ 7 / 2 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 7.5 // 2 }}|{{ 2 ** 3 ** 2 }}|{{ 1e3 }}|{{ 10 / 5 }}
{{ 1_000 }}{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1.0 }} {{ 1e-5 }} {{ 123456789012345678 }} {{ true + 1 }} {{ -true }}
{{ "a" ~ 1 ~ none ~ true ~ [1, "b"] ~ {"k": 'v'} ~ 1.5 }} {{ 'x' * 3 }} {{ [1] * 2 + [3] }} {{ (1, 2) }} {{ (1,) }} {{ () }}
{{ "it's" }} {{ ["it's", 'say "x"', "both ' \"", "\n\t\\", "\u00e9\u2028\x07"] }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ "a" < "b" }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 == true }} {{ "1" == 1 }} {{ none == false }}
{{ "a" in "abc" }} {{ 1 in [1, 2] }} {{ "k" in {"k": 1} }} {{ "z" not in "abc" }} {{ not 1 in [2] }} {{ 1 not in [1] }}
{{ 1 if false }}|{{ 1 if true else 2 }}|{{ 1 if false else 2 if false else 3 }}|{{ (1 if false) is defined }}
{{ none and 1 }} {{ 0 or "x" }} {{ "" or [] or {} }} {{ not "" and not none }} {{ 1 and 2 or 3 }}
{{ x }}{{ x is defined }} {{ x is undefined }} {{ x | default("d") }} {{ "" | default("d") }} {{ "" | default("d", true) }} {{ none | d(1) }}
{{ "hello"[1] }} {{ "hello"[-1] }} {{ "hello"[1:3] }} {{ "hello"[::-1] }} {{ "hello"[::2] }} {{ "hello"[-3:] }} {{ "hello"[:-9] }} {{ "h\u00e9ll\u00f6"[1:4] }} {{ "h\u00e9"[9:] }}
{{ [1, 2, 3, 4][1:] }} {{ [1, 2, 3][::-1] }} {{ [1, 2, 3, 4, 5][3:0:-2] }} {{ [1, 2][5] is defined }} {{ {"a": {"b": [1]}}.a.b[0] }} {{ {"a": 1}["a"] }} {{ [[1, 2]].0.1 }}
{{ " a b ".strip() }}|{{ "xxaxx".strip("x") }}|{{ "xxa".lstrip("x") }}|{{ "axx".rstrip("x") }}|{{ " \u00a0\u2003 a\x1c ".strip() }}|
{{ "a,b,c".split(",") }} {{ "a b  c".split() }} {{ " a b c ".split(none, 1) }} {{ "a,b,c".split(",", 1) }} {{ "a,b,c".rsplit(",", 1) }} {{ "".split(",") }} {{ "".split() }} {{ "a--b".split("--")[-1] }}
{{ "abc".startswith("a") }} {{ "abc".endswith(("x", "bc")) }} {{ "abc".replace("b", "xx") }} {{ "aaa".replace("a", "b", 2) }} {{ "abc".find("c") }} {{ "abcb".rfind("b") }} {{ "\u00e9b".find("b") }} {{ "abab".count("ab") }}
{{ "hello world-foo don't".title() }} {{ "hello world-foo don't (x" | title }} {{ "hELLO" | capitalize }} {{ "Abc" | upper }} {{ "ABC".lower() }} {{ "x".join(["a", "b"]) }} {{ "a\nb\r\nc".splitlines() }} {{ "prefix-a".removeprefix("prefix-") }} {{ "12".isdigit() }} {{ "a1".isalpha() }}
{{ [1, 2, 3] | length }} {{ "h\u00e9" | length }} {{ {"a": 1} | length }} {{ x | length }} {{ [1, 2] | first }} {{ [1, 2] | last }} {{ "abc" | first }} {{ [] | first is defined }} {{ [3, 1, 2] | sort }} {{ ["b", "A", "c"] | sort }} {{ [1, 3, 2] | sort(reverse=true) | join("<") }}
{{ [1, "a", none] | join(", ") }} {{ [{"a": 1}, {"a": 2}] | map(attribute="a") | list }} {{ ["a", "b"] | map("upper") | join }} {{ [{"a": {"b": 3}}] | map(attribute="a.b") | list }} {{ [{}, {"a": 1}] | map(attribute="a", default="-") | list }} {{ [[1, 2]] | map(attribute=0) | list }}
{{ [0, 1, none, 2] | select | list }} {{ [1, 2, 3] | select("odd") | list }} {{ [1, 2, 3] | reject("equalto", 2) | list }} {{ [{"r": "u"}, {"r": "s"}] | selectattr("r", "equalto", "u") | list }} {{ [{"r": 1}, {}] | selectattr("r", "defined") | list }} {{ [{"r": 1}, {}] | rejectattr("r") | list }} {{ [1, 5, 9] | select("gt", 4) | list }} {{ [1, 5] | select("in", [5]) | list }}
{{ [1, 1, 2] | unique | list }} {{ [1, 2] | sum }} {{ [3, 1] | min }} {{ [3, 1] | max }} {{ "abc" | reverse }} {{ [1, 2] | reverse | list }} {{ {"b": 1, "a": 2} | dictsort }} {{ {"b": 1} | items | list }} {{ "3" | int + 1 }} {{ "x" | int }} {{ 3.9 | int }} {{ "1.5" | float }} {{ -3 | abs }} {{ 3 | string + "x" }} {{ "abc" | list }}
{{ {"a": [1, 2.5, "\u00e9\n\"", none, true], "b": {}, "c": []} | tojson }} {{ {"b": 1, "a": {"c": 2}} | tojson(indent=2) }} {{ [] | tojson(indent=4) }} {{ {"b": 1, "a": 2} | tojson(sort_keys=true) }} {{ [1, 2] | tojson(separators=(",", ":")) }} {{ "\u00e9\U0001f600" | tojson(ensure_ascii=true) }} {{ "\u007f\x1f/<>&'" | tojson }} {{ {1: 2, true: 3, none: 4, 1.5: 5} | tojson }} {{ (1, 2) | tojson }}
{{ "<a href='x'>&\"" | e }} {{ "x" | safe }} {{ " x " | trim }}|{{ "xax" | trim("x") }} {{ "a\nb\n\nc" | indent }} {{ "a\nb" | indent(2, true) }} {{ "a" | indent("> ", first=true) }} {{ "abc" | replace("b", 1 | string) }}
{{ 1 is number }} {{ true is number }} {{ 1.5 is float }} {{ 1 is integer }} {{ true is integer }} {{ "a" is string }} {{ [] is sequence }} {{ {} is mapping }} {{ {} is sequence }} {{ "a" is iterable }} {{ 1 is iterable }} {{ none is none }} {{ x is none }} {{ true is true }} {{ 1 is true }} {{ range is callable }}
{{ 4 is even }} {{ 4 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{ "a" is in ["a"] }} {{ 1 is not none }} {{ "abc" is lower }} {{ "ABC" is upper }} {{ 2 is ge 2 }} {{ 1 is ne(2) }} {{ "x" is not defined }}
{{ range(5) | list }} {{ range(1, 10, 3) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ dict(a=1, b="x") }} {{ dict({"a": 1}, b=2) }} {{ strftime_now("%Y-%m-%d %d %b %Y %%") }}
{% set a = 1 %}{% set b, c = 2, [3] %}{{ a }}{{ b }}{{ c }}{% set t %}x{{ a }}y{% endset %}{{ t }}{% set u | upper %}abc{% endset %}{{ u }}{% set d = (4, 5) %}{{ d }}
{% for i in [1, 2, 3] %}{% set a = i %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}{{ a }}{{ i }}
{% set a = 0 %}{% for i in [1, 2] %}{% set a = a + i %}{{ a }}{% endfor %}{{ a }}{% if true %}{% set a = 9 %}{% endif %}{{ a }}{% set n = namespace(x=0) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}
{% for k, v in {"a": 1, "b": 2}.items() %}{{ k }}={{ v }}{% if not loop.last %},{% endif %}{% endfor %} {% for k in {"a": 1} %}{{ k }}{% endfor %} {% for (a, b), c in [((1, 2), 3)] %}{{ c }}{% endfor %}
{% for c in "h\u00e9" %}[{{ c }}]{% endfor %}{% for i in [] %}x{% else %}none{% endfor %}{% for i in range(10) if i is odd %}{{ loop.index }}:{{ i }} {% endfor %}{% for i in x %}{% else %}undefined{% endfor %}
{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% for j in [1, 2] %}{% if j == 2 %}{% break %}{% endif %}.{% endfor %}{% endfor %}
{% macro m(a, b=2, c="x") %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(a=1, b=none) }}{{ m() }}{% macro r(n) %}{{ n }}{% if n > 0 %}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(3) }}{{ m(1) | upper }}{{ m(1) ~ "y" }}
{% set g = 5 %}{% macro q() %}{{ g }}{% set g = 6 %}{{ g }}{% endmacro %}{{ q() }}{{ g }}{% for i in [1, 2] %}{{ q() }}{% endfor %}
{% filter upper %}abc{{ 1 }}{% endfilter %}{% raw %}{{ not }} {% this %}{% endraw %}{# a comment {{ x }} #}{% generation %}g{% endgeneration %}{%- raw -%} x {%- endraw -%}
a  {%- if true -%}  b  {%- endif -%}  c {{- 1 -}} d
{% for i in [1, 2, 3] %}{{ loop.cycle("a", "b") }}{{ loop.cycle(i) }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{{ (5).cycle is defined }}
{% for i in [1] %}{{ loop.cycle() }}{% endfor %}
{% set a = 1 %}{% with a = 2, b = a, (c, d) = [a, 4] %}{{ a }}{{ b }}{{ c }}{{ d }}{% set a = 5 %}{{ a }}{% endwith %}{{ a }}{{ b }}{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}
{% for i in [1, 2, 3] %}{% with j = i * 2 %}{% if i == 2 %}{% break %}{% endif %}{{ j }}{% endwith %}{% endfor %}{{ j }}
{% with a = 1 %}{{ a }}
{% with a 1 %}{% endwith %}
{% with a = 1 b = 2 %}{% endwith %}
{{ 42.55 | round }} {{ 42.55 | round(1, "floor") }} {{ 42.55 | round(1, method="ceil") }} {{ 42 | round }} {{ 0.5 | round }} {{ 1.5 | round }} {{ 2.675 | round(2) }} {{ -0.3 | round }} {{ 1250 | round(-2) }} {{ -1350 | round(-2) }} {{ 1251.5 | round(-2) }} {{ true | round }} {{ 42.55 | round | int }} {{ 7 | round(0, "ceil") }} {{ 1e300 | round(3) }} {{ -1.7 | round(0, "floor") }} {{ 1234.5 | round(-2, "ceil") }} {{ -3.0 | round(-1) }}
{{ "1" | round }}
{{ 1.5 | round(1, "up") }}
{{ 1.5 | round("1") }}
{{ [{"r": "u"}, {"r": "s"}] | selectattr("r", "==", "u") | list }} {{ [{"r": 1}, {"r": 2}] | rejectattr("r", "!=", 2) | list }} {{ [1, 5, 3] | select(">", 2) | list }} {{ [1, 5, 3] | select(">=", 3) | list }} {{ [1, 5, 3] | select("<=", 3) | list }} {{ [1, 5, 3] | select("<", 3) | list }}
{{ true is sameas true }} {{ 1 is sameas true }} {{ 1 is sameas 1.0 }} {{ x is sameas none }} {{ none is sameas none }} {{ false is sameas 0 }}
{{ ["a", "A", "b"] | unique | list }} {{ ["a", "A"] | unique(case_sensitive=true) | list }} {{ [{"r": "u", "n": 1}, {"r": "U", "n": 2}, {"r": "s"}] | unique(attribute="r") | list }} {{ ["b", "A"] | sort(case_sensitive=true) }} {{ [{"r": "b"}, {"r": "A"}] | sort(attribute="r") }}
{{ " 1.5 " | float }} {{ "x" | float }} {{ "x" | float(2.5) }} {{ "" | float(default=none) }} {{ true | float }} {{ 3 | float }} {{ [] | float }} {{ none | float(1) }}
{{ "%s - %s" | format("a", [1, "b"]) }} {{ "%d%%" | format(3.9) }} {{ "%5.2f|%-8s|%08.3f|%+d|% d|%x|%X|%o" | format(3.14159, "h\u00e9", -2.5, 7, 7, 255, 255, 8) }} {{ "%(a)s %(b)03d" | format(a=1, b=2) }} {{ "%.2s|%r|%e|%g|%i" | format("\u00e9bc", "q", 12345.678, 1e-7, true) }} {{ "no" | format }} {{ "%10s|%-10s|" | format(none, true) }} {{ "%.0f %5d %-5d|%.3d" | format(2.5, 42, 42, 7) }}
{{ "%s" | format }}
{{ "%s" | format(1, 2) }}
{{ "%d" | format("a") }}
{{ "%(a)s" | format(b=1) }}
{{ "%(a)s" | format(1) }}
{{ "%s %" | format(1) }}
{{ "%s" | format(1, a=2) }}
{{ "a" "b" 'c' }} {{ "\x41\u0042\\n\q" }} {{ 'it\'s' }} {{ {"a": 1}.get("a") }} {{ {"a": 1}.get("b", "c") }} {{ {"a": 1}.keys() | list }} {{ {"a": 1}.values() | list }} {{ {"items": 3}["items"] }} {{ [1, 2, 1].index(2) }} {{ [1, 2, 1].count(1) }}
{{ messages[0].role }} {{ messages[0]["content"] | length }} {{ messages | length }} {{ messages[-1].role == "user" }} {{ messages[0].nothing is defined }} {{ messages[0].get("x") }} {{ tools is none }} {{ bos_token }}{{ (messages | first).role }} {{ messages | map(attribute="role") | join(",") }}
{{ x.y }}
{{ x + 1 }}
{{ x() }}
{{ 1 + "a" }}
{{ [1] + "a" }}
{{ 1 < "a" }}
{{ 1 / 0 }}
{{ "a" | nofilter }}
{{ 1 is notest }}
{% for i in 5 %}{% endfor %}
{{ raise_exception("no") }}
{% set a, b = [1] %}
{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{{ "a".nomethod() }}
{{ [1].append(2) }}
{{ {"a": 1}.update({}) }}
{{ range(99999999999) }}
{% set messages.x = 1 %}
{% include "x" %}
{% import "x" as y %}
{% extends "x" %}
{% if true %}
{{ 1
{{ 1 + }}
{% endif %}
{% break %}
{{ 'a }}
{% unknown %}
{{ messages.__class__ }}{{ "".__class__ is defined }}
"""


def templates():
    out = {}
    for path in sorted(glob.glob(os.path.join(HERE, "templates", "*.jinja"))):
        with open(path, encoding="utf-8", newline="") as file:
            out[os.path.basename(path)] = file.read()
    return out


def random_layouts(rng, count):
    """Blocks, comments and expressions with signs and whitespace in all orders."""
    pieces = [" ", "  ", "\n", "\n\n", "\t", "a", "\r\n", "{% if true %}", "{%- if true %}", "{% if true -%}",
              "{%+ if true %}", "{% if true +%}", "{{ 1 }}", "{{- 1 }}", "{{ 1 -}}", "{# c #}", "{#- c #}", "{# c -#}",
              "{#+ c +#}", "{% set v = 1 %}", "{%- set v = 1 -%}", "{% raw %} {{ r }}\n {% endraw %}", "{ {", "} }", "%"]
    for _ in range(count):
        chosen = [rng.choice(pieces) for _ in range(rng.randint(1, 14))]
        depth = sum("if true" in p for p in chosen)
        yield "".join(chosen) + "".join(rng.choice(["{% endif %}", "{%- endif -%}", " {% endif %}\n"])
                                        for _ in range(depth))


def check_transformers(requests):
    """apply_chat_template is what ENVIRONMENT does."""
    from transformers.utils.chat_template_utils import render_jinja_template
    failures = 0
    for template, messages, tools, variables, prompt in requests:
        if "strftime_now" in template:
            continue
        expected, _ = by_jinja(template, messages, tools, variables, prompt)
        try:
            text = render_jinja_template([messages], tools=tools, chat_template=template,
                                         add_generation_prompt=prompt, **variables)[0][0]
        except Exception:
            text = None
        failures += text != expected
    print(f"{'equal    ' if not failures else 'DIFFERENT '}jinja2 and transformers: {len(requests)} texts")
    return failures


def golden(path):
    """[template, messages, tools, variables, prompt, text or null] ... of what the unit test renders."""
    cases = []
    for name, template in templates().items():
        for i, messages in enumerate(CONVERSATIONS):
            tools = [None, [WEATHER], [WEATHER, CLOCK]][i % 3]
            cases.append((template, messages, tools, VARIABLES, i % 2 == 0))
    cases += [(template, CONVERSATIONS[2], None, VARIABLES, True) for template in CONSTRUCTS.strip("\n").split("\n")]
    cases += [(template, [], None, {}, False) for template in random_layouts(random.Random(4), 150)]
    with open(path, "w", encoding="ascii") as out:
        out.write("[\n" + ",\n".join(json.dumps([*case, by_jinja(*case)[0]]) for case in cases) + "\n]\n")


def main():
    tool = sys.argv[1]
    if tool == "--golden":
        golden(sys.argv[2])
        return
    requests, names = [], []
    for name, template in templates().items():
        for messages in CONVERSATIONS:
            for tools in (None, [WEATHER], [WEATHER, CLOCK]):
                for prompt in (False, True):
                    for more in ({}, {"enable_thinking": False, "tools_in_user_message": False, "date_string": "x"}):
                        requests.append((template, messages, tools, {**VARIABLES, **more}, prompt))
                        names.append(name)
    for template in CONSTRUCTS.strip("\n").split("\n"):
        requests.append((template, CONVERSATIONS[2], None, VARIABLES, True))
        names.append("construct")
    for template in random_layouts(random.Random(3), 1500):
        requests.append((template, [], None, {}, False))
        names.append("layout")
    answers = by_banyan(tool, requests)
    failures, shown = 0, 0
    refused = 0
    for name, request, (kind, text) in zip(names, requests, answers):
        expected, error = by_jinja(*request)
        refused += error is not None
        if (kind == 1) != (error is not None) or (kind == 0 and text != expected):
            failures += 1
            if shown < 12:
                shown += 1
                what = name if name.endswith(".jinja") else f"{name}: {request[0]!r}"
                same = len(os.path.commonprefix([expected or "", text]))
                cut = slice(max(0, same - 60), same + 100)
                print(f"  {what}\n    jinja2: {expected[cut] if error is None else error!r}\n    banyan: {text[cut]!r}")
    print(f"{'equal    ' if not failures else 'DIFFERENT '}{len(requests)} texts, {refused} of them refused by both; "
          f"{failures} differ")
    if "--transformers" in sys.argv:
        failures += check_transformers([r for n, r in zip(names, requests) if n.endswith(".jinja")])
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
