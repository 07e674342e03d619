#!/bin/sh
# The program started through a loader, which is then what /proc/self/exe names, and as a bundle: in a root that holds
# the bundle and nothing else it trains, draws, serves, and starts ranks.
. "$(dirname "$0")/../support/shell.sh"

loader=$(ldd "$banyan" | sed -n 's/^[[:space:]]*\(\/[^ ]*ld-[^ ]*\) .*/\1/p')
[ -x "$loader" ] || fail "no loader in: $(ldd "$banyan")"
tiny gpt2 >tiny.yaml

say "through a loader the program executes itself, not the loader, and hashes itself"
run 0 "$loader" "$banyan" launch --dry-run -n 2 doctor
holds out " $banyan doctor"
run 0 "$banyan" doctor --json
field build <out >direct
run 0 "$loader" "$banyan" doctor --json
field build <out >through
holds out '"latency_s":[]'
[ -s direct ] || fail "doctor --json tells no build: $(cat out)"
same direct through
# Without the variable the program executes itself again.
run 0 env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT "$loader" "$banyan" train tiny.yaml --quiet --set train.steps=2 --set train.eval_every=2 --set optimizer.warmup=1

say "a bundle"
[ -z "${BY_TESTS_SANITIZED:-}" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! unshare --mount true 2>/dev/null; then
    echo "skipped: the bundle, which is tried in a root of its own, which takes the rights of root"
    exit 77
fi
for program in readelf dpkg-query zstd ompi_info; do
    command -v "$program" >/dev/null || { echo "skipped: the bundle, since $program is not installed" && exit 77; }
done
run 0 "$root/scripts/bundle" --binary "$banyan" --out . --quick
mkdir bundle
tar -xf banyan-*-linux-x86_64.tar.zst -C bundle --strip-components 1
mkdir bundle/proc bundle/dev bundle/tmp bundle/usr bundle/usr/lib64
cp text.txt tiny.yaml bundle
# Nothing of the system is in this root but what the kernel shows, and the environment is empty.
cat >inside <<'END'
#!/bin/sh
mount --rbind /proc bundle/proc && mount --rbind /dev bundle/dev && exec env -i "$@"
END
chmod +x inside
chroot=$(command -v chroot)
inside() { unshare --mount ./inside "$chroot" bundle /bin/banyan "$@"; }
run 0 inside --version
exists bundle/scripts/test-gpu bundle/bench/torch_train.py
if [ -x bundle/lib/banyan/test_cuda_kernels ]; then
    run 1 unshare --mount ./inside "$chroot" bundle /lib/banyan/lib/ld-linux-x86-64.so.2 --library-path /lib/banyan/lib \
        /lib/banyan/test_cuda_kernels --device cuda
    holds err "cuda: "
fi
run 0 inside train tiny.yaml --quiet --set train.steps=3 --set train.eval_every=3 --set optimizer.warmup=1
run 0 inside plot runs/tiny --out tiny.png
file=$(find bundle -name fontconfig)
[ -z "$file" ] || fail "drawing wrote $file"
run 0 inside launch -n 2 --max-restarts 0 train tiny.yaml --set train.steps=3 --set train.eval_every=3 --set optimizer.warmup=1 --set name=ranks --set train.micro_batch=4
holds out "done       runs/ranks"
run 0 inside launch --dry-run -n 2 doctor
holds out "/lib/banyan/mpi/bin/mpirun -n 2"
holds out " /bin/banyan doctor"
run 1 inside runs sync runs/tiny --server https://localhost:1
holds err "https://localhost:1"

say "it serves"
unshare --mount ./inside "$chroot" bundle /bin/banyan serve runs/tiny --listen unix:/tmp/http.socket --dir /tmp/served >log 2>&1 &
background=$!
# A worker that is ready is not yet known to the gateway: only the gateway itself says when it can answer.
until curl -sf --unix-socket bundle/tmp/http.socket http://server/health/ready >/dev/null; do
    kill -0 "$background" 2>/dev/null || fail "the server ended: $(cat log)"
    sleep 0.1
done
curl -s --fail --unix-socket bundle/tmp/http.socket http://server/v1/completions -H 'Content-Type: application/json' \
    -d '{"model": "tiny", "prompt": "apple", "max_tokens": 4}' >out || { cat log >&2; fail "no answer"; }
holds out '"completion_tokens":4'
kill -TERM "$background"
wait "$background" || fail "the server ended with $?: $(cat log)"
background=

say "its loader finds libraries of the host, such as the driver of a GPU, behind its own"
printf '#include <unistd.h>\n__attribute__((constructor)) static void hello(void) { (void)!write(1, "loaded\\n", 7); }\n' >driver.c
cc -shared -fPIC -Wl,-soname,libcuda.so.1 driver.c -o bundle/usr/lib64/libcuda.so.1 || fail "no library"
run 0 unshare --mount ./inside LD_PRELOAD=libcuda.so.1 "$chroot" bundle /bin/banyan --version
holds out loaded
mkdir bundle/driver
mv bundle/usr/lib64/libcuda.so.1 bundle/driver
run 0 unshare --mount ./inside LD_PRELOAD=libcuda.so.1 LD_LIBRARY_PATH=/driver "$chroot" bundle /bin/banyan --version
holds out loaded

say "each library has a licence, and the wheel has the same files"
for library in bundle/lib/banyan/lib/*; do
    [ -s "$library" ] || fail "$library is empty"
done
sed -n 's/ .*(source: .*//p' bundle/licenses/README.txt | while read -r package; do
    [ -s "bundle/licenses/$package.txt" ] || echo "$package"
done >missing
[ ! -s missing ] || fail "no licence of $(cat missing)"
python3 - banyan-*.whl <<'END' || fail "the wheel"
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
assert wheel.testzip() is None
names = {n.partition(".data/")[2]: n for n in wheel.namelist()}
for own, path in {"scripts/banyan": "bin/banyan", "data/lib/banyan/banyan": "lib/banyan/banyan",
                  "data/share/banyan/examples/demo.yaml": "examples/demo.yaml"}.items():
    assert wheel.read(names[own]) == open("bundle/" + path, "rb").read(), own
assert wheel.getinfo(names["data/lib/banyan/banyan"]).external_attr >> 16 & 0o111
END
