/* Versions of a model in the broker: selection of a request's version, and their statistics. */
#include <stdlib.h>
#include <string.h>

#include "serve/broker/broker.h"

/* Seconds without a worker after which a version counts as gone, if no supervisor lists
 * versions. */
#define ABSENT 30.0
/* Most versions of a model; clients cannot create any by naming them. */
#define MAX_VERSIONS 16

by__broker_version *by__broker_find_version(by__broker_pool *pool, const char *name, bool make)
{
    by__broker_version *v = pool->versions;
    size_t count = 0;
    by_error ignored = {0};
    while (v != NULL && strcmp(v->name, name) != 0) {
        v = v->next;
        count++;
    }
    if (v != NULL || !make || !by__serve_id_valid(name) || count >= MAX_VERSIONS ||
        by__alloc((void **)&v, 1, sizeof *v, "a version", &ignored) != BY_OK) {
        return v;
    }
    memcpy(v->name, name, strlen(name) + 1);
    v->seen = by__now();
    v->next = pool->versions;
    pool->versions = v;
    return v;
}

static void free_version(by__broker_version *v)
{
    json_decref(v->info);
    free(v);
}

void by__broker_versions_free(by__broker_pool *pool)
{
    while (pool->versions != NULL) {
        by__broker_version *v = pool->versions;
        pool->versions = v->next;
        free_version(v);
    }
}

static void describe_pool(by__broker_pool *pool, const json_t *info)
{
    json_decref(pool->info);
    pool->info = json_deep_copy(info);
}

void by__broker_describe(by__broker_pool *pool, by__broker_version *version, const json_t *info)
{
    bool other = false;
    if (!json_is_object(info)) {
        return;
    }
    json_decref(version->info);
    version->info = json_deep_copy(info);
    for (const by__broker_version *v = pool->versions; v != NULL; v = v->next) {
        other = other || (v->serves && v != version);
    }
    if (!other || pool->info == NULL) {
        describe_pool(pool, info);
    }
}

/* A number in [0, 1) that is the same for all parts of a request ("ID-0", "ID-1") and after a
 * restart. */
static double place_of(const char *id)
{
    const char *end = strrchr(id, '-');
    size_t length = end != NULL && end != id ? (size_t)(end - id) : strlen(id);
    return (double)(by__hash64(id, length) >> 11) * 0x1p-53;
}

by__broker_version *by__broker_pick(const by__broker_pool *pool, const char *id)
{
    double total = 0.0;
    by__broker_version *last = NULL;
    for (by__broker_version *v = pool->versions; v != NULL; v = v->next) {
        total += v->share;
    }
    double at = place_of(id) * total;
    for (by__broker_version *v = pool->versions; v != NULL; v = v->next) {
        if (v->share > 0.0) {
            last = v;
            if (at < v->share) {
                return v;
            }
            at -= v->share;
        }
    }
    return last;
}

/* Returns true if the version has no worker and none will come. */
static bool is_ended(const by__broker *b, const by__broker_pool *pool, const by__broker_version *v)
{
    double now = by__now();
    if (v->workers > 0 || now - b->began < BY__GATHERING) {
        return false;
    }
    return pool->routed ? !v->listed : now - v->seen > ABSENT;
}

void by__broker_reroute(by__broker *b, by__broker_pool *pool)
{
    for (by__broker_job *job = pool->queue.first, *next; job != NULL; job = next) {
        next = job->next;
        by__broker_version *v = job->version;
        if (v == NULL || !job->bound) {
            bool good = v != NULL && v->share > 0.0;
            job->version = !pool->routed ? NULL : good ? v : by__broker_pick(pool, job->entry.id);
        } else if (is_ended(b, pool, v)) {
            by__broker_fail(b, job, 503, "version_gone",
                            "the version of the model that began the answer is no longer served");
        }
    }
}

/* Removes versions that have no worker and are in no supervisor's list. */
static void forget_versions(by__broker *b, by__broker_pool *pool)
{
    for (by__broker_version **at = &pool->versions; *at != NULL;) {
        by__broker_version *v = *at;
        bool used = v->workers > 0 || v->listed || !is_ended(b, pool, v);
        for (const by__broker_job *job = pool->queue.first; job != NULL && !used; job = job->next) {
            used = job->version == v;
        }
        if (used) {
            at = &v->next;
            continue;
        }
        *at = v->next;
        free_version(v);
    }
}

void by__broker_versions_maintain(by__broker *b)
{
    double now = by__now();
    for (by__broker_pool *pool = b->pools; pool != NULL; pool = pool->next) {
        for (by__broker_version *v = pool->versions; v != NULL; v = v->next) {
            v->seen = v->workers > 0 ? now : v->seen;
        }
        by__broker_reroute(b, pool);
        forget_versions(b, pool);
        by__broker_dispatch(b, pool);
    }
}

void by__broker_route(by__broker *b, const json_t *message)
{
    const char *model = by__protocol_get_text(message, "model");
    const json_t *info = json_object_get(message, "info");
    by__broker_pool *pool = model == NULL ? NULL : by__broker_find_pool(b, model);
    size_t i;
    json_t *row;
    if (pool == NULL) {
        return;
    }
    if (json_is_object(json_object_get(message, "restarts"))) {
        json_decref(pool->restarts);
        pool->restarts = json_deep_copy(json_object_get(message, "restarts"));
    }
    pool->routed = true;
    pool->elastic = json_is_true(json_object_get(message, "elastic"));
    for (by__broker_version *v = pool->versions; v != NULL; v = v->next) {
        v->share = 0.0;
        v->listed = v->shadow = v->serves = false;
    }
    json_array_foreach(json_object_get(message, "versions"), i, row)
    {
        const char *name = by__protocol_get_text(row, "version");
        double share = by__protocol_get_number(row, "share", 0.0);
        by__broker_version *v = name == NULL ? NULL : by__broker_find_version(pool, name, true);
        if (v != NULL) {
            v->share = share > 0.0 && share <= 1.0 ? share : 0.0;
            v->shadow = json_is_true(json_object_get(row, "shadow"));
            v->listed = true;
            v->serves = i == 0;
            info = i == 0 && v->info != NULL ? v->info : info;
        }
    }
    if (json_is_object(info)) {
        describe_pool(pool, info);
    }
    by__broker_measure(b);
    by__broker_reroute(b, pool);
    by__broker_dispatch(b, pool);
}

/* ---- statistics of a version ---- */

void by__broker_count_first(by__broker_job *job)
{
    if (!job->answered && job->version != NULL && job->mirror == NULL) {
        by__telemetry_histogram_add(&job->version->first, by__now() - job->since);
    }
}

void by__broker_count_end(const by__broker_job *job, const json_t *error)
{
    by__broker_version *v = job->version;
    if (v == NULL || job->mirror != NULL) {
        return;
    }
    if (!job->answered && error == NULL) {
        by__telemetry_histogram_add(&v->first, by__now() - job->since); /* an answer in one piece */
    }
    v->requests++;
    v->errors += by__protocol_event_is_fault(error);
    by__telemetry_histogram_add(&v->whole, by__now() - job->since);
}

json_t *by__broker_versions_state(const by__broker_pool *pool)
{
    json_t *out = json_array();
    for (const by__broker_version *v = pool->versions; v != NULL; v = v->next) {
        (void)json_array_append_new(
            out, json_pack("{ss sf sb sO? sI sI sI so so s{sI sI sI sI}}", "version", v->name,
                           "share", v->share, "shadow", (int)v->shadow, "info", v->info, "workers",
                           (json_int_t)v->workers, "requests", (json_int_t)v->requests, "errors",
                           (json_int_t)v->errors, "first", by__telemetry_histogram_json(&v->first),
                           "whole", by__telemetry_histogram_json(&v->whole), "mirrored", "sent",
                           (json_int_t)v->mirrored, "same", (json_int_t)v->same, "different",
                           (json_int_t)v->different, "failed", (json_int_t)v->mirror_failed));
    }
    return out;
}
