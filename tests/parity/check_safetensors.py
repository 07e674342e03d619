#!/usr/bin/env python3
"""Compares the golden .safetensors files with what the Python library of the format writes.

  pip install safetensors==0.5.3
  tests/parity/check_safetensors.py            # compare with the committed files
  tests/parity/check_safetensors.py --write    # make them anew

tests/unit/formats/test_safetensors.c reads the golden files and writes the same tensors byte for byte, so
agreement here means that the library and banyan read and write each other's files.
"""
import struct
import sys
from pathlib import Path

from safetensors import deserialize, serialize

GOLDEN = Path(__file__).resolve().parent / "golden"


def tensor(dtype, shape, data):
    return {"dtype": dtype, "shape": shape, "data": data}


def ramp(code, count, scale=1):
    return struct.pack(f"<{count}{code}", *[scale * (i - 1) for i in range(count)])


def bfloat16(count):
    return b"".join(struct.pack("<f", 0.5 * (i - 1))[2:] for i in range(count))


# Every type that banyan has, a scalar, an empty tensor, and a name outside ASCII.
OWN = {
    "wte.weight": tensor("float32", [3, 4], ramp("f", 12, 0.25)),
    "ln_f.bias": tensor("float32", [4], ramp("f", 4, 0.5)),
    "half": tensor("float16", [5], ramp("e", 5, 0.5)),
    "brain": tensor("bfloat16", [2, 3], bfloat16(6)),
    "ids": tensor("int32", [3], ramp("i", 3)),
    "bytes": tensor("uint8", [7], bytes(range(7))),
    "mask": tensor("bool", [2, 2], bytes([1, 0, 1, 1])),
    "scalar": tensor("float32", [], ramp("f", 1, 3)),
    "empty": tensor("float32", [0, 4], b""),
    "größe": tensor("float32", [1], ramp("f", 1, 7)),
}
# Types that banyan lacks, with one that it has.
FOREIGN = {
    "position_ids": tensor("int64", [1, 3], ramp("q", 3)),
    "double": tensor("float64", [2], ramp("d", 2)),
    "weight": tensor("float32", [2], ramp("f", 2)),
}


def main():
    files = {
        "types.safetensors": serialize(OWN, {"format": "pt"}),
        "foreign.safetensors": serialize(FOREIGN, None),
    }
    for name, content in files.items():
        path = GOLDEN / name
        if "--write" in sys.argv[1:]:
            path.write_bytes(content)
        elif path.read_bytes() != content:
            sys.exit(f"{path} differs from what safetensors writes")
        found = {key: bytes(value["data"]) for key, value in deserialize(path.read_bytes())}
        source = OWN if name == "types.safetensors" else FOREIGN
        if found != {key: value["data"] for key, value in source.items()}:
            sys.exit(f"{path} reads back differently")
        print(f"{path.name}: {len(content)} bytes agree")


if __name__ == "__main__":
    main()
