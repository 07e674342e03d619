#!/usr/bin/env python3
"""Draws pictures of shapes, and the classes of their pixels, to train a segmentation on.

    make_shapes.py DIR [COUNT]    DIR/images/NNNN.png in colours and DIR/masks/NNNN.png with a palette,
                                  64 x 64: 0 background, 1 disk, 2 square, 3 triangle, 255 their edges
"""
import os
import random
import struct
import sys
import zlib

SIDE = 64
PALETTE = bytes((0, 0, 0, 200, 40, 40, 40, 160, 60, 60, 80, 220)) + bytes(252 * 3)


def png(kind, rows, palette=b""):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, kind, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 6)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + (chunk(b"PLTE", palette) if palette else b"") +
            chunk(b"IDAT", body) + chunk(b"IEND", b""))


def depth_in(shape, x, y):
    """How far (x, y) is inside a shape, in pixels; negative outside."""
    kind, cx, cy, size = shape
    dx, dy = x - cx, y - cy
    if kind == 1:
        return size - (dx * dx + dy * dy) ** 0.5
    if kind == 2:
        return size - max(abs(dx), abs(dy))
    return min(size - dy, (size + dy - 2 * abs(dx)) / 5 ** 0.5)


def draw(rng):
    shapes = [(rng.choice((1, 2, 3)), rng.uniform(8, SIDE - 8), rng.uniform(8, SIDE - 8), rng.uniform(7, 14))
              for _ in range(rng.randrange(1, 4))]
    colours = [[rng.randrange(60, 256) for _ in range(3)] for _ in shapes]
    ground = [rng.randrange(0, 120) for _ in range(3)]
    image, mask = [], []
    for y in range(SIDE):
        pixels, classes = bytearray(), bytearray()
        for x in range(SIDE):
            colour, label = ground, 0
            for shape, own in zip(shapes, colours):
                depth = depth_in(shape, x, y)
                if depth > -0.5:
                    colour, label = (own, shape[0]) if depth > 0.5 else (colour, 255)
            noise = rng.randrange(-25, 26)
            pixels += bytes(min(255, max(0, c + noise)) for c in colour)
            classes.append(label)
        image.append(bytes(pixels))
        mask.append(bytes(classes))
    return png(2, image), png(3, mask, PALETTE)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 600
    rng = random.Random(7)
    for name in ("images", "masks"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    for i in range(count):
        for name, data in zip(("images", "masks"), draw(rng)):
            with open(os.path.join(folder, name, f"{i:04}.png"), "wb") as out:
                out.write(data)


if __name__ == "__main__":
    main()
