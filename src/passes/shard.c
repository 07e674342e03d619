/* Turns a graph into that of one rank of a mesh axis. For each node in order, the cheapest splits
 * of its operands that its op's `shard` accepts are chosen. An operand is used as it is, gathered
 * by an all-gather, or, if every rank has an addend, summed by an all-reduce or a reduce-scatter.
 * An op that accepts no split runs on whole operands on every rank.
 *
 * The pass runs after gradients are derived: gradients of split work are addends, so the
 * collectives of the backward pass need no extra rules. */
#include "passes/shard.h"

#include <stdlib.h>
#include <string.h>

/* Which logical axes are split by what. */
typedef struct axis_rule {
    const char *name;
    by_shard_kind kind;
    int64_t sections;
    bool even; /* slices must be equal, because the axis consists of units */
} axis_rule;

static const axis_rule rules[] = {
    {"vocab", BY_SHARD_TENSOR, 1, false}, {"mlp", BY_SHARD_TENSOR, 1, false},
    {"heads", BY_SHARD_TENSOR, 1, true},  {"kv_heads", BY_SHARD_TENSOR, 1, true},
    {"qkv", BY_SHARD_TENSOR, 3, true}, /* heads of q, of k and of v, concatenated */
    {"expert", BY_SHARD_EXPERT, 1, true},
};

static const axis_rule *rule_of(by_shard_kind kind, const char *name, size_t length)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rules); i++) {
        if (rules[i].kind == kind && strlen(rules[i].name) == length &&
            memcmp(rules[i].name, name, length) == 0) {
            return &rules[i];
        }
    }
    return NULL;
}

/* ---- parameters ---- */

static by_status check_split(const by__pass_sharder *s, const by__graph_value *value,
                             const axis_rule *found, by__graph_split split, by_error *error)
{
    int64_t extent = value->shape.dim[split.axis];
    bool fits = extent % split.sections == 0 && extent / split.sections >= s->axis->ranks &&
                (!found->even || by__op_split_even(&value->shape, split, s->axis->ranks));
    if (!fits) {
        return by_error_set(error, BY_EARG,
                            "shard: the axis '%s' of parameter '%s' has %lld entries, which cannot "
                            "be split over %d ranks",
                            found->name, value->name, (long long)extent, s->axis->ranks);
    }
    return BY_OK;
}

/* Splits a parameter along its first axis that a rule names. */
static by_status split_parameter(by__pass_sharder *s, by_value v, by_error *error)
{
    by__graph_value *value = &s->graph->values[v];
    const char *name = value->axes == NULL ? "" : value->axes;
    for (int axis = 0; axis < value->shape.rank && *name != '\0'; axis++) {
        size_t length = strcspn(name, " ");
        const axis_rule *found = rule_of(s->kind, name, length);
        name += length;
        name += strspn(name, " ");
        if (found == NULL) {
            continue;
        }
        by__graph_split split = {axis, found->sections};
        BY_TRY(check_split(s, value, found, split, error));
        if (value->part_count == BY__MAX_PARTS) {
            return by_error_set(error, BY_EARG, "shard: parameter '%s' is split too often",
                                value->name);
        }
        value->whole = value->part_count == 0 ? value->shape : value->whole;
        value->part[value->part_count++] =
            (by__graph_value_part){split, s->axis->ranks, s->axis->rank, s->axis->mesh};
        s->split[v] = split;
        s->groups = s->kind == BY_SHARD_EXPERT ? value->shape.dim[axis] : 0;
        value->shape = by__op_split_shape(&value->shape, split, s->axis->ranks, s->axis->rank);
        return BY_OK;
    }
    return BY_OK;
}

/* Returns the split that a value bound by the caller must have: gradients like their parameters, or
 * addends; everything else is whole. */
static by__graph_split bound_split(const by__pass_sharder *s, by_value v)
{
    const by__graph_value *value = &s->graph->values[v];
    if (value->role == BY_ROLE_GRADIENT && strncmp(value->name, "grad.", 5) == 0) {
        by_value parameter = by_graph_find(s->graph, value->name + 5);
        by__graph_split split = parameter == BY_NONE ? by__op_whole() : s->split[parameter];
        return s->axis->addends && split.axis == BY__WHOLE ? by__op_partial() : split;
    }
    return value->role == BY_ROLE_PARAMETER ? s->split[v] : by__op_whole();
}

/* Propagates preferred splits from results back to the operands of the same shape. */
static void find_wishes(by__pass_sharder *s)
{
    by_graph *graph = s->graph;
    for (size_t v = 0; v < s->value_count; v++) {
        s->want[v] = bound_split(s, (by_value)v);
    }
    for (size_t n = s->node_count; n-- > 0;) {
        const by__graph_node *node = &graph->nodes[n];
        by_value out = node->output_count > 0 ? node->out[0] : BY_NONE;
        for (int i = 0; i < node->input_count && out != BY_NONE; i++) {
            by_value in = node->in[i];
            if (in != BY_NONE && s->want[in].axis < 0 && graph->values[in].producer >= 0 &&
                by_shape_equal(&s->whole[in].shape, &s->whole[out].shape)) {
                s->want[in] = s->want[out];
            }
        }
    }
}

/* ---- rewriting ---- */

/* Replaces node n by the nodes that the op builds. */
static by_status build_nodes(by__pass_sharder *s, size_t n, const by__op_sharding *sh,
                             const by_value *in, by_error *error)
{
    by_graph *graph = s->graph;
    by_value outs[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
    sh->build(graph, sh, in, graph->nodes[n].input_count, outs);
    BY_TRY(by_graph_check(graph, error));
    by__graph_node *node = &graph->nodes[n];
    for (int i = 0; i < node->output_count; i++) {
        if (node->out[i] != BY_NONE) {
            by__pass_graph_replace(graph, outs[i], node->out[i]);
        }
    }
    node->dead = true;
    node->output_count = 0;
    return BY_OK;
}

/* Infers the shapes of the node's outputs from the local operands. */
static by_status infer_outputs(by__pass_sharder *s, size_t n, const by__op_sharding *sh,
                               by_error *error)
{
    by_graph *graph = s->graph;
    by__graph_node *node = &graph->nodes[n];
    by__graph_type *in = NULL;
    by__graph_type out[BY_MAX_OUTPUTS];
    char have[128];
    char want[128];
    BY_TRY(by__alloc((void **)&in, (size_t)node->input_count, sizeof *in, "types", error));
    by__op_node_types(graph, node, in);
    by__op_signature signature = {node->op, &node->attrs, in, node->input_count};
    by_status status = by__op_infer(&signature, out, error);
    free(in);
    BY_TRY(status);
    for (int i = 0; i < node->output_count; i++) {
        if (node->out[i] == BY_NONE) {
            continue;
        }
        by_shape local = by__op_split_shape(&s->whole[node->out[i]].shape, sh->out[i],
                                            s->axis->ranks, s->axis->rank);
        if (!by_shape_equal(&local, &out[i].shape)) {
            return by_error_set(error, BY_ESTATE, "shard: %s makes %s where its split says %s",
                                by_op_name(node->op), by_shape_print(&out[i].shape, have),
                                by_shape_print(&local, want));
        }
        graph->values[node->out[i]].shape = out[i].shape;
    }
    return BY_OK;
}

/* Converts a value that the caller reads to the split that the caller expects. */
static by_status keep_bound(by__pass_sharder *s, size_t n, int i, by_error *error)
{
    by_graph *graph = s->graph;
    by_value bound = graph->nodes[n].out[i];
    by__graph_split split = s->split[bound];
    by__graph_split wanted = bound_split(s, bound);
    if (!by__role_is_external(graph->values[bound].role) || by__op_split_equal(split, wanted)) {
        return BY_OK;
    }
    int producer = graph->values[bound].producer;
    by__graph_type type = {graph->values[bound].dtype, graph->values[bound].shape};
    by_value inner = by__graph_add_value(graph, BY_ROLE_ACTIVATION, NULL, NULL, type);
    BY_TRY(by_graph_check(graph, error));
    by__graph_node *node = &graph->nodes[producer];
    for (int k = 0; k < node->output_count; k++) {
        node->out[k] = node->out[k] == bound ? inner : node->out[k];
    }
    graph->values[inner].producer = producer;
    by_value made = by__pass_shard_convert(s, inner, &s->whole[bound].shape, split, wanted);
    BY_TRY(by_graph_check(graph, error));
    by__pass_graph_replace(graph, made, bound);
    s->split[bound] = wanted;
    return BY_OK;
}

/* Makes a wait node keep the operands of its collective after their replacement. */
static void keep_operands(const by_graph *graph, by_value *in, int count)
{
    const by__graph_node *collective = &graph->nodes[graph->values[in[0]].producer];
    int kept = 1;
    for (int i = 0; i < collective->input_count && kept < count; i++) {
        if (collective->in[i] != BY_NONE) {
            in[kept++] = collective->in[i];
        }
    }
}

static by_status rewrite(by__pass_sharder *s, size_t n, const by__pass_shard_choice *c,
                         by_error *error)
{
    by_graph *graph = s->graph;
    const by__op_sharding *sh = &c->sharding;
    int count = graph->nodes[n].input_count;
    by_value *in;
    by_value outputs[BY_MAX_OUTPUTS];
    int output_count = graph->nodes[n].output_count;
    uint32_t mutates = by__op_mutates(graph->nodes[n].op, &graph->nodes[n].attrs);
    memcpy(outputs, graph->nodes[n].out, sizeof outputs);
    by_graph_set_block(graph, graph->nodes[n].block);
    graph->phase = graph->nodes[n].phase;
    BY_TRY(by__alloc((void **)&in, (size_t)count, sizeof *in, "operands", error));
    by_status status = BY_OK;
    for (int i = 0; i < count && status == BY_OK; i++) {
        by_value v = graph->nodes[n].in[i];
        bool dropped = sh->rank != 0 && by__mask_has(sh->once, i);
        in[i] = v == BY_NONE || dropped ? BY_NONE : by__pass_shard_form(s, v, c->best[i]);
        if (v != BY_NONE && by__mask_has(mutates, i) && in[i] != v) {
            status = by_error_set(error, BY_EARG, "shard: %s updates '%s', which it needs whole",
                                  by_op_name(graph->nodes[n].op), graph->values[v].name);
        }
    }
    if (status == BY_OK) {
        status = by_graph_check(graph, error);
    }
    if (status == BY_OK && by__op_row_of(graph->nodes[n].op)->waits) {
        keep_operands(graph, in, count);
    }
    for (int i = 0; i < output_count; i++) {
        if (outputs[i] != BY_NONE) {
            s->split[outputs[i]] = sh->out[i];
        }
    }
    if (status == BY_OK && sh->build != NULL) {
        status = build_nodes(s, n, sh, in, error);
        for (int i = 0; i < output_count && status == BY_OK; i++) {
            graph->nodes[n].out[i] = outputs[i]; /* keep_bound reads it; the node is dead */
        }
    } else if (status == BY_OK) {
        memcpy(graph->nodes[n].in, in, (size_t)count * sizeof *in);
        graph->nodes[n].attrs = sh->attrs;
        status = infer_outputs(s, n, sh, error);
    }
    free(in);
    for (int i = 0; i < output_count && status == BY_OK; i++) {
        status = outputs[i] == BY_NONE ? BY_OK : keep_bound(s, n, i, error);
    }
    return status;
}

static by_status shard_node(by__pass_sharder *s, size_t n, by_error *error)
{
    by__pass_shard_choice c;
    by__graph_node node = s->graph->nodes[n]; /* a copy, because adding nodes may move the array */
    by_status status = by__pass_shard_choice_open(&c, s, &node, error);
    if (status == BY_OK) {
        by__pass_shard_choose(&c, s, &node);
        status = rewrite(s, n, &c, error);
    }
    by__pass_shard_choice_close(&c);
    return status;
}

static by_status open_sharder(by__pass_sharder *s, by_error *error)
{
    size_t count = s->value_count;
    BY_TRY(by__alloc((void **)&s->whole, count, sizeof *s->whole, "shard", error));
    BY_TRY(by__alloc((void **)&s->split, count, sizeof *s->split, "shard", error));
    BY_TRY(by__alloc((void **)&s->want, count, sizeof *s->want, "shard", error));
    BY_TRY(by__alloc((void **)&s->now, count, sizeof *s->now, "shard", error));
    for (int phase = 0; phase < BY__SHARD_PHASES; phase++) {
        BY_TRY(by__alloc((void **)&s->gathered[phase], count, sizeof *s->gathered[phase], "shard",
                         error));
    }
    for (size_t v = 0; v < count; v++) {
        const by__graph_value *value = &s->graph->values[v];
        s->whole[v] = (by__graph_type){value->dtype, value->shape};
        s->split[v] = by__op_whole();
        s->now[v] = (by_value)v;
        for (int phase = 0; phase < BY__SHARD_PHASES; phase++) {
            s->gathered[phase][v] = BY_NONE;
        }
    }
    return BY_OK;
}

/* Infers the types of a node's results again, with attributes that keep ranks' examples apart. */
static by_status divide_node(by__pass_sharder *s, size_t n, by_error *error)
{
    by__graph_node *node = &s->graph->nodes[n];
    const by__op_row *row = by__op_row_of(node->op);
    by__graph_type *in;
    by__graph_type out[BY_MAX_OUTPUTS];
    BY_TRY(by__alloc((void **)&in, (size_t)node->input_count, sizeof *in, "types", error));
    by__op_node_types(s->graph, node, in);
    by__op_signature signature = {node->op, &node->attrs, in, node->input_count};
    if (row->divide != NULL) {
        row->divide(&signature, s->axis->ranks, &node->attrs);
    }
    by_status status = by__op_infer(&signature, out, error);
    free(in);
    for (int i = 0; i < node->output_count && status == BY_OK; i++) {
        if (node->out[i] != BY_NONE) {
            s->graph->values[node->out[i]].shape = out[i].shape;
        }
    }
    return status;
}

static by_status divide_examples(by__pass_sharder *s, by_error *error)
{
    for (size_t v = 0; v < s->value_count; v++) {
        const by__graph_value *value = &s->graph->values[v];
        if (by__pass_shard_has_examples(s, (by_value)v) &&
            value->shape.dim[0] % s->axis->ranks != 0) {
            return by_error_set(error, BY_EARG,
                                "shard: %d ranks cannot divide the %lld examples of '%s'",
                                s->axis->ranks, (long long)value->shape.dim[0], value->name);
        }
    }
    for (size_t n = 0; n < s->node_count; n++) {
        BY_TRY(divide_node(s, n, error));
    }
    return BY_OK;
}

/* Checks that there is a sequence to split. */
static by_status check_time(const by__pass_sharder *s, by_error *error)
{
    by__graph_split split;
    for (size_t v = 0; v < s->value_count; v++) {
        if (by__pass_shard_has_time(s, (by_value)v, &split)) {
            return BY_OK;
        }
    }
    return s->kind != BY_SHARD_SEQUENCE
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "shard: no input has an axis '" BY__TIME_AXIS
                              "' that %d ranks can divide "
                              "into %d chunks: parallel.sequence is for models of tokens",
                              s->axis->ranks, 2 * s->axis->ranks);
}

/* Runs the fusions that must happen before nodes are split, because the fused op then splits as a
 * whole or builds other nodes. */
static by_status fuse_whole(by_graph *graph, by_error *error)
{
    int *uses;
    BY_TRY(by__pass_graph_prune(graph, error));
    BY_TRY(by__graph_uses(graph, &uses, error));
    by_status status = BY_OK;
    for (size_t n = 0; n < graph->node_count && status == BY_OK; n++) {
        const by__op_row *row = by__op_row_of(graph->nodes[n].op);
        if (row->fuses_whole && !graph->nodes[n].dead) {
            status = row->fuse(graph, n, uses, error);
        }
    }
    free(uses);
    BY_TRY(status);
    by__graph_compact(graph);
    return by__graph_sort(graph, error);
}

static by_status shard_graph(by__pass_sharder *s, by_error *error)
{
    if (s->kind == BY_SHARD_EXPERT) {
        BY_TRY(divide_examples(s, error));
    }
    BY_TRY(open_sharder(s, error));
    for (size_t v = 0; v < s->value_count; v++) {
        if (s->graph->values[v].role == BY_ROLE_PARAMETER) {
            BY_TRY(split_parameter(s, (by_value)v, error));
        }
    }
    BY_TRY(check_time(s, error));
    find_wishes(s);
    for (size_t n = 0; n < s->node_count; n++) {
        BY_TRY(shard_node(s, n, error));
    }
    by_graph_set_block(s->graph, -1);
    return by__graph_sort(s->graph, error);
}

by_status by_pass_shard(by_graph *graph, by_shard_kind kind, const by_shard_axis *axis,
                        by_error *error)
{
    BY_TRY(by_graph_check(graph, error));
    if (axis->ranks <= 1) {
        return BY_OK;
    }
    if ((unsigned)kind >= BY_SHARD_KINDS || axis->rank < 0 || axis->rank >= axis->ranks ||
        axis->mesh == 0) {
        return by_error_set(error, BY_EARG, "shard: there is no rank %d of %d", axis->rank,
                            axis->ranks);
    }
    by__graph_phase phase = graph->phase;
    BY_TRY(fuse_whole(graph, error));
    by__pass_sharder s = {.graph = graph,
                          .kind = kind,
                          .axis = axis,
                          .value_count = graph->value_count,
                          .node_count = graph->node_count};
    by_status status = shard_graph(&s, error);
    graph->phase = phase;
    free(s.whole);
    free(s.split);
    free(s.want);
    free(s.now);
    for (int i = 0; i < BY__SHARD_PHASES; i++) {
        free(s.gathered[i]);
    }
    return status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    /* Examples are divided first, because what the other kinds leave is not always divided by
     * rows. */
    static const by_shard_kind order[] = {BY_SHARD_EXPERT, BY_SHARD_SEQUENCE, BY_SHARD_TENSOR};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(order); i++) {
        BY_TRY(by_pass_shard(graph, order[i], &options->shard[order[i]], error));
    }
    return BY_OK;
}

const by__pass by__pass_shard = {.name = "shard",
                                 .summary = "one rank's part of split parameters, collectives",
                                 .purposes = BY_PURPOSE_TRAIN | BY_PURPOSE_LOSS,
                                 .apply = apply};
