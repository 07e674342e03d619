/* Derived values, and what several keys must agree on. */
#include <math.h>
#include <string.h>

#include "config/schema.h"

typedef struct resolver {
    const by__config *config;
    by_error *error;
} resolver;

/* Where the first of two keys was set, else the second, else "config" (both are defaults). */
static const char *where(const resolver *r, const by__key *first, const by__key *second)
{
    const char *a = r->config->origin[first - by__keys];
    const char *b = r->config->origin[second - by__keys];
    return a != NULL ? a : b != NULL ? b : "config";
}

/* The divisors of `whole` next to `part` on either side, as "10, 20". */
static const char *near_divisors(char buffer[64], int64_t part, int64_t whole)
{
    int64_t below = part < whole ? part : whole;
    while (below > 1 && whole % below != 0) {
        below--;
    }
    int64_t above = part;
    while (above < whole && whole % above != 0) {
        above++;
    }
    if (above > whole || above == below) {
        (void)snprintf(buffer, 64, "%lld", (long long)below);
    } else {
        (void)snprintf(buffer, 64, "%lld, %lld", (long long)below, (long long)above);
    }
    return buffer;
}

/* "train.yaml:14: micro_batch 12 does not divide batch 100; nearest: 10, 20". */
static by_status divides(const resolver *r, const by__key *part_key, int64_t part,
                         const by__key *whole_key, int64_t whole)
{
    char nearest[64];
    if (whole % part == 0) {
        return BY_OK;
    }
    return by_error_set(r->error, BY_ECONFIG, "%s: %s %lld does not divide %s %lld; nearest: %s",
                        where(r, part_key, whole_key), part_key->name, (long long)part,
                        whole_key->name, (long long)whole, near_divisors(nearest, part, whole));
}

static by_status at_most(const resolver *r, const by__key *low_key, int64_t low,
                         const by__key *high_key, int64_t high)
{
    if (low <= high) {
        return BY_OK;
    }
    return by_error_set(r->error, BY_ECONFIG, "%s: %s %lld is more than %s %lld",
                        where(r, low_key, high_key), low_key->name, (long long)low, high_key->name,
                        (long long)high);
}

/* Tokens of a micro-batch are rows of every activation, tokens of a step those of a batch in the
 * loader. */
#define MICRO_BATCH_TOKENS ((int64_t)1 << 31)
#define BATCH_TOKENS       ((int64_t)1 << 40)

/* "c.yaml:5: micro_batch 16777216 x context 16777216 is over 2147483648 tokens". */
static by_status countable(const resolver *r, const by__key *key, int64_t sequences, int64_t most)
{
    int64_t context = r->config->config.model.context;
    if (sequences <= most / context) {
        return BY_OK;
    }
    return by_error_set(r->error, BY_ECONFIG,
                        "%s: %s %lld x context %lld is more than %lld tokens; make one smaller",
                        where(r, key, BY__KEY(model.context)), key->name, (long long)sequences,
                        (long long)context, (long long)most);
}

/* What is derived and checked for each kind of model; src/nn/models has what it computes. */
typedef struct model_kind {
    const char *name;
    int64_t (*mlp_width)(int64_t width);
    bool tied;    /* by default */
    bool grouped; /* key/value heads may be fewer than heads */
    bool rotary;
} model_kind;

static int64_t four_times(int64_t width)
{
    return 4 * width;
}

/* Two thirds of that, because SwiGLU has three matrices and not two, rounded up to a multiple of
 * 64. */
static int64_t eight_thirds(int64_t width)
{
    return ((8 * width + 2) / 3 + 63) / 64 * 64;
}

static const model_kind model_kinds[] = {
    {.name = "gpt2", .mlp_width = four_times, .tied = true},
    {.name = "llama", .mlp_width = eight_thirds, .grouped = true, .rotary = true},
};

static by_status resolve_model(const resolver *r, by_model_config *model)
{
    const model_kind *kind = NULL;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(model_kinds); i++) {
        kind = strcmp(model->kind, model_kinds[i].name) == 0 ? &model_kinds[i] : kind;
    }
    if (kind == NULL) {
        return by_error_set(r->error, BY_ECONFIG, "model.kind: unknown model '%s'", model->kind);
    }
    if (model->kv_heads == -1) {
        model->kv_heads = model->heads;
    }
    if (model->tied == -1) {
        model->tied = kind->tied;
    }
    BY_TRY(divides(r, BY__KEY(model.heads), model->heads, BY__KEY(model.width), model->width));
    BY_TRY(
        divides(r, BY__KEY(model.kv_heads), model->kv_heads, BY__KEY(model.heads), model->heads));
    if (model->mlp_width == -1) {
        model->mlp_width = kind->mlp_width(model->width);
    }
    if (model->init_std == -1.0) {
        model->init_std = sqrt(2.0 / (5.0 * (double)model->width));
    }
    if (!kind->grouped && model->kv_heads != model->heads) {
        return by_error_set(r->error, BY_ECONFIG,
                            "%s: kv_heads %lld differs from heads %lld, which %s does not have; "
                            "set model.kind to llama or leave kv_heads out",
                            where(r, BY__KEY(model.kv_heads), BY__KEY(model.heads)),
                            (long long)model->kv_heads, (long long)model->heads, kind->name);
    }
    if (kind->rotary && model->width / model->heads % 2 != 0) {
        return by_error_set(r->error, BY_ECONFIG,
                            "%s: heads %lld gives heads of width %lld (width %lld / heads); rotary "
                            "embeddings need an even one",
                            where(r, BY__KEY(model.heads), BY__KEY(model.width)),
                            (long long)model->heads, (long long)(model->width / model->heads),
                            (long long)model->width);
    }
    return BY_OK;
}

static by_status resolve_training(const resolver *r, by_train_config *train,
                                  by_optimizer_config *optimizer)
{
    if (train->micro_batch == -1) {
        train->micro_batch = train->batch;
    }
    BY_TRY(divides(r, BY__KEY(train.micro_batch), train->micro_batch, BY__KEY(train.batch),
                   train->batch));
    BY_TRY(countable(r, BY__KEY(train.micro_batch), train->micro_batch, MICRO_BATCH_TOKENS));
    BY_TRY(countable(r, BY__KEY(train.batch), train->batch, BATCH_TOKENS));
    int64_t tenth = train->steps / 10;
    if (optimizer->warmup == -1) {
        optimizer->warmup = tenth < 100 ? tenth : 100;
    }
    if (optimizer->decay == -1) {
        optimizer->decay = tenth < 1 ? 1 : tenth;
    }
    if (optimizer->min_lr == -1.0) {
        optimizer->min_lr = optimizer->lr / 10.0;
    }
    BY_TRY(at_most(r, BY__KEY(optimizer.warmup), optimizer->warmup, BY__KEY(train.steps),
                   train->steps));
    if (strcmp(optimizer->schedule, "wsd") == 0 &&
        optimizer->decay > train->steps - optimizer->warmup) {
        return by_error_set(r->error, BY_ECONFIG,
                            "%s: decay %lld and warmup %lld together are more than steps %lld",
                            where(r, BY__KEY(optimizer.decay), BY__KEY(optimizer.warmup)),
                            (long long)optimizer->decay, (long long)optimizer->warmup,
                            (long long)train->steps);
    }
    if (optimizer->min_lr > optimizer->lr) {
        return by_error_set(r->error, BY_ECONFIG, "%s: min_lr %g is more than lr %g",
                            where(r, BY__KEY(optimizer.min_lr), BY__KEY(optimizer.lr)),
                            optimizer->min_lr, optimizer->lr);
    }
    return BY_OK;
}

static by_status check_names(const resolver *r, const by_config *config)
{
    const by__key *name = BY__KEY(name);
    const by__key *train = BY__KEY(data.train);
    if (strchr(config->name, '/') != NULL || config->name[0] == '.') {
        return by_error_set(r->error, BY_ECONFIG,
                            "%s: name \"%.60s\" names a directory: it holds no \"/\" and does not "
                            "start with \".\"",
                            where(r, name, name), config->name);
    }
    if (config->data.text.count > 0 && config->data.train[0] != '\0') {
        return by_error_set(r->error, BY_ECONFIG,
                            "%s: data.train and data.text are both set; leave one out, or clear it "
                            "(text: [] or train: \"\")",
                            where(r, train, BY__KEY(data.text)));
    }
    return BY_OK;
}

by_status by_config_resolve(by_config *config, by_error *error)
{
    const by__config *whole = (const by__config *)config;
    resolver r = {whole, error};
    for (size_t i = 0; i < by__key_count; i++) {
        const char *origin = whole->origin[i];
        BY_TRY(by__value_verify(config, &by__keys[i], origin == NULL ? "config" : origin, error));
    }
    BY_TRY(check_names(&r, config));
    BY_TRY(resolve_model(&r, &config->model));
    return resolve_training(&r, &config->train, &config->optimizer);
}
