/* Goes through all layouts of at most so many devices. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sum_tree.h"
#include "plan/search/search.h"
#include "trainer/graphs/graphs.h"
#include "trainer/state/reducer.h"

/* A list of numbers, ascending. */
typedef struct candidate_numbers {
    int64_t *items;
    size_t count;
    size_t capacity;
} candidate_numbers;

typedef struct layout_search {
    const by_config *config;
    const by_search_options *options;
    by_search_result *out;
    by_machine machine; /* this one, if no cluster is given, */
    by_cluster here;    /* and some ranks of it */
    by__search_model model;
    double budget;     /* bytes of a rank by memory.budget; INFINITY: unlimited */
    double memory;     /* bytes that a rank may use; INFINITY: unlimited */
    int64_t least;     /* devices of the layouts under consideration */
    int64_t devices;   /* and at most */
    int heads;         /* ranks of tensor divide this; 1: no such axis */
    int64_t positions; /* and 2 x sequence this; 1 */
    int experts;
    candidate_numbers micro_batches;
    candidate_numbers replicas;
    int *sets;                 /* [micro-batch][replicas] of gradients with zero 2 and 3 */
    size_t at;                 /* number of the micro-batch */
    by_search_choice smallest; /* the least memory */
    double limit;              /* goals above this are not reported */
} layout_search;

/* What was compiled, and the place of a layout under consideration. */
typedef struct layout_place {
    by__search_profile profile;
    by__search_block block;
    by_search_choice choice;
} layout_place;

static by_status add_number(candidate_numbers *list, int64_t number, by_error *error)
{
    if (list->count > 0 && list->items[list->count - 1] == number) {
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items,
                       error));
    list->items[list->count++] = number;
    return BY_OK;
}

/* ---- what was found ---- */

double by__search_goal(const by_search_options *options, const by_search_choice *c)
{
    return options->goal == BY_SEARCH_MONEY ? c->seconds * (double)c->devices : c->seconds;
}

/* Memory that tells layouts apart: of this machine, whose ranks share it, that of all of them. */
static double need_of(const by_search_choice *c)
{
    return isfinite(c->limit) ? c->memory / c->limit : c->memory;
}

/* Keeps layouts that no other beats in time and memory, fastest first. */
static void keep_pareto(by_search_result *r, const by_search_choice *c)
{
    double need = need_of(c);
    size_t at = 0;
    while (at < r->pareto_count && r->pareto[at].seconds <= c->seconds) {
        if (need_of(&r->pareto[at]) <= need) {
            return;
        }
        at++;
    }
    size_t beaten = at;
    while (beaten < r->pareto_count && need_of(&r->pareto[beaten]) >= need) {
        beaten++;
    }
    size_t rest = r->pareto_count - beaten;
    if (beaten == at) { /* makes room, at the cost of the slowest */
        rest = r->pareto_count == BY_SEARCH_PARETO ? rest - (rest > 0 ? 1 : 0) : rest;
        if (at == BY_SEARCH_PARETO) {
            return;
        }
    }
    memmove(&r->pareto[at + 1], &r->pareto[beaten], rest * sizeof *r->pareto);
    r->pareto[at] = *c;
    r->pareto_count = at + 1 + rest;
}

static bool is_smallest(const layout_search *s, const by_search_choice *c)
{
    return s->smallest.devices == 0 || need_of(c) < need_of(&s->smallest);
}

/* Returns true if a layout that was kept takes less memory than one whose memory is known, and less
 * time than its computation alone. */
static bool is_beaten(const layout_search *s, const by_search_choice *c,
                      const by__search_stages *stages)
{
    const by_search_result *r = s->out;
    double least = (double)c->micro_batches * stages->slowest;
    size_t at = 0;
    if (s->options->exhaustive || s->options->goal != BY_SEARCH_TIME) {
        return false;
    }
    while (at < r->pareto_count && r->pareto[at].seconds <= least) {
        at++; /* the slower of two takes less memory */
    }
    return at > 0 && need_of(&r->pareto[at - 1]) <= need_of(c);
}

static void consider(layout_search *s, const by_search_choice *c)
{
    by_search_result *r = s->out;
    if (is_smallest(s, c)) {
        s->smallest = *c;
    }
    bool late = s->options->deadline > 0.0 && c->seconds > s->options->deadline;
    if (c->memory > s->memory || late) {
        return;
    }
    double goal = by__search_goal(s->options, c);
    double best = r->fits ? by__search_goal(s->options, &r->best) : INFINITY;
    if (goal < best || (!(goal > best) && need_of(c) < need_of(&r->best))) {
        r->best = *c;
        r->fits = true;
        s->limit = 1.5 * goal;
    }
    keep_pareto(r, c);
}

/* ---- candidates ---- */

static void try_zero(layout_search *s, layout_place *at, const by__search_stages *stages,
                     int64_t shard, int64_t replicas)
{
    by_search_choice *c = &at->choice;
    c->sizes[BY_MESH_SHARD] = (int)shard;
    c->sizes[BY_MESH_DATA] = (int)(replicas / shard);
    for (int zero = 1; zero <= (shard > 1 ? 3 : 1); zero++) {
        c->zero = zero;
        s->out->considered += 1.0;
        by__search_memory(c, &s->model, &at->profile, &at->block, stages);
        bool fits = c->memory <= s->memory;
        if (fits ? is_beaten(s, c, stages) : s->out->fits || !is_smallest(s, c)) {
            continue;
        }
        by__search_cost(c, &s->model, &at->profile, &at->block, stages);
        consider(s, c);
    }
}

/* Tries all numbers of replicas, from the largest. */
static void try_replicas(layout_search *s, layout_place *at, const by__search_stages *stages)
{
    by_search_choice *c = &at->choice;
    int64_t each = (int64_t)c->sizes[BY_MESH_TENSOR] * c->sizes[BY_MESH_SEQUENCE] *
                   c->sizes[BY_MESH_EXPERT] * c->sizes[BY_MESH_PIPELINE];
    int64_t all = s->model.batch / c->micro_batch;
    for (size_t i = s->replicas.count; i-- > 0;) {
        int64_t replicas = s->replicas.items[i];
        if (each * replicas < s->least || replicas > s->devices / each || replicas > all) {
            continue;
        }
        c->micro_batches = (all + replicas - 1) / replicas;
        s->model.divided_sets = (double)s->sets[s->at * s->replicas.count + i];
        s->model.whole_sets = (double)by__sum_tree_sets(0, c->micro_batches, all);
        c->devices = each * replicas;
        double least = (double)c->micro_batches * stages->slowest;
        least *= s->options->goal == BY_SEARCH_MONEY ? (double)c->devices : 1.0;
        if (s->out->fits && least > s->limit && !s->options->exhaustive &&
            s->options->goal == BY_SEARCH_TIME) {
            break; /* fewer replicas take longer */
        }
        for (int64_t shard = 1; shard <= replicas; shard++) {
            if (replicas % shard == 0) {
                try_zero(s, at, stages, shard, replicas);
            }
        }
    }
}

static void try_stages(layout_search *s, layout_place *at)
{
    by_search_choice *c = &at->choice;
    int64_t inner =
        (int64_t)c->sizes[BY_MESH_TENSOR] * c->sizes[BY_MESH_SEQUENCE] * c->sizes[BY_MESH_EXPERT];
    int64_t most = s->devices / inner < s->model.layers ? s->devices / inner : s->model.layers;
    int64_t before = INT64_MAX; /* blocks of the slowest stage with fewer stages */
    for (int64_t p = 1; p <= most && p <= 1024; p++) {
        if (s->least == s->devices && s->devices % (inner * p) != 0) {
            continue;
        }
        for (int chunks = 1; chunks <= 4 && p * chunks <= s->model.layers; chunks *= 2) {
            by__search_stages stages;
            if (p == 1 && chunks > 1) {
                break;
            }
            by__search_rank_stages(&stages, &s->model, &at->profile, &at->block, p, chunks);
            if (chunks == 1 && p > 64 && stages.blocks == before && !s->options->exhaustive) {
                break; /* fewer stages do as well */
            }
            before = chunks == 1 ? stages.blocks : before;
            c->sizes[BY_MESH_PIPELINE] = (int)p;
            c->chunks = chunks;
            try_replicas(s, at, &stages);
        }
    }
}

/* Ranks of a sequence, at most. */
enum { MOST_SEQUENCE = 32 };

/* Tries all micro-batches on a number of ranks of `sequence`. */
static void try_micro_batches(layout_search *s, layout_place *at, int sequence)
{
    at->choice.sizes[BY_MESH_SEQUENCE] = sequence;
    for (size_t i = 0; i < s->micro_batches.count; i++) {
        int64_t micro_batch = s->micro_batches.items[i];
        if (micro_batch % at->profile.key.expert != 0) {
            continue;
        }
        at->choice.micro_batch = micro_batch;
        s->at = i;
        by__search_profile_evaluate(&at->block, &at->profile, s->model.cluster, micro_batch,
                                    sequence);
        try_stages(s, at);
    }
}

static void try_sequences(layout_search *s, layout_place *at)
{
    int64_t each = (int64_t)at->profile.key.tensor * at->profile.key.expert;
    at->choice.limit = s->memory;
    for (int q = 1; q <= MOST_SEQUENCE && each * q <= s->devices; q *= 2) {
        if (q == 1 || (at->profile.rings && s->positions % (2 * q) == 0)) {
            try_micro_batches(s, at, q);
        }
    }
}

/* So many devices of the cluster; of this machine so many ranks are one. */
static void set_cluster(layout_search *s, const by_cluster *cluster)
{
    double memory = s->options->memory > 0.0 ? s->options->memory : cluster->device.memory;
    s->memory = fmin(s->budget, memory > 0.0 ? memory : (double)INFINITY);
    s->model.cluster = cluster;
}

/* Tries a compiled model with each number of ranks of this machine, of which fewer are faster and
 * have more memory. */
static by_status try_ranks(layout_search *s, layout_place *at, int64_t most, by_error *error)
{
    int64_t each = (int64_t)at->profile.key.tensor * at->profile.key.expert;
    for (int64_t ranks = each; ranks <= most; ranks += each) {
        by_cluster_of_machine(&s->here, &s->machine, (int)ranks);
        set_cluster(s, &s->here);
        s->least = ranks;
        s->devices = ranks;
        BY_TRY(by__search_profile_rates(&at->profile, &s->here, error));
        try_sequences(s, at);
    }
    s->devices = most;
    return BY_OK;
}

static by_status try_key(layout_search *s, const by__search_key *key, by_error *error)
{
    layout_place at = {
        .choice = {.recompute = key->recompute, .sequence_parallel = key->sequence_parallel}};
    by_error refused = {0};
    int64_t each = (int64_t)key->tensor * key->expert;
    by_status status =
        by__search_profile_make(&at.profile, s->config, key, s->model.cluster, &refused);
    if (status != BY_OK) {
        bool divided = each > 1 && (status == BY_ECONFIG || status == BY_EARG);
        if (!divided && error != NULL) {
            *error = refused;
        }
        return divided ? BY_OK : status; /* the model cannot be divided so */
    }
    s->out->compiled += BY__SEARCH_POINTS + 3;
    at.choice.sizes[BY_MESH_TENSOR] = key->tensor;
    at.choice.sizes[BY_MESH_EXPERT] = key->expert;
    if (s->options->cluster == NULL) {
        status = try_ranks(s, &at, s->devices, error);
    } else {
        try_sequences(s, &at);
        status = BY_OK;
    }
    by__search_profile_free(&at.profile);
    return status;
}

/* ---- spaces ---- */

/* Numbers of replicas, the same for any number of devices: all small ones,
 * those that make fewer micro-batches a replica, and multiples of what hosts
 * hold. */
static by_status list_replicas(layout_search *s, by_error *error)
{
    int64_t batch = s->model.batch;
    for (int64_t r = 1; r <= batch; r++) {
        bool fewer = r == 1 || (batch + r - 1) / r < (batch + r - 2) / (r - 1);
        bool whole = r <= 64 || r % (r <= 512 ? 8 : 64) == 0;
        if (fewer || whole || (s->options->exhaustive && r <= 4096)) {
            BY_TRY(add_number(&s->replicas, r, error));
        }
    }
    return BY_OK;
}

static by_status list_micro_batches(layout_search *s, by_error *error)
{
    for (int64_t m = 1; m <= s->model.batch; m++) {
        if (s->model.batch % m == 0) {
            BY_TRY(add_number(&s->micro_batches, m, error));
        }
    }
    return BY_OK;
}

void by__search_describe(by__search_model *out, const by_config *c, const by_cluster *cluster)
{
    bool attends = strcmp(by_model_reads(&c->model), "tokens") == 0;
    by_dtype copies = by__trainer_copies_dtype(c);
    by_dtype weights = by__trainer_weights_dtype(c);
    *out = (by__search_model){
        .cluster = cluster,
        .layers = c->model.layers,
        .batch = c->train.batch,
        .hidden = (double)(attends ? c->model.context : 1) * (double)c->model.width *
                  (double)by_dtype_size(by__trainer_compute_dtype(c)),
        .weight = (double)by_dtype_size(copies),
        .master = weights == copies ? 0.0 : (double)by_dtype_size(weights),
        .bucket = c->parallel.bucket_mib > 0.0 ? c->parallel.bucket_mib * 1048576.0 / 4.0 : 0.0,
        .overlap = c->parallel.overlap != 0,
        .gradient = (double)sizeof(float),
        .adds = true,
        .saves = c->checkpoint.async != 0};
}

static by_status count_sets(layout_search *s, by_error *error)
{
    size_t replicas = s->replicas.count;
    BY_TRY(by__alloc((void **)&s->sets, s->micro_batches.count * replicas, sizeof *s->sets, "sets",
                     error));
    for (size_t k = 0; k < s->micro_batches.count; k++) {
        int64_t leaves = s->model.batch / s->micro_batches.items[k];
        for (size_t i = 0; i < replicas && s->replicas.items[i] <= leaves; i++) {
            s->sets[k * replicas + i] = by__trainer_reducer_sets(leaves, (int)s->replicas.items[i]);
        }
    }
    return BY_OK;
}

/* Ranks of this machine, at most. */
enum { MOST_RANKS = 4096 };

static by_status find_devices(layout_search *s, by_error *error)
{
    const by_config *c = s->config;
    const by_cluster *cluster = s->options->cluster;
    s->devices = s->options->devices;
    if (s->devices < 0) {
        return by_error_set(error, BY_EARG, "%lld devices: a search takes 1 or more",
                            (long long)s->devices);
    }
    if (cluster == NULL) {
        s->devices = s->devices > 0 ? s->devices : 1;
        if (s->devices > MOST_RANKS) {
            return by_error_set(error, BY_EARG,
                                "%lld ranks on this machine, where a search takes at most %d: "
                                "describe other devices by a cluster file",
                                (long long)s->devices, MOST_RANKS);
        }
        BY_TRY(by_machine_load(&s->machine, c->device, (int)c->train.threads, 0, error));
        by_cluster_of_machine(&s->here, &s->machine, 1);
        cluster = &s->here;
    } else {
        double most = by_cluster_devices(cluster);
        BY_TRY(by__layout_check_devices(cluster, (double)s->devices, error));
        s->devices = s->devices > 0 ? s->devices : (int64_t)most;
    }
    set_cluster(s, cluster);
    return BY_OK;
}

static by_status describe(layout_search *s, by_error *error)
{
    const by_config *c = s->config;
    const by_model_config *m = &c->model;
    bool attends = strcmp(by_model_reads(m), "tokens") == 0;
    s->budget = by__layout_limit(c, 0.0);
    s->limit = (double)INFINITY;
    s->heads = attends ? (int)(m->kv_heads > 0 ? m->kv_heads : m->heads) : 1;
    s->positions = attends ? m->context : 1;
    s->experts = 64; /* those of the model that it does not have are refused */
    BY_TRY(find_devices(s, error));
    by__search_describe(&s->model, c, s->model.cluster);
    BY_TRY(list_micro_batches(s, error));
    BY_TRY(list_replicas(s, error));
    return count_sets(s, error);
}

static bool has_experts(const by_config *config)
{
    return strcmp(config->model.kind, "mixtral") == 0;
}

static by_status try_all(layout_search *s, by_error *error)
{
    int most = has_experts(s->config) ? s->experts : 1;
    for (int tensor = 1; tensor <= s->heads && tensor <= s->devices; tensor++) {
        if (s->heads % tensor != 0) {
            continue;
        }
        for (int expert = 1; expert <= most && (int64_t)tensor * expert <= s->devices;
             expert *= 2) {
            /* Exchanges along `tensor` of sequences that its ranks divide, and of whole ones. */
            for (int k = 0; k < (tensor > 1 ? 2 : 1) * BY_SEARCH_RECOMPUTES; k++) {
                const by__search_key key = {
                    .tensor = tensor,
                    .expert = expert,
                    .recompute = (by_search_recompute)(k % BY_SEARCH_RECOMPUTES),
                    .sequence_parallel = tensor > 1 && k < BY_SEARCH_RECOMPUTES};
                BY_TRY(try_key(s, &key, error));
            }
        }
    }
    return BY_OK;
}

by_status by_layout_search(by_search_result *out, const by_config *config,
                           const by_search_options *options, by_error *error)
{
    by_search_result result = {0};
    layout_search s = {.config = config, .options = options, .out = &result};
    if (config->model.layers < 1) {
        return by_error_set(error, BY_EARG, "model.layers %lld: a search needs one or more",
                            (long long)config->model.layers);
    }
    by_status status = describe(&s, error);
    if (status == BY_OK) {
        status = try_all(&s, error);
    }
    free(s.sets);
    free(s.replicas.items);
    free(s.micro_batches.items);
    if (status != BY_OK) {
        return status;
    }
    if (!result.fits) {
        result.best = s.smallest;
    }
    *out = result;
    return BY_OK;
}
