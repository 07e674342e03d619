/* The models of a server, with their first versions, and the command lines of versions' workers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/supervisor/serve_processes.h"

static bool is_adapter(const char *const *worker, size_t i)
{
    return strcmp(worker[i], "--adapter") == 0 && worker[i + 1] != NULL;
}

/* The adapter on a worker's command line; NULL: none. */
static const char *adapter_of(const char *const *worker)
{
    for (size_t i = 0; worker[i] != NULL; i++) {
        if (is_adapter(worker, i)) {
            return worker[i + 1];
        }
    }
    return NULL;
}

by_status by__serve_group_add(by__serve_model *model, by__serve_group **out,
                              const by__protocol_served_version *version, by_error *error)
{
    by__supervisor *s = model->all;
    by__serve_group *g = NULL;
    size_t n = 0;
    const char *const *worker = model->worker;
    BY_TRY(by__alloc((void **)&g, 1, sizeof *g, "a version", error));
    by_status status = by__protocol_served_version_copy(&g->version, version, error);
    if (status != BY_OK) {
        free(g);
        return status;
    }
    g->model = model;
    for (size_t i = 0; worker[i] != NULL && n < BY__ARGUMENTS - 10; i++) {
        if (is_adapter(worker, i)) {
            i++; /* that of the first version */
        } else {
            g->command[n++] = worker[i];
        }
    }
    if (s->options.control != NULL &&
        asprintf(&g->failure, "%s.%s.failed", s->options.control, g->version.name) < 0) {
        g->failure = NULL;
    }
    if (g->failure != NULL) {
        g->command[n++] = "--failure";
        g->command[n++] = g->failure;
    }
    if (g->version.adapter != NULL) {
        g->command[n++] = "--adapter";
        g->command[n++] = g->version.adapter;
    }
    g->command[n++] = "--version";
    g->command[n++] = g->version.name;
    if (g->version.is_run) {
        g->command[n++] = "--checkpoint";
        g->command[n++] = g->version.directory;
    }
    g->command[n++] = g->version.path;
    g->next = s->groups;
    s->groups = g;
    *out = g;
    return BY_OK;
}

void by__serve_group_free(by__serve_group *group)
{
    by__protocol_served_version_free(&group->version);
    free(group->failure);
    free(group);
}

/* The smallest and largest number of workers of a model. */
static void count_workers(const by_serve_options *o, const by_serve_model *model, size_t *least,
                          size_t *most)
{
    bool own = model->workers > 0 || model->most > 0;
    *least = own ? model->workers : o->workers;
    *most = own ? model->most : o->most;
    *most = *most > *least ? *most : *least;
}

/* Number of workers that a model starts with: at least one, to report what the model is. */
static size_t first_workers(size_t least)
{
    return least > 0 ? least : 1;
}

/* Finds the first version of a model, whose workers have their wanted number. */
static by_status add_model(by__supervisor *s, const by_serve_model *model, by_error *error)
{
    const by_serve_options *o = &s->options;
    by__serve_model *m = &s->models[s->model_count];
    by__protocol_served_version version = {0};
    *m = (by__serve_model){.all = s,
                           .name = model->name,
                           .worker = model->worker,
                           .settings = model->settings,
                           .scale = &s->scales[s->model_count]};
    count_workers(o, model, &m->least, &m->most);
    s->model_count++;
    by__rollout_autoscale_options scale = {.least = m->least,
                                           .most = m->most,
                                           .target = o->target_p95 > 0.0 ? o->target_p95 : 0.2,
                                           .calm = o->calm,
                                           .idle = o->idle};
    by__rollout_autoscale_begin(m->scale, &scale, first_workers(m->least), by__now());
    by_status status = by__protocol_served_version_find(&version, model->path,
                                                        adapter_of(m->worker), m->settings, error);
    if (status == BY_OK) {
        status = by__serve_group_add(m, &m->current, &version, error);
    }
    if (status == BY_OK) {
        m->current->wanted = m->scale->wanted;
    }
    by__protocol_served_version_free(&version);
    return status;
}

by_status by__supervisor_add_models(by__supervisor *s, by_error *error)
{
    by_serve_options *o = &s->options;
    size_t first = 0;
    for (size_t i = 0; i < o->model_count; i++) {
        size_t least, most;
        count_workers(o, &o->models[i], &least, &most);
        first += first_workers(least);
    }
    o->total = o->total == 0 || o->total > first ? o->total : first;
    BY_TRY(by__alloc((void **)&s->models, o->model_count, sizeof *s->models, "models", error));
    BY_TRY(by__alloc((void **)&s->scales, o->model_count, sizeof *s->scales, "models", error));
    for (size_t i = 0; i < o->model_count; i++) {
        BY_TRY(add_model(s, &o->models[i], error));
    }
    s->reloaded = s->model_count;
    return BY_OK;
}
