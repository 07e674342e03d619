/* The mix of packed directories for training, and their weights: data.mix, data.mix_order and
 * data.curriculum. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/kind.h"
#include "tasks/tasks.h"
#include "tasks/text/language.h"

/* Parses a weight of `length` bytes; returns false if it is malformed. */
static bool parse_weight(const char *text, size_t length, double *out)
{
    char number[64];
    if (length == 0 || length >= sizeof number) {
        return false;
    }
    memcpy(number, text, length);
    number[length] = '\0';
    return by__parse_f64(number, out) && isfinite(*out) && *out >= 0.0;
}

/* Parses DIR=WEIGHT; the last `=` counts, because a path may contain others. */
static by_status parse_part(by__task_data_mix *mix, const by_config *config, size_t index,
                            by_error *error)
{
    const char *entry = config->data.mix.items[index];
    const char *equals = strrchr(entry, '=');
    if (equals == NULL || equals == entry ||
        !parse_weight(equals + 1, strlen(equals + 1), &mix->weights[index])) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: data.mix: '%s' is not DIR=WEIGHT with a weight of at least 0, such "
            "as packed/web=0.7",
            by__config_where(config, "data.mix", "data.mix"), entry);
    }
    mix->directories[index] = by__strndup(entry, (size_t)(equals - entry));
    return mix->directories[index] == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                           : BY_OK;
}

static by_status refuse_stage(const by_config *config, const char *entry, size_t count,
                              by_error *error)
{
    return by_error_set(error, BY_ECONFIG,
                        "%s: data.curriculum: '%s' is not STEP=WEIGHT:WEIGHT... with a weight for "
                        "each of the %zu directories of data.mix, such as 1000=%s",
                        by__config_where(config, "data.curriculum", "data.mix"), entry, count,
                        count == 1   ? "1"
                        : count == 2 ? "0.2:0.8"
                                     : "0.2:0.5:0.3");
}

/* Parses STEP=WEIGHT:WEIGHT... */
static by_status parse_stage(by__task_data_mix *mix, const by_config *config, size_t index,
                             by_error *error)
{
    const char *entry = config->data.curriculum.items[index];
    double *weights = mix->weights + (index + 1) * mix->count;
    double step;
    const char *at = strchr(entry, '=');
    if (at == NULL || !parse_weight(entry, (size_t)(at - entry), &step) || step != rint(step) ||
        step < 2.0 || step > (double)config->train.steps) {
        return at == NULL ? refuse_stage(config, entry, mix->count, error)
                          : by_error_set(error, BY_ECONFIG,
                                         "%s: data.curriculum: '%s' must begin with a step from 2 "
                                         "to train.steps, %lld",
                                         by__config_where(config, "data.curriculum", "data.mix"),
                                         entry, (long long)config->train.steps);
    }
    for (size_t i = 0; i < mix->count; i++) {
        size_t length = strcspn(++at, ":");
        if (!parse_weight(at, length, &weights[i]) ||
            at[length] != (i + 1 < mix->count ? ':' : '\0')) {
            return refuse_stage(config, entry, mix->count, error);
        }
        at += length;
    }
    mix->stages[index + 1] =
        (by_mix_stage){.first = by_config_samples(config, (int64_t)step - 1), .weights = weights};
    if (mix->stages[index + 1].first <= mix->stages[index].first) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.curriculum: '%s' is not behind the step before it; order "
                            "the steps",
                            by__config_where(config, "data.curriculum", "data.mix"), entry);
    }
    return BY_OK;
}

/* Weights that add up to 0 would leave a stage without data. */
static by_status check_sums(const by__task_data_mix *mix, const by_config *config, by_error *error)
{
    for (size_t s = 0; s < mix->stage_count; s++) {
        double sum = 0.0;
        for (size_t i = 0; i < mix->count; i++) {
            sum += mix->stages[s].weights[i];
        }
        if (!(sum > 0.0) || !isfinite(sum)) {
            const char *key = s == 0 ? "data.mix" : "data.curriculum";
            return by_error_set(error, BY_ECONFIG,
                                "%s: %s: the weights%s%s add up to %g; give at least one directory "
                                "a weight above 0",
                                by__config_where(config, key, "data.mix"), key,
                                s == 0 ? "" : " of ",
                                s == 0 ? "" : config->data.curriculum.items[s - 1], sum);
        }
    }
    return BY_OK;
}

static by_status describe(by__task_data_mix *mix, const by_config *config, by_error *error)
{
    by_string text = {0};
    by__string_append(&text, config->data.mix_order);
    for (size_t i = 0; i < mix->count; i++) {
        by_string_format(&text, " %s", config->data.mix.items[i]);
    }
    for (size_t i = 0; i < config->data.curriculum.count; i++) {
        by_string_format(&text, "%s%s", i == 0 ? "; from step " : ", ",
                         config->data.curriculum.items[i]);
    }
    return by__string_release(&text, &mix->text, error);
}

static by_status parse(by__task_data_mix *mix, const by_config *config, by_error *error)
{
    size_t stages = 1 + config->data.curriculum.count;
    size_t count = config->data.mix.count;
    size_t weights;
    if (!by__size_mul(stages, count, &weights)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: %zu weights of %zu", stages, count);
    }
    BY_TRY(by__alloc((void **)&mix->directories, count, sizeof *mix->directories, "a mix", error));
    mix->count = count;
    BY_TRY(by__alloc((void **)&mix->weights, weights, sizeof *mix->weights, "a mix", error));
    BY_TRY(by__alloc((void **)&mix->stages, stages, sizeof *mix->stages, "a mix", error));
    mix->stages[0] = (by_mix_stage){.first = 0, .weights = mix->weights};
    mix->stage_count = stages;
    mix->shuffle = strcmp(config->data.mix_order, "random") == 0;
    for (size_t i = 0; i < count; i++) {
        BY_TRY(parse_part(mix, config, i, error));
    }
    for (size_t i = 0; i + 1 < stages; i++) {
        BY_TRY(parse_stage(mix, config, i, error));
    }
    BY_TRY(check_sums(mix, config, error));
    return describe(mix, config, error);
}

by_status by__task_data_mix_parse(by__task_data_mix *out, const by_config *config, by_error *error)
{
    const by_data_config *data = &config->data;
    by__task_data_mix mix = {0};
    *out = mix;
    if (data->mix.count == 0) {
        return data->curriculum.count == 0
                   ? BY_OK
                   : by_error_set(error, BY_ECONFIG,
                                  "%s: data.curriculum changes the weights of data.mix, but there "
                                  "is no data.mix",
                                  by__config_where(config, "data.curriculum", "data.mix"));
    }
    if (data->train[0] != '\0' || data->text.count > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.mix and data.%s are both set; leave one out, or clear it "
                            "(%s)",
                            by__config_where(config, "data.mix", "data.mix"),
                            data->text.count > 0 ? "text" : "train",
                            data->text.count > 0 ? "--set data.text=[]" : "--set data.train=");
    }
    by_status status = parse(&mix, config, error);
    if (status != BY_OK) {
        by__task_data_mix_free(&mix);
        return status;
    }
    *out = mix;
    return BY_OK;
}

void by__task_data_mix_free(by__task_data_mix *mix)
{
    for (size_t i = 0; i < mix->count; i++) {
        free(mix->directories[i]);
    }
    free(mix->directories);
    free(mix->weights);
    free(mix->stages);
    free(mix->text);
    *mix = (by__task_data_mix){0};
}

by_status by__task_data_mix_resolve(by_config *config, void *own, by_error *error)
{
    by__task_data_mix mix;
    BY_UNUSED(own);
    if (by__task_keeps_documents(config) && config->parallel.sequence > 1) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: parallel.sequence %lld does not support data.documents=mask; use "
                            "parallel.tensor or parallel.shard instead",
                            by__config_where(config, "data.documents", "parallel.sequence"),
                            (long long)config->parallel.sequence);
    }
    BY_TRY(by__task_data_mix_parse(&mix, config, error));
    by__task_data_mix_free(&mix);
    return BY_OK;
}
