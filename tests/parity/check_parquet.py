#!/usr/bin/env python3
"""Parquet files that pyarrow writes hold what banyan reads: types, nulls, dictionaries, pages of both versions, codecs,
row groups.

    check_parquet.py TABLE_TOOL WORK     WORK: an empty directory for files
"""
import datetime
import decimal
import itertools
import json
import math
import os
import random
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq

TOOL, WORK = sys.argv[1:3]
ROWS = 5000
EPOCH = datetime.date(1970, 1, 1)


def fail(message):
    print(f"check_parquet: {message}", file=sys.stderr)
    sys.exit(1)


def make(rows, nulls):
    draw = random.Random(rows * 2 + nulls)
    def some(value):
        return [None if nulls and draw.random() < 0.2 else value(i) for i in range(rows)]
    words = ["NA", "null"] + [f"word {i} \u00e9" for i in range(300)]
    columns = {
        "flag": (pa.bool_(), lambda i: draw.random() < 0.3),
        "i8": (pa.int8(), lambda i: draw.randrange(-128, 128)),
        "u16": (pa.uint16(), lambda i: draw.randrange(65536)),
        "i32": (pa.int32(), lambda i: draw.randrange(-2**31, 2**31)),
        "u32": (pa.uint32(), lambda i: draw.randrange(2**32)),
        "i64": (pa.int64(), lambda i: draw.randrange(-2**62, 2**62)),
        "f32": (pa.float32(), lambda i: draw.choice([0.5, -1.25, 3e7])),
        "f64": (pa.float64(), lambda i: draw.gauss(0, 1)),
        "few": (pa.string(), lambda i: draw.choice(words)),
        "many": (pa.string(), lambda i: f"text {draw.random()}"),
        "runs": (pa.string(), lambda i: words[i // 700]),
        "day": (pa.date32(), lambda i: EPOCH + datetime.timedelta(days=draw.randrange(-20000, 40000))),
        "price": (pa.decimal128(9, 2), lambda i: decimal.Decimal(draw.randrange(-10**8, 10**8)).scaleb(-2)),
        "large": (pa.decimal128(30, 4), lambda i: decimal.Decimal(draw.randrange(-10**14, 10**14)).scaleb(-4)),
        "when": (pa.timestamp("us"), lambda i: datetime.datetime(2020, 1, 1) + datetime.timedelta(microseconds=draw.randrange(10**15))),
        "none": (pa.float64(), lambda i: None),
    }
    return pa.table({name: pa.array(some(value), type) for name, (type, value) in columns.items()})


def expected(value, unit):
    if value in (None, "", "NA", "null"):
        return None
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime.datetime):
        delta = value - datetime.datetime(1970, 1, 1)
        return (delta.days * 86400 + delta.seconds) * 10**6 * unit + delta.microseconds * unit
    if isinstance(value, datetime.date):
        return (value - EPOCH).days
    return float(value) if isinstance(value, decimal.Decimal) else value


def check(what, table, path, unit=1):
    done = subprocess.run([TOOL, path], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{what}: {done.stderr}")
    got = [json.loads(line) for line in done.stdout.splitlines()]
    if [c["name"] for c in got] != table.column_names:
        fail(f"{what}: columns {[c['name'] for c in got]}")
    for column in got:
        want = [expected(v, unit) for v in table[column["name"]].to_pylist()]
        if len(want) != len(column["values"]):
            fail(f"{what}: {column['name']} has {len(column['values'])} values")
        for row, (a, b) in enumerate(zip(column["values"], want)):
            same = a == b or (isinstance(b, (int, float)) and a is not None and
                              math.isclose(a, b, rel_tol=2e-16 if isinstance(b, int) else 1e-15))
            if not same:
                fail(f"{what}: {column['name']}, row {row}: {a}, not {b}")


def refused(what, table, message, **options):
    path = f"{WORK}/refused.parquet"
    pq.write_table(table, path, **options)
    done = subprocess.run([TOOL, path], capture_output=True, text=True)
    if done.returncode != 1 or message not in done.stderr:
        fail(f"{what}: exit code {done.returncode}: {done.stderr}")


count = 0
for rows, nulls in ((1, False), (7, True), (ROWS, False), (ROWS, True)):
    table = make(rows, nulls)
    for codec, version, dictionary in itertools.product(("none", "snappy", "gzip", "zstd"), ("1.0", "2.0"), (True, False)):
        path = f"{WORK}/a.parquet"
        pq.write_table(table, path, compression=codec, data_page_version=version, use_dictionary=dictionary,
                       row_group_size=1700, data_page_size=4096, write_page_checksum=count % 2 == 0,
                       dictionary_pagesize_limit=3000)
        check(f"{rows} rows, nulls {nulls}, {codec}, pages {version}, dictionary {dictionary}", table, path)
        count += 1
pq.write_table(table, path, use_deprecated_int96_timestamps=True)
check("INT96", table, path, unit=1000)

nested = pa.table({"a": [{"x": 1, "y": None}, None, {"x": 3, "y": "b"}]})
pq.write_table(nested, path)
done = subprocess.run([TOOL, path], capture_output=True, text=True)
got = [json.loads(line) for line in done.stdout.splitlines()]
if [(c["name"], c["values"]) for c in got] != [("a.x", [1, None, 3]), ("a.y", [None, None, "b"])]:
    fail(f"a struct: {done.stdout}{done.stderr}")

refused("a list", pa.table({"a": [[1, 2], [3]]}), "it is a list or a map")
refused("another codec", pa.table({"a": [1, 2]}), "compressed by LZ4", compression="lz4")
refused("another encoding", pa.table({"a": [1, 2]}), "has encoding 5", use_dictionary=False,
        column_encoding={"a": "DELTA_BINARY_PACKED"})

# Parts of a table, with columns in another order, an empty part, and some whose column is all null, the first one too.
table = make(3000, True).drop_columns(["none"])
parts = [table.slice(0, 1000), table.slice(0, 0), table.slice(1000, 999).select(sorted(table.column_names)),
         table.slice(1999, 1), table.slice(2000)]
parts[3] = parts[3].set_column(parts[3].column_names.index("few"), "few", pa.array([None], pa.int32()))
parts[0] = parts[0].set_column(parts[0].column_names.index("few"), "few", pa.array([None] * 1000, pa.int32()))
os.makedirs(f"{WORK}/table")
for number, part in enumerate(parts):
    pq.write_table(part, f"{WORK}/table/part-{number}.parquet")
open(f"{WORK}/table/_SUCCESS", "w").close()
few = table["few"].to_pylist()
few[:1000] = [None] * 1000
few[1999] = None
whole = table.set_column(table.column_names.index("few"), "few", pa.array(few, pa.string()))
check("a directory", whole, f"{WORK}/table")
pq.write_table(table.drop_columns(["few"]), f"{WORK}/table/part-9.parquet")
done = subprocess.run([TOOL, f"{WORK}/table"], capture_output=True, text=True)
if done.returncode != 1 or "other columns" not in done.stderr:
    fail(f"parts with other columns: {done.stderr}")

# A table to train on, as CSV and as parts: rows of both have the same bits.
draw = random.Random(5)
rows = [{"size": draw.gauss(0, 9), "place": draw.choice(["a", "b", "NA", ""]), "price": draw.random()}
        for _ in range(120)]
with open(f"{WORK}/train.csv", "w") as file:
    file.writelines(["size,place,price\n"] + [f"{r['size']!r},{r['place']},{r['price']!r}\n" for r in rows])
os.makedirs(f"{WORK}/train.parts")
for part in range(3):
    pq.write_table(pa.Table.from_pylist(rows[part * 40:][:40]), f"{WORK}/train.parts/part-{part}.parquet")

# Texts to pack, and the same ones as JSON lines; as parts in a directory; rows without a text.
texts = [f"line {i} \u00e9 \"quoted\"\\ \n\t\U0001f600" + "x" * (i % 90) for i in range(3000)] + [""]
with open(f"{WORK}/texts.jsonl", "w") as file:
    file.writelines(json.dumps({"body": t}, ensure_ascii=False) + "\n" for t in texts)
pq.write_table(pa.table({"id": range(len(texts)), "body": texts}), f"{WORK}/texts.parquet", row_group_size=700)
os.makedirs(f"{WORK}/parts")
for part in range(3):
    rows = texts[part * 1000:(part + 1) * 1000 + part // 2]
    pq.write_table(pa.table({"body": rows}), f"{WORK}/parts/part-{part}.parquet")
open(f"{WORK}/parts/_SUCCESS", "w").close()
pq.write_table(pa.table({"body": ["a", None, "b"]}), f"{WORK}/nulls.parquet")
pq.write_table(pa.table({"body": pa.array([b"a", b"\xff"], pa.binary())}), f"{WORK}/bytes.parquet")

# A flipped bit in a page is found by the page's checksum; anywhere else it never harms more than the values.
pq.write_table(make(50, True), path, write_page_checksum=True)
data = bytearray(open(path, "rb").read())
for at in range(4, len(data), len(data) // 40):
    data[at] ^= 4
    with open(f"{WORK}/flipped.parquet", "wb") as file:
        file.write(data)
    data[at] ^= 4
    done = subprocess.run([TOOL, f"{WORK}/flipped.parquet"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        fail(f"byte {at} flipped: exit code {done.returncode}: {done.stderr}")
print(f"{count} files read alike")
