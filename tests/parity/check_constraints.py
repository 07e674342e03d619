#!/usr/bin/env python3
"""Texts that a random model writes under constraints, checked by the real jsonschema and re.

  check_constraints.py TOOL      TOOL: constraint_tool
"""
import datetime
import ipaddress
import json
import re
import subprocess
import sys
import uuid

import jsonschema

TEXTS = 20

STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def closed(properties, required=None):
    return {"type": "object", "properties": properties, "additionalProperties": False,
            "required": list(properties) if required is None else required}


TREE = {"$defs": {"node": closed({"value": INTEGER, "children": {
    "type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}})}, "$ref": "#/$defs/node"}
LIST = {"$defs": {"list": closed({"head": STRING, "tail": {
    "anyOf": [{"$ref": "#/$defs/list"}, {"type": "null"}]}})}, "$ref": "#/$defs/list"}
SHAPES = {"anyOf": [closed({"kind": {"const": "circle"}, "radius": {"type": "number", "exclusiveMinimum": 0}}),
                    closed({"kind": {"const": "square"}, "side": {"type": "number", "minimum": 1}}),
                    closed({"kind": {"const": "circus"}, "clowns": {"type": "integer", "minimum": 1, "maximum": 9}})]}
UI = {"$defs": {"element": closed({
    "type": {"enum": ["div", "button", "field"]}, "label": STRING,
    "children": {"type": "array", "items": {"$ref": "#/$defs/element"}, "maxItems": 3},
    "attributes": {"type": "array", "maxItems": 2, "items": closed({"name": STRING, "value": STRING})}})},
    "$ref": "#/$defs/element"}

SCHEMAS = [
    True, {}, STRING, INTEGER, {"type": "number"}, {"type": "boolean"}, {"type": "null"},
    {"type": "object"}, {"type": "array"}, {"type": ["string", "null"]}, {"type": ["integer", "array"]},
    {"enum": ["red", "green", "blü", 'a"b', 1, 2.5, None, True, {"a": [1]}]}, {"const": {"x": "y", "z": [1, {}]}},
    {"type": "string", "minLength": 3, "maxLength": 7}, {"type": "string", "maxLength": 0},
    {"type": "string", "pattern": "^[a-z]+(-[a-z]+)*$"}, {"type": "string", "pattern": "^\\d{3}"}, {"type": "string", "pattern": "[a-z]{2}"},
    {"type": "string", "pattern": "^\\S+\\s\\w*$"}, {"type": "string", "pattern": "^[^\"a-z\\\\]{2,5}$|^x"},
    {"type": "string", "pattern": "^.{1,4}\\W\\D$"},
    *({"type": "string", "format": name} for name in
      ("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")),
    {"type": "integer", "minimum": -17, "maximum": 305}, {"type": "integer", "minimum": 999, "multipleOf": 7},
    {"type": "integer", "exclusiveMinimum": -3, "exclusiveMaximum": 3}, {"type": "integer", "maximum": -12},
    {"type": "number", "minimum": -0.5, "maximum": 1.25}, {"type": "number", "exclusiveMinimum": 0},
    {"type": "number", "multipleOf": 0.25, "minimum": -3, "maximum": 10}, {"type": "number", "maximum": 1e6},
    {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 5}, {"type": "array", "maxItems": 1},
    {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}, "minItems": 1}},
    closed({}), closed({"name": STRING, "age": {"type": "integer", "minimum": 0, "maximum": 150}}),
    closed({"a": INTEGER, "b": STRING, "c": {"type": "null"}, "d": {"enum": [1]}}, ["c"]),
    closed({"a": INTEGER, "b": STRING, "c": {"type": "null"}}, []),
    {"type": "object", "properties": {"é\"\\": INTEGER}, "required": ["é\"\\", "other"]},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    TREE, LIST, SHAPES, UI,
    closed({"steps": {"type": "array", "items": closed({"explanation": STRING, "output": STRING}), "maxItems": 4},
            "final_answer": STRING}),
]

PATTERNS = ["[a-z]{2,8}@[a-z]{2,5}\\.(com|org)", "(yes|no|maybe)", "\\d{3}-\\d{4}", "(ab*c|a+d)+", ".{0,12}",
            "[^a]*", "(\\w+\\s){1,3}\\S+", "[\\u0391-\\u03c9]+|\\x41\\t?", "(a|b)*abb", "((x{2}){2,3}y?)*"]

checker = jsonschema.FormatChecker(formats=())


@checker.checks("date", ValueError)
def is_date(text):
    return bool(datetime.date.fromisoformat(text))


@checker.checks("time", ValueError)
def is_time(text):
    return datetime.datetime.fromisoformat("2000-01-01T" + seconds(text)) is not None


@checker.checks("date-time", ValueError)
def is_date_time(text):
    return datetime.datetime.fromisoformat(seconds(text)) is not None


def seconds(text):
    """fromisoformat before Python 3.11 knows neither Z nor other than 3 or 6 digits of a second."""
    return re.sub(r"\.(\d{1,6})", lambda m: "." + m[1].ljust(6, "0"), text).replace("Z", "+00:00")


@checker.checks("duration")
def is_duration(text):  # RFC 3339, appendix A
    time = r"T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)"
    date = r"(\d+D|\d+M(\d+D)?|\d+Y(\d+M(\d+D)?)?)"
    return re.fullmatch(rf"P({date}({time})?|{time}|\d+W)", text, re.ASCII) is not None


@checker.checks("ipv4", ValueError)
def is_ipv4(text):
    return bool(ipaddress.IPv4Address(text).packed)


@checker.checks("ipv6", ValueError)
def is_ipv6(text):
    return bool(ipaddress.IPv6Address(text).packed)


@checker.checks("uuid", ValueError)
def is_uuid(text):
    return str(uuid.UUID(text)) == text


@checker.checks("hostname")
def is_hostname(text):
    return len(text) <= 253 and all(re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", label, re.ASCII)
                                    for label in text.split("."))


@checker.checks("email")
def is_email(text):
    local, _, domain = text.partition("@")
    return is_hostname(domain) and len(local) <= 64 and re.fullmatch(r"[^\s@.]+(\.[^\s@.]+)*", local) is not None


def texts_of(tool, kind, form):
    out = subprocess.run([tool, kind, str(TEXTS)], input=form + "\n", capture_output=True, text=True, check=False)
    if out.returncode != 0:
        sys.exit(f"{form}: {out.stderr}")
    lines = [json.loads(line) for line in out.stdout.split("\n")[:-1]]
    assert len(lines) == TEXTS
    return lines


def main():
    tool = sys.argv[1]
    checked = 0
    for schema in SCHEMAS:
        form = json.dumps(schema, ensure_ascii=False)
        for text in texts_of(tool, "schema", form):
            try:
                jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator, format_checker=checker)
            except (ValueError, jsonschema.ValidationError) as error:
                sys.exit(f"{form}\n{text!r}\n{error}")
            checked += 1
    for pattern in PATTERNS:
        for text in texts_of(tool, "regex", pattern):
            if not re.fullmatch(pattern, text):
                sys.exit(f"{pattern}: {text!r}")
            checked += 1
    print(f"{checked} texts of {len(SCHEMAS)} schemas and {len(PATTERNS)} patterns fit")


main()
