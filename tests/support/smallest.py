"""A program without some optional parts: configured so, from the sources that are then left.

    python3 smallest.py SOURCE BUILD OUT [PART...]      without PART..., or without any

What BUILD compiled from the same sources is linked as it is, so only the files that stand in for a part are compiled
here, to OUT/banyan. An object that saw a header of an optional library is an error: it would not compile without.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys

PARTS = "MPI SERVER CURL PLOTS JPEG PNG WEBP ZLIB SNAPPY ZSTD NETTLE PCRE2 ONEDNN".split()
HEADERS = re.compile(
    r"/(cairo|curl|uv|nettle|hiredis|oneapi|openmpi|webp)/|"
    r"/(cairo\S*|uv|seccomp|jpeglib|png|zlib|snappy-c|zstd|pcre2|mpi)\.h$"
)


def commands_of(build):
    return {
        (entry["file"], "/banyan_cli.dir/" in entry["command"]): entry
        for entry in json.loads((build / "compile_commands.json").read_text())
        if "/src/" in entry["file"] and "/src/device/cpu/kernels/" not in entry["file"]
    }


def object_of(entry):
    words = shlex.split(entry["command"])
    return pathlib.Path(entry["directory"]) / words[words.index("-o") + 1]


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def check_headers(build, objects):
    listing = subprocess.run(
        ["ninja", "-C", str(build), "-t", "deps"], check=True, stdout=subprocess.PIPE, universal_newlines=True
    ).stdout
    for block in listing.split("\n\n"):
        target, _, headers = block.partition(":")
        found = [line for line in headers.split() if HEADERS.search(line) and "/src/" not in line]
        if found and build / target in objects:
            sys.exit(f"{target} includes {found[0]}, which the smallest build may lack")


def main(source, build, out, parts):
    smallest = out / "smallest"
    compiler = re.search(r"^CMAKE_C_COMPILER:\w+=(.*)", (build / "CMakeCache.txt").read_text(), re.M).group(1)
    options = [f"-DCMAKE_C_COMPILER={compiler}", "-DBY_TESTS=OFF", "-DBY_KERNEL_LEVELS=baseline", "-DBY_WERROR=ON"]
    run("cmake", "-S", source, "-B", smallest, "-G", "Ninja", *options, *[f"-DBY_WITH_{part}=off" for part in parts])
    whole, objects, reused = commands_of(build), [], set()
    for key, entry in commands_of(smallest).items():
        if key in whole and not key[0].endswith("/base/build.c"):
            objects.append(object_of(whole[key]))
            reused.add(objects[-1])
        else:
            objects.append(object_of(entry))
            objects[-1].parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(entry["command"], cwd=entry["directory"], shell=True, check=True)
    # What the build writes, such as the table of the GPU's kernels, is the same for every choice of parts.
    objects += (build / "CMakeFiles/banyan.dir/generated").glob("*.o")
    if parts == PARTS:
        check_headers(build, reused)
    kernels = build.rglob("kernels_*/**/*.o")
    link = subprocess.run(
        ["ninja", "-C", str(smallest), "-t", "commands", "banyan"],
        check=True, stdout=subprocess.PIPE, universal_newlines=True,
    ).stdout.strip().split("\n")[-1]  # fmt: skip
    libraries = [word for word in link.split(" -o banyan ")[1].split() if word not in ("libbanyan.a", "&&", ":")]
    run(compiler, "-o", out / "banyan", *objects, *kernels, *libraries)


if __name__ == "__main__":
    main(*[pathlib.Path(word).resolve() for word in sys.argv[1:4]], sys.argv[4:] or PARTS)
