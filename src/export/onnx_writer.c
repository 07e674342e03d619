/* ONNX as protocol buffers. The field numbers are those of onnx.proto. */
#include "export/onnx_writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* First number of values that nodes make; smaller numbers are the node's inputs. */
#define FIRST_VALUE 65536

static int fail(by__export_onnx_writer *w)
{
    w->status = BY_EMEMORY;
    return 0;
}

/* Adds a value and returns its number. */
static int add_value(by__export_onnx_writer *w, const char *prefix, uint64_t number)
{
    char name[40];
    (void)snprintf(name, sizeof name, "%s%" PRIu64, prefix, number);
    if (by__reserve((void **)&w->names, &w->capacity, w->count + 1, sizeof *w->names, NULL) !=
            BY_OK ||
        (w->names[w->count] = by__strdup(name)) == NULL) {
        return fail(w);
    }
    return FIRST_VALUE + (int)w->count++;
}

const char *by__export_onnx_writer_name(const by__export_onnx_writer *w, int value)
{
    size_t i = (size_t)(value - FIRST_VALUE);
    if (value < 0) {
        return "";
    }
    return value < FIRST_VALUE ? (value < w->in_count ? w->in[value] : "")
                               : (i < w->count ? w->names[i] : "");
}

/* Completes the last node. */
static void flush(by__export_onnx_writer *w)
{
    if (w->node.length > 0) {
        by__proto_message(&w->graph, 1, &w->node);
    }
}

static int add_node(by__op_onnx *onnx, const char *type, const int *in, int input_count,
                    int output_count)
{
    by__export_onnx_writer *w = onnx->user;
    int first = 0;
    flush(w);
    for (int i = 0; i < input_count; i++) {
        by__proto_string(&w->node, 1, by__export_onnx_writer_name(w, in[i]));
    }
    for (int i = 0; i < output_count; i++) {
        int value = add_value(w, "v", w->values++);
        first = i == 0 ? value : first;
        by__proto_string(&w->node, 2, by__export_onnx_writer_name(w, value));
    }
    by__proto_string(&w->node, 4, type);
    return first;
}

/* AttributeProto: name 1, f 2, i 3, ints 8, type 20 (1 float, 2 int, 7 ints). */
static void add_attribute(by__export_onnx_writer *w, by_string *attribute, int type)
{
    by__proto_int(attribute, 20, type);
    by__proto_message(&w->node, 5, attribute);
    by_string_free(attribute);
}

static void set_int(by__op_onnx *onnx, const char *name, int64_t value)
{
    by_string attribute = {0};
    by__proto_string(&attribute, 1, name);
    by__proto_int(&attribute, 3, value);
    add_attribute(onnx->user, &attribute, 2);
}

static void set_float(by__op_onnx *onnx, const char *name, float value)
{
    by_string attribute = {0};
    by__proto_string(&attribute, 1, name);
    by__proto_float(&attribute, 2, value);
    add_attribute(onnx->user, &attribute, 1);
}

static void set_ints(by__op_onnx *onnx, const char *name, const int64_t *values, int count)
{
    by_string attribute = {0};
    by__proto_string(&attribute, 1, name);
    for (int i = 0; i < count; i++) {
        by__proto_int(&attribute, 8, values[i]);
    }
    add_attribute(onnx->user, &attribute, 7);
}

static void set_text(by__op_onnx *onnx, const char *name, const char *text)
{
    by_string attribute = {0};
    by__proto_string(&attribute, 1, name);
    by__proto_string(&attribute, 4, text);
    add_attribute(onnx->user, &attribute, 3);
}

/* TensorProto: dims 1, data_type 2, name 8, raw_data 9; initializers are field 5 of the graph. */
static int add_constant(by__export_onnx_writer *w, int type, const void *data, size_t bytes,
                        const by_shape *shape)
{
    by_string tensor = {0};
    int value = add_value(w, "c", w->constants++);
    for (int i = 0; i < shape->rank; i++) {
        by__proto_int(&tensor, 1, shape->dim[i]);
    }
    by__proto_int(&tensor, 2, type);
    by__proto_string(&tensor, 8, by__export_onnx_writer_name(w, value));
    by__proto_bytes(&tensor, 9, data, bytes);
    by__proto_message(&w->graph, 5, &tensor);
    by_string_free(&tensor);
    return value;
}

static int add_floats(by__op_onnx *onnx, const float *values, const by_shape *shape)
{
    return add_constant(onnx->user, BY__ONNX_FLOAT, values,
                        (size_t)by_shape_count(shape) * sizeof *values, shape);
}

static int add_ints(by__op_onnx *onnx, const int64_t *values, const by_shape *shape)
{
    return add_constant(onnx->user, BY__ONNX_INT64, values,
                        (size_t)by_shape_count(shape) * sizeof *values, shape);
}

int by__export_onnx_writer_doubles(by__export_onnx_writer *w, const double *values,
                                   const by_shape *shape)
{
    return add_constant(w, BY__ONNX_DOUBLE, values, (size_t)by_shape_count(shape) * sizeof *values,
                        shape);
}

static void set_result(by__op_onnx *onnx, int output, int value)
{
    by__export_onnx_writer *w = onnx->user;
    free(w->results[output]);
    w->results[output] = by__strdup(by__export_onnx_writer_name(w, value));
    if (w->results[output] == NULL) {
        (void)fail(w);
    }
}

static void set_update(by__op_onnx *onnx, int input, int value)
{
    by__export_onnx_writer *w = onnx->user;
    free(w->updates[input]);
    w->updates[input] = by__strdup(by__export_onnx_writer_name(w, value));
    if (w->updates[input] == NULL) {
        (void)fail(w);
    }
}

void by__export_onnx_writer_begin(by__export_onnx_writer *w)
{
    *w = (by__export_onnx_writer){.rows = {.user = w,
                                           .node = add_node,
                                           .set_int = set_int,
                                           .set_float = set_float,
                                           .set_ints = set_ints,
                                           .set_text = set_text,
                                           .floats = add_floats,
                                           .ints = add_ints,
                                           .result = set_result,
                                           .update = set_update}};
}

void by__export_onnx_writer_free(by__export_onnx_writer *w)
{
    for (size_t i = 0; i < w->count; i++) {
        free(w->names[i]);
    }
    for (size_t i = 0; i < BY_MAX_OUTPUTS; i++) {
        free(w->results[i]);
    }
    free(w->names);
    by_string_free(&w->graph);
    by_string_free(&w->node);
}

void by__export_onnx_writer_node(by__export_onnx_writer *w, const char **in, int count,
                                 char **updates)
{
    w->in = in;
    w->in_count = count;
    w->updates = updates;
    for (size_t i = 0; i < BY_MAX_OUTPUTS; i++) {
        free(w->results[i]);
        w->results[i] = NULL;
    }
}

void by__export_onnx_writer_end(by__export_onnx_writer *w)
{
    flush(w);
    w->status = w->graph.failed || w->node.failed ? BY_EMEMORY : w->status;
}

/* ValueInfoProto: name 1, type 2 (TypeProto: tensor_type 1: elem_type 1, shape 2: dim 1: dim_value
 * 1 or dim_param 2). */
void by__export_onnx_writer_port(by__export_onnx_writer *w, uint32_t field, const char *name,
                                 int type, const by__export_onnx_axis *axes, int rank)
{
    by_string port = {0};
    by_string kind = {0};
    by_string tensor = {0};
    by_string shape = {0};
    by_string axis = {0};
    for (int i = 0; i < rank; i++) {
        if (axes[i].name != NULL) {
            by__proto_string(&axis, 2, axes[i].name);
        } else {
            by__proto_int(&axis, 1, axes[i].extent);
        }
        by__proto_message(&shape, 1, &axis);
    }
    by__proto_int(&tensor, 1, type);
    by__proto_message(&tensor, 2, &shape);
    by__proto_message(&kind, 1, &tensor);
    by__proto_string(&port, 1, name);
    by__proto_message(&port, 2, &kind);
    by__proto_message(&w->graph, field, &port);
    by_string_free(&port);
    by_string_free(&kind);
    by_string_free(&tensor);
    by_string_free(&shape);
    by_string_free(&axis);
}

void by__export_onnx_writer_output(by__export_onnx_writer *w, const char *value, const char *name,
                                   int type, const by__export_onnx_axis *axes, int rank)
{
    by_string node = {0};
    by__proto_string(&node, 1, value);
    by__proto_string(&node, 2, name);
    by__proto_string(&node, 4, "Identity");
    by__proto_message(&w->graph, 1, &node);
    by_string_free(&node);
    by__export_onnx_writer_port(w, 12, name, type, axes, rank);
}

/* StringStringEntryProto: key 1, value 2. */
static void add_entry(by_string *out, uint32_t field, const char *key, const char *value)
{
    by_string entry = {0};
    by__proto_string(&entry, 1, key);
    by__proto_string(&entry, 2, value);
    by__proto_message(out, field, &entry);
    by_string_free(&entry);
}

/* external_data 13, data_location 14 (1: external). */
void by__export_onnx_writer_weight(by__export_onnx_writer *w, const char *name,
                                   const by_shape *shape, const char *file, uint64_t offset,
                                   uint64_t bytes)
{
    by_string tensor = {0};
    char number[24];
    for (int i = 0; i < shape->rank; i++) {
        by__proto_int(&tensor, 1, shape->dim[i]);
    }
    by__proto_int(&tensor, 2, BY__ONNX_FLOAT);
    by__proto_string(&tensor, 8, name);
    add_entry(&tensor, 13, "location", file);
    (void)snprintf(number, sizeof number, "%" PRIu64, offset);
    add_entry(&tensor, 13, "offset", number);
    (void)snprintf(number, sizeof number, "%" PRIu64, bytes);
    add_entry(&tensor, 13, "length", number);
    by__proto_int(&tensor, 14, 1);
    by__proto_message(&w->graph, 5, &tensor);
    by_string_free(&tensor);
}
