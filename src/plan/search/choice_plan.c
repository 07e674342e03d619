/* A choice as settings of a config, and compiled as a whole. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/search/search.h"

/* ---- settings ---- */

static const char *recompute_name(by_search_recompute recompute)
{
    return recompute == BY_SEARCH_RECOMPUTE_BLOCK ? "block" : "none";
}

void by_search_settings(char *text, size_t size, const by_search_choice *c, const char *separator)
{
    (void)snprintf(text, size,
                   "parallel.data=%d%sparallel.shard=%d%sparallel.zero=%d%"
                   "sparallel.tensor=%d%s"
                   "parallel.sequence_parallel=%s%sparallel.sequence=%d%"
                   "sparallel.pipeline=%d%s"
                   "parallel.chunks=%d%sparallel.schedule=%s%sparallel.expert=%d%"
                   "strain.micro_batch=%lld%s"
                   "memory.recompute=%s",
                   c->sizes[BY_MESH_DATA], separator, c->sizes[BY_MESH_SHARD], separator, c->zero,
                   separator, c->sizes[BY_MESH_TENSOR], separator,
                   c->sequence_parallel ? "true" : "false", separator, c->sizes[BY_MESH_SEQUENCE],
                   separator, c->sizes[BY_MESH_PIPELINE], separator, c->chunks, separator,
                   c->chunks > 1 ? "interleaved" : "1f1b", separator, c->sizes[BY_MESH_EXPERT],
                   separator, (long long)c->micro_batch, separator, recompute_name(c->recompute));
}

by_status by_search_config(by_config **out, const by_config *config, const by_search_choice *choice,
                           by_error *error)
{
    char text[600];
    by_config *c;
    by_search_settings(text, sizeof text, choice, " ");
    BY_TRY(by_config_copy(&c, config, error));
    by_status status = BY_OK;
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word != NULL && status == BY_OK;
         word = strtok_r(NULL, " ", &rest)) {
        status = by_config_set(c, word, error);
    }
    if (status == BY_OK) {
        status = by_config_resolve(c, error);
    }
    if (status != BY_OK) {
        by_config_close(&c);
        return status;
    }
    *out = c;
    return BY_OK;
}

/* ---- compiled ---- */

/* The cluster of a choice: of this machine, so many ranks. */
static by_status cluster_of(by_cluster *out, const by_config *config,
                            const by_search_options *options, const by_search_choice *choice,
                            by_error *error)
{
    by_machine machine;
    if (options->cluster != NULL) {
        *out = *options->cluster;
    } else {
        BY_TRY(by_machine_load(&machine, config->device, (int)config->train.threads, 0, error));
        by_cluster_of_machine(out, &machine, (int)choice->devices);
    }
    return BY_OK;
}

static by_status compile(by_layout_plan *out, const by_config *config,
                         const by_search_options *options, const by_search_choice *choice,
                         by_error *error)
{
    by_cluster cluster;
    by_config *chosen;
    const by_layout_options plan = {.cluster = &cluster, .ranks = (int)choice->devices};
    BY_TRY(cluster_of(&cluster, config, options, choice, error));
    BY_TRY(by_search_config(&chosen, config, choice, error));
    by_status status = by_layout_plan_make(out, chosen, &plan, error);
    by_config_close(&chosen);
    return status;
}

static bool is_same(const by_search_choice *a, const by_search_choice *b)
{
    return memcmp(a->sizes, b->sizes, sizeof a->sizes) == 0 && a->zero == b->zero &&
           a->chunks == b->chunks && a->recompute == b->recompute &&
           a->sequence_parallel == b->sequence_parallel && a->micro_batch == b->micro_batch;
}

/* Drops the best layout, in whose place the best of the others comes; false: there is none. */
static bool drop_best(by_search_result *r, const by_search_options *options)
{
    size_t kept = 0;
    size_t best = 0;
    for (size_t i = 0; i < r->pareto_count; i++) {
        if (!is_same(&r->pareto[i], &r->best)) {
            r->pareto[kept] = r->pareto[i];
            best = by__search_goal(options, &r->pareto[kept]) <
                           by__search_goal(options, &r->pareto[best])
                       ? kept
                       : best;
            kept++;
        }
    }
    r->pareto_count = kept;
    if (kept > 0) {
        r->best = r->pareto[best];
    }
    return kept > 0;
}

by_status by_search_plan(by_layout_plan *out, by_search_result *result, const by_config *config,
                         const by_search_options *options, by_error *error)
{
    by_search_choice least = {0}; /* of the layouts that do not fit */
    by_status status;
    do {
        by_layout_plan plan = {0};
        status = compile(&plan, config, options, &result->best, error);
        if (status != BY_OK && status != BY_ECONFIG && status != BY_EARG) {
            return status;
        }
        bool late = options->deadline > 0.0 && plan.seconds > options->deadline;
        if (status == BY_OK && (double)plan.memory <= result->best.limit && !late) {
            *out = plan;
            return BY_OK;
        }
        if (status == BY_OK && (least.devices == 0 || (double)plan.memory < least.memory)) {
            least = result->best;
            least.memory = (double)plan.memory;
            least.seconds = plan.seconds;
        }
        by_layout_plan_free(&plan);
    } while (drop_best(result, options));
    if (least.devices == 0) {
        return status; /* all were refused */
    }
    result->best = least;
    result->fits = false;
    *out = (by_layout_plan){0};
    return BY_OK;
}
