"""Writes golden/transforms.json: images that Pillow has changed, as torchvision's transforms ask it to.

    pip install pillow
    python3 tests/parity/make_transform_golden.py

The pixels of an image follow from their places (tests/unit/data/test_operations.c makes the same ones).
"""

import json
import os

from PIL import Image, ImageEnhance, ImageOps

HEIGHT, WIDTH = 9, 14


def picture(channels):
    """Noise and a slope, u8, and in the last rows one colour."""
    planes = [
        Image.frombytes(
            "L",
            (WIDTH, HEIGHT),
            bytes(
                90 + 30 * c if y >= HEIGHT - 2 else (x * 17 + y * 9 + c * 71 + (x * y + c) % 5 * 37) % 230 + 11
                for y in range(HEIGHT)
                for x in range(WIDTH)
            ),
        )
        for c in range(channels)
    ]
    return planes[0] if channels == 1 else Image.merge("RGB", planes)


def hue(image, factor):
    h, s, v = image.convert("HSV").split()
    turned = bytes((b + int(factor * 255.0)) & 255 for b in h.tobytes())
    return Image.merge("HSV", (Image.frombytes("L", h.size, turned), s, v)).convert("RGB")


def move(image, matrix):
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


OPERATIONS = {
    "shear_x": lambda i, a: move(i, (1, a, 0, 0, 1, 0)),
    "shear_y": lambda i, a: move(i, (1, 0, 0, a, 1, 0)),
    "translate_x": lambda i, a: move(i, (1, 0, -a, 0, 1, 0)),
    "translate_y": lambda i, a: move(i, (1, 0, 0, 0, 1, -a)),
    "rotate": lambda i, a: i.rotate(a, Image.Resampling.NEAREST),
    "brightness": lambda i, a: ImageEnhance.Brightness(i).enhance(a),
    "contrast": lambda i, a: ImageEnhance.Contrast(i).enhance(a),
    "color": lambda i, a: ImageEnhance.Color(i).enhance(a),
    "sharpness": lambda i, a: ImageEnhance.Sharpness(i).enhance(a),
    "hue": hue,
    "posterize": lambda i, a: ImageOps.posterize(i, int(a)),
    "solarize": lambda i, a: ImageOps.solarize(i, a),
    "autocontrast": lambda i, a: ImageOps.autocontrast(i),
    "equalize": lambda i, a: ImageOps.equalize(i),
    "invert": lambda i, a: ImageOps.invert(i),
}
AMOUNTS = {
    "shear_x": [0.3, -0.19],
    "shear_y": [0.27, -0.3],
    "translate_x": [3, -5],
    "translate_y": [2, -4],
    "rotate": [7.5, -30, 90, 141.0],
    "brightness": [0.1, 1.3, 1.9],
    "contrast": [0.0, 0.55, 1.9],
    "color": [0.3, 1.45],
    "sharpness": [0.1, 1.9],
    "hue": [0.1, -0.37, 0.5],
    "posterize": [1, 4, 8],
    "solarize": [0, 100.5, 255],
}

cases = []
for name, change in OPERATIONS.items():
    for amount in AMOUNTS.get(name, [0]):
        for channels in (1, 3):
            if channels == 1 and name in ("color", "hue"):
                continue
            changed = change(picture(channels), amount)
            planes = b"".join(band.tobytes() for band in changed.split())
            cases.append({"operation": name, "amount": float(amount), "channels": channels, "pixels": planes.hex()})
out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "transforms.json")
with open(out, "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
