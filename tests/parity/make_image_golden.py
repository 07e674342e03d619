"""Writes golden/images.json: PNG, JPEG and WebP files of all kinds, and what Pillow converts them to.

    pip install pillow
    python3 tests/parity/make_image_golden.py
"""

import base64
import io
import json
import os
import struct
import zlib

from PIL import Image

WIDTH, HEIGHT = 9, 7
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by the kind of a PNG
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def sample(x, y, c, bits):
    return (x * 37 + y * 101 + c * 59 + x * y * 13) * 257 % 65536 >> (16 - bits)


def row(xs, y, kind, bits):
    values = [sample(x, y, c, bits) for x in xs for c in range(SAMPLES[kind])]
    if bits == 16:
        return struct.pack(f">{len(values)}H", *values)
    text = "".join(f"{v:0{bits}b}" for v in values)
    text += "0" * (-len(text) % 8)
    return bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8))


def png(kind, bits, interlaced=False, extra=b""):
    if interlaced:
        rows = []
        for x0, y0, dx, dy in ADAM7:
            xs = range(x0, WIDTH, dx)
            rows += [row(xs, y, kind, bits) for y in range(y0, HEIGHT, dy) if len(xs)]
    else:
        rows = [row(range(WIDTH), y, kind, bits) for y in range(HEIGHT)]
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, bits, kind, 0, 0, interlaced))
    out += extra
    if kind == 3:
        colours = range(min(2**bits, 200))
        out += chunk(b"PLTE", bytes(v % 256 for i in colours for v in (i * 83, 255 - i * 41, i * 7 + 30)))
        out += chunk(b"tRNS", bytes(i * 60 % 256 for i in list(colours)[:3]))
    if kind in (0, 2):
        out += chunk(b"tRNS", b"\0\0" * SAMPLES[kind])
    data = b"".join(b"\0" + r for r in rows)
    return out + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")


def picture(mode):
    bands = len(mode) if mode != "L" else 1
    data = bytes(sample(x, y, c, 8) for y in range(HEIGHT) for x in range(WIDTH) for c in range(bands))
    return Image.frombytes(mode, (WIDTH, HEIGHT), data)


def jpeg(mode, **options):
    out = io.BytesIO()
    picture(mode).save(out, "JPEG", quality=90, **options)
    return out.getvalue()


def webp(mode, **options):
    out = io.BytesIO()
    picture(mode).save(out, "WEBP", **options)
    return out.getvalue()


def adobe(data, transform):
    """The file with Adobe's marker, which says how its components are to be read."""
    marker = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00" + bytes([transform])
    at = 2
    while data[at + 1] in (0xE0, 0xEE):  # JFIF, and a marker of that kind
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return data[:2] + marker + data[at:]


def files():
    for kind, all_bits in [(0, (1, 2, 4, 8, 16)), (2, (8, 16)), (3, (1, 2, 4, 8)), (4, (8, 16)), (6, (8, 16))]:
        for bits in all_bits:
            yield f"png {kind} {bits}", png(kind, bits)
            yield f"png {kind} {bits} interlaced", png(kind, bits, True)
    gamma = chunk(b"gAMA", struct.pack(">I", 100000)) + chunk(b"sRGB", b"\0") + chunk(b"sBIT", b"\5\5\5")
    yield "png 2 8 gamma", png(2, 8, extra=gamma)
    yield "png 0 8 gamma", png(0, 8, extra=chunk(b"gAMA", struct.pack(">I", 100000)))
    yield "jpeg grey", jpeg("L")
    for name, subsampling in [("444", 0), ("422", 1), ("420", 2)]:
        yield f"jpeg {name}", jpeg("RGB", subsampling=subsampling)
    yield "jpeg progressive", jpeg("RGB", progressive=True)
    yield "jpeg rgb", adobe(jpeg("RGB", subsampling=0), 0)
    yield "jpeg cmyk", jpeg("CMYK")
    yield "jpeg cmyk adobe", adobe(jpeg("CMYK"), 0)
    yield "jpeg ycck", adobe(jpeg("CMYK"), 2)
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "jpeg turned", jpeg("RGB", exif=exif)
    yield "webp", webp("RGB", quality=80)
    yield "webp alpha", webp("RGBA", quality=80, exact=True)
    yield "webp lossless", webp("RGB", lossless=True)
    yield "webp lossless alpha", webp("RGBA", lossless=True, exact=True)
    yield "webp turned", webp("RGB", quality=60, exif=exif)


def values(data, mode):
    with Image.open(io.BytesIO(data)) as image:
        return image.convert(mode).tobytes().hex()


def main():
    rows = [
        [name, base64.b64encode(data).decode(), values(data, "L"), values(data, "RGB")] for name, data in files()
    ]
    with open(os.path.join(os.path.dirname(__file__), "golden", "images.json"), "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


main()
