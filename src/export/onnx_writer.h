/* An ONNX graph that is being written: nodes, constants, inputs, outputs. */
#ifndef BY_EXPORT_ONNX_WRITER_H
#define BY_EXPORT_ONNX_WRITER_H

#include "base/protobuf.h"
#include "ops/row.h"

typedef struct by__onnx_writer {
    by__onnx rows;  /* what rows of the op table write to; the first field */
    by__text graph; /* GraphProto */
    by__text node;  /* NodeProto that attributes may still be added to */
    char **names;   /* of the results of nodes and of constants, in the order of their numbers */
    size_t count;
    size_t capacity;
    const char **in; /* names of the inputs of the graph's node that is written */
    int in_count;
    char *results[BY_MAX_OUTPUTS]; /* of that node, owned */
    char **updates;                /* [in_count]: what its inputs are from now on, owned */
    uint64_t constants;
    uint64_t values;
    by_status status; /* the first error */
} by__onnx_writer;

void by__onnx_writer_begin(by__onnx_writer *writer);
void by__onnx_writer_free(by__onnx_writer *writer);
/* Begins the nodes of one node of the graph, whose inputs have these names ("": absent). */
void by__onnx_writer_node(by__onnx_writer *writer, const char **in, int count, char **updates);
/* Ends them: all attributes are there. */
void by__onnx_writer_end(by__onnx_writer *writer);
/* The name of a value by its number. */
const char *by__onnx_writer_name(const by__onnx_writer *writer, int value);

/* Extents of an input or output: a number, or, where `name` is not NULL, a name. */
typedef struct by__onnx_axis {
    int64_t extent;
    const char *name;
} by__onnx_axis;

#define BY__ONNX_FLOAT  1
#define BY__ONNX_UINT8  2
#define BY__ONNX_INT64  7
#define BY__ONNX_DOUBLE 11
/* An input (field 11) or output (field 12) of the graph. */
void by__onnx_writer_port(by__onnx_writer *writer, uint32_t field, const char *name, int type,
                          const by__onnx_axis *axes, int rank);
/* An output of the graph under another name than the value has. */
void by__onnx_writer_output(by__onnx_writer *writer, const char *value, const char *name, int type,
                            const by__onnx_axis *axes, int rank);
/* A constant of f64; its number. */
int by__onnx_writer_doubles(by__onnx_writer *writer, const double *values, const by_shape *shape);
/* An f32 initializer whose data is in another file. */
void by__onnx_writer_weight(by__onnx_writer *writer, const char *name, const by_shape *shape,
                            const char *file, uint64_t offset, uint64_t bytes);

#endif
