/* Builds an ONNX graph: nodes, constants, inputs, outputs. */
#ifndef BY_EXPORT_ONNX_WRITER_H
#define BY_EXPORT_ONNX_WRITER_H

#include "base/wire/protobuf.h"
#include "ops/row.h"

typedef struct by__export_onnx_writer {
    by__op_onnx rows; /* the interface that rows of the op table write to; first field, for casts */
    by_string graph;  /* GraphProto */
    by_string node;   /* the last NodeProto, which may still get attributes */
    char **names;     /* names of the results of nodes and of constants, by number */
    size_t count;
    size_t capacity;
    const char **in; /* input names of the graph's node being written */
    int in_count;
    char *results[BY_MAX_OUTPUTS]; /* of that node; owned */
    char **updates;                /* [in_count]: new names of inputs that it updates; owned */
    uint64_t constants;
    uint64_t values;
    by_status status; /* the first error */
} by__export_onnx_writer;

void by__export_onnx_writer_begin(by__export_onnx_writer *writer);
void by__export_onnx_writer_free(by__export_onnx_writer *writer);
/* Begins writing one node of the graph, whose inputs have these names ("": absent). */
void by__export_onnx_writer_node(by__export_onnx_writer *writer, const char **in, int count,
                                 char **updates);
/* Ends it; no more attributes may follow. */
void by__export_onnx_writer_end(by__export_onnx_writer *writer);
/* Returns the name of a value by its number. */
const char *by__export_onnx_writer_name(const by__export_onnx_writer *writer, int value);

/* An extent of an input or output: a number, or a symbolic name if `name` is not NULL. */
typedef struct by__export_onnx_axis {
    int64_t extent;
    const char *name;
} by__export_onnx_axis;

#define BY__ONNX_FLOAT  1
#define BY__ONNX_UINT8  2
#define BY__ONNX_INT64  7
#define BY__ONNX_DOUBLE 11
/* Adds an input (field 11) or output (field 12) of the graph. */
void by__export_onnx_writer_port(by__export_onnx_writer *writer, uint32_t field, const char *name,
                                 int type, const by__export_onnx_axis *axes, int rank);
/* Adds an output of the graph under a different name than the value's. */
void by__export_onnx_writer_output(by__export_onnx_writer *writer, const char *value,
                                   const char *name, int type, const by__export_onnx_axis *axes,
                                   int rank);
/* Adds an f64 constant and returns its number. */
int by__export_onnx_writer_doubles(by__export_onnx_writer *writer, const double *values,
                                   const by_shape *shape);
/* Adds an f32 initializer whose data is in another file. */
void by__export_onnx_writer_weight(by__export_onnx_writer *writer, const char *name,
                                   const by_shape *shape, const char *file, uint64_t offset,
                                   uint64_t bytes);

#endif
