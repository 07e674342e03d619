#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "plan/recorder.h"

/* ---- recording ---- */

by_status by_profile_open(by_profile **out, by_error *error)
{
    by_profile *p;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "profile", error));
    (void)pthread_mutex_init(&p->mutex, NULL);
    *out = p;
    return BY_OK;
}

void by_profile_close(by_profile **profile)
{
    if (profile == NULL || *profile == NULL) {
        return;
    }
    by_profile *p = *profile;
    for (size_t i = 0; i < p->watched_count; i++) {
        by_program_set_hook(p->watched[i]->program, NULL, NULL);
        free(p->watched[i]->name);
        free(p->watched[i]);
    }
    if (p->comm != NULL) {
        by_comm_watch(p->comm, NULL, NULL);
    }
    for (size_t i = 0; i < p->span_count; i++) {
        free(p->span_names[i]);
    }
    (void)pthread_mutex_destroy(&p->mutex);
    free(p->watched);
    free(p->span_names);
    free(p->exchanges);
    free(p->events);
    free(p);
    *profile = NULL;
}

by_status by__plan_profile_add(by_profile *p, const by__plan_node_run *event, by_error *error)
{
    BY_TRY(by__reserve((void **)&p->events, &p->capacity, p->count + 1, sizeof *p->events, error));
    p->events[p->count++] = *event;
    return BY_OK;
}

static void lose(by_profile *p)
{
    (void)pthread_mutex_lock(&p->mutex);
    p->lost = true;
    (void)pthread_mutex_unlock(&p->mutex);
}

static void on_node(void *user, int node, double begin, double end)
{
    const by__plan_watched *watched = user;
    const by__plan_node_run event = {watched->index, node, begin, end};
    if (by__plan_profile_add(watched->profile, &event, NULL) != BY_OK) {
        lose(watched->profile);
    }
}

by_status by_profile_watch(by_profile *profile, by_program *program, const char *name,
                           by_profile_work work, by_error *error)
{
    by__plan_watched *watched;
    BY_TRY(by__reserve((void **)&profile->watched, &profile->watched_capacity,
                       profile->watched_count + 1, sizeof(by__plan_watched *), error));
    BY_TRY(by__alloc((void **)&watched, 1, sizeof *watched, "profile", error));
    *watched =
        (by__plan_watched){profile, program, (int)profile->watched_count, by__strdup(name), work};
    if (watched->name == NULL) {
        free(watched);
        return by_error_set(error, BY_EMEMORY, "out of memory: profile");
    }
    profile->watched[profile->watched_count++] = watched;
    by_program_set_hook(program, on_node, watched);
    return BY_OK;
}

void by__plan_profile_exchanged(void *profile, const by_comm_call *call)
{
    by_profile *p = profile;
    by__plan_exchanged x = {.kind = call->kind,
                            .bytes = call->bytes,
                            .begin = call->begin,
                            .ready = call->ready,
                            .end = call->end};
    (void)snprintf(x.what, sizeof x.what, "%s", call->what);
    (void)pthread_mutex_lock(&p->mutex);
    if (by__reserve((void **)&p->exchanges, &p->exchange_capacity, p->exchange_count + 1,
                    sizeof *p->exchanges, NULL) == BY_OK) {
        p->exchanges[p->exchange_count++] = x;
    } else {
        p->lost = true;
    }
    (void)pthread_mutex_unlock(&p->mutex);
}

void by_profile_watch_comm(by_profile *profile, by_comm *comm)
{
    profile->comm = comm;
    by_comm_watch(comm, by__plan_profile_exchanged, profile);
}

static by_status find_span_name(by_profile *p, const char *name, int *out, by_error *error)
{
    for (size_t i = 0; i < p->span_count; i++) {
        if (strcmp(p->span_names[i], name) == 0) {
            *out = (int)i;
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&p->span_names, &p->span_capacity, p->span_count + 1,
                       sizeof *p->span_names, error));
    char *copy = by__strdup(name);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: profile");
    }
    *out = (int)p->span_count;
    p->span_names[p->span_count++] = copy;
    return BY_OK;
}

by_status by_profile_span(by_profile *profile, const char *name, double begin, double end,
                          by_error *error)
{
    by__plan_node_run event = {-1, 0, begin, end};
    BY_TRY(find_span_name(profile, name, &event.node, error));
    return by__plan_profile_add(profile, &event, error);
}

bool by__plan_is_span(const by_profile *profile, const by__plan_node_run *event, const char *name)
{
    return event->program < 0 && strcmp(profile->span_names[event->node], name) == 0;
}

void by_profile_clear(by_profile *profile)
{
    (void)pthread_mutex_lock(&profile->mutex);
    profile->count = 0;
    profile->exchange_count = 0;
    profile->lost = false;
    (void)pthread_mutex_unlock(&profile->mutex);
}

bool by__plan_program_run_add(by__plan_program_run *run, const by__plan_watched *watched,
                              const by__plan_node_run *event)
{
    run->begin = run->nodes == 0 || event->begin < run->begin ? event->begin : run->begin;
    run->end = run->nodes == 0 || event->end > run->end ? event->end : run->end;
    return ++run->nodes == by_program_node_count(watched->program);
}

by_status by__plan_profile_check(const by_profile *profile, by_error *error)
{
    return profile->lost ? by_error_set(error, BY_EMEMORY,
                                        "out of memory: the profile lost events after %zu; fewer "
                                        "steps need less",
                                        profile->count)
                         : BY_OK;
}

/* ---- sums ---- */

/* Rows under construction, and the row of each node of each program (-1: it never ran). */
typedef struct profile_table {
    by_profile_row *rows;
    size_t count;
    size_t capacity;
    int **row_of;
    size_t programs;
} profile_table;

static void free_table(profile_table *t)
{
    by_profile_rows_free(t->rows, t->count);
    for (size_t i = 0; i < t->programs; i++) {
        free(t->row_of[i]);
    }
    free(t->row_of);
}

static by_status name_node(char **out, const by__plan_watched *watched, int node,
                           const by_node_info *info, by_profile_key key, by_error *error)
{
    by_string text = {0};
    if (key == BY_PROFILE_BY_SHAPE) {
        return by_program_node_signature(watched->program, node, out, error);
    }
    if (key == BY_PROFILE_BY_OP) {
        by__string_append(&text, info->op_name);
    } else if (watched->work == BY_PROFILE_WORK_UPDATE) {
        by__string_append(&text, watched->name);
    } else if (info->block < 0) {
        by__string_append(&text, "outside blocks");
    } else {
        by_string_format(&text, "block %d", info->block);
    }
    return by__string_release(&text, out, error);
}

/* Finds the row of a node, adding one if no row has its name. */
static by_status find_row(profile_table *t, const by__plan_watched *watched, int node,
                          const by_node_info *info, by_profile_key key, int *out, by_error *error)
{
    char *name;
    BY_TRY(name_node(&name, watched, node, info, key, error));
    for (size_t i = 0; i < t->count; i++) {
        if (strcmp(t->rows[i].name, name) == 0) {
            free(name);
            *out = (int)i;
            return BY_OK;
        }
    }
    by_status status =
        by__reserve((void **)&t->rows, &t->capacity, t->count + 1, sizeof *t->rows, error);
    if (status != BY_OK) {
        free(name);
        return status;
    }
    *out = (int)t->count;
    t->rows[t->count++] = (by_profile_row){
        .name = name, .kernel = info->kernel, .op = info->op, .collective = info->collective};
    return BY_OK;
}

static by_status add_run(profile_table *t, const by_profile *p, const by__plan_node_run *event,
                         by_profile_key key, const by_machine *machine, by_error *error)
{
    const by__plan_watched *watched = p->watched[event->program];
    int *row = &t->row_of[event->program][event->node];
    double seconds = event->end - event->begin;
    by_node_info info;
    BY_TRY(by_program_node(watched->program, event->node, &info, error));
    if (*row < 0) {
        BY_TRY(find_row(t, watched, event->node, &info, key, row, error));
        t->rows[*row].nodes++;
    }
    assert(t->rows != NULL);
    by_profile_row *r = &t->rows[*row];
    by_profile_part part = watched->work == BY_PROFILE_WORK_UPDATE ? BY_PROFILE_UPDATE
                           : info.backward                         ? BY_PROFILE_BACKWARD
                                                                   : BY_PROFILE_FORWARD;
    double bytes = info.bytes_read + info.bytes_written;
    r->runs++;
    r->seconds += seconds;
    r->part_seconds[part] += seconds;
    r->flops += info.flops;
    r->bytes += bytes;
    r->roof_seconds += by_machine_roof(machine, info.dtype, info.flops, bytes);
    return BY_OK;
}

static int compare_rows(const void *a, const void *b)
{
    double x = ((const by_profile_row *)a)->seconds;
    double y = ((const by_profile_row *)b)->seconds;
    return x > y ? -1 : x < y;
}

static by_status find_medians(const profile_table *t, const by_profile *p, by_error *error)
{
    double *seconds;
    BY_TRY(by__alloc((void **)&seconds, p->count + 1, sizeof *seconds, "profile", error));
    for (size_t r = 0; r < t->count; r++) {
        size_t n = 0;
        for (size_t e = 0; e < p->count; e++) {
            const by__plan_node_run *event = &p->events[e];
            if (event->program >= 0 && t->row_of[event->program][event->node] == (int)r) {
                seconds[n++] = event->end - event->begin;
            }
        }
        qsort(seconds, n, sizeof *seconds, by__compare_doubles);
        t->rows[r].median_seconds = 0.5 * (seconds[(n - 1) / 2] + seconds[n / 2]);
    }
    free(seconds);
    return BY_OK;
}

static by_status make_table(profile_table *t, const by_profile *p, by_profile_key key,
                            const by_machine *machine, by_error *error)
{
    BY_TRY(
        by__alloc((void **)&t->row_of, p->watched_count + 1, sizeof *t->row_of, "profile", error));
    for (; t->programs < p->watched_count; t->programs++) {
        size_t i = t->programs;
        int nodes = by_program_node_count(p->watched[i]->program);
        BY_TRY(by__alloc((void **)&t->row_of[i], (size_t)nodes + 1, sizeof(int), "profile", error));
        for (int n = 0; n < nodes; n++) {
            t->row_of[i][n] = -1;
        }
    }
    for (size_t e = 0; e < p->count; e++) {
        if (p->events[e].program >= 0) {
            BY_TRY(add_run(t, p, &p->events[e], key, machine, error));
        }
    }
    return find_medians(t, p, error);
}

by_status by_profile_rows(by_profile_row **rows, size_t *count, const by_profile *profile,
                          by_profile_key key, const by_machine *machine, by_error *error)
{
    profile_table t = {0};
    BY_TRY(by__plan_profile_check(profile, error));
    by_status status = make_table(&t, profile, key, machine, error);
    if (status == BY_OK) {
        if (key != BY_PROFILE_BY_LAYER && t.count > 0) {
            qsort(t.rows, t.count, sizeof *t.rows, compare_rows);
        }
        *rows = t.rows;
        *count = t.count;
        t.rows = NULL;
        t.count = 0;
    }
    free_table(&t);
    return status;
}

void by_profile_rows_free(by_profile_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(rows[i].name);
    }
    free(rows);
}
