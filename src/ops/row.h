/* row: what every other room asks of an operation. One row an op; table.c lists them by by_op.
 *
 * A room that needs to know something of ops reads it here and names none: which attributes there
 * are, which operands are weights of a product, indices, updated in place or kept in f32, what can
 * be fused, recomputed, split over ranks or exported. A field that is left out says the usual: no
 * attributes, nothing special about any operand, NULL for what the op cannot do.
 *
 * Sets of operands are bit masks: bit i is input i (of the first 32).
 *
 * Never put here: what only the op's own file needs; a special case for one model.
 */
#ifndef BY_OPS_ROW_H
#define BY_OPS_ROW_H

#include "banyan/map.h"
#include "graph/graph.h"

#define BY__MAX_INDICES 4

/* The types that a shape rule sees. An absent optional input has rank -1. */
typedef struct by__signature {
    by_op op;
    const by_attrs *attrs;
    const by__type *in;
    int input_count;
} by__signature;

/* Whether operand i is in the set; UINT32_MAX is all operands, however many there are. */
static inline bool by__mask_has(uint32_t mask, int i)
{
    return mask == UINT32_MAX || (i < 32 && (mask >> i & 1u) != 0);
}

/* ---- attributes ---- */

typedef enum by__attr_type {
    BY__ATTR_FLAG,  /* bool; printed as its label when it is set */
    BY__ATTR_INT,   /* int64_t */
    BY__ATTR_WORD,  /* uint32_t */
    BY__ATTR_FLOAT, /* float, finite */
    BY__ATTR_DTYPE,
    BY__ATTR_FUNCTION,
    BY__ATTR_SHAPE,
    BY__ATTR_ORDER, /* int[BY_MAX_RANK], a permutation of the first axes */
    BY__ATTR_AXES,  /* uint32_t, bit i for axis i */
    BY__ATTR_PACKING,
    BY__ATTR_MAP /* const by_map_program *, of the node's graph */
} by__attr_type;

/* The results' types show it: not printed. */
#define BY__ATTR_IN_TYPE 1u
/* Changes what is computed and not how long that takes: left out of signatures, by which profiles
 * put equal work together. */
#define BY__ATTR_NO_WORK 2u
/* 0 is its usual value: not printed then. */
#define BY__ATTR_SPARE 8u
/* The dtype of the result, which by_pass_precision sets. */
#define BY__ATTR_COMPUTE 4u

/* One field of by_attrs that an op reads. */
typedef struct by__attr {
    const char *label; /* printed before the value; "": the value alone. NULL ends a list. */
    size_t offset;
    by__attr_type type;
    unsigned traits;
} by__attr;

/* A row's list: BY__ATTRS(BY__ATTR(heads, INT), BY__ATTR(theta, FLOAT)). */
#define BY__ATTR_AS(label, field, type, traits)                                                    \
    {                                                                                              \
        label, offsetof(by_attrs, field), BY__ATTR_##type, traits                                  \
    }
#define BY__ATTR(field, type) BY__ATTR_AS(#field, field, type, 0)
#define BY__ATTRS(...)        ((const by__attr[]){__VA_ARGS__, {NULL, 0, BY__ATTR_FLAG, 0}})

/* ---- work ---- */

/* Work of one run of a node. Bytes count each operand once, as a perfect cache would. */
typedef struct by__cost {
    double flops;
    double bytes_read;
    double bytes_written;
    double bytes_sent; /* to other ranks, by each rank */
} by__cost;

/* Work of attention, which grows with the sequence and is counted in addition to that of the
 * weights. */
typedef struct by__attention_cost {
    double token_flops;   /* of a token's forward pass if it looked at the whole sequence */
    double seen;          /* share of that which the mask leaves: 1/2 when causal */
    double cached_flops;  /* of one run, for each position of a key/value cache */
    double cached_bytes;  /* read by one run, the same */
    double cached_window; /* positions of the cache that are read at most; 0: all */
} by__attention_cost;

/* ---- operands that index ---- */

/* An i32 operand whose entries must be in [0, limit), or below it when they may be negative. */
typedef struct by__index_operand {
    int input;
    bool may_be_negative;
    int64_t (*limit)(const by__signature *s); /* NULL ends a list */
} by__index_operand;

/* ---- ranks ---- */

/* How a tensor is spread over the ranks of one mesh axis.
 *
 * Split: its axis `axis` is `parts` equal sections one behind the other, and of each section each
 * rank has one of `ranks` neighbouring slices, in the order of ranks; a rank's tensor is its slices
 * one behind the other. One section is the usual case; packed q|k|v has three; the rows of a matrix
 * [B T, C] that a [B, T, C] tensor split along T flattens to have B. */
typedef struct by__split {
    int axis; /* or BY__WHOLE, BY__PARTIAL */
    int64_t parts;
} by__split;

#define BY__WHOLE   (-1) /* every rank has all of it */
#define BY__PARTIAL (-2) /* each rank has an addend: their sum over the mesh axis is the tensor */

/* How a node runs on the ranks of a mesh axis. */
typedef struct by__sharding by__sharding;
struct by__sharding {
    int ranks;
    int rank;            /* whose node it is */
    unsigned mesh;       /* the mesh axis, for collectives that `build` adds */
    const by__split *in; /* of each input: given; BY__WHOLE for an absent one */
    by__split want;      /* what readers of output 0 would like it to be */
    /* Rank r has of a section, cut into 2 ranks chunks, chunk r and, behind it, chunk
     * 2 ranks - 1 - r, instead of one slice. */
    bool zigzag;
    by__split out[BY_MAX_OUTPUTS];
    uint32_t once;  /* inputs that rank 0 alone is given, so that they are added once */
    by_attrs attrs; /* the node's on entry, the local node's on return */
    /* Adds other nodes than one of the same op, on the local inputs `in`; NULL: one of the same op
     * with `attrs`. */
    void (*build)(by_graph *graph, const by__sharding *sharding, const by_value *in,
                  int input_count, by_value outs[BY_MAX_OUTPUTS]);
};

/* ---- export ---- */

/* Receives the ONNX nodes (opset 18) that stand for one node of a graph. Values are numbers: 0 ..
 * input_count - 1 are the node's inputs, the functions return those of new ones. An error is kept
 * until the end of the node, so that rows are written without checks. */
typedef struct by__onnx by__onnx;
struct by__onnx {
    void *user;
    /* The batch, axis 0 of examples, may have any extent in ONNX: what it is in the shapes that
     * rows see, and the value [1] that it has. 0: rows need not know. */
    int64_t batch_extent;
    int batch;
    /* Appends a node; returns its first result, the others follow it. */
    int (*node)(by__onnx *onnx, const char *type, const int *in, int input_count, int output_count);
    /* Attributes of the node that was appended last. */
    void (*set_int)(by__onnx *onnx, const char *name, int64_t value);
    void (*set_float)(by__onnx *onnx, const char *name, float value);
    void (*set_ints)(by__onnx *onnx, const char *name, const int64_t *values, int count);
    /* Constants; `type` gives dtype (f32 or i64 data) and shape. */
    int (*floats)(by__onnx *onnx, const float *values, const by_shape *shape);
    int (*ints)(by__onnx *onnx, const int64_t *values, const by_shape *shape);
    /* Says which value is output `output` of the node. */
    void (*result)(by__onnx *onnx, int output, int value);
    /* Says which value operand `input`, which the node changes in place, is from now on. */
    void (*update)(by__onnx *onnx, int input, int value);
};

/* ONNX has no value: an optional input that is absent. */
#define BY__ONNX_NONE (-1)

/* What rows are written with (onnx_nodes.c): nodes of one result, constants. */
int by__onnx_node1(by__onnx *onnx, const char *type, int a);
int by__onnx_node2(by__onnx *onnx, const char *type, int a, int b);
int by__onnx_node3(by__onnx *onnx, const char *type, int a, int b, int c);
/* Lists of `count` whole numbers, i64 [count]; one number as f32 or i64 [] (scalar). */
int by__onnx_list(by__onnx *onnx, const int64_t *values, int count);
int by__onnx_float(by__onnx *onnx, float value);
int by__onnx_int(by__onnx *onnx, int64_t value);
int by__onnx_reshape(by__onnx *onnx, int x, const int64_t *shape, int rank);
int by__onnx_transpose(by__onnx *onnx, int x, const int64_t *order, int rank);
/* Entries of axis `axis` of x, i64 [] . */
int by__onnx_extent(by__onnx *onnx, int x, int64_t axis);
/* x cut along an axis into `count` pieces of these sizes; returns the first, the others follow. */
int by__onnx_split(by__onnx *onnx, int x, int64_t axis, const int64_t *sizes, int count);

/* ---- packed weights ---- */

/* The node that reads a weight packed. */
typedef struct by__packed_reader {
    by_op op;
    by_attrs attrs; /* attrs.packing: all but the kind */
    bool out_in;    /* the weight is [n, k], else [k, n] */
} by__packed_reader;

/* ---- the row ---- */

typedef struct by__op_row {
    const char *name;
    int min_inputs;
    int max_inputs; /* -1: any number */
    int outputs;
    uint32_t optional; /* inputs that may be absent */
    const by__attr
        *attrs; /* fields of by_attrs that the op reads, ended by a NULL label; or NULL */

    /* Types of the outputs. Sees types only; its error says which op and which shapes do not
     * fit. */
    by_status (*infer)(const by__signature *s, by__type *out, by_error *error);

    /* Adds the nodes of the gradient; NULL: not differentiable. `node` is a copy that stays valid
     * while nodes are added. `dout` are the gradients of the outputs (BY_NONE where none flows);
     * `din` those of the inputs, in the input's shape and any float dtype, BY_NONE for an input
     * that has none. */
    void (*gradient)(by_graph *graph, const by__node *node, const by_value *dout, by_value *din);
    /* Outputs through which a gradient may flow, a bit each; 0 stands for output 0 alone. */
    uint32_t differentiable;

    /* Sets FLOPs; bytes are filled in beforehand and may be changed. NULL: one FLOP an element. */
    void (*cost)(const by__signature *s, const by__type *out, by__cost *cost);
    /* NULL: no attention. */
    void (*attention)(const by__signature *s, const by__type *out, by__attention_cost *cost);
    uint32_t factors; /* inputs that a matrix product multiplies: weights are counted there */
    bool is_product;  /* out 0 = op(in 0) op(in 1) + in 2 + in 3, by trans_a and trans_b alone */
    uint32_t gathers; /* inputs of which only some rows are read */
    /* Vectors of the columns of output 0: column i is c times as large where element i of all of
     * them is. */
    uint32_t gains;
    /* Share of factor `input` that one example meets; NULL: all of it. */
    double (*met)(const by__signature *s, int input);

    uint32_t overlay[BY_MAX_OUTPUTS]; /* inputs whose memory each output may use */
    bool view; /* output 0 has the elements of input 0 in their order: it may be the same memory */
    /* Output 0 is made of the inputs' elements, moved or repeated: of parameters alone, it stands
     * for parameters, such as a weight that is reshaped. */
    bool moves;

    /* Effects. A node with one is never dropped or made twice. */
    uint32_t mutates;                           /* inputs that are updated in place */
    uint32_t (*updated)(const by_attrs *attrs); /* and those that attributes say; or NULL */
    /* Every rank runs it, in one order. It starts at its node, on a queue of its own, and what it
     * makes may be read, and its operands overwritten, behind the node that waits for it. */
    bool communicates;
    bool waits;     /* no work: follows the node that makes input 0, and is a view of it */
    uint32_t keeps; /* inputs that are not read: their memory is kept until here */
    /* Draws random bits; they are a function of operands and attributes, so that the node may run
     * again. */
    bool random;

    bool cheap;         /* work of a pass over memory or less: may be done again to save memory */
    uint32_t keeps_f32; /* inputs that by_pass_precision leaves in f32 */
    by__index_operand indices[BY__MAX_INDICES];

    /* Fusion. `fuse` may put a node that also does the work of the producers of its operands in
     * the place of node n, and marks those dead; `uses` are the readers of each value. */
    by_status (*fuse)(by_graph *graph, size_t n, const int *uses, by_error *error);
    bool fuses_whole; /* it does so before ranks share the work, too */
    int addend;       /* optional input that is added to output 0: takes in an addition; 0: none */
    /* Adds the node's work on f32 values to a map; `operand` are its inputs' numbers in the map.
     * Returns the number of output 0. NULL: the op is not element-wise. */
    int (*step)(by_map *map, const by__node *node, const int *operand);

    /* The input that is a weight [k, n] of a product, and the flag among attrs that says that it
     * is stored as [n, k]. NULL: there is none. */
    int weight;
    const by__attr *transposed;

    /* The node that reads operand `input`, a parameter that does not change, packed, from operands
     * that are otherwise the same. false: there is none for it. NULL: there never is. */
    bool (*pack)(const by__signature *s, int input, by__packed_reader *out);

    /* Splits the node over a mesh axis: from the inputs' splits to the outputs' and to the local
     * node. The signature and the outputs are those of the whole. On entry the outputs' splits are
     * whole, and an input's or the wish is not. false: the node cannot run on these pieces;
     * some have to be made whole first. NULL: it never can. */
    bool (*shard)(const by__signature *s, const by__type *out, by__sharding *sharding);
    /* Before the examples are divided among the ranks of a mesh axis: sets attributes with which
     * the node keeps apart what it makes of each rank's. NULL: it does so anyway. */
    void (*divide)(const by__signature *s, int ranks, by_attrs *attrs);
    /* Writes the node as ONNX. NULL: it has no such form. */
    by_status (*onnx)(const by__signature *s, const by__type *out, by__onnx *onnx, by_error *error);
} by__op_row;

/* NULL when there is no such op. */
const by__op_row *by__op_row_of(by_op op);

/* ---- attributes of a node, by the list of its row ---- */

/* The fields that the op reads, as in `from`; zero for the rest. */
by_attrs by__attrs_of(const by__op_row *row, const by_attrs *from);
/* The address of an attribute's field. */
static inline void *by__attr_field(by_attrs *attrs, const by__attr *attr)
{
    return (char *)attrs + attr->offset;
}
static inline const void *by__attr_value(const by_attrs *attrs, const by__attr *attr)
{
    return (const char *)attrs + attr->offset;
}
/* Refuses a value that its type does not have: no such dtype or function, a float that is not
 * finite. */
by_status by__attrs_check(const by__signature *s, by_error *error);
/* " heads 4 theta 10000"; without what has no bearing on the work when `work`. */
void by__attrs_print(by__text *text, const by__op_row *row, const by_attrs *attrs, bool work);

#endif
