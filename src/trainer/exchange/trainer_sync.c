/* Exchanges between replicas other than the plain sum of every step's gradients: compressed
 * gradients, or (sync.every above 1) the change of each replica's weights over several independent
 * steps, whose mean is the gradient of an outer optimizer (DiLoCo: Douillard et al. 2023,
 * arXiv:2311.08105; local SGD is outer_lr 1 and no momentum):
 *
 *     d = anchor - w             of each replica: weights at the last exchange less its own
 *     d = mean of d              over the replicas, compressed
 *     anchor = outer(anchor, d)  on every replica the same
 *     w = anchor
 *
 * A rank sums its own micro-batches in a separate sum tree. Ranks of `shard` together are one
 * replica: they sum their gradients at every step as usual, and each exchanges its slices with the
 * ranks of `data` that own the same slices. trainer_settle.c makes their state equal. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"

/* ---- the plan ---- */

static by_status open_outer(by__trainer_sync *s, const by_sync_config *c, by_error *error)
{
    char momentum[64];
    const char *settings[] = {"optimizer.kind=sgd", "optimizer.weight_decay=0", momentum,
                              c->outer_momentum > 0.0 ? "optimizer.nesterov=true"
                                                      : "optimizer.nesterov=false"};
    (void)snprintf(momentum, sizeof momentum, "optimizer.momentum=%.17g", c->outer_momentum);
    BY_TRY(by_config_default(&s->outer, error));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        BY_TRY(by_config_set(s->outer, settings[i], error));
    }
    return BY_OK;
}

by_status by__trainer_sync_plan(by_trainer *t, by_error *error)
{
    const by_sync_config *c = &t->config->sync;
    by__trainer_sync *s = &t->sync;
    s->anchor = s->momentum = s->residual = -1;
    s->is_local = c->every > 1;
    s->is_late = s->is_local && c->staleness > 0;
    s->is_coded = strcmp(c->compress, "none") != 0;
    s->is_on = s->is_local || s->is_coded;
    if (!s->is_on) {
        return BY_OK;
    }
    s->is_power = strcmp(c->compress, "power_sgd") == 0;
    if (s->is_coded && !s->is_power) {
        BY_TRY(by__comm_codec_find(&s->codec, c->compress, error));
    }
    return s->is_local ? open_outer(s, c, error) : BY_OK;
}

static by_update_unit unit_at(const by_trainer *t, size_t i)
{
    const by__trainer_slice *own = &t->shard.own[i];
    return by__trainer_unit(t, own->name, BY_SHAPE(own->part.count), own->part.group);
}

by_status by__trainer_sync_lay_out(by_trainer *t, by_error *error)
{
    const unsigned trained = (1u << BY__TRAINED_GROUPS) - 1;
    by__trainer_sync *s = &t->sync;
    if (t->flats.sets == 0) { /* it only computes losses */
        return BY_OK;
    }
    if (s->is_local) {
        by__store_flat_spec spec = {
            .role = BY__STATE, .name = "anchor", .dtype = BY_F32, .groups = trained};
        BY_TRY(by__trainer_shard_add_flat(t, spec, trained, &s->anchor, error));
    }
    if (s->is_local && t->config->sync.outer_momentum > 0.0) {
        by__store_flat_spec spec = {
            .role = BY__STATE, .name = "outer_momentum", .dtype = BY_F32, .groups = trained};
        BY_TRY(by__trainer_shard_add_flat(t, spec, trained, &s->momentum, error));
        t->flats.states[t->flats.state_count++] = s->momentum;
    }
    if (s->is_late) {
        BY_TRY(by__trainer_late_lay_out(t, error));
    }
    if (s->is_coded) {
        by__store_flat_spec spec = {
            .role = BY__STATE, .name = "residual", .dtype = BY_F32, .groups = trained};
        BY_TRY(by__store_add_flat(t->store, &spec, &s->residual, error));
        t->flats.states[t->flats.state_count++] = s->residual;
    }
    return BY_OK;
}

/* grad.U = anchor.U - U */
static by_status build_difference(const by_trainer *t, by_graph *graph, by_error *error)
{
    for (size_t i = 0; i < t->shard.own_count; i++) {
        char name[64];
        const by_update_unit unit = unit_at(t, i);
        by_value own = by_graph_input(graph, unit.name, BY_F32, unit.shape);
        (void)snprintf(name, sizeof name, "anchor.%s", unit.name);
        by_value anchor = by_graph_input(graph, name, BY_F32, unit.shape);
        (void)snprintf(name, sizeof name, "grad.%s", unit.name);
        by_graph_output(graph, by_sub(graph, anchor, own), name);
    }
    return by_graph_check(graph, error);
}

static by_status build_outer(const by_trainer *t, by_graph *graph, by_error *error)
{
    by_update_unit *units;
    size_t count = t->shard.own_count;
    BY_TRY(by__alloc((void **)&units, count + 1, sizeof *units, "outer optimizer", error));
    for (size_t i = 0; i < count; i++) {
        units[i] = unit_at(t, i);
        units[i].copy = BY_F32;
        units[i].decay = false;
    }
    by_status status =
        by_optimizer_update_graph(graph, &t->sync.outer->optimizer, units, count, error);
    free(units);
    return status;
}

by_status by__trainer_sync_add_programs(by_trainer *t, by_error *error)
{
    if (!t->sync.is_local) {
        return BY_OK;
    }
    BY_TRY(t->sync.is_late ? by__trainer_late_add_program(t, error) : BY_OK);
    BY_TRY(by__trainer_add_update(t, "difference", build_difference, &t->sync.difference, error));
    return by__trainer_add_update(t, "outer update", build_outer, &t->sync.outer_update, error);
}

/* ---- memory ---- */

/* Number of elements of the groups that set `split` of axes splits. */
static size_t count_split(const by_trainer *t, int split)
{
    int64_t elements = 0;
    for (size_t i = 0; i < t->units.trained_groups; i++) {
        bool counts = t->units.group_of_unit[i] / BY__GROUP_TENSOR == split;
        elements += counts ? by_shape_count(&t->units.groups[i].shape) : 0;
    }
    return (size_t)elements;
}

/* Lists the tensors of a gradient set, as matrices if possible: all axes but the last are rows. */
static by_status list_tensors(by__comm_power_tensor **out, size_t *count, const by_trainer *t,
                              by_error *error)
{
    by__comm_power_tensor *tensors;
    int flat = t->flats.gradient_sets[0];
    uintptr_t base = by__trainer_flat(t, flat).address;
    BY_TRY(by__alloc((void **)&tensors, by__store_count(t->store), sizeof *tensors, "PowerSGD",
                     error));
    *count = 0;
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        by_memory memory = by__store_buffer(t->store, flat, (by__store_handle)i);
        by_shape shape = by__store_shape(t->store, flat, (by__store_handle)i);
        if (shape.rank < 0) {
            continue;
        }
        size_t elements = (size_t)by_shape_count(&shape);
        size_t columns = shape.rank > 1 ? (size_t)shape.dim[shape.rank - 1] : 0;
        tensors[(*count)++] =
            (by__comm_power_tensor){.first = (memory.address - base) / sizeof(float),
                                    .rows = columns > 0 ? elements / columns : elements,
                                    .columns = columns};
    }
    *out = tensors;
    return BY_OK;
}

size_t by__trainer_sync_bytes(const by_trainer *t)
{
    const by_sync_config *c = &t->config->sync;
    by__comm_power_tensor *tensors;
    size_t count;
    if (t->flats.sets == 0) {
        return 0;
    }
    if (t->sync.codec != NULL) {
        size_t bytes = 0;
        for (int k = 0; k < BY__SPLITS; k++) {
            size_t elements = count_split(t, k);
            bytes += elements == 0 ? 0
                                   : by__comm_coded_sum_bytes(t->layout.replicas, t->sync.codec,
                                                              c->density, elements);
        }
        return bytes;
    }
    if (!t->sync.is_power || list_tensors(&tensors, &count, t, NULL) != BY_OK) {
        return 0;
    }
    size_t bytes = by__comm_power_sum_bytes(tensors, count, (size_t)c->rank);
    free(tensors);
    return bytes;
}

static int compare_places(const void *a, const void *b)
{
    const by__comm_power_tensor *x = a;
    const by__comm_power_tensor *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Lists the padding between the tensors of a set. Sorts `tensors`. */
static by_status list_gaps(by__trainer_sync *s, by__comm_power_tensor *tensors, size_t count,
                           size_t elements, by_error *error)
{
    size_t end = 0;
    BY_TRY(by__alloc((void **)&s->gaps, count + 1, sizeof *s->gaps, "gaps", error));
    qsort(tensors, count, sizeof *tensors, compare_places);
    for (size_t i = 0; i <= count; i++) {
        size_t first = i < count ? tensors[i].first : elements;
        if (first > end) {
            s->gaps[s->gap_count++] = (by__comm_power_tensor){.first = end, .rows = first - end};
        }
        if (i < count) {
            end = first + tensors[i].rows * (tensors[i].columns > 0 ? tensors[i].columns : 1);
        }
    }
    return BY_OK;
}

static by_status open_coded_sums(by_trainer *t, float *residual, by_error *error)
{
    by__trainer_sync *s = &t->sync;
    size_t first = 0;
    for (int k = 0; k < BY__SPLITS; k++) {
        size_t count = count_split(t, k);
        s->codes[k].first = first;
        if (count > 0) {
            BY_TRY(by__comm_coded_sum_open(&s->codes[k].sum, s->peers, s->codec,
                                           t->config->sync.density, residual + first, count,
                                           s->is_late ? 1 : t->threads, error));
        }
        first += count;
    }
    return BY_OK;
}

static by_status open_codes(by_trainer *t, by_error *error)
{
    const by_sync_config *c = &t->config->sync;
    by__trainer_sync *s = &t->sync;
    float *residual = by__sync_values(by__trainer_flat(t, s->residual));
    size_t count = by__exchange_elements(t);
    by__comm_power_tensor *tensors;
    size_t tensor_count;
    BY_TRY(list_tensors(&tensors, &tensor_count, t, error));
    by_status status = list_gaps(s, tensors, tensor_count, count, error);
    if (status == BY_OK) {
        status = s->is_power
                     ? by__comm_power_sum_open(&s->power, s->peers, tensors, tensor_count, residual,
                                               count, (size_t)c->rank, t->config->seed, error)
                     : open_coded_sums(t, residual, error);
    }
    free(tensors);
    return status;
}

/* The flat buffer that replicas exchange: the differences of weights, summed in place. */
static int exchanged_flat(const by_trainer *t)
{
    return t->sync.is_late ? t->sync.late.difference : t->flats.gradient_sets[0];
}

/* Bytes for the outer optimizer's hyper-parameters, and as many for its factor. */
static size_t outer_bytes(const by_trainer *t)
{
    return by__round_up(BY_HYPER_COUNT * sizeof(float), by__device_unit(t->device));
}

static by_status bind_outer(by_trainer *t, by_error *error)
{
    by__trainer_sync *s = &t->sync;
    by__exec_program_row *difference = s->difference;
    by__exec_program_row *outer = s->outer_update;
    BY_TRY(
        by_device_alloc(&s->numbers, t->device, 2 * outer_bytes(t), "the outer optimizer", error));
    BY_TRY(by__exec_row_bind(outer, "hyper",
                             by_memory_at(s->numbers, 0, BY_HYPER_COUNT * sizeof(float)), error));
    BY_TRY(by__exec_row_bind(outer, "scale",
                             by_memory_at(s->numbers, outer_bytes(t), sizeof(float)), error));
    for (size_t i = 0; i < t->shard.own_count; i++) {
        char name[64];
        const char *unit = unit_at(t, i).name;
        by_memory anchor = by__exchange_unit_memory(t, s->anchor, i);
        by_memory gradient = by__exchange_unit_memory(t, exchanged_flat(t), i);
        BY_TRY(by__exec_row_bind(difference, unit, by__exchange_unit_memory(t, t->flats.masters, i),
                                 error));
        BY_TRY(by__exec_row_bind(outer, unit, anchor, error));
        (void)snprintf(name, sizeof name, "anchor.%s", unit);
        BY_TRY(by__exec_row_bind(difference, name, anchor, error));
        (void)snprintf(name, sizeof name, "grad.%s", unit);
        BY_TRY(by__exec_row_bind(difference, name, gradient, error));
        BY_TRY(by__exec_row_bind(outer, name, gradient, error));
        (void)snprintf(name, sizeof name, "momentum.%s", unit);
        if (s->momentum >= 0) {
            BY_TRY(
                by__exec_row_bind(outer, name, by__exchange_unit_memory(t, s->momentum, i), error));
        }
    }
    return BY_OK;
}

/* Codes keep what they have not sent in memory that they read and write, and a late exchange has a
 * thread of its own. */
static by_status check_device(const by_trainer *t, by_error *error)
{
    by_device_info info;
    BY_TRY(by_device_describe(&info, t->device, error));
    if (info.host_memory || (!t->sync.is_coded && !t->sync.is_late)) {
        return BY_OK;
    }
    return by_error_set(error, BY_ECONFIG,
                        "sync.%s needs a device whose memory is the host's, and %s has its own: "
                        "set sync.%s",
                        t->sync.is_coded ? "compress" : "staleness", info.name,
                        t->sync.is_coded ? "compress: none" : "staleness: 0");
}

by_status by__trainer_sync_open(by_trainer *t, by_error *error)
{
    by__trainer_sync *s = &t->sync;
    if (!s->is_on || t->flats.sets == 0) {
        return BY_OK;
    }
    BY_TRY(check_device(t, error));
    s->peers = t->shard.copies;
    if (s->peers == NULL) {
        const by_comm_options alone = {.backend = "self"};
        BY_TRY(by_comm_open(&s->alone, &alone, error));
        s->peers = s->alone;
    }
    if (s->is_late) {
        BY_TRY(by__trainer_late_open(t, error));
    }
    if (s->is_coded) {
        BY_TRY(open_codes(t, error));
    }
    return s->is_local ? bind_outer(t, error) : BY_OK;
}

void by__trainer_sync_close(by_trainer *t)
{
    by__trainer_sync *s = &t->sync;
    by__trainer_late_close(t);
    for (int k = 0; k < BY__SPLITS; k++) {
        by__comm_coded_sum_close(&s->codes[k].sum);
    }
    by__comm_power_sum_close(&s->power);
    by_comm_close(&s->alone);
    by_device_free(&s->numbers);
    by_config_close(&s->outer);
    free(s->gaps);
}

/* ---- exchanges ---- */

bool by__trainer_sync_is_exact(const by_trainer *t)
{
    /* Weights are exchanged after an update, gradients before it. */
    int64_t steps = t->sync.is_local ? t->steps.updates - 1 : t->steps.updates;
    return !t->sync.is_coded || steps / t->config->sync.every < t->config->sync.warmup;
}

/* Checks that this step's gradients and losses are finite on all ranks. Otherwise the step is not
 * applied, and must not affect the residual of the code either. */
static by_status are_finite(by_trainer *t, const float *gradients, bool *out, by_error *error)
{
    size_t losses = (size_t)t->part.micro_batches;
    int32_t bad =
        !by__trainer_all_finite(BY_F32, gradients, by__exchange_elements(t)) ||
        !by__trainer_all_finite(
            BY_F32, by__sync_values(by__trainer_losses(t)) + t->part.first_micro_batch, losses);
    /* All ranks: parts of a tensor on other ranks also decide whether the step is applied. */
    by_comm *all = t->ranks.all != NULL ? t->ranks.all : t->sync.peers;
    BY_TRY(by_comm_all_reduce(all, &bad, 1, BY_I32, "steps not finite", error));
    *out = bad == 0;
    return BY_OK;
}

/* Sums the gradients of replicas that take the same steps, in a code. */
static by_status sum_coded(by_trainer *t, int set, by_error *error)
{
    float *gradients = by__sync_values(by__trainer_set(t, set));
    bool finite = true;
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    BY_TRY(are_finite(t, gradients, &finite, error));
    if (!finite) {
        gradients[0] = NAN; /* so that the norm of every rank is not finite */
        return BY_OK;
    }
    return by__trainer_sync_add_up(t, gradients, by__trainer_sync_is_exact(t), error);
}

static by_status sum(by_trainer *t, const by__sum_tree *tree, int *set, by_error *error)
{
    const by__trainer_sync *s = &t->sync;
    if (!s->is_local) {
        BY_TRY(sum_coded(t, tree->held[tree->held_count - 1].set, error));
    }
    if (s->is_late && !s->plain->in_rounds) {
        /* It does not wait for others at every step, so it does not have their losses. */
        *set = tree->held[tree->held_count - 1].set;
        return BY_OK;
    }
    return s->plain->sum(t, tree, set, error);
}

const by__trainer_summation *by__trainer_sync_summation(by_trainer *t,
                                                        const by__trainer_summation *plain)
{
    t->sync.plain = plain;
    t->sync.summation = *plain;
    t->sync.summation.axes = 0;
    t->sync.summation.sum = sum;
    return t->sync.is_on ? &t->sync.summation : plain;
}

/* After settling all ranks have the sum of the residuals: one rank keeps it. */
static by_status mark_unsettled(by_trainer *t, by_error *error)
{
    by__trainer_sync *s = &t->sync;
    bool clears = s->is_settled && s->is_coded && by_comm_rank(s->peers) > 0;
    s->is_settled = false;
    return clears ? by__device_fill(BY__QUEUE_COMPUTE, by__trainer_flat(t, s->residual), 0, error)
                  : BY_OK;
}

by_status by__trainer_sync_before_step(by_trainer *t, by_error *error)
{
    BY_TRY(t->sync.is_on ? mark_unsettled(t, error) : BY_OK);
    if (!t->sync.is_local || t->sync.is_anchored) {
        return BY_OK;
    }
    t->sync.is_anchored = true;
    return by__exchange_copy(t, t->sync.anchor, t->flats.masters, error);
}

void by__trainer_sync_forget(by_trainer *t)
{
    by__trainer_late_drop(t);
    t->sync.is_anchored = false;
}

/* Sums the differences of this rank's slices over the ranks that own the same slices. */
static by_status add_slices(by_trainer *t, by_error *error)
{
    for (size_t i = 0; i < t->shard.own_count; i++) {
        by_memory memory = by__exchange_unit_memory(t, exchanged_flat(t), i);
        float *values;
        BY_TRY(by__exchange_begin(t, memory, &values, error));
        BY_TRY(by_comm_all_reduce(t->sync.peers, values, memory.bytes / sizeof(float), BY_F32,
                                  "weights since the last exchange", error));
        BY_TRY(by__exchange_end(t, memory, values, error));
    }
    return BY_OK;
}

/* The same of whole buffers. */
static by_status add_all(by_trainer *t, by_error *error)
{
    by_memory memory = by__trainer_flat(t, exchanged_flat(t));
    float *values;
    BY_TRY(by__exchange_begin(t, memory, &values, error));
    BY_TRY(by__trainer_sync_add_up(t, values, by__trainer_sync_is_exact(t), error));
    return by__exchange_end(t, memory, values, error);
}

by_status by__trainer_sync_exchange(by_trainer *t, by_error *error)
{
    BY_TRY(by_program_run(t->sync.difference->program, error));
    BY_TRY(t->shard.states != 0 ? add_slices(t, error) : add_all(t, error));
    BY_TRY(by__trainer_sync_outer_step(t, error));
    return by__trainer_sync_load_anchor(t, error);
}

by_status by__trainer_sync_after_update(by_trainer *t, by_error *error)
{
    bool due = t->sync.is_local && t->steps.updates % t->config->sync.every == 0;
    if (t->sync.is_late) {
        return by__trainer_late_after_update(t, due, error);
    }
    return due ? by__trainer_sync_exchange(t, error) : BY_OK;
}
