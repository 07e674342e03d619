#include "export/onnx_graphs.h"

#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"

bool by__export_onnx_graphs_reads(const by_model_config *config)
{
    return strcmp(by_model_reads(config), "nodes") == 0;
}

/* What a model says something about. */
typedef enum graph_subject { SUBJECT_NODES, SUBJECT_PAIRS, SUBJECT_GRAPHS } graph_subject;

static graph_subject subject_of(const by_model_config *config)
{
    const by__nn_node_sizes *sizes = by__nn_node_sizes_of(config);
    return sizes->own_graphs > 0            ? SUBJECT_GRAPHS
           : sizes->held_out_candidates > 0 ? SUBJECT_PAIRS
                                            : SUBJECT_NODES;
}

int64_t by__export_onnx_graphs_choose(by_model_config *config, int64_t batch)
{
    by__nn_node_sizes *sizes = by__nn_node_sizes_of(config);
    by__nn_node_read_whole(sizes);
    if (subject_of(config) == SUBJECT_PAIRS) {
        sizes->candidates = 1;
        sizes->held_out_candidates = 1;
    }
    return subject_of(config) == SUBJECT_GRAPHS ? 1 : batch; /* packs are several graphs anyway */
}

/* ---- inputs ---- */

/* The inputs of the ONNX graph, by number. The fourth says what is wanted: nodes, pairs of them, or
 * where the nodes of each graph begin; the last ones are there if edges or graphs have features. */
enum { FEATURES, OFFSETS, SOURCES, WANTED, EDGE_FEATURES, GRAPH_FEATURES, INPUTS };

static int column(by__op_onnx *o, int x)
{
    return by__op_onnx_reshape(o, x, (const int64_t[]){1, -1, 1}, 3);
}

/* 1 / degree, or 1 / sqrt(degree), of rows that begin at `offsets`; 0 for a row without entries. */
static int of_degrees(by__op_onnx *o, int offsets, bool root)
{
    const int64_t bounds[3] = {0, 1, INT64_MAX};
    int list[3];
    for (int i = 0; i < 3; i++) {
        list[i] = by__op_onnx_list(o, &bounds[i], 1);
    }
    const int late[4] = {offsets, list[1], list[2], list[0]};
    int ends = o->node(o, "Slice", late, 4, 1);
    int last = by__op_onnx_list(o, (const int64_t[]){-1}, 1);
    const int early[4] = {offsets, list[0], last, list[0]};
    int degree = by__op_onnx_node2(o, "Sub", ends, o->node(o, "Slice", early, 4, 1));
    int none = by__op_onnx_node2(o, "Equal", degree, list[0]);
    degree = by__op_onnx_node1(o, "Cast", degree);
    o->set_int(o, "to", BY__ONNX_FLOAT);
    degree = root ? by__op_onnx_node1(o, "Sqrt", degree) : degree;
    int inverse = by__op_onnx_node1(o, "Reciprocal", degree);
    inverse = by__op_onnx_node3(o, "Where", none, by__op_onnx_float(o, 0.0f), inverse);
    return column(o, inverse);
}

/* The numbers from 0 on, `more` than an input has rows. */
static int count_rows(by__op_onnx *o, int input, int64_t more)
{
    int end =
        by__op_onnx_node2(o, "Add", by__op_onnx_extent(o, input, 0), by__op_onnx_int(o, more));
    return by__op_onnx_node3(o, "Range", by__op_onnx_int(o, 0), end, by__op_onnx_int(o, 1));
}

/* Each edge with its own number, or -1 where there is none. */
static int own_edges(by__op_onnx *o)
{
    int none = by__op_onnx_node2(o, "Less", SOURCES, by__op_onnx_int(o, 0));
    return by__op_onnx_node3(o, "Where", none, by__op_onnx_int(o, -1), count_rows(o, SOURCES, 0));
}

/* The value that an input of the model is; -1: none, which only gradients read. */
static int value_of(by__op_onnx *o, const by__graph_value *v)
{
    if (strcmp(v->name, "nodes.x") == 0) {
        return by__op_onnx_reshape(o, FEATURES, (const int64_t[]){1, -1, v->shape.dim[2]}, 3);
    }
    if (strcmp(v->name, "nodes.inverse_root") == 0) {
        return of_degrees(o, OFFSETS, true);
    }
    if (strcmp(v->name, "nodes.inverse_degree") == 0) {
        return of_degrees(o, OFFSETS, false);
    }
    if (strcmp(v->name, "graphs.inverse_size") == 0) {
        return of_degrees(o, WANTED, false);
    }
    if (strcmp(v->name, "graphs.sources") == 0) {
        return count_rows(o, FEATURES, 0);
    }
    if (strcmp(v->name, "edges.x") == 0) {
        return by__op_onnx_reshape(o, EDGE_FEATURES, (const int64_t[]){1, -1, v->shape.dim[2]}, 3);
    }
    if (strcmp(v->name, "graphs.x") == 0) {
        return by__op_onnx_reshape(o, GRAPH_FEATURES, (const int64_t[]){1, -1, v->shape.dim[2]}, 3);
    }
    if (strcmp(v->name, "edges.each") == 0) {
        return count_rows(o, SOURCES, 1);
    }
    if (strcmp(v->name, "edges.own") == 0) {
        return own_edges(o);
    }
    return strcmp(v->name, "edges.offsets") == 0    ? OFFSETS
           : strcmp(v->name, "edges.sources") == 0  ? SOURCES
           : strcmp(v->name, "ids") == 0            ? WANTED
           : strcmp(v->name, "graphs.offsets") == 0 ? WANTED
                                                    : -1;
}

static void add_ports(by__export_onnx_writer *w, const char *const *names, graph_subject subject,
                      int64_t channels, const by__nn_node_sizes *sizes)
{
    const by__export_onnx_axis features[2] = {{0, "nodes"}, {channels, NULL}};
    const by__export_onnx_axis offsets = {0, "nodes_and_one"};
    const by__export_onnx_axis sources[2] = {{0, "edges"}, {sizes->edge_features, NULL}};
    const by__export_onnx_axis graphs[2] = {{0, "graphs"}, {sizes->graph_features, NULL}};
    const by__export_onnx_axis wanted[2] = {
        {0, subject == SUBJECT_GRAPHS ? "graphs_and_one" : "targets"}, {2, NULL}};
    by__export_onnx_writer_port(w, 11, names[FEATURES], BY__ONNX_FLOAT, features, 2);
    by__export_onnx_writer_port(w, 11, names[OFFSETS], BY__ONNX_INT64, &offsets, 1);
    by__export_onnx_writer_port(w, 11, names[SOURCES], BY__ONNX_INT64, sources, 1);
    by__export_onnx_writer_port(w, 11, names[WANTED], BY__ONNX_INT64, wanted,
                                subject == SUBJECT_PAIRS ? 2 : 1);
    if (sizes->edge_features > 0) {
        by__export_onnx_writer_port(w, 11, names[EDGE_FEATURES], BY__ONNX_FLOAT, sources, 2);
    }
    if (sizes->graph_features > 0) {
        by__export_onnx_writer_port(w, 11, names[GRAPH_FEATURES], BY__ONNX_FLOAT, graphs, 2);
    }
}

by_status by__export_onnx_graphs_inputs(by__export_onnx_writer *w, const by_model_config *config,
                                        const by_graph *graph, char **names, by_error *error)
{
    static const char *const wanted[] = {
        [SUBJECT_NODES] = "nodes", [SUBJECT_PAIRS] = "pairs", [SUBJECT_GRAPHS] = "graphs"};
    graph_subject subject = subject_of(config);
    const char *in[INPUTS] = {"features",      "offsets",       "sources",
                              wanted[subject], "edge_features", "graph_features"};
    by_value x = by_graph_find(graph, "nodes.x");
    if (x == BY_NONE) {
        return by_error_set(error, BY_EFORMAT, "the model has no features of nodes");
    }
    if (by_graph_find(graph, "relations.offsets") != BY_NONE) {
        return by_error_set(error, BY_EFORMAT, "models of relations are not written as ONNX");
    }
    add_ports(w, in, subject, graph->values[x].shape.dim[2], by__nn_node_sizes_of(config));
    for (size_t i = 0; i < graph->value_count; i++) {
        const by__graph_value *v = &graph->values[i];
        if (v->role != BY_ROLE_INPUT) {
            continue;
        }
        by__export_onnx_writer_node(w, in, INPUTS, NULL);
        int value = value_of(&w->rows, v);
        by__export_onnx_writer_end(w);
        if (value < 0) {
            continue;
        }
        free(names[i]);
        names[i] = by__strdup(value < INPUTS ? in[value] : by__export_onnx_writer_name(w, value));
        if (names[i] == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: names");
        }
    }
    return BY_OK;
}

/* ---- outputs ---- */

/* Reads a key of a number; false: the config has none of this name. */
static bool read_number(const by_config *config, const char *key, double *out)
{
    by_string text = {0};
    by__config_show(&text, config, key);
    bool found = !text.failed && text.data != NULL && by__parse_f64(text.data, out);
    by_string_free(&text);
    return found;
}

/* Whether a model predicts numbers of graphs, which are standardized; if so, their scale. */
static bool read_scale(const by_config *config, double *mean, double *deviation)
{
    by_string kind = {0};
    if (!read_number(config, "data.target_mean", mean) ||
        !read_number(config, "data.target_deviation", deviation)) {
        return false;
    }
    by__config_show(&kind, config, "data.target");
    bool numbers = !kind.failed && kind.data != NULL && strcmp(kind.data, "number") == 0;
    by_string_free(&kind);
    return numbers && *deviation > 0.0;
}

/* Adds mean + deviation * y in f64. */
static int scale_numbers(by__export_onnx_writer *w, int y, double mean, double deviation)
{
    by__op_onnx *o = &w->rows;
    y = by__op_onnx_node1(o, "Cast", y);
    o->set_int(o, "to", BY__ONNX_DOUBLE);
    y = by__op_onnx_node2(o, "Mul", y,
                          by__export_onnx_writer_doubles(w, &deviation, &(by_shape){0}));
    return by__op_onnx_node2(o, "Add", y, by__export_onnx_writer_doubles(w, &mean, &(by_shape){0}));
}

void by__export_onnx_graphs_output(by__export_onnx_writer *w, const by_config *config,
                                   const char *value, const by_shape *shape)
{
    graph_subject subject = subject_of(&config->model);
    const char *yields = config->model.output;
    int64_t columns = shape->dim[shape->rank - 1];
    bool chosen = yields[0] != '\0';
    bool scores = subject == SUBJECT_PAIRS && !chosen;
    const by__export_onnx_axis rows[2] = {{0, subject == SUBJECT_GRAPHS ? "graphs" : "targets"},
                                          {columns, NULL}};
    double mean = 0.0;
    double deviation = 1.0;
    bool numbers = subject == SUBJECT_GRAPHS && !chosen && read_scale(config, &mean, &deviation);
    by__export_onnx_writer_node(w, &value, 1, NULL);
    int y = scores ? by__op_onnx_reshape(&w->rows, 0, (const int64_t[]){-1}, 1)
                   : by__op_onnx_reshape(&w->rows, 0, (const int64_t[]){-1, columns}, 2);
    y = numbers ? scale_numbers(w, y, mean, deviation) : y;
    by__export_onnx_writer_end(w);
    by__export_onnx_writer_output(w, by__export_onnx_writer_name(w, y),
                                  chosen    ? yields
                                  : scores  ? "scores"
                                  : numbers ? "values"
                                            : "logits",
                                  numbers ? BY__ONNX_DOUBLE : BY__ONNX_FLOAT, rows, scores ? 1 : 2);
}
