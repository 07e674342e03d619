#!/usr/bin/env python3
"""Whether every matrix of blocks in a .safetensors file of GPT-2 has two zeros in every four neighbouring inputs.

    count_zeros.py FILE [OTHER]     with OTHER: and the zeros are at the same places
"""
import array
import json
import struct
import sys


def layers(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        for name, entry in sorted(header.items()):
            if ".weight" not in name or ".h." not in "." + name or len(entry["shape"]) != 2:
                continue
            begin, end = entry["data_offsets"]
            file.seek(8 + length + begin)
            values = array.array("f")
            values.frombytes(file.read(end - begin))
            yield name.removeprefix("transformer."), entry["shape"], [value == 0.0 for value in values]


def main():
    found = {name: zeros for name, (inputs, outputs), zeros in layers(sys.argv[1])
             if all(sum(zeros[(i + m) * outputs + j] for m in range(4)) == 2
                    for i in range(0, inputs, 4) for j in range(outputs))}
    every = [name for name, _, _ in layers(sys.argv[1])]
    if not every or sorted(found) != sorted(every):
        sys.exit(f"not 2:4: {sorted(set(every) - set(found)) or 'nothing'}")
    for path in sys.argv[2:]:
        if {name: zeros for name, _, zeros in layers(path)} != found:
            sys.exit(f"{path} has other zeros")


main()
