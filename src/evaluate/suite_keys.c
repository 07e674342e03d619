/* The keys of a task's file. Those that other programs put there and that change nothing are passed
 * over. One that would change what is measured is followed or refused, never passed over; so is one
 * that is nearly the name of a key that counts, which is a slip. */
#include <string.h>

#include "base/json.h"
#include "evaluate/evaluate.h"

#define NEAR 2 /* letters that a slip gets wrong */

static const char *const used_keys[] = {
    "task",          "include",          "output_type",       "test_split",   "validation_split",
    "fewshot_split", "training_split",   "dataset_name",      "doc_to_text",  "doc_to_choice",
    "doc_to_target", "dataset_kwargs",   "description",       "num_fewshot",  "fewshot_config",
    "metric_list",   "target_delimiter", "fewshot_delimiter", "process_docs", "process_results",
    "filter_list",   "custom_dataset",   "generation_kwargs", "dataset_path"};

/* Keys of lm-evaluation-harness that are no slips, though they resemble one of the above. */
static const char *const other_keys[] = {"tag", "doc_to_image", "doc_to_audio"};

/* Keys of lm-evaluation-harness that are not followed, and what to do instead. */
static const struct {
    const char *key;
    const char *instead;
} refused_keys[] = {{"gen_prefix", "put it at the end of doc_to_text"},
                    {"repeats", "an item is asked once: leave it out, or give 1"},
                    {"use_prompt", "write the prompt into doc_to_text"},
                    {"doc_to_image", "an item is text"},
                    {"doc_to_audio", "an item is text"},
                    {"class", "it needs Python"}};

static const char *const shot_keys[] = {"sampler", "samples", "doc_to_text", "doc_to_choice",
                                        "doc_to_target"};
static const char *const generation_keys[] = {"until", "max_gen_toks", "do_sample", "temperature",
                                              "top_p"};
static const char *const metric_keys[] = {"metric",           "aggregation", "higher_is_better",
                                          "hf_evaluate",      "ignore_case", "ignore_punctuation",
                                          "regexes_to_ignore"};

static bool is_listed(const char *key, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(key, list[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether a value asks for nothing. */
static bool says_nothing(const json_t *value)
{
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

/* ---- values that need Python ---- */

/* The first tag in a value, such as !function, with its text; NULL: there is none. */
static const char *find_tag(const json_t *value, const char **text)
{
    const char *found = NULL;
    const char *key;
    json_t *item;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)value, key, item)
    {
        if (key[0] == '!') {
            *text = json_is_string(item) ? json_string_value(item) : "";
            return key;
        }
        found = found == NULL ? find_tag(item, text) : found;
    }
    json_array_foreach((json_t *)(uintptr_t)value, i, item)
    {
        found = found == NULL ? find_tag(item, text) : found;
    }
    return found;
}

/* ---- mappings ---- */

/* Refuses a mapping that is none, has keys which are not listed, or has values that need Python. */
static by_status check_map(const json_t *map, const char *name, const char *const *keys,
                           size_t count, const char *path, by_error *error)
{
    const char *key;
    json_t *value;
    if (map == NULL || json_is_null(map)) {
        return BY_OK;
    }
    if (!json_is_object(map)) {
        return by_error_set(error, BY_EFORMAT, "%s: '%s' must be a mapping of keys to values", path,
                            name);
    }
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        const char *text;
        const char *tag = find_tag(value, &text);
        if (tag != NULL) {
            return by_error_set(error, BY_EFORMAT, "%s: '%s.%.60s' needs Python: %.60s %.60s", path,
                                name, key, tag, text);
        }
        if (!is_listed(key, keys, count) && !says_nothing(value)) {
            return by_error_set(error, BY_EFORMAT, "%s: '%s.%.60s' is not supported", path, name,
                                key);
        }
    }
    return BY_OK;
}

/* Examples that the file has itself are rows. */
static by_status check_samples(const json_t *samples, const char *path, by_error *error)
{
    bool good = samples == NULL || json_is_null(samples) || json_is_array(samples);
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)samples, i, row)
    {
        good = good && json_is_object(row);
    }
    return good ? BY_OK
                : by_error_set(error, BY_EFORMAT,
                               "%s: 'fewshot_config.samples' must be a list of rows", path);
}

static by_status check_parts(const json_t *yaml, const char *path, by_error *error)
{
    const json_t *shots = json_object_get(yaml, "fewshot_config");
    const json_t *sampler = json_object_get(shots, "sampler");
    const json_t *generation = json_object_get(yaml, "generation_kwargs");
    const json_t *samples = json_object_get(generation, "do_sample");
    BY_TRY(check_map(shots, "fewshot_config", shot_keys, BY_ARRAY_LENGTH(shot_keys), path, error));
    BY_TRY(check_map(generation, "generation_kwargs", generation_keys,
                     BY_ARRAY_LENGTH(generation_keys), path, error));
    if (sampler != NULL && !json_is_null(sampler) && !json_is_string(sampler)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: 'fewshot_config.sampler' must be default or first_n", path);
    }
    if (samples != NULL && !json_is_null(samples) && !json_is_boolean(samples)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: 'generation_kwargs.do_sample' must be true or false", path);
    }
    return check_samples(json_object_get(shots, "samples"), path, error);
}

/* ---- keys ---- */

static by_status check_refused(const json_t *yaml, const char *path, by_error *error)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(refused_keys); i++) {
        const char *key = refused_keys[i].key;
        const json_t *value = json_object_get(yaml, key);
        bool once =
            strcmp(key, "repeats") == 0 && json_is_integer(value) && json_integer_value(value) == 1;
        if (!once && !says_nothing(value)) {
            return by_error_set(error, BY_EFORMAT, "%s: '%s' is not supported: %s", path, key,
                                refused_keys[i].instead);
        }
    }
    return BY_OK;
}

/* Keys whose values are read as they are, and which say themselves where they need Python. */
static bool checks_itself(const char *key)
{
    return strncmp(key, "doc_to_", 7) == 0 || strncmp(key, "process_", 8) == 0 ||
           strcmp(key, "description") == 0 || strcmp(key, "custom_dataset") == 0;
}

by_status by__evaluate_keys_check(const json_t *yaml, const char *path, by_error *error)
{
    const char *key;
    json_t *value;
    BY_TRY(check_refused(yaml, path, error));
    BY_TRY(check_parts(yaml, path, error));
    json_object_foreach((json_t *)(uintptr_t)yaml, key, value)
    {
        if (is_listed(key, used_keys, BY_ARRAY_LENGTH(used_keys))) {
            const char *text;
            const char *tag = checks_itself(key) ? NULL : find_tag(value, &text);
            if (tag != NULL) {
                return by_error_set(error, BY_EFORMAT, "%s: '%s' needs Python: %.60s %.60s", path,
                                    key, tag, text);
            }
            continue;
        }
        for (size_t i = 0; i < BY_ARRAY_LENGTH(used_keys); i++) {
            if (!is_listed(key, other_keys, BY_ARRAY_LENGTH(other_keys)) &&
                by__edit_distance(key, used_keys[i]) <= NEAR) {
                return by_error_set(error, BY_EFORMAT,
                                    "%s: unknown key '%.60s'; did you mean '%s'?", path, key,
                                    used_keys[i]);
            }
        }
    }
    return BY_OK;
}

/* ---- metrics ---- */

/* A metric of a kind, with the name that the harness gives to how items make it. */
typedef struct known_metric {
    const char *name;
    const char *aggregation;
} known_metric;

#define MOST_METRICS 4

static const known_metric known[][MOST_METRICS] = {
    [BY__EVALUATE_CHOICE] = {{"acc", "mean"},
                             {"acc_norm", "mean"},
                             {"acc_bytes", "mean"},
                             {"acc_tokens", "mean"}},
    [BY__EVALUATE_EXACT] = {{"acc", "mean"}, {"perplexity", "perplexity"}},
    [BY__EVALUATE_PERPLEXITY] = {{"bits_per_byte", "bits_per_byte"},
                                 {"byte_perplexity", "weighted_perplexity"},
                                 {"word_perplexity", "weighted_perplexity"}},
    [BY__EVALUATE_GENERATE] = {{"exact_match", "mean"}}};

/* Refuses a metric that a kind has not, with those that it has. */
static by_status refuse_metric(const known_metric *has, const char *name, const char *path,
                               by_error *error)
{
    by_string list = {0};
    for (size_t i = 0; i < MOST_METRICS && has[i].name != NULL; i++) {
        by_string_format(&list, "%s%s", i > 0 ? ", " : "", has[i].name);
    }
    by_status status = by_string_check(&list, error);
    if (status == BY_OK) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s: 'metric_list' has the metric '%.60s', which is not supported "
                              "here; those of this output_type are %s",
                              path, name, list.data);
    }
    by_string_free(&list);
    return status;
}

static by_status check_metric(const known_metric *has, const json_t *item, const char *path,
                              by_error *error)
{
    const char *name = by__json_string(json_object_get(item, "metric"));
    const json_t *aggregation = json_object_get(item, "aggregation");
    size_t i = 0;
    if (json_is_object(item)) {
        BY_TRY(
            check_map(item, "metric_list", metric_keys, BY_ARRAY_LENGTH(metric_keys), path, error));
    }
    if (name == NULL) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: 'metric_list' must be a list of mappings with the key 'metric'",
                            path);
    }
    while (i < MOST_METRICS && (has[i].name == NULL || strcmp(name, has[i].name) != 0)) {
        i++;
    }
    if (i == MOST_METRICS) {
        return refuse_metric(has, name, path, error);
    }
    const char *way = by__json_string(aggregation);
    bool natural = way != NULL && strcmp(way, has[i].aggregation) == 0;
    return aggregation == NULL || json_is_null(aggregation) || natural
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: 'metric_list': the aggregation of %s is '%s'",
                              path, name, has[i].aggregation);
}

by_status by__evaluate_metrics_check(const json_t *yaml, by__evaluate_kind kind, const char *path,
                                     by_error *error)
{
    const json_t *list = json_object_get(yaml, "metric_list");
    size_t i;
    json_t *item;
    if (list != NULL && !json_is_null(list) && !json_is_array(list)) {
        return by_error_set(error, BY_EFORMAT, "%s: 'metric_list' must be a list", path);
    }
    json_array_foreach((json_t *)(uintptr_t)list, i, item)
    {
        BY_TRY(check_metric(known[kind], item, path, error));
    }
    return BY_OK;
}
