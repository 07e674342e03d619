/* Links of one graph: which nodes are connected. An example is a link, beside others that there
 * are not; a model scores all of them, and the first should have the highest score. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/ops.h"
#include "data/nodes/node_links.h"
#include "data/nodes/node_source.h"
#include "tasks/graph/feature_parts.h"
#include "tasks/graph/graph_split.h"
#include "tasks/graph/node_samples.h"
#include "tasks/graph/scored.h"

/* Scores that the area under the curve is made from: those of as many of the first examples. */
#define MOST_SCORES ((size_t)1 << 18)

typedef struct links_keys {
    by__task_fan_keys fan;
    double valid;
    double test;
    double supervision;
    int64_t negatives;
    int64_t held_out_negatives;
    int64_t split_seed;
} links_keys;

/* clang-format off: one row a key */
static const by__config_key keys[] = {
    {"data", "valid_links", BY__KEY_REAL, BY__OWN(links_keys, valid), "0.05", 0, 1, BY__BELOW_MAX,
     .help = "share of the links that is held out; they are no edges that the model reads"},
    {"data", "test_links", BY__KEY_REAL, BY__OWN(links_keys, test), "0.1", 0, 1, BY__BELOW_MAX,
     .help = "share that is kept for a test: `banyan eval RUN --test` reads it"},
    {"data", "supervision", BY__KEY_REAL, BY__OWN(links_keys, supervision), "0.3", 0, 1,
     BY__BELOW_MAX,
     .help = "share of the other links that is trained on, and no edge that the model reads; 0: "
             "all of them are both"},
    {"data", "negatives", BY__KEY_INT, BY__OWN(links_keys, negatives), "1", 1, 65536,
     .help = "pairs without a link that are drawn for each link, in every epoch anew"},
    {"data", "held_out_negatives", BY__KEY_INT, BY__OWN(links_keys, held_out_negatives), "50", 1,
     65536, .help = "the same of each link that is held out; always the same ones"},
    {"data", "split_seed", BY__KEY_INT, BY__OWN(links_keys, split_seed), "0", 0, BY__COUNT_LIMIT,
     .help = "seed of which links are held out, and of their negatives"},
};
/* clang-format on */
static const by__config_key_list key_list = BY__KEY_LIST(keys);

#define CONSTANTS (BY__TASK_GRAPH_CONSTANTS + BY__TASK_RELATION_CONSTANTS)

typedef struct links_data {
    by_task_data base;
    const links_keys *keys; /* of the config that was opened, which must outlive it */
    by__nodes_links *links;
    by__task_samples samples; /* of surroundings, or the whole graph */
    by__task_parts *parts;    /* NULL: all features are here */
    by__nodes_relations relations;
    int32_t (*listed)[2]; /* pairs to predict or to evaluate instead; NULL: those held out */
    uint64_t listed_count;
    uint64_t *nodes; /* of which vectors are wanted, instead of scores of links; NULL: none */
    uint64_t node_count;
    by_task_purpose purpose;
    bool test;
    by_array constants[CONSTANTS];
    char *summary;
} links_data;

extern const by__task_row by__task_links;

static const links_keys *own_keys(const by_config *config)
{
    return by__config_kind_own(config->task.own, &by__task_links.kind);
}

/* ---- opening ---- */

static void close_data(by_task_data *data)
{
    links_data *d = (links_data *)data;
    by__task_parts_close(&d->parts);
    by__nodes_links_close(&d->links);
    by__nodes_relations_free(&d->relations);
    free(d->listed);
    free(d->nodes);
    free(d->summary);
    free(d);
}

static by_status read_pairs(links_data *d, const char *path, by_error *error)
{
    by__map file;
    BY_TRY(by__map_open(&file, path, error));
    by_status status = by__nodes_edge_list_parse(&d->listed, NULL, &d->listed_count, path,
                                                 (const char *)file.data, file.size, error);
    by__map_close(&file);
    BY_TRY(status);
    if (d->listed_count == 0) {
        return by_error_set(error, BY_EFORMAT, "%s: there are no pairs of nodes", path);
    }
    for (uint64_t i = 0; i < d->listed_count; i++) {
        for (size_t k = 0; k < 2; k++) {
            if (d->listed[i][k] >= d->links->set->nodes) {
                return by_error_set(error, BY_EFORMAT, "%s: pair %llu has node %d; there are %lld",
                                    path, (unsigned long long)i + 1, d->listed[i][k],
                                    (long long)d->links->set->nodes);
            }
        }
    }
    return BY_OK;
}

static by_status describe(links_data *d, by_error *error)
{
    by_string text = {0};
    const by__nodes_set *set = d->links->set;
    by_string_format(
        &text, "a graph of %lld nodes with %lld features, and %llu links; %lld edges are read",
        (long long)set->nodes, (long long)set->features, (unsigned long long)d->links->count,
        (long long)set->edges);
    BY_TRY(by__string_release(&text, &d->summary, error));
    d->base.summary = d->summary;
    return BY_OK;
}

/* The links that are held out, or to predict. */
static const int32_t (*held_out(const links_data *d, uint64_t *count))[2]
{
    const by__nodes_links *l = d->links;
    *count = d->listed != NULL ? d->listed_count : d->test ? l->test_count : l->valid_count;
    return (const int32_t(*)[2])(d->listed != NULL ? d->listed
                                 : d->test         ? l->pairs + l->valid_count
                                                   : l->pairs);
}

/* What a sample reads: the surroundings of a link and of the nodes where it does not lead. Its own
 * edge is left out, so samples are not the whole graph where that may be there. */
static by_status fit_samples(links_data *d, by_error *error)
{
    const links_keys *k = d->keys;
    by__nodes_sampling *s = &d->samples.around;
    int64_t most = k->negatives > k->held_out_negatives ? k->negatives : k->held_out_negatives;
    bool predicts = d->purpose == BY_TASK_PREDICT;
    s->targets = d->nodes != NULL ? 1 : predicts ? 2 : 2 + most;
    BY_TRY(by__task_fan_outs_fit(s, &k->fan, d->links->set, error));
    if (d->nodes == NULL && (predicts || k->supervision == 0.0)) {
        s->covers = false;
    }
    if (!by__task_samples_whole(&d->samples)) {
        return BY_OK;
    }
    s->targets = 1;
    BY_TRY(by__nodes_set_whole(d->links->set, error));
    BY_TRY(by__task_relations_open(&d->relations, &k->fan, d->links->set, true, error));
    by__task_graph_constants(d->constants, d->links->set);
    by__task_relation_constants(d->constants + BY__TASK_GRAPH_CONSTANTS, &d->relations);
    return BY_OK;
}

static by_status open_all(links_data *d, const by_task_request *r, by_error *error)
{
    const links_keys *k = d->keys;
    by__nodes_link_options o = {.valid = k->valid,
                                .test = k->test,
                                .supervision = k->supervision,
                                .seed = (uint64_t)k->split_seed};
    uint64_t count;
    BY_TRY(by__task_graph_options(&o.graph, &k->fan.graph, "", error));
    if (d->purpose == BY_TASK_PREDICT) { /* what is known is read */
        o.valid = o.test = o.supervision = 0.0;
    }
    BY_TRY(by__nodes_links_open(&d->links, &o, error));
    if (r->path != NULL) {
        BY_TRY(read_pairs(d, r->path, error));
    } else if (d->purpose == BY_TASK_PREDICT) {
        const by__nodes_set *set = d->links->set;
        BY_TRY(by__task_graph_choose(&d->nodes, &d->node_count, r, (uint64_t)set->nodes, "node",
                                     set->name, error));
    }
    (void)held_out(d, &count);
    d->base.train_examples = d->purpose == BY_TASK_TRAIN ? d->links->train_count : 0;
    d->base.valid_examples = d->nodes != NULL ? d->node_count : count;
    d->base.held_out = "links drawn by data.split_seed";
    if (d->purpose == BY_TASK_EVALUATE && count == 0) {
        return by_error_set(error, BY_ECONFIG, "%s: there are no links to %s", d->links->set->name,
                            d->test ? "test on: set data.test_links"
                                    : "evaluate on: set data.valid_links");
    }
    BY_TRY(fit_samples(d, error));
    BY_TRY(by__task_parts_open(&d->parts, &k->fan, d->links->set,
                               by__task_samples_whole(&d->samples), r, error));
    d->base.bytes =
        d->links->set->bytes + d->links->count * sizeof *d->links->pairs + d->relations.bytes;
    return describe(d, error);
}

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    links_data *d;
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "the data", error));
    d->base.task = &by__task_links.task;
    d->keys = own_keys(request->config);
    d->purpose = request->purpose;
    d->test = request->test;
    by_status status = open_all(d, request, error);
    if (status != BY_OK) {
        close_data(&d->base);
        return status;
    }
    *out = &d->base;
    return BY_OK;
}

static unsigned knows(const by_config *config)
{
    const by_model_config *m = &config->model;
    const links_keys *k = own_keys(config);
    const by__nn_node_sizes *sizes = by__nn_node_sizes_of(m);
    bool sized =
        m->outputs > 0 && m->channels > 0 && sizes != NULL && sizes->nodes > 0 && sizes->edges > 0;
    bool has = k->fan.graph.graph[0] != '\0';
    return (sized ? (unsigned)BY_TASK_SIZES : 0) | (has ? (unsigned)BY_TASK_DATA : 0) |
           (has && k->valid > 0.0 ? (unsigned)BY_TASK_HOLDS_OUT : 0);
}

static void set_candidates(by__nn_node_sizes *sizes, const links_keys *k)
{
    sizes->candidates = 1 + k->negatives;
    sizes->held_out_candidates = 1 + k->held_out_negatives;
}

/* The sizes of Cora (Sen et al. 2008). */
static void assume(by_config *config)
{
    by_model_config *m = &config->model;
    m->outputs = m->outputs < 0 ? m->width : m->outputs;
    m->channels = m->channels < 0 ? 1433 : m->channels;
    by__nn_node_sizes *sizes = by__nn_node_sizes_of(m);
    if (sizes != NULL) {
        sizes->nodes = sizes->nodes < 0 ? 2708 : sizes->nodes;
        sizes->edges = sizes->edges < 0 ? 13264 : sizes->edges;
        sizes->relations = sizes->relations < 0 ? 1 : sizes->relations;
        sizes->relation_edges = sizes->relation_edges < 0 ? sizes->edges : sizes->relation_edges;
        set_candidates(sizes, own_keys(config));
    }
}

static by_status complete(by_task_data *data, by_config *config, by_error *error)
{
    links_data *d = (links_data *)data;
    by_model_config *m = &config->model;
    bool begins = d->purpose == BY_TASK_TRAIN && m->from[0] == '\0';
    BY_TRY(by__task_graph_sizes(config, d->links->set, &d->relations, begins, error));
    by__nn_node_sizes *sizes = by__nn_node_sizes_of(m);
    BY_TRY(by__task_samples_sizes(sizes, m, &d->samples, d->links->set, error));
    m->outputs = m->outputs < 0 ? m->width : m->outputs;
    set_candidates(sizes, d->keys);
    if (d->purpose == BY_TASK_PREDICT) {
        sizes->candidates = d->nodes != NULL ? 0 : 1;
        sizes->held_out_candidates = sizes->candidates;
    }
    BY_TRY(by_config_resolve(config, error));
    return by__task_parts_count(d->parts, &d->base.bytes, config, error);
}

static by_status fetch(by_task_data *data, const by_batch *batch, by_error *error)
{
    return by__task_parts_fetch(((links_data *)data)->parts, batch, error);
}

static by_status source(by_source **out, by_task_data *data, const by_config *config, bool training,
                        by_error *error)
{
    links_data *d = (links_data *)data;
    const by__nodes_links *l = d->links;
    const by__nodes_sampling *around = &d->samples.around;
    if (d->nodes != NULL) {
        return by__nodes_source_open(out, l->set, d->nodes, d->node_count, false, around, error);
    }
    by__nodes_link_samples s = {.room = by__nn_node_room(by__nn_node_sizes_of(&config->model)),
                                .shuffle = training,
                                .unknown = d->purpose == BY_TASK_PREDICT,
                                .around = by__task_samples_whole(&d->samples) ? NULL : around};
    if (training) {
        s.pairs = (const int32_t(*)[2])(l->pairs + l->valid_count + l->test_count);
        s.count = l->train_count;
        s.candidates = 1 + d->keys->negatives;
    } else {
        s.pairs = held_out(d, &s.count);
        s.candidates = s.unknown ? 1 : 1 + d->keys->held_out_negatives;
    }
    return by__nodes_link_source_open(out, l, &s, error);
}

static by_status constants(by_task_data *data, const by_config *config, const by_array **out,
                           size_t *count, by_error *error)
{
    links_data *d = (links_data *)data;
    BY_UNUSED(config);
    BY_UNUSED(error);
    *out = d->constants;
    *count = by__task_samples_whole(&d->samples) ? CONSTANTS : 0;
    return BY_OK;
}

static by_status keep(by_task_data *data, const by_config *config, by_task_kept *out,
                      by_error *error)
{
    const links_data *d = (const links_data *)data;
    BY_UNUSED(config);
    BY_UNUSED(error);
    *out = by__task_graph_kept(d->links->set, NULL);
    return BY_OK;
}

static by_status check(const by_task_data *data, const by_checkpoint *checkpoint, by_error *error)
{
    return by__task_graph_check(((const links_data *)data)->links->set, checkpoint, "another graph",
                                error);
}

/* ---- loss ---- */

/* A score is the logarithm of the odds of a link, so the cross-entropy of two classes with logits 0
 * and the score is that of the link. An example's is the mean over its candidates. */
static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    const by__nn_node_sizes *sizes = by__nn_node_sizes_of(&config->model);
    if (sizes == NULL || model->output == BY_NONE) {
        return by_error_set(error, BY_ECONFIG, "task.kind links needs a model of a graph");
    }
    int64_t candidates =
        request->mode == BY_MODEL_TRAIN ? sizes->candidates : sizes->held_out_candidates;
    if (candidates < 1) { /* vectors of nodes are wanted */
        model->loss = by_fill(graph, BY_F32, BY_SHAPE(1), 0.0f);
        model->evaluated = model->output;
        return BY_OK;
    }
    int64_t room = by__nn_node_room(sizes);
    by_shape rows = BY_SHAPE(request->batch, candidates);
    by_value labels = by_graph_input(graph, "labels", BY_I32, BY_SHAPE(request->batch, room));
    labels = room == candidates ? labels : by_slice(graph, labels, 1, 0, candidates);
    by_value scores = by_reshape(graph, model->output, BY_SHAPE(request->batch, candidates, 1));
    by_value logits = by_pad(graph, scores, 2, 1, 2);
    by_value weights = by_fill(graph, BY_F32, rows, 1.0f / (float)candidates);
    model->loss = by_weighted_cross_entropy(graph, logits, labels, weights, 0.0f);
    model->evaluated = request->mode == BY_MODEL_TRAIN ? BY_NONE : model->output;
    return BY_OK;
}

static const char *loss_label(const by_config *config)
{
    BY_UNUSED(config);
    return "binary cross-entropy (nats)";
}

/* ---- metrics ---- */

enum { SUM_COUNT, SUM_RECIPROCAL, SUM_HITS_1, SUM_HITS_3, SUM_HITS_10, SUM_SCORES };

static size_t candidates_of(const links_data *d)
{
    return (size_t)(1 + d->keys->held_out_negatives);
}

/* Examples whose scores are kept. */
static size_t scored(const links_data *d)
{
    uint64_t count;
    (void)held_out(d, &count);
    size_t most = MOST_SCORES / (candidates_of(d) + 1);
    return count < most ? (size_t)count : most;
}

/* Of each example a 1, where it was evaluated, and its scores. */
static size_t count_scores(const by_task_data *data, const by_config *config)
{
    const links_data *d = (const links_data *)data;
    BY_UNUSED(config);
    return scored(d) * (candidates_of(d) + 1) + 1;
}

static const by_task_sum sums_of[] = {
    [SUM_COUNT] = {.name = "count"},     [SUM_RECIPROCAL] = {.name = "reciprocal"},
    [SUM_HITS_1] = {.name = "hits_1"},   [SUM_HITS_3] = {.name = "hits_3"},
    [SUM_HITS_10] = {.name = "hits_10"}, [SUM_SCORES] = {.name = "scores", .count = count_scores}};

/* The place of the first score among all; equal ones share theirs. */
static double rank_of(const float *scores, size_t count)
{
    double rank = 1.0;
    for (size_t i = 1; i < count; i++) {
        rank += scores[i] > scores[0] ? 1.0 : scores[i] == scores[0] ? 0.5 : 0.0;
    }
    return rank;
}

static void measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width)
{
    const links_data *d = (const links_data *)data;
    const by_array *places = by_batch_array(batch, "place");
    for (size_t i = 0; places != NULL && i < batch->batch; i++) {
        int32_t place = ((const int32_t *)places->data)[i];
        if (place < 0) {
            continue;
        }
        const float *scores = values + i * width;
        double rank = rank_of(scores, width);
        *sums[SUM_COUNT] += 1.0;
        *sums[SUM_RECIPROCAL] += 1.0 / rank;
        *sums[SUM_HITS_1] += rank <= 1.0 ? 1.0 : 0.0;
        *sums[SUM_HITS_3] += rank <= 3.0 ? 1.0 : 0.0;
        *sums[SUM_HITS_10] += rank <= 10.0 ? 1.0 : 0.0;
        if ((size_t)place < scored(d)) {
            double *kept = sums[SUM_SCORES] + (size_t)place * (width + 1);
            kept[0] = 1.0;
            for (size_t k = 0; k < width; k++) {
                kept[1 + k] = (double)scores[k];
            }
        }
    }
}

static double mean_of(const double *const *sums, int sum)
{
    return *sums[sum] / *sums[SUM_COUNT];
}

static double reciprocal_rank(const by_task_data *data, const double *const *sums,
                              const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return mean_of(sums, SUM_RECIPROCAL);
}

static double hits_1(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return mean_of(sums, SUM_HITS_1);
}

static double hits_3(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return mean_of(sums, SUM_HITS_3);
}

static double hits_10(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return mean_of(sums, SUM_HITS_10);
}

static double area(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    const links_data *d = (const links_data *)data;
    size_t width = candidates_of(d);
    by__task_scored *all;
    size_t used = 0;
    BY_UNUSED(e);
    if (by__alloc((void **)&all, scored(d) * width + 1, sizeof *all, "scores", NULL) != BY_OK) {
        return (double)NAN;
    }
    for (size_t i = 0; i < scored(d); i++) {
        const double *kept = sums[SUM_SCORES] + i * (width + 1);
        for (size_t k = 0; kept[0] > 0.0 && k < width; k++) {
            all[used++] = (by__task_scored){.score = kept[1 + k], .is_positive = k == 0};
        }
    }
    double result = by__task_area(all, used);
    free(all);
    return result;
}

static const by_metric metrics[] = {{"mrr", true, 4, reciprocal_rank},
                                    {"hits_1", true, 4, hits_1},
                                    {"hits_3", true, 4, hits_3},
                                    {"hits_10", true, 4, hits_10},
                                    {"auc", true, 4, area}};

/* ---- predictions ---- */

static by_status predict(by_task_data *data, const by_batch *batch, double sum, const float *values,
                         size_t width, by_predicted *report, void *user, by_error *error)
{
    const links_data *d = (const links_data *)data;
    const by_array *ids = by_batch_array(batch, "ids");
    const by_array *weight = by_batch_array(batch, "weight");
    BY_UNUSED(sum);
    if (d->nodes != NULL) {
        return by_error_set(error, BY_EARG,
                            "a model of links predicts pairs of nodes: name a file with two "
                            "numbers of nodes a line; `banyan embed` makes vectors of nodes");
    }
    for (size_t i = 0; ids != NULL && weight != NULL && i < batch->batch; i++) {
        const int32_t *pair = (const int32_t *)ids->data + i * 2;
        double score = (double)values[i * width];
        const by_field fields[] = {{.name = "from", .number = (double)pair[0], .is_whole = true},
                                   {.name = "to", .number = (double)pair[1], .is_whole = true},
                                   {.name = "score", .number = score},
                                   {.name = "probability", .number = 1.0 / (1.0 + exp(-score))}};
        if (((const float *)weight->data)[i] > 0.0f) {
            report(user, fields, BY_ARRAY_LENGTH(fields));
        }
    }
    return BY_OK;
}

static void name_example(const by_task_data *data, uint64_t index, by_example_name *out)
{
    const links_data *d = (const links_data *)data;
    *out = (by_example_name){.index = d->nodes != NULL && index < d->node_count ? d->nodes[index]
                                                                                : index};
}

const by__task_row by__task_links = {
    .kind = {.name = "links",
             .help = "Which nodes of a graph are connected.",
             .keys = {&by__task_graph_key_list, &by__task_fan_key_list, &key_list},
             .size = sizeof(links_keys)},
    .task = {.name = "links",
             .examples = "links",
             .keeps_test = true,
             .best_by_metric = true,
             BY__TASK_LEARNS,
             .open = open_data,
             .close = close_data,
             .knows = knows,
             .assume = assume,
             .complete = complete,
             .source = source,
             .fetch = fetch,
             .constants = constants,
             .keep = keep,
             .check = check,
             .predict = predict,
             .name_example = name_example},
};
