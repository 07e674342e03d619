/* Texts that the model continues during training: a program that adds one token to a sequence,
 * using the weights that the programs of a step compute with. No weights are copied; its own memory
 * is the key/value caches of one sequence, whose length the config sets. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/graphs/graphs.h"
#include "trainer/probes/probes.h"
#include "trainer/state/trainer.h"

#define NAME        "sample"
#define TEMPERATURE 0.8

/* Where its inputs and logits are in its memory, in units of the device; caches follow. */
enum { AT_START = 0, AT_TOKENS, AT_POSITIONS, AT_LOGITS };

struct by__trainer_sampler {
    int64_t positions;
    by__exec_program_row *row;
    int64_t vocab; /* of the model */
    size_t bytes;  /* size of `memory` */
    by_memory memory;
    float *logits;
};

/* A token is at least one byte, and some tokenizers add one at the beginning. */
static int64_t positions_of(const by_config *config)
{
    int64_t wanted = (int64_t)strlen(config->track.sample_prompt) + 1 + config->track.sample_tokens;
    return wanted < config->model.context ? wanted : config->model.context;
}

/* The first axis that leaves no rank with all weights; -1: none. */
static int dividing_axis(const by_trainer *t)
{
    static const int axes[] = {BY_MESH_PIPELINE, BY_MESH_EXPERT, BY_MESH_TENSOR};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(axes); i++) {
        if (t->layout.size[axes[i]] > 1) {
            return axes[i];
        }
    }
    return t->shard.parameters != 0 ? BY_MESH_SHARD : -1;
}

static by_status add_program(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    by_graph *graph;
    by_model model;
    const by__trainer_recipe recipe = {o->builder, o->user, t->task};
    const by_pass_options options = by__trainer_graph_pass_options(t->config, NULL);
    BY_TRY(by__trainer_decode_forward(&graph, &model, t->config, &recipe,
                                      t->probes.sampler->positions, error));
    t->probes.sampler->vocab = by_shape_count(&graph->values[model.logits].shape);
    return by__exec_set_add(&t->programs, NAME, graph, BY_PURPOSE_LOSS, &options,
                            &t->probes.sampler->row, error);
}

by_status by__trainer_sampler_plan(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    if (t->config->track.sample_every == 0 || t->flats.sets == 0) {
        return BY_OK;
    }
    int axis = dividing_axis(t);
    if (axis >= 0) {
        return by_error_set(error, BY_ECONFIG,
                            "track.sample_every: no rank has all weights with parallel.%s %d%s: "
                            "set it to 0, and use banyan generate on a checkpoint",
                            by_mesh_axis_name((by_mesh_axis)axis), t->layout.size[axis],
                            axis == BY_MESH_SHARD ? " and parallel.zero 3" : "");
    }
    if (t->layout.rank != 0) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&t->probes.sampler, 1, sizeof *t->probes.sampler, "sampler", error));
    t->probes.sampler->positions = positions_of(t->config);
    BY_TRY(add_program(t, o, error));
    const by_graph *graph = t->probes.sampler->row->graph;
    size_t unit = by__device_unit(t->device);
    t->probes.sampler->bytes =
        AT_LOGITS * unit + by__round_up((size_t)t->probes.sampler->vocab * sizeof(float), unit);
    for (size_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].role == BY_ROLE_STATE) {
            t->probes.sampler->bytes +=
                by__round_up(by__graph_value_bytes(&graph->values[v]), unit);
        }
    }
    return BY_OK;
}

size_t by__trainer_sampler_bytes(const by_trainer *t)
{
    return t->probes.sampler == NULL
               ? 0
               : t->probes.sampler->bytes +
                     (size_t)t->probes.sampler->vocab * sizeof *t->probes.sampler->logits;
}

/* A weight as the programs of a step read it. */
static by_memory weight_of(const by_trainer *t, const char *name)
{
    by__store_handle entry = by__store_find(t->store, name);
    bool has_copy =
        entry != BY__NO_ENTRY && by__store_shape(t->store, t->flats.copies, entry).rank >= 0;
    return entry == BY__NO_ENTRY
               ? (by_memory){0}
               : by__store_buffer(t->store, has_copy ? t->flats.copies : t->flats.masters, entry);
}

by_status by__trainer_sampler_open(by_trainer *t, by_error *error)
{
    by__trainer_sampler *s = t->probes.sampler;
    if (s == NULL) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&s->logits, (size_t)s->vocab, sizeof *s->logits, "logits", error));
    BY_TRY(by_device_alloc(&s->memory, t->device, s->bytes, "the caches of samples", error));
    by__exec_program_row *row = s->row;
    size_t logits = (size_t)s->vocab * sizeof(float);
    size_t unit = by__device_unit(t->device);
    size_t at = AT_LOGITS * unit + by__round_up(logits, unit);
    for (size_t v = 0; v < row->graph->value_count; v++) {
        const by__graph_value *value = &row->graph->values[v];
        size_t bytes = by__graph_value_bytes(value);
        if (value->role == BY_ROLE_PARAMETER) {
            BY_TRY(by__exec_row_bind(row, value->name, weight_of(t, value->name), error));
        } else if (value->role == BY_ROLE_STATE) {
            BY_TRY(by__exec_row_bind(row, value->name, by_memory_at(s->memory, at, bytes), error));
            at += by__round_up(bytes, unit);
        }
    }
    const size_t id = sizeof(int32_t);
    BY_TRY(by__exec_row_bind(row, "start", by_memory_at(s->memory, AT_START * unit, id), error));
    BY_TRY(by__exec_row_bind(row, "tokens", by_memory_at(s->memory, AT_TOKENS * unit, id), error));
    BY_TRY(by__exec_row_bind(row, "positions", by_memory_at(s->memory, AT_POSITIONS * unit, id),
                             error));
    return by__exec_row_bind(row, "logits", by_memory_at(s->memory, AT_LOGITS * unit, logits),
                             error);
}

void by__trainer_sampler_close(by_trainer *t)
{
    if (t->probes.sampler != NULL) {
        by_device_free(&t->probes.sampler->memory);
        free(t->probes.sampler->logits);
        free(t->probes.sampler);
        t->probes.sampler = NULL;
    }
}

int64_t by__trainer_sampler_positions(const by_trainer *t)
{
    return t->probes.sampler == NULL ? 0 : t->probes.sampler->positions;
}

/* Computes the logits after `id` at a position. */
static by_status feed_token(by_trainer *t, int32_t id, size_t position, by_error *error)
{
    by__trainer_sampler *s = t->probes.sampler;
    int32_t at = (int32_t)position;
    size_t unit = by__device_unit(t->device);
    const struct {
        size_t offset;
        int32_t value;
    } inputs[] = {{AT_START * unit, at}, {AT_TOKENS * unit, id}, {AT_POSITIONS * unit, at}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(inputs); i++) {
        BY_TRY(by_device_write(by_memory_at(s->memory, inputs[i].offset, sizeof at),
                               &inputs[i].value, error));
    }
    BY_TRY(by_program_run(s->row->program, error));
    size_t bytes = (size_t)s->vocab * sizeof *s->logits;
    return by_device_read(s->logits, by_memory_at(s->memory, AT_LOGITS * unit, bytes), error);
}

/* Uniform in (0, 1), a function of seed, position and id. */
static double uniform(uint64_t seed, size_t position, uint32_t id)
{
    uint32_t key[2];
    uint32_t random[4];
    const uint32_t counter[4] = {id, (uint32_t)position, 0, 0};
    by__philox_key(key, seed, by__hash64(NAME, strlen(NAME)));
    by__philox(random, key, counter);
    return ((double)random[0] + 0.5) * 0x1p-32;
}

/* Draws from softmax(logits / temperature): the largest of logit / temperature + G with G from the
 * standard Gumbel distribution, -log(-log(u)) (Gumbel 1954). -1: no logit is finite. */
static int32_t draw(const by__trainer_sampler *s, uint64_t seed, size_t position, int64_t vocab)
{
    int32_t best = -1;
    double most = -INFINITY;
    for (int32_t id = 0; id < vocab; id++) {
        double logit = (double)s->logits[id] / TEMPERATURE;
        double value = logit - log(-log(uniform(seed, position, (uint32_t)id)));
        if (isfinite(logit) && value > most) {
            most = value;
            best = id;
        }
    }
    return best;
}

by_status by__trainer_sampler_run(by_trainer *t, int32_t *ids, size_t count, size_t more,
                                  int64_t vocab, size_t *made, by_error *error)
{
    const by__trainer_sampler *s = t->probes.sampler;
    vocab = vocab < s->vocab ? vocab : s->vocab;
    *made = 0;
    for (size_t i = 0; i + 1 < count + more; i++) {
        BY_TRY(feed_token(t, ids[i], i, error));
        if (i + 1 < count) {
            continue;
        }
        ids[i + 1] = draw(s, t->config->seed, i + 1, vocab);
        if (ids[i + 1] < 0) {
            return BY_OK;
        }
        ++*made;
    }
    return BY_OK;
}
