/* The suites of questions, on the model of a part. */
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"
#include "banyan/infer.h"
#include "banyan/suite.h"
#include "base/json.h"

typedef struct suite_progress {
    const by_assistant *assistant;
    const by_assistant_options *options;
    size_t part;
    const char *suite;
    double shown; /* when it was last told */
} suite_progress;

#define SECONDS_BETWEEN 0.2

static bool on_progress(void *user, uint64_t done, uint64_t items)
{
    suite_progress *p = user;
    const by_assistant_options *o = p->options;
    double now = by__now();
    if (o->event != NULL && (now - p->shown > SECONDS_BETWEEN || done == items)) {
        const by_assistant_event e = {.kind = BY_ASSISTANT_SCORES,
                                      .part = by_assistant_part_at(p->assistant, p->part),
                                      .text = p->suite,
                                      .done = done,
                                      .items = items};
        o->event(o->user, &e);
        p->shown = now;
    }
    return o->stop == NULL || !o->stop(o->user);
}

/* What the results depend on: the texts of all items, and the weights. */
static by_status hash_of(char out[33], const by_suite *suite, const by__assistant_part *part,
                         by_error *error)
{
    by__hasher *hasher;
    by_status status = BY_OK;
    BY_TRY(by__hasher_open(&hasher, error));
    by__hasher_add(hasher, part->inputs, sizeof part->inputs);
    by__hasher_add(hasher, part->config, sizeof part->config);
    by__hasher_add(hasher, part->run, strlen(part->run));
    for (size_t t = 0; t < by_suite_tasks(suite) && status == BY_OK; t++) {
        for (size_t i = 0; i < by_suite_items(suite, t) && status == BY_OK; i++) {
            char *text;
            status = by_suite_show(suite, t, i, &text, error);
            if (status == BY_OK) {
                by__hasher_add(hasher, text, strlen(text));
                free(text);
            }
        }
    }
    by__hasher_hex(hasher, out);
    by__hasher_close(&hasher);
    return status;
}

static json_t *metrics_of(const by_suite_results *results)
{
    json_t *list = json_array();
    for (size_t i = 0; i < results->task_count; i++) {
        const by_suite_task_result *t = &results->tasks[i];
        json_array_append_new(list, json_pack("{s:s,s:s,s:f,s:f,s:f,s:I}", "task", t->name,
                                              "metric", t->metrics[0].name, "value",
                                              t->metrics[0].value, "low", t->metrics[0].low, "high",
                                              t->metrics[0].high, "items", (json_int_t)t->items));
    }
    return list;
}

static by_status run_suite(by_assistant *a, const by_suite *suite, const char *name,
                           const char *hash, suite_progress *progress, by_error *error)
{
    by_pretrained *model;
    by_suite_results *results;
    const by_suite_run_options options = {
        .seed = BY_SUITE_SEED, .progress = on_progress, .user = progress};
    BY_TRY(by_pretrained_open(&model, a->parts[progress->part].run, false, error));
    by_status status = by_suite_run(&results, suite, model, &options, error);
    by_pretrained_close(&model);
    BY_TRY(status);
    json_t *entry = json_pack("{s:s,s:o}", "key", hash, "metrics", metrics_of(results));
    by_suite_results_close(&results);
    if (entry == NULL || json_object_set_new(a->scores, name, entry) != 0) {
        return by_error_set(error, BY_EMEMORY, "out of memory: results");
    }
    return by__assistant_save(a, error);
}

static by_status open_suite(by_suite **out, const char *path, by_error *error)
{
    const by_suite_options defaults = {.few_shot = -1, .seed = BY_SUITE_SEED};
    return by_suite_open(out, path, &defaults, error);
}

by_status by__assistant_check_suites(const by_assistant *a, by_error *error)
{
    for (size_t i = 0; i < a->config->suites.count; i++) {
        by_suite *suite;
        BY_TRY(open_suite(&suite, a->config->suites.items[i], error));
        by_suite_close(&suite);
    }
    return BY_OK;
}

by_status by__assistant_score(by_assistant *a, size_t index, const by_assistant_options *o,
                              by_error *error)
{
    for (size_t i = 0; i < a->config->suites.count; i++) {
        const char *path = a->config->suites.items[i];
        suite_progress progress = {.assistant = a, .options = o, .part = index, .suite = path};
        by_string name = {0};
        by_suite *suite;
        char hash[33];
        BY_TRY(open_suite(&suite, path, error));
        by_string_format(&name, "%s ", a->parts[index].row->name);
        by__string_append(&name, path);
        by_status status = by_string_check(&name, error);
        status = status == BY_OK ? hash_of(hash, suite, &a->parts[index], error) : status;
        if (status == BY_OK) {
            const char *had =
                json_string_value(json_object_get(json_object_get(a->scores, name.data), "key"));
            if (had == NULL || strcmp(had, hash) != 0) {
                status = run_suite(a, suite, name.data, hash, &progress, error);
            }
        }
        by_string_free(&name);
        by_suite_close(&suite);
        BY_TRY(status);
    }
    return BY_OK;
}
