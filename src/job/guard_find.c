/* Finds the first value of a step that is not finite: computes the step's gradients again, and
 * checks the results of each node. */
#include <stdlib.h>
#include <string.h>

#include "job/job.h"
#include "trainer/probes/finding.h"
#include "trainer/probes/node_watch.h"

typedef struct finder {
    const by_trainer *t;
    by__trainer_finding first;
} finder;

/* Index of the first element that is not finite; -1: none. */
static int64_t find_bad(const by__device_tensor *x)
{
    int64_t count = x->shape.rank < 0 || x->data == NULL ? 0 : by_shape_count(&x->shape);
    if (by__trainer_all_finite(x->dtype, x->data, (size_t)count)) {
        return -1;
    }
    int64_t i = 0;
    while (by__trainer_all_finite(x->dtype,
                                  (const char *)x->data + (size_t)i * by_dtype_size(x->dtype), 1)) {
        i++;
    }
    return i;
}

/* If an operand from outside the graph is not finite, it is the origin. */
static bool blame_operand(by__trainer_finding *f, const by__exec_program_row *row,
                          const by__graph_node *n, const by__device_call *call)
{
    for (int i = 0; i < n->input_count; i++) {
        const by__graph_value *value = n->in[i] == BY_NONE ? NULL : &row->graph->values[n->in[i]];
        if (value == NULL || value->name == NULL || !by__role_is_external(value->role)) {
            continue;
        }
        int64_t bad = find_bad(&call->in[i]);
        if (bad < 0) {
            continue;
        }
        bool parameter = value->role == BY_ROLE_PARAMETER;
        (void)snprintf(f->what, sizeof f->what, "%s '%s', element %lld",
                       parameter ? "the parameter" : "the input", value->name, (long long)bad);
        if (value->role == BY_ROLE_INPUT && !value->constant && value->shape.rank > 0) {
            f->row = bad / (by_shape_count(&value->shape) / value->shape.dim[0]);
        }
        return true;
    }
    return false;
}

static void find_bad_value(void *user, const by__exec_program_row *row, size_t node,
                           const by__device_call *call)
{
    finder *s = user;
    const by__graph_node *n = &row->graph->nodes[node];
    by__trainer_finding f = {.leaf = s->t->feed.leaf,
                             .part = s->t->strategy->part(s->t, row),
                             .node = (int64_t)node,
                             .row = -1};
    bool earlier = f.leaf < s->first.leaf || (f.leaf == s->first.leaf && f.part < s->first.part);
    bool bad = false;
    if (f.part < 0) {
        return;
    }
    for (int i = 0; earlier && !bad && i < n->output_count; i++) {
        bad = find_bad(&call->out[i]) >= 0;
    }
    if (bad) {
        if (!blame_operand(&f, row, n, call)) {
            by__trainer_node_watch_describe(row, node, f.what, sizeof f.what);
        }
        s->first = f;
    }
}

bool by__job_guard_can_find(const by_trainer *t)
{
    /* A compressed exchange would modify its residual when a step is computed again. */
    return (!t->sync.is_local && !t->sync.is_coded) || t->layout.ranks == 1;
}

by_status by__job_guard_find(by_trainer *t, const by_batch *batch, int64_t step,
                             by__trainer_found *out, by_error *error)
{
    finder s = {.t = t, .first = {.leaf = INT64_MAX}};
    double loss;
    int64_t updates = t->steps.updates;
    BY_TRY(by__trainer_node_watch_set(t, BY__WATCH_FIND, find_bad_value, &s, error));
    t->steps.updates = step - 1; /* the random numbers are those of the step */
    by_status status = by_trainer_gradients(t, batch, &loss, error);
    t->steps.updates = updates;
    BY_TRY(by__trainer_node_watch_set(t, BY__WATCH_FIND, NULL, NULL, error));
    BY_TRY(status);
    BY_TRY(by__trainer_node_watch_failure(t, error));
    *out = (by__trainer_found){0};
    BY_TRY(by__trainer_finding_share(t, &s.first, &out->rank, error));
    out->found = s.first.leaf != INT64_MAX;
    out->leaf = s.first.leaf;
    out->row = s.first.row;
    memcpy(out->what, s.first.what, sizeof out->what);
    return BY_OK;
}
