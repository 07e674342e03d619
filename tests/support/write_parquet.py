"""Writes the rows of a CSV file as Parquet: columns of numbers, where NA is NaN, and of texts.

usage: write_parquet.py FILE.csv FILE.parquet [COLUMN=TYPE]...

TYPE is ms, us or ns: times, with +utc in UTC, whose cells are seconds since 1970; date: days; list: of texts.
"""
import csv
import struct
import sys

TRUE, FALSE, I32, I64, BINARY, LIST, STRUCT = 1, 2, 5, 6, 8, 9, 12
DOUBLE, BYTES = 5, 6  # types of Parquet


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def value(kind, v):
    """A value in Thrift's compact protocol; an object is {field: (kind, value)}, a list (kind, values)."""
    if kind in (TRUE, FALSE):
        return b""
    if kind in (I32, I64):
        return varint(2 * v)
    if kind == BINARY:
        return varint(len(v)) + v
    if kind == LIST:
        return bytes([len(v[1]) << 4 | v[0]]) if len(v[1]) < 15 else bytes([0xF0 | v[0]]) + varint(len(v[1]))
    last, out = 0, b""
    for field, (of, inner) in sorted(v.items()):
        out += bytes([(field - last) << 4 | of]) + value(of, inner)
        if of == LIST:
            out += b"".join(value(inner[0], item) for item in inner[1])
        last = field
    return out + b"\0"


def number(text):
    return float("nan") if text == "NA" else float(text)


def encode(cells):
    """Type and bytes of a column."""
    try:
        return DOUBLE, b"".join(struct.pack("<d", number(c)) for c in cells)
    except ValueError:
        return BYTES, b"".join(struct.pack("<I", len(c.encode())) + c.encode() for c in cells)


UNITS = {"ms": 1, "us": 2, "ns": 3}


def encode_times(cells, kind):
    """Type, bytes and logical type of a column of times or dates."""
    if kind == "date":
        return 1, b"".join(struct.pack("<i", int(c) // 86400) for c in cells), {6: (STRUCT, {})}
    unit, _, zone = kind.partition("+")
    time = {1: (TRUE if zone else FALSE, None), 2: (STRUCT, {UNITS[unit]: (STRUCT, {})})}
    return 2, b"".join(struct.pack("<q", int(c) * 1000 ** UNITS[unit]) for c in cells), {8: (STRUCT, time)}


types = dict(a.split("=") for a in sys.argv[3:])
with open(sys.argv[1], encoding="utf-8", newline="") as file:
    header, *rows = csv.reader(file)
out = b"PAR1"
schema = [{4: (BINARY, b"schema"), 5: (I32, len(header))}]
chunks = []
for i, name in enumerate(header):
    cells = [row[i] for row in rows]
    logical = None
    if types.get(name, "list") == "list":
        kind, data = encode(cells)
    else:
        kind, data, logical = encode_times(cells, types[name])
    if types.get(name) == "list":
        schema += [{3: (I32, 0), 4: (BINARY, name.encode()), 5: (I32, 1), 6: (I32, 3)},
                   {3: (I32, 2), 4: (BINARY, b"list"), 5: (I32, 1)}]
    schema.append({1: (I32, kind), 3: (I32, 0), 4: (BINARY, b"element" if types.get(name) == "list" else name.encode())})
    if logical is not None:
        schema[-1][10] = (STRUCT, logical)
    if kind == BYTES:
        schema[-1][6] = (I32, 0)  # UTF-8
    page = {1: (I32, len(rows)), 2: (I32, 0), 3: (I32, 3), 4: (I32, 3)}
    head = value(STRUCT, {1: (I32, 0), 2: (I32, len(data)), 3: (I32, len(data)), 5: (STRUCT, page)})
    size = len(head) + len(data)
    meta = {1: (I32, kind), 2: (LIST, (I32, [0])), 3: (LIST, (BINARY, [name.encode()])), 4: (I32, 0), 5: (I64, len(rows)),
            6: (I64, size), 7: (I64, size), 9: (I64, len(out))}
    chunks.append({2: (I64, len(out)), 3: (STRUCT, meta)})
    out += head + data
group = {1: (LIST, (STRUCT, chunks)), 2: (I64, len(out) - 4), 3: (I64, len(rows))}
footer = value(STRUCT, {1: (I32, 2), 2: (LIST, (STRUCT, schema)), 3: (I64, len(rows)), 4: (LIST, (STRUCT, [group]))})
with open(sys.argv[2], "wb") as file:
    file.write(out + footer + struct.pack("<I", len(footer)) + b"PAR1")
