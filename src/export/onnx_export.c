/* Models as ONNX graphs: the inference graph, whose nodes are written by their rows. Batch and
 * sequence may have any extent. onnx_examples.c adds inputs and outputs of models for images and
 * tables.
 *
 * Models of tokens take past keys and values (named as in Hugging Face's exports:
 * past_key_values.N.key, present.N.key, [batch, kv_heads, past, head width]), so that a sequence
 * can be continued from the last call; the first call passes a past of length 0. Encoders take
 * whole texts with the mask of their tokens and the segments of these, and yield what their head
 * makes of them, by the names of Hugging Face's exports.
 *
 * Weights are in a second file, NAME_data, each aligned to 4096 bytes, so that a model may exceed
 * the 2 GiB limit of protocol buffers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "export/export.h"
#include "export/onnx_examples.h"
#include "export/onnx_graphs.h"
#include "export/onnx_writer.h"

#define ALIGNMENT ((uint64_t)4096)
#define CHUNK     ((size_t)1 << 18)
/* Arbitrary extents that the graph is built with; they do not appear in the ONNX graph. */
#define BATCH      3
#define TIME       5
#define MAX_INPUTS 16 /* of a node */

typedef struct state {
    by__export *export;
    by_graph *graph;
    by_model model;
    by__export_onnx_examples examples; /* of images and tables */
    by__export_onnx_writer writer;
    char **names;       /* [value_count]: ONNX names of values, owned */
    by_config *own;     /* what is exported */
    int64_t batch;      /* that the graph is built with */
    const char *yields; /* name of the model's output; "": the main one */
    char *data_name;    /* name of the second file */
    uint64_t bytes;     /* size of the second file */
} state;

static by_status set_name(state *s, by_value value, const char *name, by_error *error)
{
    free(s->names[value]);
    s->names[value] = by__strdup(name);
    return s->names[value] == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: names")
                                   : BY_OK;
}

static bool reads_graph(const state *s)
{
    return by__export_onnx_graphs_reads(&s->export->source->config->model);
}

/* s->own: the config with the output that is wanted. */
static by_status choose_model(state *s, by_error *error)
{
    const char *yields = s->export->options->yields;
    BY_TRY(by_config_copy(&s->own, s->export->source->config, error));
    s->batch = reads_graph(s) ? by__export_onnx_graphs_choose(&s->own->model, BATCH) : BATCH;
    if (yields != NULL) {
        free(s->own->model.output);
        s->own->model.output = by__strdup(yields);
    }
    s->yields = s->own->model.output;
    return s->yields == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: names") : BY_OK;
}

static by_status build_graph(state *s, by_error *error)
{
    BY_TRY(choose_model(s, error));
    const by_model_config *model = &s->own->model;
    /* Windows only show in the graph if the sequence is longer than they are. */
    by_model_request request = {.mode = BY_MODEL_LOGITS, .batch = s->batch, .time = model->context};
    if (s->examples.text != NULL || reads_graph(s)) {
        request.mode = BY_MODEL_LOSS;
    } else if (by_model_is_encoder(model)) {
        bool masked = strcmp(by_model_usual_task(model), "masked") == 0;
        request.mode = masked ? BY_MODEL_LOGITS : BY_MODEL_LOSS;
        request.padded = true;
        request.segmented = true;
    } else if (!s->export->options->without_cache) {
        request.mode = BY_MODEL_DECODE;
        request.time = model->context < TIME ? model->context : TIME;
        request.cache = model->context;
    }
    BY_TRY(by_graph_open(&s->graph, error));
    BY_TRY(by_model_build(&s->model, s->graph, model, &request, error));
    return by__alloc((void **)&s->names, s->graph->value_count, sizeof *s->names, "names", error);
}

/* ---- inputs ---- */

/* Converts "cache.3.k" to "past_key_values.3.key" (or "present.3.key"). */
static void cache_name(char out[64], const char *name, const char *prefix)
{
    int layer = atoi(name + strlen("cache."));
    (void)snprintf(out, 64, "%s.%d.%s", prefix, layer,
                   name[strlen(name) - 1] == 'k' ? "key" : "value");
}

typedef struct cache_axes {
    by__export_onnx_axis axes[4];
} cache_axes;

static cache_axes axes_of_cache(const by__graph_value *v, const char *positions)
{
    return (cache_axes){
        {{0, "batch"}, {v->shape.dim[1], NULL}, {0, positions}, {v->shape.dim[3], NULL}}};
}

/* Adds the number of past positions, [1], and (if the model reads them) positions [1, sequence]. */
static by_status add_places(state *s, const char *past, by_error *error)
{
    const char *in[2] = {past, "input_ids"};
    by__op_onnx *o = &s->writer.rows;
    by__export_onnx_writer_node(&s->writer, in, 2, NULL);
    int start = by__op_onnx_extent(o, 0, 2);
    BY_TRY(set_name(s, s->model.start,
                    by__export_onnx_writer_name(
                        &s->writer, by__op_onnx_reshape(o, start, (const int64_t[]){1}, 1)),
                    error));
    if (s->model.positions == BY_NONE) {
        return BY_OK;
    }
    int end = by__op_onnx_node2(o, "Add", start, by__op_onnx_extent(o, 1, 1));
    int places = by__op_onnx_node3(o, "Range", start, end, by__op_onnx_int(o, 1));
    places = by__op_onnx_reshape(o, places, (const int64_t[]){1, -1}, 2);
    return set_name(s, s->model.positions, by__export_onnx_writer_name(&s->writer, places), error);
}

static by_status add_example_inputs(state *s, by_error *error)
{
    const char *name = NULL;
    s->writer.rows.batch_extent = BATCH;
    for (size_t i = 0; i < s->graph->value_count; i++) {
        const by__graph_value *v = &s->graph->values[i];
        if (v->role == BY_ROLE_INPUT) {
            BY_TRY(by__export_onnx_examples_input(&s->examples, &s->writer, v, &name, error));
            BY_TRY(set_name(s, (by_value)i, name, error));
        }
    }
    return BY_OK;
}

/* Adds what the text of an encoder is: tokens, which of them there are, and their segments. */
static by_status add_encoder_inputs(state *s, by_error *error)
{
    const by__export_onnx_axis axes[2] = {{0, "batch"}, {0, "sequence"}};
    const char *in[1] = {"attention_mask"};
    by__op_onnx *o = &s->writer.rows;
    o->batch_extent = BATCH;
    by__export_onnx_writer_port(&s->writer, 11, "input_ids", BY__ONNX_INT64, axes, 2);
    by__export_onnx_writer_port(&s->writer, 11, "attention_mask", BY__ONNX_INT64, axes, 2);
    by__export_onnx_writer_port(&s->writer, 11, "token_type_ids", BY__ONNX_INT64, axes, 2);
    BY_TRY(set_name(s, s->model.tokens, "input_ids", error));
    BY_TRY(set_name(s, s->model.segments, "token_type_ids", error));
    by__export_onnx_writer_node(&s->writer, in, 1, NULL);
    o->batch = by__op_onnx_reshape(o, by__op_onnx_extent(o, 0, 0), (const int64_t[]){1}, 1);
    int ends = by__op_onnx_node2(o, "ReduceSum", 0, by__op_onnx_list(o, (const int64_t[]){1}, 1));
    o->set_int(o, "keepdims", 0);
    return set_name(s, s->model.lengths, by__export_onnx_writer_name(&s->writer, ends), error);
}

static by_status add_token_inputs(state *s, by_error *error)
{
    const by__export_onnx_axis axes[2] = {{0, "batch"}, {0, "sequence"}};
    char past[64] = "";
    char first[64] = "";
    by__export_onnx_writer_port(&s->writer, 11, "input_ids", BY__ONNX_INT64, axes, 2);
    BY_TRY(set_name(s, s->model.tokens, "input_ids", error));
    for (size_t i = 0; i < s->graph->value_count; i++) {
        const by__graph_value *v = &s->graph->values[i];
        if (v->role == BY_ROLE_STATE) {
            cache_name(past, v->name, "past_key_values");
            const cache_axes shape = axes_of_cache(v, "past");
            by__export_onnx_writer_port(&s->writer, 11, past, BY__ONNX_FLOAT, shape.axes, 4);
            BY_TRY(set_name(s, (by_value)i, past, error));
            if (first[0] == '\0') {
                (void)snprintf(first, sizeof first, "%s", past);
            }
        }
    }
    return first[0] == '\0' ? BY_OK : add_places(s, first, error);
}

/* ---- weights ---- */

static const char *weight_name(const state *s, const by__graph_value *v)
{
    const by_export_source *source = s->export->source;
    const char *prefix = by_model_name_prefix(&source->config->model);
    return by__export_find(source->weights, prefix == NULL ? "" : prefix, v->name);
}

static by_status write_weight(by__checkpoint_sink *sink, const by_weights *weights,
                              const by__graph_value *v, const char *name, float *buffer,
                              by_error *error)
{
    size_t total = (size_t)by_shape_count(&v->shape);
    by_tensor_view view;
    size_t elements;
    BY_TRY(by__weights_describe(weights, name, &view, error));
    BY_TRY(by_tensor_size(&view, &elements, NULL, error));
    if (elements != total) {
        return by_error_set(error, BY_EFORMAT, "tensor '%s' has %zu elements, the model %zu", name,
                            elements, total);
    }
    for (size_t first = 0; first < total; first += CHUNK) {
        size_t n = total - first < CHUNK ? total - first : CHUNK;
        by_tensor_slice slice = {.flat = true, .offset = {(int64_t)first}, .shape = {(int64_t)n}};
        BY_TRY(by_weights_read_f32(weights, name, &slice, buffer, n, error));
        BY_TRY(by__checkpoint_sink_add(sink, buffer, n * sizeof *buffer, error));
    }
    return BY_OK;
}

/* Lists the weights in the graph or, if there is a sink, writes them. */
static by_status each_weight(state *s, by__checkpoint_sink *sink, float *buffer, by_error *error)
{
    static const uint8_t zeros[ALIGNMENT];
    uint64_t offset = 0;
    for (size_t i = 0; i < s->graph->value_count; i++) {
        const by__graph_value *v = &s->graph->values[i];
        if (v->role != BY_ROLE_PARAMETER) {
            continue;
        }
        const char *name = weight_name(s, v);
        uint64_t bytes = (uint64_t)by_shape_count(&v->shape) * sizeof(float);
        uint64_t space = (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT;
        if (name == NULL) {
            return by_error_set(error, BY_EFORMAT, "%s has no tensor '%s'",
                                by_weights_path(s->export->source->weights), v->name);
        }
        if (sink == NULL) {
            by__export_onnx_writer_weight(&s->writer, v->name, &v->shape, s->data_name, offset,
                                          bytes);
            BY_TRY(set_name(s, (by_value)i, v->name, error));
            s->export->report.tensors++;
        } else {
            BY_TRY(write_weight(sink, s->export->source->weights, v, name, buffer, error));
            BY_TRY(by__checkpoint_sink_add(sink, zeros, (size_t)space, error));
        }
        offset += bytes + space;
    }
    s->bytes = offset;
    return BY_OK;
}

/* ---- nodes ---- */

/* Checks before anything is read or written that all nodes can be expressed in ONNX. */
static by_status check_nodes(const state *s, by_error *error)
{
    for (size_t i = 0; i < s->graph->node_count; i++) {
        const by__op_row *row = by__op_row_of(s->graph->nodes[i].op);
        if (row->onnx == NULL || s->graph->nodes[i].input_count > MAX_INPUTS) {
            return by_error_set(error, BY_EFORMAT,
                                "a model of kind %s has the operation %s, which has no form in "
                                "ONNX",
                                s->export->source->config->model.kind,
                                by_op_name(s->graph->nodes[i].op));
        }
    }
    return BY_OK;
}

static by_status add_node(state *s, const by__graph_node *node, by_error *error)
{
    const by__op_row *row = by__op_row_of(node->op);
    const char *in[MAX_INPUTS];
    char *updates[MAX_INPUTS] = {0};
    by__graph_type types[MAX_INPUTS];
    by__graph_type out[BY_MAX_OUTPUTS];
    for (int i = 0; i < node->input_count; i++) {
        bool absent = node->in[i] == BY_NONE;
        in[i] = absent || s->names[node->in[i]] == NULL ? "" : s->names[node->in[i]];
        types[i].shape.rank = -1;
        if (!absent) {
            const by__graph_value *v = &s->graph->values[node->in[i]];
            types[i] = (by__graph_type){v->dtype, v->shape};
        }
    }
    for (int i = 0; i < node->output_count; i++) {
        out[i].shape.rank = -1;
        if (node->out[i] != BY_NONE) {
            const by__graph_value *v = &s->graph->values[node->out[i]];
            out[i] = (by__graph_type){v->dtype, v->shape};
        }
    }
    const by__op_signature signature = {node->op, &node->attrs, types, node->input_count};
    by__export_onnx_writer_node(&s->writer, in, node->input_count, updates);
    by_status status = row->onnx(&signature, out, &s->writer.rows, error);
    by__export_onnx_writer_end(&s->writer);
    for (int i = 0; i < node->output_count && status == BY_OK; i++) {
        if (s->writer.results[i] != NULL) {
            status = set_name(s, node->out[i], s->writer.results[i], error);
        }
    }
    for (int i = 0; i < node->input_count; i++) {
        if (updates[i] != NULL && status == BY_OK) {
            status = set_name(s, node->in[i], updates[i], error);
        }
        free(updates[i]);
    }
    return status == BY_OK && s->writer.status != BY_OK
               ? by_error_set(error, BY_EMEMORY, "out of memory: an ONNX graph")
               : status;
}

/* The logits of masked tokens, the outputs of a text or of each token, or the states of tokens. */
static void add_encoder_output(state *s)
{
    const by_model *m = &s->model;
    by_value value = m->logits != BY_NONE   ? m->logits
                     : m->output != BY_NONE ? m->output
                                            : m->states;
    const by_shape *shape = &s->graph->values[value].shape;
    by__export_onnx_axis axes[3] = {{0, "batch"}, {0, "sequence"}, {0, NULL}};
    axes[shape->rank - 1] = (by__export_onnx_axis){shape->dim[shape->rank - 1], NULL};
    by__export_onnx_writer_output(&s->writer, s->names[value],
                                  value == m->states ? "last_hidden_state" : "logits",
                                  BY__ONNX_FLOAT, axes, shape->rank);
}

static by_status add_outputs(state *s, by_error *error)
{
    const by__graph_value *values = s->graph->values;
    char name[64];
    if (reads_graph(s)) {
        by_value output = s->model.output;
        by__export_onnx_graphs_output(&s->writer, s->own, s->names[output], &values[output].shape);
        return BY_OK;
    }
    if (s->examples.text != NULL) {
        return by__export_onnx_examples_output(&s->examples, &s->writer, s->names[s->model.output],
                                               &values[s->model.output], s->yields, error);
    }
    if (s->model.lengths != BY_NONE) {
        add_encoder_output(s);
        return BY_OK;
    }
    const by__export_onnx_axis axes[3] = {
        {0, "batch"}, {0, "sequence"}, {values[s->model.logits].shape.dim[2], NULL}};
    by__export_onnx_writer_output(&s->writer, s->names[s->model.logits], "logits", BY__ONNX_FLOAT,
                                  axes, 3);
    for (size_t i = 0; i < s->graph->value_count; i++) {
        if (values[i].role == BY_ROLE_STATE) {
            cache_name(name, values[i].name, "present");
            const cache_axes shape = axes_of_cache(&values[i], "total");
            by__export_onnx_writer_output(&s->writer, s->names[i], name, BY__ONNX_FLOAT, shape.axes,
                                          4);
        }
    }
    return BY_OK;
}

/* ---- the files ---- */

/* ModelProto: ir_version 1, producer_name 2, producer_version 3, graph 7, opset_import 8 (version
 * 2), metadata_props 14 (key 1, value 2). */
static void make_model(by_string *out, state *s)
{
    const by__checkpoint_origin *origin = &s->export->origin;
    const char *const pairs[][2] = {{"banyan.run", origin->run},
                                    {"banyan.config_hash", origin->config_hash},
                                    {"banyan.data_hash", origin->data_hash},
                                    {s->examples.key, s->examples.text},
                                    {"banyan.id2label", s->examples.labels}};
    by_string part = {0};
    by__proto_int(out, 1, 8);
    by__proto_string(out, 2, "banyan");
    by__proto_string(out, 3, BY_VERSION);
    by__proto_string(&s->writer.graph, 2, origin->run == NULL ? "model" : origin->run);
    by__proto_message(out, 7, &s->writer.graph);
    by__proto_int(&part, 2, 18);
    by__proto_message(out, 8, &part);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(pairs); i++) {
        if (pairs[i][1] != NULL) {
            by__proto_string(&part, 1, pairs[i][0]);
            by__proto_string(&part, 2, pairs[i][1]);
            by__proto_message(out, 14, &part);
        }
    }
    by_string_free(&part);
}

static by_status write_data(state *s, const char *directory, by_error *error)
{
    by__checkpoint_sink *sink = NULL;
    float *buffer;
    BY_TRY(by__alloc((void **)&buffer, CHUNK, sizeof *buffer, "a part of a tensor", error));
    by_status status = by__checkpoint_sink_open(&sink, directory, s->data_name, s->bytes, error);
    if (status == BY_OK) {
        status = each_weight(s, sink, buffer, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_sink_commit(&sink, NULL, error);
    }
    by__checkpoint_sink_discard(&sink);
    free(buffer);
    return status;
}

static by_status write_files(state *s, const char *directory, const char *name, by_error *error)
{
    by_string model = {0};
    BY_TRY(check_nodes(s, error));
    BY_TRY(each_weight(s, NULL, NULL, error));
    BY_TRY(reads_graph(s) ? by__export_onnx_graphs_inputs(&s->writer, &s->own->model, s->graph,
                                                          s->names, error)
           : s->examples.text != NULL    ? add_example_inputs(s, error)
           : s->model.lengths != BY_NONE ? add_encoder_inputs(s, error)
                                         : add_token_inputs(s, error));
    for (size_t i = 0; i < s->graph->node_count; i++) {
        BY_TRY(add_node(s, &s->graph->nodes[i], error));
    }
    BY_TRY(add_outputs(s, error));
    make_model(&model, s);
    by_status status =
        model.failed ? by_error_set(error, BY_EMEMORY, "out of memory: an ONNX graph") : BY_OK;
    if (status == BY_OK) {
        status = write_data(s, directory, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_sink_put(directory, name, model.data, model.length, NULL, error);
    }
    if (status == BY_OK) {
        status = by__sync_dir(directory, error);
    }
    s->export->report.bytes = s->bytes;
    by_string_free(&model);
    return status;
}

by_status by__export_onnx(by__export *e, by_error *error)
{
    state s = {.export = e};
    char *directory;
    char *name;
    by_string data = {0};
    BY_TRY(by__export_refuse_existing(e, "_data", error));
    BY_TRY(by__export_place(&directory, &name, e->options->output, error));
    by__export_onnx_writer_begin(&s.writer);
    by_string_format(&data, "%s_data", name);
    by_status status = by__string_release(&data, &s.data_name, error);
    if (status == BY_OK) {
        status = by__export_onnx_examples_open(&s.examples, e, error);
    }
    if (status == BY_OK) {
        status = build_graph(&s, error);
    }
    if (status == BY_OK) {
        status = write_files(&s, directory, name, error);
    }
    for (size_t i = 0; s.names != NULL && i < s.graph->value_count; i++) {
        free(s.names[i]);
    }
    free(s.names);
    by_graph_close(&s.graph);
    by__export_onnx_writer_free(&s.writer);
    by__export_onnx_examples_close(&s.examples);
    by_config_close(&s.own);
    free(s.data_name);
    free(directory);
    free(name);
    return status;
}
