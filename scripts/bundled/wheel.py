"""Makes a wheel of a bundle's folder: wheel.py FOLDER VERSION LEVEL OUT. The program comes into the environment's bin/,
the rest into lib/banyan/ and share/banyan/; none of it is Python."""
import base64
import hashlib
import os
import sys
import time
import zipfile

folder, version, level, out = sys.argv[1:]
tag = "py3-none-manylinux_2_31_x86_64"
info = f"banyan-{version}.dist-info/"
data = f"banyan-{version}.data/"
# Archives start at 1980.
date = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
# What only tests a GPU is left out.
places = {"lib/banyan/test_cuda_kernels": None, "scripts/": None, "bench/": None, "bin/": data + "scripts/", "lib/": data + "data/lib/", "examples/": data + "data/share/banyan/examples/",
          "licenses/": info + "licenses/licenses/", "LICENSE": info + "licenses/LICENSE", "README.md": None}


def place(path):
    for start, to in places.items():
        if path.startswith(start):
            return to and to + path[len(start):]
    raise SystemExit(f"wheel: there is no place for {path}")


record = []
compression = zipfile.ZIP_STORED if level == "1" else zipfile.ZIP_DEFLATED
with zipfile.ZipFile(f"{out}/banyan-{version}-{tag}.whl", "w", compression, compresslevel=9) as wheel:
    def add(name, content, mode=0o644):
        entry = zipfile.ZipInfo(name, date)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = compression
        wheel.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}\n")

    for top, folders, files in os.walk(folder):
        folders.sort()
        for file in sorted(files):
            path = os.path.join(top, file)
            to = place(os.path.relpath(path, folder))
            if to:
                with open(path, "rb") as f:
                    add(to, f.read(), os.stat(path).st_mode & 0o777)
    with open(os.path.join(folder, "README.md"), encoding="utf-8") as f:
        readme = f.read()
    add(info + "METADATA", (f"Metadata-Version: 2.1\nName: banyan\nVersion: {version}\n"
                            "Summary: Trains, compresses and serves deep-learning models with one binary\n"
                            "License: Apache-2.0\nDescription-Content-Type: text/markdown\n\n" + readme).encode())
    add(info + "WHEEL", f"Wheel-Version: 1.0\nGenerator: banyan\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
    wheel.writestr(zipfile.ZipInfo(info + "RECORD", date), "".join(record) + info + "RECORD,,\n")
