#!/bin/sh
# The kernels for GPUs compile for one architecture of each generation, and their machine code is what it should be: no spills and no
# local memory, no atomics of floats, tensor cores in kernels of matrices. NVRTC and the disassembler are those of
# scripts/nvrtc-env; without them the test is skipped.
. "$(dirname "$0")/../support/shell.sh"

env=build/venv-nvrtc
if ! (cd "$root" && scripts/nvrtc-env) >"$work/env.log" 2>&1; then
    echo "skipped: scripts/nvrtc-env could not install NVRTC: $(tail -n 1 "$work/env.log")"
    exit 77
fi
nvrtc=$(echo "$root/$env"/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12)
tools=$(echo "$root/$env"/lib/python3*/site-packages/nvidia/cu13/bin)
PATH=$tools:$PATH
export PATH

kernels=$root/src/device/cuda/kernels
cc -O1 -std=c17 -D_GNU_SOURCE "$root/cmake/cubin.c" -ldl -o "$work/cubin"
headers="prelude.cuh=$kernels/prelude.cuh functions.cuh=$kernels/functions.cuh keys.cuh=$kernels/keys.cuh tile.cuh=$kernels/tile.cuh
    device/cuda/kernels.h=$root/src/device/cuda/kernels.h device/cuda/layer_kernels.h=$root/src/device/cuda/layer_kernels.h"

# images: those of one architecture, all families in one module.
compile() {
    sources=
    for source in "$kernels"/*.cu; do sources="$sources $(basename "$source")=$source"; done
    # shellcheck disable=SC2086
    "$work/cubin" "$nvrtc" "$1" "$work/$1" $headers $sources || fail "the kernels do not compile for $1"
}

say "machine code and PTX"
for architecture in sm_80 compute_90 sm_90a sm_120; do
    compile "$architecture" &
    [ $architecture = compute_90 ] || continue
    wait
done
wait
for architecture in sm_80 compute_90 sm_90a sm_120; do
    [ -s "$work/$architecture" ] || fail "there is no code for $architecture"
done

say "registers, stacks and local memory"
for architecture in sm_80 sm_90a sm_120; do
    cuobjdump -res-usage "$work/$architecture" >"$work/usage" 2>&1 || fail "$(tail -n 3 "$work/usage")"
    for kernel in $(sed -n 's/^BY__CUDA_KERNEL(\([a-z0-9_]*\)).*$/\1/p' "$root/src/device/cuda/kernels.inc"); do
        grep -q "Function by_cuda_$kernel:" "$work/usage" || fail "$architecture has no kernel by_cuda_$kernel"
    done
    spilled=$(grep -B 1 'STACK:[1-9]\|LOCAL:[1-9]' "$work/usage" || true)
    [ -z "$spilled" ] || fail "local memory on $architecture: $spilled"
done

say "instructions"
cuobjdump -sass "$work/sm_80" >"$work/sass" 2>/dev/null
grep -q 'Function : by_cuda_fill' "$work/sass" || fail "the disassembler shows no kernel"
if grep -E '(RED|ATOM|ATOMG|ATOMS)[A-Z.]*\.F(16|32|64)' "$work/sass"; then
    fail "atomics of floats"
fi
for kernel in $(sed -n 's/^BY__CUDA_KERNEL(\([a-z0-9_]*\)).*tensor cores.*$/\1/p' "$root/src/device/cuda/kernels.inc"); do
    sed -n "/Function : by_cuda_$kernel\$/,/Function :/p" "$work/sass" | grep -q HMMA ||
        fail "by_cuda_$kernel does not use tensor cores"
done
