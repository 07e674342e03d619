/* The facts of a run as a flat list, read from its directory: its record, last metrics, config,
 * tags and environment. */
#include "banyan/runs.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/config.h"
#include "banyan/track.h"
#include "base/base.h"
#include "base/json.h"
#include "base/paths.h"
#include "schema/config_history.h"

enum { max_environment_file = 1 << 20 };

typedef struct fact_list {
    by_run_facts facts;
    size_t capacity;
    size_t next;      /* where to look first for the next fact: events repeat */
    by_status status; /* of what was added; nothing is added after an error */
    by_error *error;
} fact_list;

static void add(fact_list *l, const char *group, const char *key, const char *value, bool is_number)
{
    by_string name = {0};
    by_fact fact = {.is_number = is_number};
    if (l->status != BY_OK) {
        return;
    }
    l->status = by__reserve((void **)&l->facts.items, &l->capacity, l->facts.count + 1,
                            sizeof *l->facts.items, l->error);
    if (l->status != BY_OK) {
        return;
    }
    by_string_format(&name, "%s.%s", group, key);
    l->status = by__string_release(&name, &fact.key, l->error);
    if (l->status == BY_OK && (fact.value = by__strdup(value)) == NULL) {
        free(fact.key);
        l->status = by_error_set(l->error, BY_EMEMORY, "out of memory: facts of a run");
    }
    if (l->status == BY_OK) {
        l->facts.items[l->facts.count++] = fact;
    }
}

static void add_number(fact_list *l, const char *group, const char *key, double value)
{
    char text[32];
    by__format_f64(text, value);
    add(l, group, key, text, isfinite(value));
}

/* ---- the record ---- */

static void add_record(fact_list *l, const by_run_record *r)
{
    const struct {
        const char *key;
        const char *value;
    } texts[] = {{"name", r->name},       {"path", r->path},       {"status", r->status},
                 {"started", r->started}, {"updated", r->updated}, {"config_hash", r->config_hash}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        add(l, "run", texts[i].key, texts[i].value == NULL ? "" : texts[i].value, false);
    }
    add_number(l, "run", "step", (double)r->step);
    add_number(l, "run", "steps", (double)r->steps);
    if (isfinite(r->best_loss)) {
        add_number(l, "run", "best_loss", r->best_loss);
    }
}

static by_status read_record(fact_list *l, const char *run, by_error *error)
{
    by_run_list runs;
    BY_TRY(by_run_read(&runs, run, error));
    add_record(l, &runs.items[0]);
    by_run_list_free(&runs);
    return BY_OK;
}

/* ---- the last numbers ---- */

/* Called for each number of the events: the last value of a key is kept. */
static void record_number(void *user, const char *event, uint64_t step, const char *key,
                          double value)
{
    fact_list *l = user;
    char name[128];
    BY_UNUSED(step);
    if (strcmp(key, "time") == 0 || l->status != BY_OK) {
        return;
    }
    (void)snprintf(name, sizeof name, "last.%s.%s", event, key);
    for (size_t i = 0; i < l->facts.count; i++) {
        size_t at = (l->next + i) % l->facts.count;
        by_fact *fact = &l->facts.items[at];
        if (strcmp(fact->key, name) == 0) {
            l->next = at + 1;
            char text[32];
            by__format_f64(text, value);
            char *copy = by__strdup(text);
            if (copy == NULL) {
                l->status = by_error_set(l->error, BY_EMEMORY, "out of memory: facts of a run");
                return;
            }
            free(fact->value);
            fact->value = copy;
            fact->is_number = isfinite(value);
            return;
        }
    }
    add_number(l, "last", name + strlen("last."), value);
    l->next = l->facts.count;
}

/* ---- the config ---- */

/* The values of keys, in the order in which the run had them: "0.003; from step 500: 0.001". */
typedef struct config_reader {
    fact_list *list;
    uint64_t step; /* of the config that is compared with the one before; 0: the first */
} config_reader;

static void add_value(void *user, const char *key, const char *before, const char *after)
{
    const config_reader *r = user;
    by_run_facts *facts = &r->list->facts;
    by_string text = {0};
    char *joined;
    double number;
    BY_UNUSED(before);
    if (r->step == 0) {
        add(r->list, "config", key, after, by__parse_f64(after, &number) && isfinite(number));
        return;
    }
    const char *value = after == NULL ? "none" : after;
    for (size_t i = 0; i < facts->count && r->list->status == BY_OK; i++) {
        by_fact *fact = &facts->items[i];
        if (strncmp(fact->key, "config.", 7) == 0 && strcmp(fact->key + 7, key) == 0) {
            by_string_format(&text, "%s; from step %" PRIu64 ": %s", fact->value, r->step, value);
            r->list->status = by__string_release(&text, &joined, r->list->error);
            if (r->list->status == BY_OK) {
                free(fact->value);
                fact->value = joined;
                fact->is_number = false;
            }
            return;
        }
    }
    by_string_format(&text, "from step %" PRIu64 ": %s", r->step, value);
    if (r->list->status == BY_OK) {
        r->list->status = by__string_release(&text, &joined, r->list->error);
    }
    if (r->list->status == BY_OK) {
        add(r->list, "config", key, joined, false);
        free(joined);
    }
}

/* Takes what the config of a step changes in *text, which that config replaces. */
static by_status read_version(fact_list *l, char **text, const char *run, uint64_t step,
                              by_error *error)
{
    config_reader reader = {l, step};
    char *path;
    char *next;
    BY_TRY(by__schema_config_file(&path, run, step, error));
    if (step == 0 && !by__path_exists(path)) {
        free(path);
        return BY_OK;
    }
    by_status status = by__schema_config_print_file(&next, path, error);
    free(path);
    BY_TRY(status);
    status = by__schema_config_compare(*text == NULL ? "" : *text, next, add_value, &reader, error);
    free(*text);
    *text = next;
    return status;
}

static by_status read_config(fact_list *l, const char *run, by_error *error)
{
    uint64_t *steps;
    size_t count;
    char *text = NULL;
    BY_TRY(by__schema_config_steps(&steps, &count, run, error));
    by_status status = read_version(l, &text, run, 0, error);
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = read_version(l, &text, run, steps[i], error);
    }
    free(text);
    free(steps);
    return status;
}

/* ---- tags and environment ---- */

static by_status read_tags(fact_list *l, const char *run, by_error *error)
{
    by_tag_list tags;
    BY_TRY(by_tags_read(&tags, run, error));
    for (size_t i = 0; i < tags.count; i++) {
        add(l, "tag", tags.items[i].key, tags.items[i].value, false);
    }
    by_tag_list_free(&tags);
    return BY_OK;
}

/* Adds a value of the environment; an object's members one by one, a list joined by blanks. */
static void add_json(fact_list *l, const char *group, const char *key, const json_t *value)
{
    by_string text = {0};
    char *joined;
    const char *name;
    json_t *inner;
    char prefix[160];
    size_t i;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        (void)snprintf(prefix, sizeof prefix, "%s.%s", group, key);
        json_object_foreach((json_t *)(uintptr_t)value, name, inner)
        {
            add_json(l, prefix, name, inner);
        }
        return;
    case JSON_ARRAY:
        json_array_foreach(value, i, inner)
        {
            by_string_format(&text, "%s%s", i > 0 ? " " : "",
                             json_is_string(inner) ? json_string_value(inner) : "");
        }
        if (l->status == BY_OK) {
            l->status = by__string_release(&text, &joined, l->error);
        } else {
            by_string_free(&text);
        }
        if (l->status == BY_OK) {
            add(l, group, key, joined, false);
            free(joined);
        }
        return;
    case JSON_STRING:
        add(l, group, key, json_string_value(value), false);
        return;
    case JSON_INTEGER:
    case JSON_REAL:
        add_number(l, group, key, json_number_value(value));
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        add(l, group, key, json_is_true(value) ? "true" : "false", false);
        return;
    default:
        return;
    }
}

static by_status read_environment(fact_list *l, const char *run, by_error *error)
{
    const char *key;
    json_t *value;
    json_t *root;
    BY_TRY(by__json_file(&root, run, "environment.json", max_environment_file, 0, error));
    bool is_object = root == NULL || json_is_object(root);
    json_object_foreach(root, key, value)
    {
        add_json(l, "environment", key, value);
    }
    json_decref(root);
    return is_object ? BY_OK
                     : by_error_set(error, BY_EFORMAT, "%s/environment.json: not an object", run);
}

by_status by_run_facts_read(by_run_facts *out, const char *run, by_error *error)
{
    fact_list l = {.error = error};
    uint64_t offset = 0;
    by_status status = read_record(&l, run, error);
    if (status == BY_OK) {
        status = by_events_follow(run, &offset, NULL, record_number, &l, error);
    }
    if (status == BY_OK) {
        status = read_tags(&l, run, error);
    }
    if (status == BY_OK) {
        status = read_config(&l, run, error);
    }
    if (status == BY_OK) {
        status = read_environment(&l, run, error);
    }
    if (status == BY_OK) {
        status = l.status;
    }
    if (status != BY_OK) {
        by_run_facts_free(&l.facts);
        return status;
    }
    *out = l.facts;
    return BY_OK;
}

const by_fact *by_run_facts_find(const by_run_facts *facts, const char *key)
{
    for (size_t i = 0; i < facts->count; i++) {
        if (strcmp(facts->items[i].key, key) == 0) {
            return &facts->items[i];
        }
    }
    return NULL;
}

void by_run_facts_free(by_run_facts *facts)
{
    for (size_t i = 0; i < facts->count; i++) {
        free(facts->items[i].key);
        free(facts->items[i].value);
    }
    free(facts->items);
    *facts = (by_run_facts){0};
}
