/* Finds changes of a config, alone and combined, that make its plan fit, by planning each. */
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"
#include "trainer/plan/trainer_plan.h"
#include "trainer/state/trainer.h"

typedef enum dimension {
    RECOMPUTE,
    MICRO_BATCH,
    PRECISION,
    OPTIMIZER,
    OFFLOAD,
    DIMENSIONS
} dimension;

/* A change. For the micro-batch the largest fitting value is searched, for a budget it is the
 * limit. */
static const struct {
    dimension of;
    const char *key;
    const char *value;
} moves[] = {
    {PRECISION, "precision.compute", "bf16"},   {RECOMPUTE, "memory.budget", NULL},
    {RECOMPUTE, "memory.recompute", "block"},   {RECOMPUTE, "memory.recompute", "full"},
    {MICRO_BATCH, "train.micro_batch", NULL},   {OPTIMIZER, "optimizer.kind", "adamw8bit"},
    {OPTIMIZER, "optimizer.kind", "adafactor"}, {OFFLOAD, "offload.optimizer", "disk"},
};
enum { MOVES = BY_ARRAY_LENGTH(moves) };

typedef struct change_search {
    const by_config *config;
    by_trainer_options options;
    uint64_t limit;
    int ranks;
    int64_t work; /* layers planned so far */
    by_plan_change *out;
    size_t count;
} change_search;

/* A plan. */
typedef struct need {
    uint64_t bytes;  /* UINT64_MAX: the config cannot be planned */
    uint64_t lowest; /* bytes with a single set of gradients: grows with the micro-batch */
    uint64_t state;  /* bytes of parameters, one set of gradients, and the optimizer's state */
    uint64_t activations;
    double seconds;
} need;

/* Removes keys that the other optimizer does not have, which would be refused. */
static void reset_keys(by_config *config, const char *kind)
{
    by__config *c = (by__config *)config;
    for (size_t i = 0; i < c->count; i++) {
        by__config_entry *entry = &c->entries[i];
        bool of_kind = entry->kind != NULL && strcmp(entry->key.section, "optimizer") == 0;
        if (of_kind && strcmp(entry->kind->name, kind) != 0) {
            free(entry->origin);
            entry->origin = NULL;
        }
    }
}

static by_status set_key(by_config *config, const char *key, const char *value, by_error *error)
{
    char assignment[128];
    if (strcmp(key, "optimizer.kind") == 0) {
        reset_keys(config, value);
    }
    (void)snprintf(assignment, sizeof assignment, "%s=%s", key, value);
    return by_config_set(config, assignment, error);
}

static bool chooses(const by_config *config)
{
    return config->memory.budget > 0 && strcmp(config->memory.recompute, "none") == 0;
}

/* About as many plans as a choice by budget takes. */
#define TRIALS 24

static need plan(change_search *s, by_config *config)
{
    by_trainer *t;
    need n = {.bytes = UINT64_MAX, .lowest = UINT64_MAX};
    if (by_config_resolve(config, NULL) != BY_OK ||
        by__trainer_open_unconnected(&t, config, &s->options, NULL) != BY_OK) {
        return n;
    }
    s->work += config->model.layers * (chooses(config) ? TRIALS : 1);
    if (by__trainer_needs(&n.bytes, t, &s->options, NULL) == BY_OK) {
        const by_memory_report *m = by_trainer_memory(t);
        uint64_t sets =
            m->gradients - m->gradients / (uint64_t)(t->flats.sets > 0 ? t->flats.sets : 1);
        n.lowest = n.bytes - sets;
        n.state = m->parameters + m->gradients - sets + m->optimizer;
        n.activations = m->activations;
        n.seconds = by_trainer_seconds(t);
    }
    by_trainer_close(&t);
    return n;
}

/* Plans with the least activations, if the budget is to choose: faster than to find the choice. */
static need plan_least(change_search *s, const by_config *config, int64_t layers)
{
    by_config *least;
    char text[32];
    need n = {.bytes = UINT64_MAX, .lowest = UINT64_MAX};
    const char *kind = config->parallel.pipeline > 1 ? "block" : "full";
    if (by_config_copy(&least, config, NULL) != BY_OK) {
        return n;
    }
    (void)snprintf(text, sizeof text, "%lld", (long long)layers);
    bool can =
        (!chooses(config) || set_key(least, "memory.recompute", kind, NULL) == BY_OK) &&
        (layers == config->model.layers || set_key(least, "model.layers", text, NULL) == BY_OK);
    n = can ? plan(s, least) : n;
    by_config_close(&least);
    return n;
}

/* Layers of two plans that tell what a model of more than DEEP layers needs at least. */
enum { FEW = 16, MORE = 32, DEEP = 512 };

/* Returns a number of bytes that a plan with one set of gradients is not below; 0 if none is known
 * without planning all layers. Weights, gradients and state, and activations that are not computed
 * again, grow by the same amount with each layer. */
static uint64_t lower_bound(change_search *s, const by_config *config)
{
    if (config->model.layers <= DEEP) {
        return 0;
    }
    need few = plan_least(s, config, FEW);
    need more = plan_least(s, config, MORE);
    if (few.bytes == UINT64_MAX || more.bytes == UINT64_MAX) {
        return 0;
    }
    bool kept = strcmp(config->memory.recompute, "none") == 0 && !chooses(config);
    uint64_t many = (uint64_t)config->model.layers - MORE;
    uint64_t each = (more.state - few.state) / (MORE - FEW);
    uint64_t activations =
        kept && more.activations > few.activations ? more.activations - few.activations : 0;
    /* The process will not have less memory than now. Of the activations 5 % less than expected:
     * larger plans may have fewer gaps. */
    return by__trainer_settled_bytes() + more.state +
           many * (each + activations / (MORE - FEW) / 20 * 19);
}

/* Plans a config, or finds without planning all of it that it does not fit. */
static need measure(change_search *s, by_config *config)
{
    uint64_t bound = by_config_resolve(config, NULL) == BY_OK ? lower_bound(s, config) : 0;
    if (bound > s->limit) {
        return (need){.bytes = bound, .lowest = bound};
    }
    if (chooses(config)) {
        need least = plan_least(s, config, config->model.layers);
        /* The choice for many layers takes too long here; it fits, too, and needs less time. */
        if (least.bytes > s->limit || config->model.layers > DEEP) {
            return least;
        }
    }
    return plan(s, config);
}

#define MAX_DIVISORS 256

/* Lists the possible micro-batches, ascending: those below the config's, or all others. */
static size_t list_micro_batches(int64_t out[MAX_DIVISORS], const change_search *s,
                                 const by_config *config, bool larger_too)
{
    size_t count = 0;
    by__trainer_layout layout;
    if (by__trainer_layout_resolve(&layout, config, s->ranks, 0, NULL) != BY_OK) {
        return 0;
    }
    /* Ranks of `expert` divide the examples of a micro-batch. */
    int64_t unit = layout.size[BY_MESH_EXPERT];
    int64_t all =
        by__config_batch_divisor(config); /* growing batches must be whole micro-batches, too */
    int64_t end = larger_too ? all : config->train.micro_batch - 1;
    for (int64_t d = unit; d <= end && count < MAX_DIVISORS; d += unit) {
        if (all % d == 0 && d != config->train.micro_batch) {
            out[count++] = d;
        }
    }
    return count;
}

/* Finds the largest micro-batch that fits. A plan does not always grow with it: smaller
 * micro-batches are more, and the tree that adds up their gradients is deeper. Apart from the sets
 * of gradients it does grow, which bounds the search. */
static bool find_micro_batch(change_search *s, by_config *config, bool larger_too,
                             by_plan_change *out)
{
    int64_t sizes[MAX_DIVISORS];
    need needs[MAX_DIVISORS];
    bool known[MAX_DIVISORS] = {false};
    size_t high = list_micro_batches(sizes, s, config, larger_too);
    size_t low = 0; /* those that would fit with one set of gradients */
    while (low < high) {
        size_t middle = (low + high) / 2;
        config->train.micro_batch = sizes[middle];
        needs[middle] = measure(s, config);
        known[middle] = true;
        if (needs[middle].lowest <= s->limit) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (size_t i = low; i-- > 0;) {
        config->train.micro_batch = sizes[i];
        need n = known[i] ? needs[i] : measure(s, config);
        if (n.bytes <= s->limit) {
            *out =
                (by_plan_change){.bytes = n.bytes, .seconds = n.seconds, .micro_batch = sizes[i]};
            return true;
        }
    }
    return false;
}

by_status by__trainer_micro_batch_within(int64_t *out, const by_config *config,
                                         const by_trainer_options *options, uint64_t limit,
                                         by_error *error)
{
    by_config *copy;
    by_plan_change change = {0};
    change_search s = {.config = config,
                       .options = *options,
                       .limit = limit,
                       .ranks = by__trainer_job_ranks(options)};
    BY_TRY(by_config_copy(&copy, config, error));
    *out = find_micro_batch(&s, copy, false, &change) ? change.micro_batch : 0;
    by_config_close(&copy);
    return BY_OK;
}

static void describe(const change_search *s, unsigned set, by_plan_change *change)
{
    by_string text = {0};
    for (int i = 0; i < MOVES; i++) {
        if ((set >> i & 1u) == 0) {
            continue;
        }
        by_string_format(&text, "%s%s=", text.length == 0 ? "" : " ", moves[i].key);
        if (moves[i].of == MICRO_BATCH) {
            by_string_format(&text, "%lld", (long long)change->micro_batch);
        } else if (moves[i].value == NULL) {
            by__config_size_print(&text, (int64_t)(s->limit >> 20 << 20));
        } else {
            by__string_append(&text, moves[i].value);
        }
    }
    (void)snprintf(change->settings, sizeof change->settings, "%s",
                   text.failed || text.data == NULL ? "" : text.data);
    by_string_free(&text);
}

/* Returns true if the move changes something and is permitted. */
static bool is_open(const change_search *s, int move)
{
    const by_config *c = s->config;
    switch (moves[move].of) {
    case RECOMPUTE:
        if (moves[move].value == NULL) {
            return strcmp(c->memory.recompute, "none") == 0 && c->memory.budget == 0;
        }
        /* Moves by blocks are only for configs where no budget can choose. */
        return strcmp(c->memory.recompute, moves[move].value) != 0 &&
               strcmp(c->memory.recompute, "full") != 0 && strcmp(c->memory.recompute, "none") != 0;
    case MICRO_BATCH:
        return c->train.batch > 1;
    case PRECISION:
        return strcmp(c->precision.compute, "f32") == 0;
    case OPTIMIZER:
        return strcmp(c->optimizer.kind, moves[move].value) != 0;
    case OFFLOAD:
        return strcmp(c->offload.optimizer, "none") == 0;
    case DIMENSIONS:
        break;
    }
    return false;
}

/* Plans the config with a set of moves; adds it to the list if it fits. */
static by_status try_set(change_search *s, unsigned set, by_error *error)
{
    by_config *config;
    by_plan_change change = {0};
    BY_TRY(by_config_copy(&config, s->config, error));
    by_status status = BY_OK;
    bool searches = false;
    for (int i = 0; i < MOVES && status == BY_OK; i++) {
        if ((set >> i & 1u) == 0) {
            continue;
        }
        if (moves[i].of == MICRO_BATCH) {
            searches = true;
        } else if (moves[i].value == NULL) {
            config->memory.budget = (int64_t)(s->limit >> 20 << 20);
        } else {
            status = set_key(config, moves[i].key, moves[i].value, NULL);
        }
    }
    if (status == BY_OK && searches) {
        status = by_config_resolve(config, NULL);
    }
    /* A setting that is impossible for this config is not a solution. */
    bool fits = status == BY_OK;
    if (fits && searches) {
        fits = find_micro_batch(s, config, true, &change);
    } else if (fits) {
        need n = measure(s, config);
        change.bytes = n.bytes;
        change.seconds = n.seconds;
        fits = n.bytes <= s->limit;
    }
    by_config_close(&config);
    if (fits && s->count < BY_PLAN_CHANGES) {
        describe(s, set, &change);
        s->out[s->count++] = change;
    }
    return BY_OK;
}

static int size_of(unsigned set)
{
    int size = 0;
    for (; set != 0; set &= set - 1) {
        size++;
    }
    return size;
}

/* Returns true if every move is possible, and no two change the same key. */
static bool is_valid(const change_search *s, unsigned set)
{
    unsigned met = 0;
    for (int i = 0; i < MOVES; i++) {
        if ((set >> i & 1u) != 0) {
            unsigned bit = 1u << moves[i].of;
            if ((met & bit) != 0 || !is_open(s, i)) {
                return false;
            }
            met |= bit;
        }
    }
    return true;
}

static int by_seconds(const void *a, const void *b)
{
    const by_plan_change *x = a;
    const by_plan_change *y = b;
    if (x->seconds != y->seconds) {
        return x->seconds < y->seconds ? -1 : 1;
    }
    return strcmp(x->settings, y->settings);
}

/* Layers to plan before the list is left as it is, and before the search is given up if it is still
 * empty. Only models of many hundreds of layers come near. */
#define WORK     60000
#define MAX_WORK 120000

static bool is_finished(const change_search *s)
{
    return s->work > (s->count > 0 ? WORK : MAX_WORK);
}

/* Adds the option of ranks that divide parameters, gradients and state, with an estimate from the
 * plan of one. */
static void add_ranks(change_search *s)
{
    by_trainer *t;
    uint64_t bytes;
    if (s->ranks > 1 || s->config->parallel.pipeline > 1 || s->config->parallel.tensor > 1 ||
        s->config->sync.staleness > 0 || strcmp(s->config->sync.compress, "none") != 0 ||
        s->count == BY_PLAN_CHANGES || is_finished(s) ||
        by__trainer_open_unconnected(&t, s->config, &s->options, NULL) != BY_OK) {
        return;
    }
    const by_memory_report *m = by_trainer_memory(t);
    uint64_t divided = m->parameters + m->gradients + m->optimizer;
    int64_t most = s->config->train.batch / s->config->train.micro_batch;
    if (by__trainer_needs(&bytes, t, &s->options, NULL) == BY_OK) {
        for (int64_t n = 2; n <= most && n <= 64; n *= 2) {
            uint64_t each = bytes - divided + divided / (uint64_t)n;
            if (each > s->limit) {
                continue;
            }
            by_plan_change *change = &s->out[s->count++];
            *change = (by_plan_change){
                .bytes = each, .seconds = by_trainer_seconds(t) / (double)n, .ranks = (int)n};
            (void)snprintf(change->settings, sizeof change->settings,
                           "parallel.shard=%lld parallel.zero=3", (long long)n);
            break;
        }
    }
    by_trainer_close(&t);
}

by_status by_plan_changes(by_plan_change out[BY_PLAN_CHANGES], size_t *count,
                          const by_config *config, const by_trainer_options *options,
                          uint64_t limit, by_error *error)
{
    change_search s = {.config = config, .limit = limit, .out = out, .ranks = 1};
    if (options != NULL) {
        s.options = *options;
        s.ranks = by__trainer_job_ranks(options);
    }
    for (int size = 1; size <= DIMENSIONS && s.count == 0; size++) {
        for (unsigned set = 1; set < 1u << MOVES; set++) {
            if (size_of(set) == size && is_valid(&s, set) && !is_finished(&s)) {
                BY_TRY(try_set(&s, set, error));
            }
        }
    }
    if (s.count > 1) {
        qsort(out, s.count, sizeof *out, by_seconds);
    }
    add_ranks(&s);
    *count = s.count;
    return BY_OK;
}
