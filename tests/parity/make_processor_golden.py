"""Writes golden/processors.json: what the image processors of transformers make of pictures, with Pillow.

    pip install transformers torch torchvision pillow
    python3 tests/parity/make_processor_golden.py

The pixels of a picture follow from their places (tests/unit/data/test_pixel_scales.c makes the same ones).
"""

import json
import os

import numpy
import transformers

MEAN = dict(image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])
SQUARE = dict(size={"height": 6, "width": 9})

CASES = [
    ("ViTImageProcessor", dict(SQUARE)),
    ("ViTImageProcessor", dict(SQUARE, resample=0, **MEAN)),
    ("ViTImageProcessor", dict(size=7, resample=3, image_mean=0.25, image_std=0.5)),
    ("ViTImageProcessor", dict(size=[5, 7], do_normalize=False)),
    ("ViTImageProcessor", dict(SQUARE, do_normalize=False, do_rescale=False)),
    ("ViTImageProcessor", dict(SQUARE, do_rescale=False, image_mean=[120.0, 110.0, 100.0], image_std=[60, 61, 62])),
    ("ViTImageProcessor", dict(SQUARE, rescale_factor=1 / 127.5, image_mean=[1.0] * 3, image_std=[1.0] * 3)),
    ("ViTFeatureExtractor", dict(size=6, do_resize=True, do_normalize=True, **MEAN)),
    ("DeiTImageProcessor", dict(size=11, crop_size=8)),
    ("DeiTImageProcessor", dict(size=dict(height=12, width=9), crop_size=dict(height=7, width=8), resample=2)),
    ("CLIPImageProcessor", dict(size=9, crop_size=8)),
    ("CLIPImageProcessor", dict(size=9, crop_size=dict(height=6, width=4), do_convert_rgb=None)),
    ("BitImageProcessor", dict(size=dict(shortest_edge=8), crop_size=8, resample=0)),
    ("MobileNetV2ImageProcessor", dict(size=dict(shortest_edge=10), crop_size=dict(height=8, width=8))),
    ("ConvNextFeatureExtractor", dict(size=8, crop_pct=0.875, resample=3, **MEAN)),
    ("ConvNextImageProcessor", dict(size=dict(shortest_edge=7), **MEAN)),
    ("ConvNextImageProcessor", dict(size=dict(shortest_edge=9), crop_pct=0.6, resample=2)),
    ("EfficientNetImageProcessor", dict(SQUARE)),
    ("EfficientNetImageProcessor", dict(SQUARE, include_top=False, resample=0, **MEAN)),
    (
        "EfficientNetImageProcessor",
        dict(SQUARE, include_top=True, resample=0, image_mean=MEAN["image_mean"], image_std=[0.479, 0.473, 0.474]),
    ),
    ("EfficientNetImageProcessor", dict(SQUARE, rescale_factor=1 / 127.5, rescale_offset=True, **MEAN)),
    ("EfficientNetImageProcessor", dict(SQUARE, rescale_factor=1 / 127.5, rescale_offset=True, do_normalize=False)),
    ("EfficientNetImageProcessor", dict(size=12, crop_size=8, do_center_crop=True, include_top=False)),
]


def picture(height, width):
    """Noise, edges and a slope, u8, in three channels."""
    return numpy.array(
        [
            [
                [
                    (x * 5 + y * 3 + (x * y % 7) * 29 + (x // 3 + y // 4) % 2 * 90 + x * x * y % 11 + c * 40) % 256
                    for x in range(width)
                ]
                for y in range(height)
            ]
            for c in range(3)
        ],
        dtype=numpy.uint8,
    )


def main():
    rows = []
    for i, (kind, keys) in enumerate(CASES):
        name = kind.replace("FeatureExtractor", "ImageProcessor") + "Pil"
        processor = getattr(transformers, name)(**keys)
        key = "feature_extractor_type" if "Feature" in kind else "image_processor_type"
        text = json.dumps({key: kind, **keys})
        for height, width in ((13, 30), (29, 16), (14, 19))[i % 2 :]:
            values = processor(picture(height, width), input_data_format="channels_first", return_tensors="np")
            values = values["pixel_values"][0]
            numbers = [float(f"{v:.7g}") for v in values.astype(numpy.float64).reshape(-1)]
            rows.append([text, [height, width], list(values.shape), numbers])
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "processors.json"), "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
