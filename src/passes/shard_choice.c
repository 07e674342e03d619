/* Chooses the splits in which a node gets its operands: of all combinations that its op accepts,
 * the one that costs the fewest bytes. */
#include <stdlib.h>
#include <string.h>

#include "passes/shard.h"

/* Returns true for activations [batch, time, width], which are split by time if no op prefers
 * another split. */
static bool may_scatter(const by__pass_sharder *s, const by__graph_type *type)
{
    return s->axis->sequence && type->shape.rank == 3 && by__op_is_act(type->dtype) &&
           type->shape.dim[1] % s->axis->ranks == 0;
}

/* Returns true if every rank may continue with its own chunks of a replicated activation [batch,
 * time, width], such as the output of a mixture of experts. */
static bool may_cut(const by__pass_sharder *s, by_value v)
{
    const by__graph_type *type = &s->whole[v];
    return s->kind == BY_SHARD_SEQUENCE && !by__role_is_external(s->graph->values[v].role) &&
           type->shape.rank == 3 && by__op_is_act(type->dtype) &&
           by__op_split_even(&type->shape, (by__graph_split){1, 1}, 2 * s->axis->ranks);
}

bool by__pass_shard_has_examples(const by__pass_sharder *s, by_value v)
{
    const by__graph_value *value = &s->graph->values[v];
    return s->kind == BY_SHARD_EXPERT && value->role == BY_ROLE_INPUT && !value->constant &&
           value->shape.rank >= 2;
}

bool by__pass_shard_has_time(const by__pass_sharder *s, by_value v, by__graph_split *split)
{
    const by__graph_value *value = &s->graph->values[v];
    const char *name = value->axes == NULL ? "" : value->axes;
    for (int axis = 0; axis < value->shape.rank && s->kind == BY_SHARD_SEQUENCE; axis++) {
        size_t length = strcspn(name, " ");
        *split = (by__graph_split){axis, 1};
        if (value->role == BY_ROLE_INPUT && length == strlen(BY__TIME_AXIS) &&
            memcmp(name, BY__TIME_AXIS, length) == 0 &&
            by__op_split_even(&value->shape, *split, 2 * s->axis->ranks)) {
            return true;
        }
        name += length;
        name += strspn(name, " ");
    }
    return false;
}

static int list_options(const by__pass_sharder *s, by_value v,
                        by__pass_shard_option out[BY__SHARD_OPTIONS])
{
    int count = 0;
    by__graph_split time;
    by__graph_split split = v == BY_NONE ? by__op_whole() : s->split[v];
    if (v != BY_NONE && by__pass_shard_has_examples(s, v)) {
        out[count++] = (by__pass_shard_option){{0, 1}, 0.0}; /* a rank takes its own slice */
    } else if (v != BY_NONE && by__pass_shard_has_time(s, v, &time)) {
        out[count++] = (by__pass_shard_option){time, 0.0};
    }
    out[count++] = (by__pass_shard_option){split, 0.0};
    if (split.axis == BY__WHOLE) {
        if (v != BY_NONE && may_cut(s, v)) {
            out[count++] = (by__pass_shard_option){{1, 1}, 0.0};
        }
        return count;
    }
    double bytes = by__op_type_bytes(&s->whole[v]);
    bool stored = by__role_is_external(s->graph->values[v].role);
    if (split.axis == BY__PARTIAL && may_scatter(s, &s->whole[v])) {
        out[count++] = (by__pass_shard_option){{1, 1}, bytes};
    }
    by__graph_split other = {0, split.sections == 1 ? s->groups : 1};
    if (by__pass_shard_exchanges(s, &s->whole[v].shape, split, other)) {
        out[count++] = (by__pass_shard_option){other, bytes / s->axis->ranks};
    }
    double times = split.axis == BY__PARTIAL ? 2.0 : stored ? 1e3 : 1.0;
    out[count++] = (by__pass_shard_option){by__op_whole(), times * bytes};
    return count;
}

by_status by__pass_shard_choice_open(by__pass_shard_choice *c, const by__pass_sharder *s,
                                     const by__graph_node *node, by_error *error)
{
    size_t count = (size_t)node->input_count;
    *c = (by__pass_shard_choice){.cost = -1.0};
    BY_TRY(by__alloc((void **)&c->in, count, sizeof *c->in, "shard", error));
    BY_TRY(by__alloc((void **)&c->options, count, sizeof *c->options, "shard", error));
    BY_TRY(by__alloc((void **)&c->option_count, count, sizeof *c->option_count, "shard", error));
    BY_TRY(by__alloc((void **)&c->taken, count, sizeof *c->taken, "shard", error));
    BY_TRY(by__alloc((void **)&c->split, count, sizeof *c->split, "shard", error));
    BY_TRY(by__alloc((void **)&c->best, count, sizeof *c->best, "shard", error));
    for (int i = 0; i < node->input_count; i++) {
        c->in[i] = (by__graph_type){BY_F32, {.rank = -1}};
        if (node->in[i] != BY_NONE) {
            c->in[i] = s->whole[node->in[i]];
        }
        c->option_count[i] = list_options(s, node->in[i], c->options[i]);
    }
    for (int i = 0; i < BY_MAX_OUTPUTS; i++) {
        c->out[i] = (by__graph_type){BY_F32, {.rank = -1}};
        if (i < node->output_count && node->out[i] != BY_NONE) {
            c->out[i] = s->whole[node->out[i]];
        }
    }
    return BY_OK;
}

void by__pass_shard_choice_close(by__pass_shard_choice *c)
{
    free(c->in);
    free(c->options);
    free(c->option_count);
    free(c->taken);
    free(c->split);
    free(c->best);
}

/* Tries the chosen options of the operands; keeps them if they are the cheapest so far. */
static void try_current(by__pass_shard_choice *c, const by__pass_sharder *s,
                        const by__graph_node *node)
{
    const by__op_row *row = by__op_row_of(node->op);
    by_value first = node->output_count > 0 ? node->out[0] : BY_NONE;
    double cost = 0.0;
    bool any = false;
    by__op_sharding sh = {.ranks = s->axis->ranks,
                          .rank = s->axis->rank,
                          .mesh = s->axis->mesh,
                          .zigzag = s->kind == BY_SHARD_SEQUENCE,
                          .in = c->split,
                          .want = first == BY_NONE ? by__op_whole() : s->want[first],
                          .attrs = node->attrs};
    for (int i = 0; i < node->input_count; i++) {
        c->split[i] = c->options[i][c->taken[i]].split;
        cost += c->options[i][c->taken[i]].cost;
        any = any || c->split[i].axis != BY__WHOLE;
    }
    for (int i = 0; i < BY_MAX_OUTPUTS; i++) {
        sh.out[i] = by__op_whole();
    }
    if (c->cost >= 0.0 && cost >= c->cost) {
        return;
    }
    by__op_signature signature = {node->op, &node->attrs, c->in, node->input_count};
    by__op_sharding plain = sh;
    bool asks = (any || sh.want.axis >= 0) && row->shard != NULL;
    if (!asks || !row->shard(&signature, c->out, &sh)) {
        if (any) {
            return;
        }
        sh = plain; /* whole on every rank */
    }
    c->cost = cost;
    c->sharding = sh;
    memcpy(c->best, c->split, (size_t)node->input_count * sizeof *c->best);
}

void by__pass_shard_choose(by__pass_shard_choice *c, const by__pass_sharder *s,
                           const by__graph_node *node)
{
    for (bool more = true; more;) {
        int i = 0;
        try_current(c, s, node);
        while (i < node->input_count && ++c->taken[i] == c->option_count[i]) {
            c->taken[i++] = 0;
        }
        more = i < node->input_count;
    }
    c->sharding.in = c->best;
}
