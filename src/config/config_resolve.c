/* Derives values left open and checks constraints between keys. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"

const char *by__config_where(const by_config *config, const char *first, const char *second)
{
    const by__config_entry *a = by__config_entry_at((const by__config *)config, first);
    const by__config_entry *b = by__config_entry_at((const by__config *)config, second);
    return a != NULL && a->origin != NULL   ? a->origin
           : b != NULL && b->origin != NULL ? b->origin
                                            : "config";
}

bool by__config_is_given(const by_config *config, const char *key)
{
    const by__config_entry *entry = by__config_entry_at((const by__config *)config, key);
    return entry != NULL && entry->origin != NULL;
}

void by__config_derive(by_config *config, const char *key, int64_t value)
{
    by__config_entry *entry = by__config_entry_at((by__config *)config, key);
    assert(entry != NULL && entry->key.type == BY__KEY_INT);
    *(int64_t *)entry->at = value;
    entry->derived = value;
}

bool by__config_is_derived(const by_config *config, const char *key)
{
    const by__config_entry *entry = by__config_entry_at((const by__config *)config, key);
    return entry != NULL && entry->derived != 0 && *(const int64_t *)entry->at == entry->derived;
}

/* Formats the divisors of `whole` nearest to `part`, one on either side: "10, 20". */
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

by_status by__config_divides(const by_config *config, const char *part, const char *whole,
                             by_error *error)
{
    char nearest[64];
    const by__config_entry *p = by__config_entry_at((const by__config *)config, part);
    const by__config_entry *w = by__config_entry_at((const by__config *)config, whole);
    assert(p != NULL && w != NULL && p->key.type == BY__KEY_INT && w->key.type == BY__KEY_INT);
    int64_t a = *(const int64_t *)p->at;
    int64_t b = *(const int64_t *)w->at;
    if (b % a == 0) {
        return BY_OK;
    }
    bool is_clear = strcmp(p->key.section, w->key.section) == 0; /* then messages omit the
                                                                    section */
    return by_error_set(error, BY_ECONFIG, "%s: %s %lld does not divide %s %lld; nearest: %s",
                        by__config_where(config, part, whole), is_clear ? p->key.name : part,
                        (long long)a, is_clear ? w->key.name : whole, (long long)b,
                        near_divisors(nearest, a, b));
}

/* Turns a share of the steps into their number, which is at least `least`. */
static double steps_of(double value, int64_t steps, double least)
{
    double number = value > 0.0 && value < 1.0 ? round(value * (double)steps) : value;
    return number < least ? least : number;
}

static void resolve_schedule(by_optimizer_config *optimizer, int64_t steps)
{
    int64_t tenth = steps / 10;
    if (optimizer->warmup == -1.0) {
        optimizer->warmup = (double)(tenth < 100 ? tenth : 100);
    }
    if (optimizer->decay == -1.0) {
        optimizer->decay = (double)tenth;
    }
    /* Shares that make up the whole run may round to one step more. */
    bool shared = optimizer->warmup < 1.0 && optimizer->decay < 1.0 &&
                  optimizer->warmup + optimizer->decay <= 1.0;
    optimizer->warmup = steps_of(optimizer->warmup, steps, 0.0);
    optimizer->decay = steps_of(optimizer->decay, steps, 1.0);
    if (shared && optimizer->decay > 1.0 && optimizer->decay > (double)steps - optimizer->warmup) {
        optimizer->decay = (double)steps - optimizer->warmup;
    }
}

/* A number of steps from a file, often of a run, need not fit the steps that somebody sets who
 * builds on the file: the schedule then has its default shape. */
static void fit_schedule(by_config *config)
{
    by__config *whole = (by__config *)config;
    by_optimizer_config *o = &config->optimizer;
    double steps = (double)config->train.steps;
    double warmup = o->warmup < 1.0 ? 0.0 : o->warmup;
    bool decays = strcmp(o->schedule, "wsd") == 0;
    bool warms_up = warmup > steps;
    bool both = decays && o->decay >= 1.0 && o->decay > steps - warmup;
    if ((warms_up || both) && warmup > 0.0 &&
        by__config_deeper(whole, "optimizer.warmup", "train.steps")) {
        o->warmup = -1.0;
        by__config_note(whole,
                        "%s: optimizer.warmup %lld does not fit train.steps %lld: it is a tenth of "
                        "them, 100 at most",
                        by__config_where(config, "optimizer.warmup", "train.steps"),
                        (long long)warmup, (long long)steps);
    }
    if (both && by__config_deeper(whole, "optimizer.decay", "train.steps")) {
        by__config_note(whole,
                        "%s: optimizer.decay %lld does not fit train.steps %lld: it is a tenth of "
                        "them",
                        by__config_where(config, "optimizer.decay", "train.steps"),
                        (long long)o->decay, (long long)steps);
        o->decay = -1.0;
    }
}

static by_status resolve_training(by_config *config, by_error *error)
{
    by_train_config *train = &config->train;
    by_optimizer_config *optimizer = &config->optimizer;
    bool again = by__config_is_derived(config, "train.micro_batch") &&
                 by__config_batch_divisor(config) % train->micro_batch != 0;
    if (train->micro_batch == -1 || again) {
        by__config_derive(config, "train.micro_batch", by__config_batch_divisor(config));
    }
    BY_TRY(by__config_divides(config, "train.micro_batch", "train.batch", error));
    fit_schedule(config);
    resolve_schedule(optimizer, train->steps);
    if (optimizer->min_lr == -1.0) {
        optimizer->min_lr = optimizer->lr / 10.0;
    }
    if (optimizer->warmup > (double)train->steps) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: warmup %lld is more than steps %lld; a share of them fits any "
                            "number, such as optimizer.warmup=0.05",
                            by__config_where(config, "optimizer.warmup", "train.steps"),
                            (long long)optimizer->warmup, (long long)train->steps);
    }
    if (strcmp(optimizer->schedule, "wsd") == 0 &&
        optimizer->decay > (double)train->steps - optimizer->warmup) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: decay %lld and warmup %lld together are more than steps %lld; shares of them fit "
            "any number, such as optimizer.warmup=0.05 and optimizer.decay=0.1",
            by__config_where(config, "optimizer.decay", "optimizer.warmup"),
            (long long)optimizer->decay, (long long)optimizer->warmup, (long long)train->steps);
    }
    if (optimizer->min_lr > optimizer->lr) {
        return by_error_set(error, BY_ECONFIG, "%s: min_lr %g is more than lr %g",
                            by__config_where(config, "optimizer.min_lr", "optimizer.lr"),
                            optimizer->min_lr, optimizer->lr);
    }
    return BY_OK;
}

/* A weight average needs all replicas to have the same weights after each step. */
static by_status check_average(const by_config *config, by_error *error)
{
    if (config->optimizer.ema == 0.0 && config->train.eval_ema != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: train.eval_ema needs a moving average: set optimizer.ema (0.999), "
                            "or train.eval_ema: false",
                            by__config_where(config, "train.eval_ema", "optimizer.ema"));
    }
    if (config->optimizer.ema != 0.0 && config->sync.every > 1) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: with sync.every %lld each replica has its own weights, and optimizer.ema needs "
            "common ones: set sync.every: 1, or optimizer.ema: 0",
            by__config_where(config, "optimizer.ema", "sync.every"), (long long)config->sync.every);
    }
    return BY_OK;
}

static by_status check_device(const by_config *config, by_error *error)
{
    const by__config_schema *schema = ((const by__config *)config)->schema;
    return schema->check_device == NULL || schema->check_device(config->device, error) == BY_OK
               ? BY_OK
               : by_error_prefix(error, BY_ECONFIG, "%s",
                                 by__config_where(config, "device", "device"));
}

/* The result is a function of the device's kernels, never of a measurement, so that it is the same
 * in every process. */
static by_status resolve_compute(by_config *config, by_error *error)
{
    by_precision_config *p = &config->precision;
    const by__config_schema *schema = ((const by__config *)config)->schema;
    by_dtype fastest = BY_F32;
    if (strcmp(p->compute, "auto") != 0) {
        return BY_OK;
    }
    if (strcmp(p->weights, "bf16") == 0) {
        fastest = BY_BF16;
    } else if (schema->fastest != NULL) {
        BY_TRY(schema->fastest(&fastest, config->device, error));
    }
    char *name = by__strdup(by_dtype_name(fastest));
    if (name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: precision.compute");
    }
    free(p->compute);
    p->compute = name;
    return BY_OK;
}

static by_status check_weights(const by_config *config, by_error *error)
{
    const by_precision_config *p = &config->precision;
    if (strcmp(p->weights, "bf16") != 0) {
        return BY_OK;
    }
    if (strcmp(p->compute, "bf16") != 0) {
        return by_error_set(
            error, BY_ECONFIG, "%s: precision.weights bf16 needs precision.compute bf16, not %s",
            by__config_where(config, "precision.weights", "precision.compute"), p->compute);
    }
    if (strcmp(config->offload.optimizer, "none") != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: precision.weights bf16 does not support state on disk: set "
                            "offload.optimizer: none, or precision.weights: f32",
                            by__config_where(config, "offload.optimizer", "precision.weights"));
    }
    if (config->sync.every > 1) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: sync.every %lld needs f32 weights in each replica: set "
                            "precision.weights: f32, or sync.every: 1",
                            by__config_where(config, "sync.every", "precision.weights"),
                            (long long)config->sync.every);
    }
    return BY_OK;
}

static by_status check_loss_scale(const by_config *config, by_error *error)
{
    const by_precision_config *p = &config->precision;
    bool is_auto = strcmp(p->loss_scaling, "auto") == 0;
    if (strcmp(p->loss_scaling, "none") == 0 || (is_auto && strcmp(p->compute, "fp16") != 0)) {
        return BY_OK;
    }
    if (p->loss_scale < p->min_loss_scale || p->loss_scale > p->max_loss_scale) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: loss_scale %g is not within min_loss_scale %g and max_loss_scale "
                            "%g",
                            by__config_where(config, "precision.loss_scale", "precision.compute"),
                            p->loss_scale, p->min_loss_scale, p->max_loss_scale);
    }
    if (config->sync.every > 1 || strcmp(config->sync.compress, "none") != 0) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: loss scaling needs an uncompressed exchange at every step: set sync.every: 1 and "
            "sync.compress: none, or precision.loss_scaling: none",
            by__config_where(config, "sync.every", "precision.compute"));
    }
    return BY_OK;
}

/* Checks what does not depend on the number of ranks. */
static by_status check_parallel(const by_config *config, by_error *error)
{
    const by_parallel_config *p = &config->parallel;
    if (p->data == -1 && p->shard == -1) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: parallel.data and parallel.shard are both -1, but only one of "
                            "them can be derived from the number of ranks: set data: 1",
                            by__config_where(config, "parallel.shard", "parallel.data"));
    }
    if (p->chunks > 1 && strcmp(p->schedule, "interleaved") != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: parallel.chunks is %lld, but schedule %s has 1 chunk per rank: "
                            "set schedule: interleaved",
                            by__config_where(config, "parallel.chunks", "parallel.schedule"),
                            (long long)p->chunks, p->schedule);
    }
    return BY_OK;
}

/* Between two exchanges ranks have different weights, so evaluations, saves and comparisons must
 * coincide with exchanges. */
static by_status check_sync(const by_config *config, by_error *error)
{
    static const char *const intervals[] = {"train.steps", "train.eval_every", "checkpoint.every",
                                            "parallel.replica_hash_every"};
    if (strcmp(config->sync.compress, "none") != 0 && config->parallel.shard != 1) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: parallel.shard is %lld, but sync.compress %s needs whole "
                            "gradients: set parallel.shard to 1, which leaves its ranks to "
                            "parallel.data, or sync.compress to none",
                            by__config_where(config, "sync.compress", "parallel.shard"),
                            (long long)config->parallel.shard, config->sync.compress);
    }
    if (config->sync.every > 1 && strcmp(config->optimizer.lr_scaling, "none") != 0) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: optimizer.lr_scaling %s scales by train.batch, but with sync.every %lld a step of "
            "a replica has only its part of that: set lr for such a step, and lr_scaling: none",
            by__config_where(config, "optimizer.lr_scaling", "sync.every"),
            config->optimizer.lr_scaling, (long long)config->sync.every);
    }
    if (config->checkpoint.every == -1 && config->sync.every > 1) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: checkpoint.every is auto, but with sync.every %lld saves must "
                            "coincide with exchanges: give checkpoint.every a multiple of it",
                            by__config_where(config, "checkpoint.every", "sync.every"),
                            (long long)config->sync.every);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(intervals); i++) {
        BY_TRY(by__config_divides(config, "sync.every", intervals[i], error));
    }
    if (config->sync.staleness > 0 &&
        (config->sync.every == 1 || config->sync.staleness > config->sync.every)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: sync.staleness is %lld and sync.every %lld: an exchange must end "
                            "before the next one begins, and with every: 1 within its step",
                            by__config_where(config, "sync.staleness", "sync.every"),
                            (long long)config->sync.staleness, (long long)config->sync.every);
    }
    return BY_OK;
}

/* Exchanges configured in section sync need whole buffers of weights and states in memory. */
static by_status check_offload(const by_config *config, by_error *error)
{
    bool exchanges = config->sync.every > 1 || strcmp(config->sync.compress, "none") != 0;
    if (exchanges && strcmp(config->offload.optimizer, "none") != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: offload.optimizer needs an uncompressed exchange at every step: "
                            "set offload.optimizer: none, or leave out section sync",
                            by__config_where(config, "offload.optimizer", "sync.every"));
    }
    return BY_OK;
}

/* Recomputation inside a pipeline stage cannot start from activations of another stage. */
static by_status check_memory(const by_config *config, by_error *error)
{
    const char *recompute = config->memory.recompute;
    bool across = strcmp(recompute, "every") == 0 || strcmp(recompute, "full") == 0;
    if (across && config->parallel.pipeline > 1) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: memory.recompute is %s, which recomputes the inputs of blocks, but with "
            "parallel.pipeline above 1 these come from other ranks: set recompute: block",
            by__config_where(config, "memory.recompute", "parallel.pipeline"), recompute);
    }
    if (strcmp(config->memory.activations, "same") != 0 && config->memory.budget > 0 &&
        strcmp(recompute, "none") == 0) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: what memory.budget recomputes depends on the machine, and with memory.activations "
            "%s that would change the results: set memory.recompute, or activations: same",
            by__config_where(config, "memory.budget", "memory.activations"),
            config->memory.activations);
    }
    return BY_OK;
}

/* A guard judges a step by the losses of all ranks before any lasting result of it is exchanged. */
static by_status check_guard(const by_config *config, by_error *error)
{
    bool exchanges = config->sync.every > 1 || strcmp(config->sync.compress, "none") != 0;
    bool vetoes =
        strcmp(config->guard.spike, "skip") == 0 || strcmp(config->guard.spike, "rollback") == 0;
    if (vetoes && exchanges) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: guard.spike %s needs an uncompressed exchange at every step: set "
                            "guard.spike: warn, or leave out section sync",
                            by__config_where(config, "guard.spike", "sync.every"),
                            config->guard.spike);
    }
    if ((config->guard.replay_every > 0 || config->guard.abft != 0) && config->sync.staleness > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: guard.replay_every and guard.abft make ranks wait for each other, "
                            "but sync.staleness is %lld: set it to 0",
                            by__config_where(config, "guard.replay_every", "guard.abft"),
                            (long long)config->sync.staleness);
    }
    if (config->guard.replay_every > 0 && strcmp(config->sync.compress, "none") != 0) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: guard.replay_every is %lld, but a compressed exchange has error feedback and "
            "cannot be repeated: set sync.compress: none or guard.replay_every: 0",
            by__config_where(config, "guard.replay_every", "sync.compress"),
            (long long)config->guard.replay_every);
    }
    return BY_OK;
}

static by_status check_names(const by_config *config, by_error *error)
{
    for (const char *c = config->name; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: name contains a control character (byte 0x%02x); it becomes a "
                                "directory name and is printed in tables",
                                by__config_where(config, "name", "name"), (unsigned char)*c);
        }
    }
    if (strchr(config->name, '/') != NULL || config->name[0] == '.') {
        return by_error_set(error, BY_ECONFIG,
                            "%s: name \"%.60s\" becomes a directory name: it must not contain "
                            "\"/\" or start with \".\"",
                            by__config_where(config, "name", "name"), config->name);
    }
    if (config->data.text.count > 0 && config->data.train[0] != '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.train and data.text are both set; leave one out, or clear it "
                            "(text: [] or train: \"\")",
                            by__config_where(config, "data.train", "data.text"));
    }
    return BY_OK;
}

static by_status check_zeros(const by_config *config, by_error *error)
{
    const by_optimizer_config *o = &config->optimizer;
    if (o->keep_zeros == 0) {
        return BY_OK;
    }
    if (strcmp(o->kind, "muon") == 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: optimizer.keep_zeros does not work with muon, which mixes the "
                            "elements of a matrix: use adamw",
                            by__config_where(config, "optimizer.keep_zeros", "optimizer.kind"));
    }
    if (config->lora.rank > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: optimizer.keep_zeros would keep adapters at 0, where they start: "
                            "leave out keep_zeros or lora",
                            by__config_where(config, "optimizer.keep_zeros", "lora.rank"));
    }
    return BY_OK;
}

static by_status check_qat(const by_config *config, by_error *error)
{
    int64_t group = config->precision.qat_group;
    if (group != 32 && group != 64 && group != 128) {
        return by_error_set(
            error, BY_ECONFIG, "%s: precision.qat_group is %lld; must be 32, 64 or 128",
            by__config_where(config, "precision.qat_group", "precision.qat"), (long long)group);
    }
    if (strcmp(config->precision.qat, "none") == 0) {
        return BY_OK;
    }
    if (config->lora.rank > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: precision.qat trains the rounded weights, which lora freezes: "
                            "leave out qat or lora",
                            by__config_where(config, "precision.qat", "lora.rank"));
    }
    if (strcmp(config->precision.weights, "f32") != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: precision.qat rounds weights of f32; set precision.weights f32",
                            by__config_where(config, "precision.qat", "precision.weights"));
    }
    return BY_OK;
}

static by_status check_distill(const by_config *config, by_error *error)
{
    const by_distill_config *d = &config->distill;
    bool stored = d->logits[0] != '\0';
    if (stored && (d->teacher[0] != '\0' || d->hidden > 0.0)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: distill.logits replaces distill.teacher and has no hidden states: "
                            "leave out distill.%s",
                            by__config_where(config, "distill.logits", "distill.teacher"),
                            d->teacher[0] != '\0' ? "teacher" : "hidden");
    }
    if (stored && strcmp(config->task.kind, "language") != 0) {
        return by_error_set(
            error, BY_ECONFIG, "%s: distill.logits is for task.kind language, not %s",
            by__config_where(config, "distill.logits", "task.kind"), config->task.kind);
    }
    if (d->teacher[0] == '\0') {
        return BY_OK;
    }
    if (strcmp(config->task.kind, "language") != 0) {
        return by_error_set(
            error, BY_ECONFIG, "%s: distill.teacher is for task.kind language, not %s",
            by__config_where(config, "distill.teacher", "task.kind"), config->task.kind);
    }
    if (config->parallel.pipeline != 1) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: distill.teacher does not support pipeline parallelism: set parallel.pipeline: 1",
            by__config_where(config, "distill.teacher", "parallel.pipeline"));
    }
    return BY_OK;
}

by_status by_config_resolve(by_config *config, by_error *error)
{
    by__config *whole = (by__config *)config;
    for (size_t i = 0; i < whole->count; i++) {
        const by__config_entry *entry = &whole->entries[i];
        if (by__config_entry_active(whole, entry)) {
            BY_TRY(by__config_value_verify(entry, entry->origin == NULL ? "config" : entry->origin,
                                           error));
        }
    }
    BY_TRY(by__config_check_kinds(whole, error));
    BY_TRY(check_names(config, error));
    BY_TRY(resolve_training(config, error));
    BY_TRY(by__config_resolve_lora(config, error));
    BY_TRY(check_distill(config, error));
    BY_TRY(check_zeros(config, error));
    BY_TRY(check_qat(config, error));
    BY_TRY(by__config_check_batch_warmup(config, error));
    BY_TRY(check_average(config, error));
    BY_TRY(check_device(config, error));
    BY_TRY(resolve_compute(config, error));
    BY_TRY(check_weights(config, error));
    BY_TRY(check_loss_scale(config, error));
    BY_TRY(check_parallel(config, error));
    BY_TRY(check_sync(config, error));
    BY_TRY(check_offload(config, error));
    BY_TRY(check_guard(config, error));
    BY_TRY(check_memory(config, error));
    for (size_t t = 0; t < whole->schema->table_count; t++) {
        const by__config_kind *kind = by__config_chosen_kind(whole, t);
        if (kind->resolve != NULL && !by__config_kind_open(whole, t)) {
            BY_TRY(kind->resolve(config, by__config_chosen_own(whole, t), error));
        }
    }
    return BY_OK;
}
