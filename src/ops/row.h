/* row: what every other module may ask of an operation. One row an op; op_rows.c has
 * all by by_op.
 *
 * A module that needs to know something about ops reads it from their rows and names no op: which
 * attributes there are, which operands are weights of a product, indices, updated in place or kept
 * in f32, what can be fused, recomputed, split over ranks or exported. A field that is left out has
 * the usual meaning: no attributes, ordinary operands, NULL for what the op cannot do.
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

/* An op's attributes and input types, as a shape rule sees them. An absent optional input has rank
 * -1. */
typedef struct by__op_signature {
    by_op op;
    const by_attrs *attrs;
    const by__graph_type *in;
    int input_count;
} by__op_signature;

/* Returns true if operand i is in the set. UINT32_MAX contains all operands, however many there
 * are. */
static inline bool by__mask_has(uint32_t mask, int i)
{
    return mask == UINT32_MAX || (i < 32 && (mask >> i & 1u) != 0);
}

/* ---- attributes ---- */

typedef enum by__op_attr_type {
    BY__ATTR_FLAG,  /* bool; its label is printed when it is set */
    BY__ATTR_INT,   /* int64_t */
    BY__ATTR_WORD,  /* uint32_t */
    BY__ATTR_FLOAT, /* float, finite */
    BY__ATTR_DTYPE,
    BY__ATTR_FUNCTION,
    BY__ATTR_SHAPE,
    BY__ATTR_ORDER, /* int[BY_MAX_RANK], a permutation of the first axes */
    BY__ATTR_AXES,  /* uint32_t, bit i for axis i */
    BY__ATTR_PACKING,
    BY__ATTR_WINDOW,
    BY__ATTR_MAP /* const by_map_program *, owned by the node's graph */
} by__op_attr_type;

/* Not printed, because the types of the results show it. */
#define BY__ATTR_IN_TYPE 1u
/* Affects the result but not the work: left out of the signatures by which profiles group nodes. */
#define BY__ATTR_NO_WORK 2u
/* Not printed when it is 0, its usual value. */
#define BY__ATTR_SPARE 8u
/* The dtype of the result, set by by_pass_precision. */
#define BY__ATTR_COMPUTE 4u

/* Describes one field of by_attrs that an op reads. */
typedef struct by__op_attr {
    const char *label; /* printed before the value; "": only the value is printed. NULL ends a
                          list. */
    size_t offset;
    by__op_attr_type type;
    unsigned traits;
} by__op_attr;

/* Defines a row's list: BY__ATTRS(BY__ATTR(heads, INT), BY__ATTR(theta, FLOAT)). */
#define BY__ATTR_AS(label, field, type, traits)                                                    \
    {                                                                                              \
        label, offsetof(by_attrs, field), BY__ATTR_##type, traits                                  \
    }
#define BY__ATTR(field, type) BY__ATTR_AS(#field, field, type, 0)
#define BY__ATTRS(...)        ((const by__op_attr[]){__VA_ARGS__, {NULL, 0, BY__ATTR_FLAG, 0}})

/* ---- work ---- */

/* The work of running a node once. Bytes count each operand once, as with a perfect cache. */
typedef struct by__op_cost {
    double flops;
    double bytes_read;
    double bytes_written;
    double bytes_sent; /* to other ranks, by each rank */
    double scores;     /* of attention: those that the mask leaves, with those computed again */
} by__op_cost;

/* How a collective moves its data between ranks, for estimates of its time. */
typedef enum by__op_exchange {
    BY__OP_EXCHANGE_NONE = 0,
    BY__OP_EXCHANGE_SUM,       /* all ranks get the sum of output 0's size */
    BY__OP_EXCHANGE_SCATTER,   /* each gets its slice of the sum of inputs 0 */
    BY__OP_EXCHANGE_GATHER,    /* all get the slices of output 0 */
    BY__OP_EXCHANGE_SWAP,      /* each sends a slice of input 0 to each */
    BY__OP_EXCHANGE_SHIFT,     /* each sends input 0 to the next */
    BY__OP_EXCHANGE_GRADIENTS, /* the inputs are summed, for all or for their owners */
    BY__OP_EXCHANGE_PARAMETER  /* all get output 0, of which each has a part */
} by__op_exchange;

/* The work of attention, which grows with the sequence. It is counted apart from that of
 * weights. */
typedef struct by__op_attention_cost {
    double token_flops;   /* forward, for one token that attends to the whole sequence */
    double seen;          /* share of that left by the mask: 1/2 when causal */
    double cached_flops;  /* of one run, for each position of a key/value cache */
    double cached_bytes;  /* read by one run, for each position likewise */
    double cached_window; /* largest number of cache positions that are read; 0: all */
} by__op_attention_cost;

/* ---- index operands ---- */

/* An i32 operand whose entries must be in [0, limit), or only below it if they may be negative. */
typedef struct by__op_index_operand {
    int input;
    bool may_be_negative;
    int64_t (*limit)(const by__op_signature *s); /* NULL ends a list */
} by__op_index_operand;

/* ---- ranks ---- */

/* How a tensor is spread over the ranks of one mesh axis: a by__graph_split, or one of these in the
 * place of its axis. */
#define BY__WHOLE   (-1) /* every rank has the whole tensor */
#define BY__PARTIAL (-2) /* each rank has an addend; the tensor is their sum over the mesh axis */

/* How a node runs on the ranks of a mesh axis. */
typedef struct by__op_sharding by__op_sharding;
struct by__op_sharding {
    int ranks;
    int rank;                  /* the rank that the node is for */
    unsigned mesh;             /* the mesh axis, for collectives that `build` adds */
    const by__graph_split *in; /* of each input, given; BY__WHOLE for an absent one */
    by__graph_split want;      /* the split that readers of output 0 prefer */
    /* Sections are cut into 2 ranks chunks, and rank r has chunks r and 2 ranks - 1 - r of each,
     * one after the other, instead of one slice. */
    bool zigzag;
    by__graph_split out[BY_MAX_OUTPUTS];
    uint32_t once;  /* inputs passed on rank 0 alone, so that they are added only once */
    by_attrs attrs; /* on entry the node's, on return the local node's */
    /* Adds the nodes that replace this one on the local inputs `in`. NULL: a node of the same op
     * with `attrs` replaces it. */
    void (*build)(by_graph *graph, const by__op_sharding *sharding, const by_value *in,
                  int input_count, by_value outs[BY_MAX_OUTPUTS]);
};

/* ---- export ---- */

/* Receives the ONNX nodes (opset 18) that represent one node of a graph. Values are numbers: 0 ..
 * input_count - 1 are the node's inputs, and the functions return the numbers of new ones. Errors
 * are kept until the node is complete, so that rows need no checks. */
typedef struct by__op_onnx by__op_onnx;
struct by__op_onnx {
    void *user;
    /* The batch, axis 0 of examples, may have any extent in ONNX. `batch_extent` is its extent in
     * the shapes that rows see, `batch` the ONNX value [1] of its actual extent. 0: the extent is
     * fixed. */
    int64_t batch_extent;
    int batch;
    /* Appends a node. Returns its first result; the other results have the numbers after it. */
    int (*node)(by__op_onnx *onnx, const char *type, const int *in, int input_count,
                int output_count);
    /* Set attributes of the node appended last. */
    void (*set_int)(by__op_onnx *onnx, const char *name, int64_t value);
    void (*set_float)(by__op_onnx *onnx, const char *name, float value);
    void (*set_ints)(by__op_onnx *onnx, const char *name, const int64_t *values, int count);
    void (*set_text)(by__op_onnx *onnx, const char *name, const char *text);
    /* Append constants; the function implies the dtype (f32 or i64), `shape` gives the shape. */
    int (*floats)(by__op_onnx *onnx, const float *values, const by_shape *shape);
    int (*ints)(by__op_onnx *onnx, const int64_t *values, const by_shape *shape);
    /* Defines which value is output `output` of the node. */
    void (*result)(by__op_onnx *onnx, int output, int value);
    /* Defines the new value of operand `input`, which the node updates in place. */
    void (*update)(by__op_onnx *onnx, int input, int value);
};

/* An optional ONNX input that is absent. */
#define BY__ONNX_NONE (-1)

/* Helpers for rows (onnx_nodes.c): nodes with one result, constants. */
int by__op_onnx_node1(by__op_onnx *onnx, const char *type, int a);
int by__op_onnx_node2(by__op_onnx *onnx, const char *type, int a, int b);
int by__op_onnx_node3(by__op_onnx *onnx, const char *type, int a, int b, int c);
/* A list of `count` whole numbers as i64 [count]; a single number as an f32 or i64 scalar. */
int by__op_onnx_list(by__op_onnx *onnx, const int64_t *values, int count);
int by__op_onnx_float(by__op_onnx *onnx, float value);
int by__op_onnx_int(by__op_onnx *onnx, int64_t value);
int by__op_onnx_reshape(by__op_onnx *onnx, int x, const int64_t *shape, int rank);
int by__op_onnx_transpose(by__op_onnx *onnx, int x, const int64_t *order, int rank);
/* The extent of axis `axis` of x, an i64 scalar. */
int by__op_onnx_extent(by__op_onnx *onnx, int x, int64_t axis);
/* Cuts x along an axis into pieces of these sizes. Returns the first; the others follow it. */
int by__op_onnx_split(by__op_onnx *onnx, int x, int64_t axis, const int64_t *sizes, int count);

/* ---- packed weights ---- */

/* The node that reads a weight in packed form. */
typedef struct by__op_packed_reader {
    by_op op;
    by_attrs attrs; /* with attrs.packing complete except for the kind */
    bool out_in;    /* the unpacked weight is [n, k], else [k, n] */
    double share;   /* of the weight that one example uses; set by by__op_node_pack */
} by__op_packed_reader;

/* What a node over the rows of several ranks makes. */
typedef struct by__op_synchronised {
    by_value out[BY_MAX_OUTPUTS]; /* in place of each output */
    /* What ops that are not synchronised themselves read in place of it; BY_NONE: the same. */
    by_value elsewhere[BY_MAX_OUTPUTS];
} by__op_synchronised;

/* ---- the row ---- */

typedef struct by__op_row {
    int min_inputs;
    int max_inputs; /* -1: any number */
    int outputs;
    uint32_t optional; /* inputs that may be absent */
    const by__op_attr
        *attrs; /* fields of by_attrs that the op reads, ended by a NULL label; or NULL */

    /* Infers the types of the outputs from the types of the inputs. Its errors name the op and the
     * shapes that do not fit. */
    by_status (*infer)(const by__op_signature *s, by__graph_type *out, by_error *error);

    /* Adds the nodes of the gradient; NULL: not differentiable. `node` is a copy that stays valid
     * while nodes are added. `dout` are the gradients of the outputs (BY_NONE where none flows).
     * `din` receives those of the inputs, in the input's shape and any float dtype, or BY_NONE. */
    void (*gradient)(by_graph *graph, const by__graph_node *node, const by_value *dout,
                     by_value *din);
    /* Mask of outputs through which a gradient may flow; 0 means output 0 alone. */
    uint32_t differentiable;

    /* Adds what makes of the node's outputs, which are of one rank's rows, those over the rows of
     * all `ranks` ranks of `mesh` (by_all_reduce), each of which has as many. `node` is a copy that
     * stays valid. NULL: no output depends on what other rows there are. */
    void (*synchronise)(by_graph *graph, const by__graph_node *node, uint32_t mesh, int64_t ranks,
                        by__op_synchronised *made);

    /* Sets FLOPs. Bytes are already filled in and may be changed. NULL: one FLOP an element. */
    void (*cost)(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost);
    /* Sets the work of attention; NULL: the op is not attention. */
    void (*attention)(const by__op_signature *s, const by__graph_type *out,
                      by__op_attention_cost *cost);
    /* Inputs, updated in place, that hold what is kept of all tokens of a sequence so far: one part
     * for each sequence, from which no token can be taken back. */
    uint32_t carries;
    uint32_t factors; /* inputs of a matrix product; a weight's work is counted here */
    bool is_product;  /* out 0 = op(in 0) op(in 1) + in 2 + in 3, by trans_a and trans_b alone */
    uint32_t gathers; /* inputs of which only some rows are read */
    /* Vectors that scale the columns of output 0: multiplying element i of all of them by c
     * multiplies column i by c. */
    uint32_t gains;
    /* Returns the share of factor `input` that one example uses; NULL: all of it. */
    double (*used_share)(const by__op_signature *s, int input);

    uint32_t overlay[BY_MAX_OUTPUTS]; /* inputs whose memory each output may use */
    bool view; /* output 0 has the elements of input 0 in order and may share its memory */
    /* Output 0 consists of elements of the inputs, moved or repeated. If the inputs are parameters,
     * it is treated like a parameter, for example a reshaped weight. */
    bool moves;

    /* Effects. A node with effects is never dropped or duplicated. */
    uint32_t mutates;                           /* inputs that are updated in place */
    uint32_t (*updated)(const by_attrs *attrs); /* more such inputs, depending on attributes; or
                                                   NULL */
    /* A collective: every rank runs it, in the same order. It starts at its node on a separate
     * queue; its results may be read, and its operands overwritten, only after the node that waits
     * for it. */
    bool communicates;
    by__op_exchange exchange; /* of a collective */
    bool waits;     /* does no work: follows the node that makes input 0 and is a view of it */
    uint32_t keeps; /* inputs that are not read, only kept alive until this node */
    /* Draws random bits that are a function of operands and attributes, so the node may be run
     * again. */
    bool random;

    bool cheap;         /* costs at most a pass over memory: may be recomputed to save memory */
    uint32_t keeps_f32; /* inputs that by_pass_precision leaves in f32 */
    by__op_index_operand indices[BY__MAX_INDICES];

    /* Fusion. `fuse` may replace node n by one that also does the work of producers of its
     * operands, which it marks dead. `uses` counts the readers of each value. */
    by_status (*fuse)(by_graph *graph, size_t n, const int *uses, by_error *error);
    bool fuses_whole; /* it may fuse even before the work is split over ranks */
    int addend;       /* optional input that is added to output 0, so that an addition can be fused;
                         0: none */
    /* Adds the node's work on f32 values to a map; `operand` are the numbers of its inputs in the
     * map. Returns the number of output 0. NULL: the op is not element-wise. */
    int (*step)(by_map *map, const by__graph_node *node, const int *operand);

    /* The input that is a weight [k, n] of a product, and the attribute that marks it as stored [n,
     * k]. NULL: no input is such a weight. */
    int weight;
    const by__op_attr *transposed;

    /* Describes the node that reads operand `input`, a constant parameter, in packed form and the
     * other operands unchanged. Returns false if there is none for it. NULL: there never is. */
    bool (*pack)(const by__op_signature *s, int input, by__op_packed_reader *out);
    /* Adds the Gram matrix of operand 0, rows x that are multiplied by operand 1 (trans_a is not
     * set): the sum of x x^T, f32 [k, k]; for a stack of matrices that of the rows of each, [stack,
     * k, k]. NULL: not a product. */
    by_value (*gram)(by_graph *graph, const by__graph_node *node);

    /* Splits the node over a mesh axis: derives the outputs' splits and the local node from the
     * inputs' splits. The signature and the outputs have whole shapes. On entry the outputs' splits
     * are whole, and at least one input's split, or `want`, is not. Returns false if the node
     * cannot run on these pieces, so that some inputs must be gathered first. NULL: it never
     * can. */
    bool (*shard)(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sharding);
    /* Called before examples are divided among the ranks of a mesh axis: sets attributes that keep
     * the results of different ranks' examples apart. NULL: they are apart anyway. */
    void (*divide)(const by__op_signature *s, int ranks, by_attrs *attrs);
    /* Writes the node as ONNX. NULL: it cannot be expressed in ONNX. */
    by_status (*onnx)(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                      by_error *error);
} by__op_row;

/* Returns NULL if there is no such op. What rows themselves use asks by__op_row_in. */
const by__op_row *by__op_row_of(by_op op);
/* The inputs that a node with these attributes updates in place. */
static inline uint32_t by__op_row_mutates(const by__op_row *row, const by_attrs *attrs)
{
    return row->mutates | (row->updated == NULL ? 0u : row->updated(attrs));
}

/* ---- attributes of a node, by the list of its row ---- */

/* Copies the fields that the op reads; the others become zero. */
by_attrs by__op_attrs_of(const by__op_row *row, const by_attrs *from);
/* Returns the address of an attribute's field. */
static inline void *by__attr_field(by_attrs *attrs, const by__op_attr *attr)
{
    return (char *)attrs + attr->offset;
}
static inline const void *by__attr_value(const by_attrs *attrs, const by__op_attr *attr)
{
    return (const char *)attrs + attr->offset;
}
/* Refuses invalid attribute values: an unknown dtype or function, or a float that is not finite. */
by_status by__op_attrs_check(const by__op_row *row, const by__op_signature *s, by_error *error);
/* Prints " heads 4 theta 10000". `work`: without attributes that do not affect the work. */
void by__op_attrs_print(by_string *text, const by__op_row *row, const by_attrs *attrs, bool work);

#endif
