# Sourced by the scripts that make an environment of Python packages.
#
#   open_env DIRECTORY     ends the script when this version of it has made DIRECTORY; else makes it
#   install ARGUMENT...    installs packages there; the arguments are pip's. Python 3.9 and 3.10 get the newest
#                          releases up to the pinned ones (name==version) that have wheels for them
#   close_env CODE         runs Python code there, and marks the environment as complete
#
# PYTHON names the interpreter (python3). Packages are installed by uv, itself a package, which build/venv-uv has for
# all environments: pip takes four times as long to unpack what PyTorch is made of, and compiles modules that nobody
# imports, its own in each environment that has it. Where uv cannot install, as with an index that only pip's
# configuration names, pip is put into the environment and does.
name=$(basename "$0")
script=$(cd "$(dirname "$0")" && pwd)/$name
cd "$(dirname "$0")/.."

open_env() {
    directory=$1
    python=${PYTHON:-python3}
    stamp=$directory/.banyan-$name
    if [ -f "$stamp" ] && cmp -s "$script" "$stamp"; then
        echo "$directory is up to date"
        exit 0
    fi
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then
        echo "$name: $python is older than 3.9, or missing; set PYTHON" >&2
        exit 1
    fi
    if ! "$python" -m venv --without-pip "$directory"; then
        echo "$name: $python cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2
        exit 1
    fi
    mkdir -p build
    (
        flock 9 # environments may be made at the same time
        [ -x build/venv-uv/bin/uv ] || { "$python" -m venv build/venv-uv &&
            build/venv-uv/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9; } || true
    ) 9>build/venv-uv.lock
    python=$directory/bin/python
    older=
    if "$python" -c 'import sys; sys.exit(sys.version_info >= (3, 11))'; then older=yes; fi
}

install() {
    if [ -n "$older" ]; then
        for argument in "$@"; do
            shift
            case $argument in *==*) argument=${argument%%==*}"<="${argument#*==} ;; esac
            set -- "$@" "$argument"
        done
        set -- --only-binary :all: "$@"
    fi
    # A cache in the environment is on its disk, so that files are linked, not copied.
    if ! build/venv-uv/bin/uv pip install --quiet --python "$python" --cache-dir "$directory/cache" "$@"; then
        "$python" -m ensurepip >/dev/null
        "$python" -m pip install --quiet --disable-pip-version-check "$@"
    fi
    rm -rf "$directory/cache"
}

# The bytecode of what is imported here is kept for all later starts, also where the environment says not to.
close_env() {
    env -u PYTHONDONTWRITEBYTECODE "$python" -c "$1"
    cp "$script" "$stamp"
}
