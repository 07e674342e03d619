/* The completions of a step: samples them from the weights of the trainer, has them rated, and
 * writes the batch that the graph reads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/comm.h"
#include "banyan/engine.h"
#include "banyan/trainer.h"
#include "reinforce/reinforce.h"
#include "trainer/state/trainer.h"

/* Sequences that an engine runs at a time, at most: more make a step of it longer, not faster. */
#define SESSIONS 64

/* A completion of this rank. */
typedef struct rollout {
    by__task_prompt prompt;
    int32_t *tokens; /* [max_tokens] */
    float *own;      /* [max_tokens] log-probabilities by the weights that sampled */
    float *start;    /* ... by those at the start; unused without task.kl */
    int64_t count;
    bool stopped; /* the last token is one that ends completions */
} rollout;

/* What ranks tell each other of a completion: 32-bit words. */
enum { SHARED_INDEX = 0, SHARED_REWARD, SHARED_TOKENS, SHARED_CUT, SHARED_KL, SHARED_WORDS };

struct by_rollouts {
    by_trainer *trainer;
    by_task_data *data;
    const by_config *config;
    by_comm *comm; /* NULL: a single rank */
    const by__task_reinforce_keys *keys;
    by__reinforce_objective objective;
    by__reinforce_rewards *rewards;
    by_engine *engine;
    by_engine *start; /* of the weights at the start; NULL: not needed */
    float *weight;    /* a copy of a weight that is not in host memory */
    size_t weight_capacity;
    rollout *list; /* [most] of this rank */
    size_t most;   /* completions of this rank in a step */
    int32_t *tokens_of;
    float *own_of;
    float *start_of;
    by_text *texts; /* [most] decoded */
    by__reinforce_answered *answered;
    double *rated;
    int32_t *shared;                /* [all, SHARED_WORDS] */
    int32_t *gathered;              /* the same of all ranks */
    by__reinforce_completion *step; /* [all], in the order of the batch */
    double *advantages;
    double *scales;
    size_t *counts; /* [ranks] */
    int32_t *sizes; /* [ranks] */
    size_t all;
    int32_t *tokens; /* of the batch, [most, context] */
    int32_t *targets;
    float *weights;
    by_array arrays[3];
};

/* ---- opening ---- */

static by_status refuse(const char *key, const char *why, by_error *error)
{
    return by_error_set(error, BY_ECONFIG, "task.kind reinforce: %s: %s", key, why);
}

/* Completions need all weights on each rank, as they are after the last step. */
static by_status check_layout(const by_rollout_request *r, by_error *error)
{
    static const int axes[] = {BY_MESH_PIPELINE, BY_MESH_EXPERT, BY_MESH_TENSOR, BY_MESH_SEQUENCE};
    const by_trainer *t = r->trainer;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(axes); i++) {
        if (t->layout.size[axes[i]] > 1) {
            return by_error_set(error, BY_ECONFIG,
                                "task.kind reinforce completes prompts on each rank, and no rank "
                                "has the whole model with parallel.%s %d: use parallel.data",
                                by_mesh_axis_name((by_mesh_axis)axes[i]), t->layout.size[axes[i]]);
        }
    }
    if (t->shard.parameters != 0) {
        return refuse("parallel.zero 3", "no rank has all weights; use parallel.zero 1 or 2",
                      error);
    }
    if (t->sync.is_local || t->sync.is_late) {
        return refuse("sync", "ranks must have the same weights after each step", error);
    }
    if (r->config->lora.rank > 0) {
        return refuse("lora.rank", "adapters are not supported: train all weights", error);
    }
    return BY_OK;
}

static by_status open_engine(by_engine **out, const by_rollouts *r, const by_weights *weights,
                             by_error *error)
{
    int64_t context = r->config->model.context;
    int64_t sessions = r->most < SESSIONS ? (int64_t)r->most : SESSIONS;
    const by_engine_options options = {
        .context = context,
        .sessions = sessions,
        .waiting = (int64_t)r->most,
        .pages = sessions * ((context + BY_PAGE_TOKENS - 1) / BY_PAGE_TOKENS),
        .precision = r->config->precision.compute,
        .threads = (int)r->config->train.threads,
        .vocab = by_tokenizer_vocab(by__task_reinforce_tokenizer(r->data)),
        .device = r->trainer->device};
    return by_engine_open(out, r->config, weights, &options, error);
}

static by_status open_engines(by_rollouts *r, by_error *error)
{
    by_weights *weights;
    BY_TRY(open_engine(&r->engine, r, NULL, error));
    if (r->keys->kl == 0.0) {
        return BY_OK;
    }
    by_status status = by_weights_open(&weights, r->config->model.from, error);
    if (status == BY_OK) {
        status = open_engine(&r->start, r, weights, error);
        by_weights_close(&weights);
    }
    return status == BY_OK ? BY_OK : by_error_prefix(error, status, "task.kl");
}

static by_status allocate_own(by_rollouts *r, by_error *error)
{
    size_t context = (size_t)r->config->model.context;
    size_t longest = (size_t)r->keys->max_tokens;
    size_t tokens;
    size_t batch;
    if (!by__size_mul(r->most, longest, &tokens) || !by__size_mul(r->most, context, &batch)) {
        return by_error_set(error, BY_EMEMORY, "%zu completions of %zu tokens overflow", r->most,
                            context);
    }
    BY_TRY(by__alloc((void **)&r->list, r->most, sizeof *r->list, "completions", error));
    BY_TRY(by__alloc((void **)&r->tokens_of, tokens, sizeof *r->tokens_of, "completions", error));
    BY_TRY(by__alloc((void **)&r->own_of, tokens, sizeof *r->own_of, "completions", error));
    BY_TRY(by__alloc((void **)&r->start_of, tokens, sizeof *r->start_of, "completions", error));
    BY_TRY(by__alloc((void **)&r->texts, r->most, sizeof *r->texts, "completions", error));
    BY_TRY(by__alloc((void **)&r->answered, r->most, sizeof *r->answered, "completions", error));
    BY_TRY(by__alloc((void **)&r->rated, r->most, sizeof *r->rated, "completions", error));
    BY_TRY(by__alloc((void **)&r->tokens, batch, sizeof *r->tokens, "a batch", error));
    BY_TRY(by__alloc((void **)&r->targets, batch, sizeof *r->targets, "a batch", error));
    BY_TRY(by__alloc((void **)&r->weights, batch, sizeof *r->weights, "a batch", error));
    for (size_t i = 0; i < r->most; i++) {
        r->list[i] = (rollout){.tokens = r->tokens_of + i * longest,
                               .own = r->own_of + i * longest,
                               .start = r->start_of + i * longest};
    }
    return BY_OK;
}

static by_status allocate_step(by_rollouts *r, by_error *error)
{
    size_t ranks = r->comm == NULL ? 1 : (size_t)by_comm_size(r->comm);
    size_t words;
    if (!by__size_mul(r->all, SHARED_WORDS, &words)) {
        return by_error_set(error, BY_EMEMORY, "%zu completions overflow", r->all);
    }
    BY_TRY(by__alloc((void **)&r->shared, words, sizeof *r->shared, "rewards", error));
    BY_TRY(by__alloc((void **)&r->gathered, words, sizeof *r->gathered, "rewards", error));
    BY_TRY(by__alloc((void **)&r->step, r->all, sizeof *r->step, "rewards", error));
    BY_TRY(by__alloc((void **)&r->advantages, r->all, sizeof *r->advantages, "rewards", error));
    BY_TRY(by__alloc((void **)&r->scales, r->all, sizeof *r->scales, "rewards", error));
    BY_TRY(by__alloc((void **)&r->counts, ranks, sizeof *r->counts, "rewards", error));
    return by__alloc((void **)&r->sizes, ranks, sizeof *r->sizes, "rewards", error);
}

/* The largest batch of a step (train.batch_warmup). */
static size_t largest_batch(const by_config *config)
{
    int64_t most = config->train.batch;
    int64_t before = by_config_batch(config, 1);
    return (size_t)(before > most ? before : most);
}

static void close_rollouts(by_rollouts **rollouts)
{
    by_rollouts *r = *rollouts;
    if (r == NULL) {
        return;
    }
    by_engine_close(&r->engine);
    by_engine_close(&r->start);
    by__reinforce_rewards_close(&r->rewards);
    free(r->weight);
    free(r->list);
    free(r->tokens_of);
    free(r->own_of);
    free(r->start_of);
    free(r->texts);
    free(r->answered);
    free(r->rated);
    free(r->shared);
    free(r->gathered);
    free(r->step);
    free(r->advantages);
    free(r->scales);
    free(r->counts);
    free(r->sizes);
    free(r->tokens);
    free(r->targets);
    free(r->weights);
    free(r);
    *rollouts = NULL;
}

static by_status open_rollouts(by_rollouts **out, uint64_t *bytes,
                               const by_rollout_request *request, by_error *error)
{
    by_rollouts *r;
    BY_TRY(check_layout(request, error));
    BY_TRY(by__alloc((void **)&r, 1, sizeof *r, "rollouts", error));
    r->trainer = request->trainer;
    r->data = request->data;
    r->config = request->config;
    r->comm = request->comm;
    r->keys = by__task_reinforce_keys_of(request->config);
    r->objective = by__reinforce_objective_of(r->keys);
    r->all = largest_batch(request->config);
    r->most = by_trainer_part(request->trainer).count;
    by_status status = by__reinforce_rewards_open(&r->rewards, r->keys, error);
    if (status == BY_OK) {
        status = allocate_own(r, error);
    }
    if (status == BY_OK) {
        status = allocate_step(r, error);
    }
    if (status == BY_OK) {
        status = open_engines(r, error);
    }
    if (status != BY_OK) {
        close_rollouts(&r);
        return status;
    }
    *bytes = by_engine_memory(r->engine)->total +
             (r->start == NULL ? 0 : by_engine_memory(r->start)->total) +
             r->most * 12 * (uint64_t)(r->config->model.context + r->keys->max_tokens);
    *out = r;
    return BY_OK;
}

/* ---- sampling ---- */

/* A weight of the trainer, which has them under the same names. */
static by_status read_weight(void *user, const char *name, by_tensor_view *out, by_error *error)
{
    by_rollouts *r = user;
    size_t i = 0;
    size_t count = by_trainer_parameter_count(r->trainer);
    while (i < count && strcmp(by_trainer_parameter(r->trainer, i).name, name) != 0) {
        i++;
    }
    if (i == count) {
        return by_error_set(error, BY_ESTATE, "the trainer has no weight %s", name);
    }
    *out = by_trainer_parameter(r->trainer, i);
    if (out->data == NULL) { /* on a device, or on disk */
        size_t elements;
        BY_TRY(by_tensor_size(out, &elements, NULL, error));
        BY_TRY(by__reserve((void **)&r->weight, &r->weight_capacity, elements, sizeof *r->weight,
                           error));
        BY_TRY(by_trainer_read(r->trainer, BY_TRAINER_PARAMETER, 0, i, r->weight, error));
        out->data = r->weight;
    }
    return BY_OK;
}

/* The seed of a completion: of the run, of which drawing of a prompt it is, and its place. */
static uint64_t seed_of(const by_rollouts *r, const int32_t *sample)
{
    const struct {
        uint64_t seed;
        uint32_t low;
        uint32_t high;
        uint64_t place;
    } key = {r->config->seed, (uint32_t)sample[BY__ROLLOUT_LOW], (uint32_t)sample[BY__ROLLOUT_HIGH],
             (uint64_t)sample[BY__ROLLOUT_PLACE]};
    return by__hash64(&key, sizeof key);
}

static by_status submit(by_rollouts *r, size_t i, const int32_t *sample, uint64_t *session,
                        by_error *error)
{
    rollout *own = &r->list[i];
    size_t stops;
    const int32_t *stop = by__task_reinforce_stops(r->data, &stops);
    own->prompt = by__task_prompts_at(by__task_reinforce_prompts(r->data),
                                      (size_t)sample[BY__ROLLOUT_PROMPT]);
    own->count = 0;
    own->stopped = false;
    const by_request request = {
        .prompt = own->prompt.ids,
        .prompt_count = own->prompt.count,
        .tokens = r->keys->max_tokens,
        .sampling = {.temperature = r->keys->temperature, .top_p = 1.0, .seed = seed_of(r, sample)},
        .stop = stop,
        .stop_count = stops};
    return by_engine_submit(r->engine, &request, session, error);
}

static by_status take(by_rollouts *r, const by_event *e, uint64_t first, by_error *error)
{
    rollout *own = &r->list[e->session - first];
    if (e->finish == BY_FINISH_FAILED) {
        return by_error_set(error, e->status, "a completion: %s", e->failure);
    }
    if (e->token >= 0) {
        own->tokens[own->count] = e->token;
        own->own[own->count++] = e->log_probability;
    }
    own->stopped = e->finish == BY_FINISH_STOP;
    return BY_OK;
}

static by_status sample_completions(by_rollouts *r, const by_batch *batch,
                                    void (*alive)(void *user), void *user, by_error *error)
{
    const int32_t *samples = by_batch_array(batch, "sample")->data;
    uint64_t first = 0;
    BY_TRY(by_engine_set_weights(r->engine, read_weight, r, error));
    for (size_t i = 0; i < batch->batch; i++) {
        uint64_t session;
        BY_TRY(submit(r, i, samples + i * BY__ROLLOUT_FIELDS, &session, error));
        first = i == 0 ? session : first;
    }
    while (by_engine_busy(r->engine)) {
        const by_event *events;
        size_t count;
        BY_TRY(by_engine_step(r->engine, &events, &count, error));
        for (size_t i = 0; i < count; i++) {
            BY_TRY(take(r, &events[i], first, error));
        }
        alive(user);
    }
    return BY_OK;
}

/* ---- log-probabilities by the weights at the start ---- */

static by_status score_completions(by_rollouts *r, size_t batch, void (*alive)(void *user),
                                   void *user, by_error *error)
{
    uint64_t first = 0;
    for (size_t i = 0; i < batch && r->start != NULL; i++) {
        const rollout *own = &r->list[i];
        int32_t *text = r->tokens + i * (size_t)r->config->model.context;
        uint64_t session;
        memcpy(text, own->prompt.ids, own->prompt.count * sizeof *text);
        memcpy(text + own->prompt.count, own->tokens, (size_t)own->count * sizeof *text);
        const by_request request = {.prompt = text,
                                    .prompt_count = own->prompt.count + (size_t)own->count,
                                    .tokens = 1,
                                    .sampling = {.temperature = 1.0, .top_p = 1.0},
                                    .score = true,
                                    .only_prompt = true};
        BY_TRY(by_engine_submit(r->start, &request, &session, error));
        first = i == 0 ? session : first;
    }
    while (r->start != NULL && by_engine_busy(r->start)) {
        const by_event *events;
        size_t count;
        BY_TRY(by_engine_step(r->start, &events, &count, error));
        for (size_t i = 0; i < count; i++) {
            rollout *own = &r->list[events[i].session - first];
            int64_t at = events[i].prompt_position - (int64_t)own->prompt.count;
            if (events[i].prompt_position > 0 && at >= 0 && at < own->count) {
                own->start[at] = events[i].log_probability;
            }
        }
        alive(user);
    }
    return BY_OK;
}

/* ---- rewards ---- */

static by_status decode(by_rollouts *r, size_t i, by_error *error)
{
    const rollout *own = &r->list[i];
    char *text;
    size_t length;
    uint32_t *ids;
    size_t count = (size_t)own->count - (own->stopped ? 1 : 0);
    BY_TRY(by__alloc((void **)&ids, count + 1, sizeof *ids, "a completion", error));
    for (size_t k = 0; k < count; k++) {
        ids[k] = (uint32_t)own->tokens[k];
    }
    by_status status = by_tokenizer_decode(by__task_reinforce_tokenizer(r->data), ids, count, &text,
                                           &length, error);
    free(ids);
    BY_TRY(status);
    r->texts[i] = (by_text){text, length};
    r->answered[i] = (by__reinforce_answered){.line = own->prompt.line,
                                              .is_object = own->prompt.is_object,
                                              .answer = own->prompt.answer,
                                              .completion = r->texts[i],
                                              .tokens = own->count};
    return BY_OK;
}

static by_status rate(by_rollouts *r, size_t batch, by_error *error)
{
    by_status status = BY_OK;
    size_t decoded = 0;
    for (; decoded < batch && status == BY_OK; decoded++) {
        r->texts[decoded] = (by_text){NULL, 0};
        status = decode(r, decoded, error);
    }
    if (status == BY_OK) {
        status = by__reinforce_reward(r->rewards, r->rated, r->answered, batch, error);
    }
    if (status == BY_OK && by_trainer_updates(r->trainer) + 1 == r->config->train.steps) {
        status = by__reinforce_rewards_finish(r->rewards, error);
    }
    for (size_t i = 0; i < decoded; i++) {
        free((char *)r->texts[i].data);
    }
    return status;
}

/* ---- all ranks ---- */

static double divergence(const by_rollouts *r, const rollout *own)
{
    double sum = 0.0;
    for (int64_t t = 0; t < own->count && r->start != NULL; t++) {
        sum += by__reinforce_divergence((double)own->own[t], (double)own->start[t]);
    }
    return sum;
}

static int32_t word_of(float value)
{
    int32_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

static float value_of(int32_t word)
{
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* The place of a completion of this rank in the batch of all. */
static size_t index_of(const by_batch_part *part, size_t i)
{
    return part->block == 0 ? part->first + i
                            : part->first + i / part->block * part->stride + i % part->block;
}

static by_status gather(by_rollouts *r, size_t batch, size_t *all, by_error *error)
{
    int32_t size = (int32_t)batch;
    size_t ranks = r->comm == NULL ? 1 : (size_t)by_comm_size(r->comm);
    *all = batch;
    if (r->comm == NULL) {
        memcpy(r->gathered, r->shared, batch * SHARED_WORDS * sizeof *r->shared);
        return BY_OK;
    }
    for (size_t i = 0; i < ranks; i++) {
        r->counts[i] = 1;
    }
    BY_TRY(by_comm_all_gather(r->comm, &size, r->sizes, r->counts, BY_I32, "completions", error));
    *all = 0;
    for (size_t i = 0; i < ranks; i++) {
        r->counts[i] = (size_t)r->sizes[i] * SHARED_WORDS;
        *all += (size_t)r->sizes[i];
    }
    return by_comm_all_gather(r->comm, r->shared, r->gathered, r->counts, BY_I32, "rewards", error);
}

/* Sets what all ranks know of the step's completions, in the order of the batch. Rewards pass
 * through f32 on any number of ranks. */
static by_status share(by_rollouts *r, size_t batch, size_t *all, by_error *error)
{
    const by_batch_part part = by_trainer_part(r->trainer);
    for (size_t i = 0; i < batch; i++) {
        const rollout *own = &r->list[i];
        int32_t *words = r->shared + i * SHARED_WORDS;
        words[SHARED_INDEX] = (int32_t)index_of(&part, i);
        words[SHARED_REWARD] = word_of((float)r->rated[i]);
        words[SHARED_TOKENS] = (int32_t)own->count;
        words[SHARED_CUT] = !own->stopped;
        words[SHARED_KL] = word_of((float)divergence(r, own));
    }
    BY_TRY(gather(r, batch, all, error));
    for (size_t i = 0; i < *all; i++) {
        const int32_t *words = r->gathered + i * SHARED_WORDS;
        r->step[words[SHARED_INDEX]] =
            (by__reinforce_completion){.reward = (double)value_of(words[SHARED_REWARD]),
                                       .tokens = words[SHARED_TOKENS],
                                       .cut = words[SHARED_CUT] != 0,
                                       .kl = (double)value_of(words[SHARED_KL])};
    }
    return BY_OK;
}

/* ---- the batch ---- */

/* A completion as a row of the batch: each of its tokens is the target of the one before it. */
static void write_row(by_rollouts *r, size_t i, double advantage, double scale)
{
    size_t context = (size_t)r->config->model.context;
    const rollout *own = &r->list[i];
    int32_t *tokens = r->tokens + i * context;
    int32_t *targets = r->targets + i * context;
    float *weights = r->weights + i * context;
    size_t prompt = own->prompt.count;
    for (size_t t = 0; t < context; t++) {
        size_t made = t + 1 - prompt; /* the completion's token that t predicts, if t is behind */
        bool predicts = t + 1 >= prompt && made < (size_t)own->count;
        tokens[t] = t < prompt                        ? own->prompt.ids[t]
                    : t - prompt < (size_t)own->count ? own->tokens[t - prompt]
                                                      : 0;
        targets[t] = predicts ? own->tokens[made] : -1;
        weights[t] = 0.0f;
        if (predicts) {
            double start = r->start == NULL ? 0.0 : (double)own->start[made];
            weights[t] = (float)(scale * by__reinforce_token_weight(advantage, r->objective.kl,
                                                                    (double)own->own[made], start));
        }
    }
}

static void write_batch(by_rollouts *r, by_batch *batch, double divisor)
{
    const by_batch_part part = by_trainer_part(r->trainer);
    const by_shape shape = BY_SHAPE((int64_t)batch->batch, r->config->model.context);
    uint64_t targets = 0;
    for (size_t i = 0; i < batch->batch; i++) {
        size_t index = index_of(&part, i);
        write_row(r, i, r->advantages[index], r->scales[index]);
        targets += (uint64_t)r->list[i].count;
    }
    r->arrays[0] = (by_array){.name = "tokens", .dtype = BY_I32, .shape = shape, .data = r->tokens};
    r->arrays[1] =
        (by_array){.name = "targets", .dtype = BY_I32, .shape = shape, .data = r->targets};
    r->arrays[2] =
        (by_array){.name = "weight", .dtype = BY_F32, .shape = shape, .data = r->weights};
    batch->arrays = r->arrays;
    batch->array_count = BY_ARRAY_LENGTH(r->arrays);
    batch->valid_targets = targets;
    batch->weighted = true;
    batch->valid_weight = divisor;
    batch->global_weight = divisor;
}

static by_status make(by_rollouts *r, by_batch *batch, by_rollout_report *report,
                      void (*alive)(void *user), void *user, by_error *error)
{
    size_t all;
    uint64_t targets = 0;
    BY_TRY(sample_completions(r, batch, alive, user, error));
    BY_TRY(score_completions(r, batch->batch, alive, user, error));
    BY_TRY(rate(r, batch->batch, error));
    BY_TRY(share(r, batch->batch, &all, error));
    double divisor = by__reinforce_weigh(r->advantages, r->scales, r->step, all, &r->objective);
    *report = by__reinforce_report(r->step, all, &r->objective);
    for (size_t i = 0; i < all; i++) {
        targets += (uint64_t)r->step[i].tokens;
    }
    write_batch(r, batch, divisor);
    batch->global_targets = targets;
    return BY_OK;
}

const by_rollout_maker *by_reinforce_maker(void)
{
    static const by_rollout_maker maker = {
        .open = open_rollouts, .make = make, .close = close_rollouts};
    return &maker;
}
