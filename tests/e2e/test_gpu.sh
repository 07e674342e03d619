#!/bin/sh
# GPUs: our declarations of NVIDIA's libraries beside the real headers and libraries, where those are installed; what is
# said of a machine without a GPU; and commands on a GPU, on stand-ins for the libraries (tests/cuda/standin.h).
. "$(dirname "$0")/../support/shell.sh"

toolkit=${CUDA_HOME:-/usr/local/cuda}
if [ -e "$toolkit/include/cublasLt.h" ]; then
    say "declarations are those of $toolkit"
    run 0 c++ -std=c++17 -fsyntax-only -I"$toolkit/include" -I"$root/src" -I"$root/include" "$root/tests/cuda/check_headers.cc"
    for pair in stubs/libcuda.so:cuda_driver.h libcublasLt.so:cuda_products_api.h; do
        library=$toolkit/lib64/${pair%%:*}
        [ -e "$library" ] || continue
        nm -D --defined-only "$library" | sed 's/.* //; s/@.*//' | sort -u >has
        sed -n 's/^    X([a-z_]*, \(cu[A-Za-z0-9_]*\),.*/\1/p' "$root/src/device/cuda/${pair##*:}" | sort -u >wants
        [ -s wants ] || fail "no functions in ${pair##*:}"
        run 0 comm -13 has wants
        [ ! -s out ] || fail "$library lacks: $(cat out)"
    done
fi

say "a machine without a GPU"
mkdir none
BANYAN_CUDA_PATH=$work/none
export BANYAN_CUDA_PATH
run 0 "$banyan" doctor
holds out "GPU          none: cuda: libcuda.so.1 was not found in BANYAN_CUDA_PATH=$work/none"
run 0 "$banyan" doctor --json
holds out '"gpu":"none: cuda: libcuda.so.1 was not found'
tiny gpt2 >c.yaml
run 2 "$banyan" train c.yaml --set device=cuda
holds err "libcuda.so.1 was not found"

standins=$(dirname "$banyan")/tests/standins/all
if [ ! -e "$standins/libcuda.so.1" ]; then
    echo "skipped: there are no stand-ins for NVIDIA's libraries (they need clang++)"
    exit 77
fi
BANYAN_CUDA_PATH=$standins
say "doctor on a GPU"
run 0 "$banyan" doctor
holds out "GPU          stand-in 0, sm_90, "
holds out "GPU use      3.0 GiB of 8.0 GiB in use, 37 % busy, 45 C, 120 W"

say "a run goes from the GPU to the CPU and back, and its text is that of the CPU"
tiny mixtral >c.yaml
small="--set model.layers=1 --set model.width=32 --set model.context=16 --set train.batch=4 --set train.eval_batches=1"
small="$small --set train.eval_every=4 --set optimizer.warmup=1 --set checkpoint.every=4"
# shellcheck disable=SC2086
run 0 "$banyan" train c.yaml $small --set device=auto --set train.steps=4 --set track.system_every=2
holds out "device     cuda: stand-in 0, sm_90"
holds runs/tiny/events.jsonl '"gpu_busy_share":0.37,"gpu_memory_bytes":3221225472'
run 0 "$banyan" train --resume runs/tiny --set train.steps=8 --set device=cpu
cp -r runs/tiny runs/same
cp -r runs/tiny runs/other
run 0 "$banyan" train --resume runs/tiny --set train.steps=12 --set device=cuda
for device in cuda cpu; do
    run 0 "$banyan" generate runs/tiny --prompt 'the ' --tokens 8 --temperature 0 --device $device
    mv out $device.text
    run 0 "$banyan" eval runs/tiny --device $device
    grep valid_loss out | cut -c1-20 >>$device.text
done
cmp cuda.text cpu.text || fail "other text, or another loss"

say "a library that chooses other algorithms gives the same bits with those that the run keeps, and another version says so"
run 0 env BANYAN_STANDIN_ALGORITHM=2 "$banyan" train --resume runs/same --set train.steps=12 --set device=cuda
! grep -q "chosen anew" err || fail "choices that are not those that the run keeps"
run 0 env BANYAN_STANDIN_ALGORITHM=2 BANYAN_STANDIN_LIBRARY=130000 "$banyan" train --resume runs/other --set train.steps=12 --set device=cuda
holds err "algorithms of products are chosen anew, as this is stand-in 0, cublasLt 13.0.0, and the run had stand-in 0, cublasLt 12.9.1: its bits may differ"
for run in tiny same other; do
    run 0 "$banyan" checkpoint digest runs/$run
    tail -n 1 out >$run.digest
done
cmp tiny.digest same.digest || fail "other weights with the algorithms that were kept"
! cmp -s tiny.digest other.digest || fail "the stand-in has one algorithm"
cmp runs/tiny/choices.txt runs/same/choices.txt || fail "other choices"
grep -q 'cublasLt 13.0.0' runs/other/choices.txt && grep -q 'cublasLt 12.9.1' runs/other/choices.txt || fail "choices were lost"
echo 'no choice' >>runs/same/choices.txt
run 1 "$banyan" train --resume runs/same --set train.steps=16 --set device=cuda
holds err "choices.txt, without which libraries choose anew: 'no choice' is not a device"
run 1 env BANYAN_STANDIN_WRONG=bf16 "$banyan" train --resume runs/tiny --set train.steps=16 --set device=cuda
holds err "multiplies wrongly with cublasLt 12.9.1: a sum of 1040 products of bf16 is 1039, not 1040"

say "each product of a GPT-2 in bf16 is the library's"
tiny gpt2 >c.yaml
# shellcheck disable=SC2086
run 0 "$banyan" profile c.yaml --random --steps 1 --trace trace.json $small --set precision.compute=bf16 --set device=cuda
holds trace.json '"kernel":"matmul cublasLt"'
! grep -o '"kernel":"matmul cuda".*' trace.json >others || fail "products of our own: $(head -n 3 others)"

say "every part of scripts/test-gpu, and one that fails"
run 0 env BANYAN="$banyan" "$root/scripts/test-gpu" --tiny conformance train speed ranks
sed '1,/^== figures/d' out >figures
for figure in "GPU .* stand-in 0, sm_90" "kernels .* 3 sets of cases passed" "gpt2-f32 losses .* from the CPU's at most" \
    "gpt2-bf16 two runs .* equal digests" "gpt2-bf16 resumed .* equal digests" "gpt2-f32 of micro-batches .* equal digests" \
    "copies .* GB/s" "characters tokens/s  *[1-9]" "characters memory .* planned" "characters matmul .* of copies" "GPT-2 decode tokens/s .* GB/s" \
    "two ranks, zero 1 " "== passed"; do
    grep -q "$figure" figures || fail "no '$figure' among the figures: $(cat figures)"
done
run 1 env BANYAN="$banyan" BANYAN_STANDIN_FAIL=cublasLtMatmul:11=13 "$root/scripts/test-gpu" --tiny train
sed '1,/^== figures/d' out >figures
holds figures "train gpt2-f32-1                   FAILED: "
holds figures "== FAILED"
