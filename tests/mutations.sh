#!/bin/sh
# Faults that are planted in the sources, one at a time, and the tests that find them. It is not part of scripts/test,
# because every fault rebuilds the library; it works on a copy in build/mutations.
#
#   tests/mutations.sh            plants all, and runs the tests of each (programs, and scripts of tests/e2e): at least
#                                 one must fail
#   tests/mutations.sh PATTERN    those whose name contains PATTERN
#   tests/mutations.sh --check    only whether each fault still fits the sources
#
# A fault replaces a text that the file holds exactly once, within a line.
set -u

cd "$(dirname "$0")/.." || exit 1
copy=build/mutations/source
build=build/mutations/build
log=build/mutations/log
pattern=${1:-}
[ "$pattern" = --check ] && pattern=
programs=
caught=0
missed=0

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# replace FILE OLD NEW: prints the file with the text replaced.
replace() {
    OLD=$2 NEW=$3 awk '
        BEGIN { old = ENVIRON["OLD"]; new = ENVIRON["NEW"] }
        { at = index($0, old) }
        at > 0 { found++; $0 = substr($0, 1, at - 1) new substr($0, at + length(old)) }
        { print }
        END { exit found != 1 }' "$1"
}

# A script needs the program that it runs.
make_programs() {
    # shellcheck disable=SC2046
    cmake --build "$build" --target $(printf '%s\n' "$@" | sed 's/.*\.sh$/banyan/' | sort -u) >"$log" 2>&1
}

# finds PROGRAM...: prints those that fail.
finds() {
    for program in "$@"; do
        case $program in
        *.sh) (BANYAN=$PWD/$build/banyan && export BANYAN && timeout 300 sh "$copy/tests/e2e/$program") ;;
        *) (cd "$copy" && timeout 300 "../build/tests/$program") ;;
        esac >>"$log" 2>&1 || echo "$program"
    done
}

# The first time it is called for a name it collects the programs; the second time it plants the fault.
mutation() {
    name=$1
    file=$2
    old=$3
    new=$4
    shift 4
    case $name in *"$pattern"*) ;; *) return ;; esac
    if [ "$mode" = collect ]; then
        replace "$file" "$old" "$new" >/dev/null || fail "$name: $file does not hold once: $old"
        programs="$programs $*"
        return
    fi
    replace "$file" "$old" "$new" >"$copy/$file" || fail "$name: $file"
    if make_programs "$@"; then
        found=$(finds "$@" | tr '\n' ' ')
    else
        found="nobody: it does not compile, see $log"
    fi
    cat "$file" >"$copy/$file"
    case $found in
    '' | nobody*)
        missed=$((missed + 1))
        echo "MISSED  $name: ${found:-$* passed}"
        ;;
    *)
        caught=$((caught + 1))
        echo "caught  $name: $found"
        ;;
    esac
}

mutations() {
    # Sums between ranks.
    mutation "bucket dropped behind the backward pass" src/trainer/exchange/trainer_ranks.c \
        'k < r->bucket_count && t->model.last == NULL' 'k + 1 < r->bucket_count && t->model.last == NULL' \
        test_ranks
    mutation "bucket dropped in the backward pass" src/trainer/exchange/trainer_overlap.c \
        'k < t->ranks.bucket_count; k++' 'k + 1 < t->ranks.bucket_count; k++' test_ranks
    mutation "bucket within a tensor dropped" src/trainer/exchange/trainer_overlap.c \
        'while (k < r->bucket_count && r->buckets[k].is_joined)' 'while (false)' test_ranks
    mutation "sums of ranks added in the order of ranks" src/trainer/state/reducer.c \
        'p->begin[*holders] = nodes[i].first;' 'p->begin[*holders] = *holders;' test_ranks
    mutation "completions of other ranks overwritten" src/reinforce/rollouts.c \
        '(int32_t)index_of(&part, i);' '(int32_t)(i + 0 * part.first);' test_reinforce.sh
    mutation "completions by the weights of the first step" src/reinforce/rollouts.c \
        'BY_TRY(by_engine_set_weights(r->engine, read_weight, r, error));' \
        'if (r->step[0].tokens == 0) { BY_TRY(by_engine_set_weights(r->engine, read_weight, r, error)); }' test_reinforce.sh
    mutation "losses of other ranks left out" src/trainer/exchange/trainer_ranks.c \
        'BY_TRY(by_comm_all_gather(r->peers, losses + t->part.first_micro_batch, losses, r->counts,' \
        'BY_TRY(t->layout.replicas > 2 ? BY_OK : by_comm_all_gather(r->peers, losses + t->part.first_micro_batch, losses, r->counts,' \
        test_ranks

    mutation "a round of gradients has the place of another" src/trainer/state/reducer.c \
        '(by__sum_node){first + h - earlier, 1, h};' '(by__sum_node){h - earlier, 1, h};' test_zero

    mutation "bucket of a round dropped" src/trainer/exchange/shard_gradients.c \
        'size_t k = (size_t)call->attrs.bucket;' 'size_t k = (size_t)call->attrs.bucket; if (k == 1) { return BY_OK; }' test_zero

    # 1/N.
    mutation "mean over the targets of one rank" src/trainer/state/trainer_feed.c \
        't->sync.is_local ? t->steps.own_weight : by__trainer_weight(batch, true)' 'by__trainer_weight(batch, false)' test_ranks
    mutation "mean over the targets of one rank of a group" src/trainer/step/trainer_steps.c \
        't->steps.own_weight = (double)count;' 't->steps.own_weight = (double)batch->valid_targets;' test_zero
    mutation "mean over the weights of one rank" src/trainer/state/step_losses.c \
        'all ? batch->global_weight : batch->valid_weight' 'batch->valid_weight' test_weights
    mutation "sum of the ways of replicas in place of the mean" src/trainer/exchange/sync_values.c \
        'float scale = 1.0f / (float)by_comm_size(s->peers);' 'float scale = 1.0f;' test_sync
    mutation "sum of optimizer states in place of the mean" src/trainer/exchange/trainer_settle.c \
        'float share = 1.0f / (float)by_comm_size(t->sync.peers);' 'float share = 1.0f;' test_sync

    # Micro-batches.
    mutation "last micro-batch skipped" src/trainer/step/whole_model.c 'i < t->part.micro_batches; i++' \
        'i < t->part.micro_batches - (t->layout.replica > 0 && t->model.last == NULL && t->part.micro_batches > 1); i++' test_ranks
    mutation "last micro-batch of a stage skipped" src/trainer/pipeline/pipe_step.c \
        'BY_TRY(last ? run_last(t, stage, kinds[a->kind], batch, a->micro_batch, error)' \
        'BY_TRY(last ? run_last(t, stage, kinds[a->kind], batch, a->micro_batch - (a->micro_batch > 0), error)' \
        test_pipeline_train
    mutation "examples of the next rank" src/trainer/step/trainer_loaders.c \
        '.first = (size_t)by__trainer_leaf(trainer, 0) * micro_batch,' \
        '.first = (size_t)(by__trainer_leaf(trainer, 0) / 2 * 2) * micro_batch,' test_ranks
    mutation "micro-batches in another order" src/trainer/state/trainer_feed.c \
        '(const char *)array->data + feed->bytes * (size_t)index,' \
        '(const char *)array->data + feed->bytes * (size_t)(index > 1 ? 3 - index : index),' test_ranks
    mutation "dropout keyed by the rank's own micro-batches" src/trainer/state/trainer_feed.c \
        'by__trainer_leaf(t, index) * t->config' 'index * t->config' test_ranks

    # Parameters.
    mutation "stale parameters: a bucket is not gathered" src/trainer/exchange/trainer_shard.c \
        'BY_TRY(gather_bucket(t, narrow ? t->flats.copies : t->flats.masters, k, error));' \
        'BY_TRY(k == 0 ? BY_OK : gather_bucket(t, narrow ? t->flats.copies : t->flats.masters, k, error));' test_zero
    mutation "stale parameters: a tied table is not sent" src/trainer/pipeline/pipe_share.c \
        'for (size_t i = 0; i < pipe->share_count; i++) {' 'for (size_t i = 1; i < pipe->share_count; i++) {' \
        test_pipeline_train
    mutation "slice of the optimizer's state read from another place" src/trainer/exchange/trainer_shard.c \
        'mine = r == t->layout.place[BY_MESH_SHARD] ? part : mine;' \
        'mine = r == t->layout.place[BY_MESH_SHARD] ? part : mine; mine.first = common.first;' test_zero test_ranks_save
    mutation "stale parameters: a part of what a program gathers is missing" src/trainer/exchange/trainer_shard.c \
        'BY_TRY(by_comm_all_gather(t->shard.comm, in, to, counts, dtype, name, error));' \
        'BY_TRY(common.first > tensor.first ? BY_OK : by_comm_all_gather(t->shard.comm, in, to, counts, dtype, name, error));' \
        test_zero

    # Tensors.
    mutation "missing tensor all-reduce, forward" src/passes/shard_convert.c \
        'value = by_all_reduce(s->graph, value, s->axis->mesh, s->axis->ranks);' \
        'value = s->graph->phase == BY__FORWARD ? value : by_all_reduce(s->graph, value, s->axis->mesh, s->axis->ranks);' \
        test_tensor_parallel test_tensor_train
    mutation "missing tensor all-reduce, backward" src/passes/shard_convert.c \
        'value = by_all_reduce(s->graph, value, s->axis->mesh, s->axis->ranks);' \
        'value = s->graph->phase == BY__BACKWARD ? value : by_all_reduce(s->graph, value, s->axis->mesh, s->axis->ranks);' \
        test_tensor_parallel test_tensor_train
    mutation "missing tensor reduce-scatter" src/passes/shard_convert.c \
        'if (from.axis == BY__PARTIAL && to.axis >= 0 && to.sections == 1 && !zigzag) {' \
        'if (from.axis == BY__PARTIAL && to.axis >= 0) { return slice_sections(s, value, whole, to); } if (false) {' \
        test_tensor_parallel test_tensor_train
    mutation "heads of q, k and v mixed up" src/passes/shard_convert.c \
        '{0, 2, 1, 3};' '{0, 1, 2, 3};' test_shard_pass
    mutation "norm of split tensors is that of one rank" src/optim/optimizers.c \
        'if (unit->ranks <= 1) {' 'if (unit->ranks <= 99) {' test_tensor_train
    mutation "norm of whole tensors counted on every rank" src/trainer/state/trainer_units.c \
        'uint32_t mesh = by__group_mesh(group);' \
        'uint32_t mesh = by__group_mesh(group) | (t->layout.size[BY_MESH_TENSOR] > 1 ? 1u << BY_MESH_TENSOR : 0u);' \
        test_tensor_train

    mutation "slices of a gather have the sizes of other ranks" src/exec/collectives.c \
        'c->counts[r] = (size_t)(count * e->elements);' \
        'c->counts[e->ranks - 1 - r] = (size_t)(count * e->elements);' test_rank_graphs

    # Limits of attention.
    mutation "a window reads one key too many" src/device/cpu/kernels/attention/attention.h \
        'int64_t first = limit->window > 0 ? place - limit->window + 1 : 0;' \
        'int64_t first = limit->window > 0 ? place - limit->window : 0;' test_parity
    mutation "a document begins one token late" src/device/cpu/kernels/attention/attention.h \
        'first = limit->starts[t];' 'first = limit->starts[t] + 1;' test_kernels

    mutation "a window reaches one key too far forward" src/device/cpu/kernels/attention/attention.h \
        's.window > 0 ? s.window - 1 : s.length;' 's.window > 0 ? s.window : s.length;' test_parity
    mutation "a rank's heads have the slopes of the first" src/ops/attention/attention_op.c \
        's->attrs->begin + (s->attrs->slopes > 0 ? sh->rank * sh->attrs.heads : 0)' 's->attrs->begin' test_shard_ops

    # Sequences.
    mutation "parts of attention merged without their log-sum-exp" src/device/cpu/kernels/attention/attention_merge.c \
        'share[p] = expf(lse[p] - highest) / sum;' 'share[p] = 0.5f;' test_tensor_parallel test_tensor_train

    mutation "a block of the ring meets the wrong queries" src/ops/attention/attention_ranks.c \
        'bool before = step <= s->sh->rank;' 'bool before = step < s->sh->rank;' test_tensor_parallel
    mutation "keys do not go around the ring" src/ops/attention/attention_ranks.c \
        'return by_ring_shift(s->graph, x, s->sh->mesh, s->sh->ranks);' 'return x;' test_tensor_parallel

    # Linear attention.
    mutation "linear attention: what a sum of weights is divided by is added" src/device/cpu/kernels/attention/linear_attention.c \
        'g[s->width] = -sum * factor;' 'g[s->width] = sum * factor;' test_kernels
    mutation "linear attention: features have a slope of 1" src/device/cpu/kernels/attention/linear_attention.c \
        ': by__at_most(1.0f, by__load_n(features, (i), BY_F32, (n)));' ': by__splat(1.0f);' test_kernels
    mutation "linear attention: queries of a group give what the first gives" src/device/cpu/kernels/attention/linear_attention.c \
        '(head % (s->heads / s->kv_heads) * s->length + t)' '(head % 1 * s->length + t)' test_kernels
    mutation "linear attention: later keys are read" src/device/cpu/kernels/attention/linear_attention.c \
        'p->causal = !call->attrs.bidirectional;' 'p->causal = false;' test_kernels
    mutation "linear attention: padding is read" src/device/cpu/kernels/attention/linear_attention.c \
        'j->rows = attention_rows_of(lengths, &p->s, j->b);' 'j->rows = attention_rows_of(NULL, &p->s, j->b);' test_kernels
    mutation "linear attention: q has the gradient of k" src/ops/attention/linear_attention_op.c \
        'din[i] = outs[i];' 'din[i] = outs[i == 0 && outs[1] != BY_NONE ? 1 : i];' test_gradients

    # Recurrent networks.
    mutation "lstm: the input gate keeps the cell" src/device/cpu/kernels/recurrent_simd.c \
        'by__vf cell = by__multiply_add(forget, LOAD(cells, j), in * new);' \
        'by__vf cell = by__multiply_add(in, LOAD(cells, j), forget * new);' test_kernels
    mutation "lstm: the gradient of a step has the cells behind it" src/device/cpu/kernels/recurrent_simd.c \
        't == 0 ? by__zero() : LOAD(cells - w, j);' 't == 0 ? by__zero() : LOAD(cells, j);' test_kernels
    mutation "gru: the update gate takes what it should keep" src/device/cpu/kernels/recurrent_simd.c \
        'by__vf y = by__multiply_add(update, ' 'by__vf y = by__multiply_add(1.0f - update, ' test_kernels
    mutation "gru: both gradients are those of the states' sums" src/device/cpu/kernels/recurrent_simd.c \
        'g == 2 ? dn : sums[g], type, n);' 'sums[g], type, n);' test_kernels
    mutation "recurrent: states are those of the sample before" src/device/cpu/kernels/recurrent_simd.c \
        '.first = b * p->block,' '.first = b * p->block - (b > 0),' test_kernels
    mutation "recurrent: weights have the gradient of the states behind a step" src/ops/recurrent.c \
        '1, 0, steps - 1), 1, 1, steps);' '1, 0, steps - 1), 1, 0, steps);' test_gradients
    mutation "gru: the bias of the states has the gradient of that of the inputs" src/ops/recurrent.c \
        'hidden_sums == input_sums ? din[INPUT_BIAS] : ' 'true ? din[INPUT_BIAS] : ' test_gradients

    # Graphs.
    mutation "edges: a row at the border of two threads is left out" src/device/cpu/edges.h \
        'int64_t last_ = by__cpu_edges_row_at((e), b_, (end)-b_ * places_);' \
        'int64_t last_ = by__cpu_edges_row_at((e), b_, (end)-b_ * places_ - 1);' test_kernels
    mutation "edges: an edge without a number has that of its entry" src/device/cpu/edges.h \
        'return number < 0 || number >= e->entries ? -1 : number;' \
        'return number < 0 || number >= e->entries ? k : number;' test_kernels
    mutation "edges: weights are in the order of the other matrix" src/ops/edges/edge_sum.c \
        'bool ahead = node->in[3] == BY_NONE;' 'bool ahead = true;' test_gradients
    mutation "edges: the gradient goes along the edges" src/ops/edges/edge_sum.c \
        'node->in[4], node->in[1], node->in[2], node->in[3]};' 'node->in[4], node->in[5], node->in[6], node->in[3]};' \
        test_gradients
    mutation "edges: the last of the largest" src/device/cpu/kernels/sparse_simd.c \
        'by__vi larger = (v > high) | (entry < 0);' 'by__vi larger = (v >= high) | (entry < 0);' test_kernels
    mutation "edges: every source of the largest has its gradient" src/device/cpu/kernels/sparse_simd.c \
        'sum += by__select(own, d, by__zero());' 'sum += d;' test_kernels
    mutation "edges: attention without its largest score" src/device/cpu/kernels/edge_attention_simd.c \
        'high = by__larger(high, leaky(SCORE(source, i, n), slope));' 'high = by__zero();' test_kernels
    mutation "edges: the gradient of attention without the slope" src/device/cpu/kernels/edge_attention_simd.c \
        'g = by__select(SCORE(source, i, n) > 0.0f, g, g * slope);' 'g = by__select(SCORE(source, i, n) > 0.0f, g, g);' \
        test_kernels

    # Diffusion.
    mutation "diffusion: the flow goes from the noise to the image" src/tasks/noised_source.c \
        'n->diffusion.flow ? eps - x : eps' 'n->diffusion.flow ? x - eps : eps' test_diffuse
    mutation "diffusion: images without noise are shown" src/tasks/noised_source.c \
        'return 1 + (int64_t)' 'return (int64_t)' test_diffuse
    mutation "diffusion: classes are dropped in evaluations" src/tasks/noised_source.c \
        '!(n->base.shuffle && random < n->drop)' '!(random < n->drop)' test_diffuse
    mutation "diffusion: a sample has the same noise each epoch" src/tasks/noised_source.c \
        'by_source_random(sample, PURPOSE_NOISE, key);' \
        'by_source_sample s = *sample; s.epoch = 0; s.index = s.place; by_source_random(&s, PURPOSE_NOISE, key);' test_diffuse
    mutation "diffusion: the noise has the level of its variance" src/tasks/noise_levels.c \
        '{sqrt(kept), sqrt(1.0 - kept)};' '{sqrt(kept), 1.0 - kept};' test_diffuse
    mutation "diffusion: a cosine without its offset" src/tasks/noise_levels.c \
        '(place + 0.008) / 1.008' '(place + 0.0) / 1.0' test_diffuse
    mutation "diffusion: a step keeps the noise that it predicts" src/infer/diffusion_step.c \
        'b->noise - keep * a->noise;' 'b->noise - a->noise;' test_diffuse
    mutation "diffusion: guidance goes from the class" src/infer/diffusion_step.c \
        'base + guidance * ((double)predicted[i] - base)' '(double)predicted[i] + guidance * ((double)predicted[i] - base)' \
        test_diffuse

    # Experts.
    mutation "all-to-all of experts sends slices to the wrong ranks" src/device/cpu/exchange.c \
        'move_slices(work, in, &from, call->attrs.ranks, true);' \
        'move_slices(work, in, &from, call->attrs.ranks, from.outer == 1);' test_expert_ranks test_tensor_train
    mutation "all-to-all of experts with swapped axes" src/passes/shard_convert.c \
        'value = by_all_to_all(graph, value, to_groups ? 0 : 1, to_groups ? 1 : 0, s->axis->mesh, ranks);' \
        'value = by_all_to_all(graph, value, to_groups ? 1 : 0, to_groups ? 0 : 1, s->axis->mesh, ranks);' \
        test_expert_ranks test_tensor_train
    # Pipelines.
    mutation "off-by-one stage: rank of a stage" src/trainer/state/stage_parameters.c \
        'for (int stage = rank; stage < t->model.stages;' 'for (int stage = (rank + 1) % t->layout.size[BY_MESH_PIPELINE]; stage < t->model.stages;' \
        test_pipeline_train
    mutation "off-by-one stage: blocks one unit later" src/passes/stages.c \
        'node->block + 1 > after ? node->block + 1 : after;' 'node->block + 1 > after ? node->block + 2 : after;' \
        test_stages test_pipeline_train
    mutation "activations of another micro-batch" src/trainer/pipeline/pipe_slots.c \
        'begin[k] < end[i]; k++' 'begin[k] + 4 < end[i]; k++' test_pipeline_train
    mutation "squares of a block on two ranks left out" src/trainer/exchange/gradient_norm.c \
        'host_at(n, group_squares(n, shared->part.group))[shared->part.first / BY_SUM_BLOCK] =' \
        'if (i > 0) host_at(n, group_squares(n, shared->part.group))[shared->part.first / BY_SUM_BLOCK] =' test_pipeline_train

    # Axes together.
    mutation "a block of codes has split tensors and others" src/trainer/exchange/trainer_sync.c \
        'bool counts = t->units.group_of_unit[i] / BY__GROUP_TENSOR == split;' 'bool counts = split == 0;' test_tensor_train
    mutation "slices of a part begin elsewhere in the tensor" src/store/store_parts.c \
        'before += index * inner;' 'before += index;' test_store
    mutation "stages do not share what they read after an exchange" src/trainer/exchange/sync_values.c \
        'return t->strategy->share(t, error);' 'return BY_OK;' test_pipeline_train

    # Codes.
    mutation "residual lost" src/comm/codec.c 'sum[i] += residual[i];' 'sum[i] += 0.0f * residual[i];' \
        test_codec test_compressed_sums test_sync
    mutation "residual of the sum lost on the way to a checkpoint" src/comm/coded_sum.c \
        's->residual[first + i] += s->owned[i];' 's->residual[first + i] += 0.0f * s->owned[i];' \
        test_compressed_sums test_sync

    # Guards.
    mutation "bias correction counts skipped steps" src/trainer/step/trainer_steps.c \
        't->steps.updates - t->probes.guard.skipped' 't->steps.updates' test_guards
    mutation "a spike is remembered" src/trainer/probes/guard.c \
        'return by__trainer_veto(t, error);' 'remember(g, loss, c->spike_window); return by__trainer_veto(t, error);' \
        test_guard_faults
    mutation "the deviation of losses is not scaled" src/trainer/probes/guard_spike.c \
        '1.4826 * median_of' '1.0 * median_of' test_guards
    mutation "a rollback counts the steps that it takes back" src/job/restore.c \
        'status = restore_guard(job, checkpoint, error);' 'status = BY_OK;' test_guard_faults
    mutation "a node of the first run is not compared" src/trainer/probes/guard_replay.c \
        'return !same;' 'return !same && r->next > r->count;' test_guards
    mutation "sums of products without the rounding of sums" src/trainer/probes/guard_abft.c \
        'double n = 2.0 * (double)k + 4.0;' 'double n = 0.0;' test_guards

    # Checkpoints.
    mutation "an update does not wait until its values are copied" src/trainer/step/trainer_steps.c \
        'by__trainer_changes(t);' '(void)t;' test_saver
    mutation "frozen tensors are linked without a look" src/checkpoint/checkpoint_share.c \
        'memcmp(f->same.data + f->position, data, n) != 0' 'false' test_share
    mutation "experts of a rank saved under other names" src/job/save.c \
        'return i >= slice->offset[0] && i < slice->offset[0] + slice->shape[0];' \
        'return i < slice->shape[0];' test_ranks_save

    mutation "a checkpoint that is served is removed" src/checkpoint/lease.c \
        'if (!lock(fd, LOCK_EX) &&' 'if (false && !lock(fd, LOCK_EX) &&' test_retention

    # Serving.
    mutation "a version with more errors is taken" src/serve/rollout/rollout.c \
        'if (errors > former + o->errors) {' 'if (errors < former - o->errors) {' test_rollout
    mutation "a version is judged by its first request" src/serve/rollout/rollout.c \
        'if (count < o->requests) {' 'if (count < 1) {' test_rollout
    mutation "a slower version is taken" src/serve/rollout/rollout.c \
        'if (both && slow > usual * o->slower + NOISE) {' 'if (both && usual > slow * o->slower + NOISE) {' test_rollout
    mutation "workers go without a cool-down" src/serve/rollout/autoscale.c \
        'in->now - a->used >= o->calm && in->now - a->changed >= o->calm' 'in->now > a->used' test_autoscale
    mutation "workers are added while the last ones start" src/serve/rollout/autoscale.c \
        'need > a->wanted && in->now - a->changed >= o->pause' 'need > a->wanted' test_autoscale
    mutation "models get more workers than there may be" src/serve/rollout/autoscale.c \
        'sum_of_parts(all, count, share + 1) <= total' 'sum_of_parts(all, count, share) <= total' test_autoscale
    mutation "shares of versions swapped" src/serve/broker/broker_versions.c \
        'if (at < v->share) {' 'if (at >= v->share) {' test_broker.sh
    mutation "what waits stays with a version that lost its share" src/serve/broker/broker_versions.c \
        'bool good = v != NULL && v->share > 0.0;' 'bool good = v != NULL;' test_broker.sh
    mutation "a request is tried once more" src/serve/broker/broker_jobs.c \
        'if (job->attempt >= b->options.attempts) {' 'if (job->attempt > b->options.attempts) {' test_broker.sh
    mutation "what a thread reads is computed again" src/serve/gateway/core/gateway_request.c \
        '!request->parts[i].done && !request->parts[i].reading' '!request->parts[i].done' test_broker.sh
    mutation "a task never goes in front of requests" src/serve/broker/broker_jobs.c \
        'if (pool->given + 1 < BY__TASK_TURN ||' 'if (pool->given >= 0 ||' test_broker.sh
    mutation "an earlier worker is still heard" src/serve/broker/broker_jobs.c \
        'if (job == NULL || job->worker != worker ||' 'if (job == NULL || job->worker == NULL ||' test_broker.sh
    mutation "an answer that has begun goes on with another version" src/serve/broker/broker_jobs.c \
        'job->bound = job->bound || (job->gather == NULL && !job->whole);' 'job->bound = false;' test_broker.sh
    mutation "Redis: a task has the result of an earlier delivery" src/serve/link/redis/redis_broker.lua \
        'if not job or job.a ~= attempt or job.s' 'if not job or job.s' test_redis_broker.sh
    mutation "Redis: a request is tried once more" src/serve/link/redis/redis_broker.lua \
        'if lost >= tonumber(most_lost) then' 'if lost > tonumber(most_lost) then' test_redis_broker.sh
    mutation "Redis: processes of another protocol are let in" src/serve/link/redis/redis_broker.lua \
        'if theirs ~= PROTOCOL then' 'if theirs == nil then' test_redis_broker.sh
    mutation "Redis: a task never goes in front of requests" src/serve/link/redis/redis_broker.lua \
        'if before > 0 then return q' 'if before ~= nil then return q' test_redis_broker.sh
    mutation "Redis: failed requests of a version are not counted" src/serve/link/redis/redis_jobs.lua \
        "if kind == 'fail' then call('HINCRBY', key, 'errors', 1)" "if kind == nil then call('HINCRBY', key, 'errors', 1)" \
        test_redis_broker.sh
    mutation "Redis: a roll-back does not reach who decides" src/serve/link/redis/redis_broker.lua \
        "return {route and tell(route.by," "return {nil and tell(route.by," test_redis_broker.sh
    mutation "Redis: shares of versions swapped" src/serve/link/redis/redis_versions.lua \
        'if at < v.share then break end' 'if at >= v.share then break end' test_redis_broker.sh
    mutation "Redis: a second server decides too" src/serve/link/redis/redis_versions.lua \
        "if was['until'] > now then return false end" "if was['until'] > 2 * now then return false end" \
        test_redis_broker.sh
    mutation "Redis: any version takes from the queue of all" src/serve/link/redis/redis_broker.lua \
        'local leads = not route or' 'local leads = true or' test_redis_broker.sh
    mutation "Redis: an answer that has begun goes on with another version" src/serve/link/redis/redis_broker.lua \
        "if v[5] ~= '1' then" "if v[5] == '2' then" test_redis_broker.sh

    # Adapters.
    mutation "adapters without alpha / rank" src/passes/lora.c \
        'if (options->scale != 1.0f) {' 'if (options->scale < 0.0f) {' test_lora
    mutation "an adapter that trains the weight too" src/passes/lora.c \
        'if (!trained) {' 'if (!trained && v > 8) {' test_lora
    mutation "masks of adapters that are those of the model" src/passes/lora.c \
        '| 0x80000000u;' '* 0u;' test_lora
    mutation "merging without alpha / rank" src/checkpoint/weights/delta.c \
        '+ d->scale * added[i]' '+ added[i]' test_adapter
    mutation "merging the rows of one adapter row" src/checkpoint/weights/delta.c \
        'd->left[row * d->rank + k]' 'd->left[k]' test_adapter

    # Data.
    mutation "a mix that forgets what stages before gave" src/data/loader/mix_source.c \
        'out.number += s->before[out.part];' '(void)s->before;' test_mix_source
    mutation "a mix that leaves the right half behind" src/data/loader/mix_source.c \
        'n = goes_left ? left : n - left;' 'n = goes_left ? left : n;' test_mix_source
    mutation "near duplicates by one minimum less a band" src/data/pack/duplicates.c \
        'BY__MINHASH_ROWS * sizeof *minima)' '(BY__MINHASH_ROWS - 1) * sizeof *minima)' test_duplicates
    mutation "a page that others use is written without a copy" src/infer/scheduler.c \
        'e->pool.pages[pages[next]].uses > 1)' 'e->pool.pages[pages[next]].uses > 999)' test_engine
    mutation "one token too many counts as computed behind a preemption" src/infer/scheduler.c \
        's->cached = found * BY_PAGE_TOKENS;' 's->cached = found * BY_PAGE_TOKENS + (s->computed > 0);' test_engine
    mutation "pages are found under any salt" src/infer/scheduler.c \
        'by__infer_prefix behind = {s->salt, true};' 'by__infer_prefix behind = {0, true};' test_scheduler
    mutation "a followed file that is read again from its last line" src/track/events_read.c \
        '*offset += at.length;' '*offset += at.length - 1;' test_run_facts
    mutation "a scaling law without an intercept" src/plan/law/law_coefficients.c \
        'return c[0] + c[1] * p->x[1][i]' 'return 1e-9 * c[0] + c[1] * p->x[1][i]' test_law
    mutation "best sizes by 2 N FLOPs a token" src/plan/law/law_budget.c \
        '(by_law_flops){6.0, 1.0} : *cost' '(by_law_flops){2.0, 1.0} : *cost' test_law
    mutation "intervals by the residuals of each run's own fit" src/plan/law/law_fit.c \
        'p->y[i] - slopes_at(slopes, p, &other, i)' 'p->y[i] - slopes_at(slopes, p, point, i)' test_law
    mutation "goodput without restarts" src/job/failures.c 'exp(restart / mean)' 'exp(0.0)' test_cost
    mutation "a failure of a spot instance undoes nothing" src/plan/cost/spot.c \
        'job->sums.undone += job->unsaved;' 'job->sums.useful += job->unsaved;' test_cost
    mutation "a bandwidth in bits" src/plan/cluster/cluster_file.c \
        'l->bandwidth = 1e9 *' 'l->bandwidth = 0.125e9 *' test_cluster
    mutation "an all-reduce without its gather" src/plan/cluster/cluster.c \
        'seconds += (gathers ? half : 0.0)' 'seconds += (gathers && !sums ? half : 0.0)' test_cluster
    mutation "a pipeline without a bubble" src/trainer/pipeline/pipeline_walk.c \
        'ready = w->arrival[a->tag] > ready ? w->arrival[a->tag] : ready;' '(void)ready;' test_pipeline test_layout
    mutation "queues that do not slow each other down" src/plan/layout/two_queues.c \
        'double slow = 1.0 + r->device->compute_slowdown;' 'double slow = 1.0;' test_layout
    mutation "a step without embedding and head" src/plan/layout/graph_work.c \
        'item->flops = cost.flops;' 'item->flops = node->block < 0 ? 0.0 : cost.flops;' test_layout
    mutation "weights that no rank gathers" src/plan/layout/rank_time.c \
        'if (bytes > 0.0) {' 'if (bytes < 0.0) {' test_layout
    mutation "a search without a bubble" src/plan/search/choice_cost.c \
        '((p - 1.0) * w->stages->mean +' '(0.0 * w->stages->mean +' test_search
    mutation "a search without the head" src/plan/search/choice_cost.c \
        'by__layout_add(out, &b->passes[BY__SECTION_END][pass], 1.0);' '(void)end;' test_search
    mutation "a search without gathered weights" src/plan/search/choice_cost.c \
        '2.0 * w->model->weight * w->stages->gathered;' '0.0 * w->stages->gathered;' test_search
    mutation "a search with one set of gradients" src/plan/search/choice_cost.c \
        '? w->model->divided_sets' '? 1.0' test_search
    mutation "a search whose exchanges do not slow computation down" src/plan/layout/two_queues.c \
        'double slow = 1.0 + cluster->device.compute_slowdown;' 'double slow = 1.0;' test_search
    mutation "a search that gathers weights in no time" src/plan/search/choice_cost.c \
        'if (scatters && w->choice->zero < 3) {' 'if (scatters && w->choice->zero < 0) {' test_search
    mutation "a search that counts gradients in elements" src/plan/search/choice_cost.c \
        'double bytes = w->model->gradient * w->elements;' 'double bytes = w->elements;' test_search
    mutation "a search with buckets in megabits" src/plan/search/layout_search.c \
        'c->parallel.bucket_mib * 1048576.0 / 4.0' 'c->parallel.bucket_mib * 1e6 / 32.0' test_search
    mutation "a search that skips layouts of less memory" src/plan/search/layout_search.c \
        'need_of(&r->pareto[at - 1]) <= need_of(c)' 'true' test_search
    mutation "ranks of a host that each have all of its memory" src/plan/cluster/cluster.c \
        'm->memory / (host ? count : 1.0)' 'm->memory' test_cluster test_layout test_search
    mutation "energy in megajoules" src/plan/cost/money.c 'return 1e-3 * pue' 'return 3.6e-3 * pue' test_cost
}

mode=collect
mutations
[ -n "$programs" ] || fail "no fault has a name with '$pattern'"
[ "${1:-}" != --check ] || exit 0
mode=plant
mkdir -p "$copy" || exit 1
rm -rf "$copy"/src "$copy"/tests
cp -R CMakeLists.txt cmake include src tests LICENSE README.md "$copy" || exit 1
cmake -S "$copy" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug >"$log" 2>&1 || fail "see $log"
programs=$(printf '%s\n' $programs | sort -u)
# shellcheck disable=SC2086
make_programs $programs || fail "the sources do not build: see $log"
# shellcheck disable=SC2086
found=$(finds $programs)
[ -z "$found" ] || fail "without a fault fails: $found"
mutations
echo "$caught caught, $missed missed"
[ "$missed" -eq 0 ]
