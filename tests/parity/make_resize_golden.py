"""Writes golden/resize.json: images that Pillow has resized, as the image processors of transformers ask it to.

    pip install pillow
    python3 tests/parity/make_resize_golden.py

The pixels of an image follow from their places (tests/unit/formats/test_image_fit.c makes the same ones).
"""

import json
import os

from PIL import Image

FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "nearest": Image.Resampling.NEAREST,
}


def picture(height, width):
    """Noise, edges and a slope, u8, in one channel."""
    pixels = bytes(
        (x * 5 + y * 3 + (x * y % 7) * 29 + (x // 3 + y // 4) % 2 * 90 + x * x * y % 11) % 256
        for y in range(height)
        for x in range(width)
    )
    return Image.frombytes("L", (width, height), pixels)


def crop(image, height, width, edge, resample):
    """transformers.image_transforms: get_resize_output_image_size, then center_crop."""
    w, h = image.size
    short, long = (w, h) if w <= h else (h, w)
    new_long = int(edge * long / short)
    new_w, new_h = (edge, new_long) if w <= h else (new_long, edge)
    image = image.resize((new_w, new_h), resample)
    top = (new_h - height) // 2
    left = (new_w - width) // 2
    return image.crop((left, top, left + width, top + height))


cases = []
for h, w in [(8, 8), (16, 16), (5, 3), (33, 20), (20, 33), (64, 7), (1, 1), (150, 201)]:
    for height, width, edge in [(8, 8, 8), (12, 8, 12), (7, 9, 9), (8, 8, 11)]:
        for name, resample in FILTERS.items():
            source = picture(h, w)
            stretched = source.resize((width, height), resample)
            cases.append(
                {
                    "from": [h, w],
                    "to": [height, width, edge],
                    "resample": name,
                    "stretch": stretched.tobytes().hex(),
                    "crop": crop(source, height, width, edge, resample).tobytes().hex(),
                }
            )
out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "resize.json")
with open(out, "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
