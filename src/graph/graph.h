/* graph: values and nodes, the one representation of a model, its backward pass, its optimizer step
 * and its inference step.
 *
 * A graph owns two arrays. `values` describe tensors (dtype, shape, role, name). `nodes` are
 * operations in an order in which they can run: every operand is defined by an earlier node or is
 * an input, a parameter or a state, whose memory the caller binds. These and the outputs are the
 * external values. A by_value is an index into `values` and stays valid for the life of the graph:
 * passes may reorder, rewrite or drop nodes, but values are never removed (an unused one costs
 * nothing).
 *
 * The graph does not know what an op means. The rows of the ops module define that; ops also
 * verifies and prints graphs, and infers the output types that by__graph_append receives.
 *
 * Lifetimes: passes mark nodes dead and drop them with by__graph_compact. Pointers in attributes
 * point to memory that the graph owns (by__graph_own).
 *
 * Never put here: op semantics, devices, buffers, anything specific to a model.
 */
#ifndef BY_GRAPH_GRAPH_H
#define BY_GRAPH_GRAPH_H

#include "banyan/graph.h"
#include "base/base.h"
#include "base/name_table.h"

typedef enum by__graph_phase { BY__FORWARD = 0, BY__BACKWARD, BY__UPDATE } by__graph_phase;

/* A split of a tensor over ranks: `axis` consists of equal sections one after another, and each is
 * cut into slices in the order of ranks; a rank's tensor is the concatenation of its slices.
 * Usually there is one section. Packed q|k|v has three. When a [B, T, C] tensor that is split along
 * T is flattened to a matrix [B T, C], its rows have B sections. */
typedef struct by__graph_split {
    int axis;
    int64_t sections;
} by__graph_split;

/* A value may hold only one rank's part of the value that the graph was built with. */
typedef struct by__graph_value_part {
    by__graph_split split;
    int ranks;
    int rank;
    uint32_t mesh; /* mask of the mesh axes along which these ranks are neighbours */
} by__graph_value_part;

#define BY__MAX_PARTS 2 /* split along at most this many mesh axes */

typedef struct by__graph_value {
    char *name; /* NULL when unnamed */
    char *axes; /* NULL when unknown */
    by_dtype dtype;
    by_shape shape;
    by_role role;
    by_init init;
    bool frozen; /* parameter: gets no gradient; state: read-only, and bound by whoever added it */
    bool statistic; /* parameter: by_graph_statistic */
    bool constant;  /* input: by_graph_constant_input */
    float lr_scale; /* parameter: factor on its learning rate that the model asks for, which leaves
                       its decay as it is; 0: 1 */
    bool inputs_first;  /* the matrix of a linear layer is [inputs, outputs], as in GPT-2 */
    int producer;       /* node index; -1: external. by__graph_compact updates it. */
    bool transposed;    /* by_pass_layout has transposed it */
    by_packing packing; /* set by by_pass_pack, which changes dtype and shape to those of the
                           panels */
    bool out_in;        /* packed: in files it is [n, k], else [k, n] */
    by__graph_value_part part[BY__MAX_PARTS];
    int part_count;
    by_shape whole; /* the unsplit shape, when there are parts */
    int block;
} by__graph_value;

typedef struct by__graph_node {
    by_op op;
    by_attrs attrs;
    int input_count;
    int output_count;
    by_value *in;                 /* owned; BY_NONE for an absent optional input */
    by_value out[BY_MAX_OUTPUTS]; /* BY_NONE for an absent optional output */
    by__graph_phase phase;
    int block;
    bool dead; /* marked by a pass, dropped by by__graph_compact */
} by__graph_node;

struct by_graph {
    /* The rows of ops by number, which the ops module gives to each graph. */
    const struct by__op_row *const *rows;
    by__graph_value *values;
    by__graph_node *nodes;
    by__name_table names; /* of all named values; borrows their names */
    size_t value_count;
    size_t value_capacity;
    size_t node_count;
    size_t node_capacity;
    void **owned; /* memory that attributes point to */
    size_t owned_count;
    size_t owned_capacity;
    int block;             /* assigned to nodes that are added from now on */
    by__graph_phase phase; /* likewise */
    by_error error;        /* first error while building */
};

/* The type of one output, as an op's shape rule infers it. */
typedef struct by__graph_type {
    by_dtype dtype;
    by_shape shape;
} by__graph_type;

/* by_graph_open, which the ops module defines, for a table of rows. */
by_status by__graph_open(by_graph **out, const struct by__op_row *const *rows, by_error *error);
/* Copies a graph's values and nodes. Pointers in attributes stay those of `source`, which must
 * outlive the copy. */
by_status by__graph_clone(by_graph **out, const by_graph *source, by_error *error);
/* Appends another graph's nodes, outside any block. Inputs are merged by name; parameters become
 * frozen states named PREFIX NAME. map[v] receives the value that v of `source` became. */
by_status by__graph_graft(by_graph *graph, const by_graph *source, const char *prefix,
                          by_value *map, by_error *error);
/* Returns true if `value` is an index of a value of the graph. */
static inline bool by__graph_has(const by_graph *graph, by_value value)
{
    return value >= 0 && (size_t)value < graph->value_count;
}

/* Returns true if `value` is an operand of the node. */
static inline bool by__node_reads(const by__graph_node *node, by_value value)
{
    for (int i = 0; i < node->input_count; i++) {
        if (node->in[i] == value) {
            return true;
        }
    }
    return false;
}

/* Records an error of building; only the first one is kept. */
void by__graph_fail(by_graph *graph, by_status status, const char *format, ...) BY_PRINTF(3, 4);
/* Allocates zeroed memory for a pointer in an attribute, freed with the graph. A failure is
 * recorded like other errors of building. */
by_status by__graph_own(by_graph *graph, void **out, size_t bytes);
/* Appends a value. `name` and `axes` are copied and may be NULL. Returns BY_NONE after an error. */
by_value by__graph_add_value(by_graph *graph, by_role role, const char *name, const char *axes,
                             by__graph_type type);
/* Sets the axis names of an external value (copied). */
void by__graph_set_axes(by_graph *graph, by_value value, const char *axes);
/* Appends a node with new outputs of the given types (rank -1: the output is absent). Returns the
 * node's index, or -1 after an error. */
int by__graph_append(by_graph *graph, by_op op, const by_attrs *attrs, const by_value *in,
                     int input_count, const by__graph_type *types, int output_count);
/* Counts how often live nodes read each value. *uses has value_count entries, freed with free(). */
by_status by__graph_uses(const by_graph *graph, int **uses, by_error *error);
/* Lists the nodes that read each value, ascending: reader[first[v]] .. reader[first[v + 1] - 1].
 * `first` has value_count + 1 entries, `reader` one for each operand of a node, and `waits`
 * node_count: how many operands of each node are made by nodes. first and waits must be zero
 * before. */
void by__graph_readers(const by_graph *graph, size_t *first, size_t *reader, int *waits);
/* Drops nodes marked dead and recomputes every value's producer. */
void by__graph_compact(by_graph *graph);
/* Sorts nodes topologically, each as near to its present position as its operands allow. BY_ESTATE
 * on a cycle. */
by_status by__graph_sort(by_graph *graph, by_error *error);
/* Returns true if the caller binds the memory of values with this role. */
static inline bool by__role_is_external(by_role role)
{
    return role != BY_ROLE_ACTIVATION;
}
/* Returns the elements of a parameter as stored in files, where it is neither split nor packed. */
int64_t by__graph_value_elements(const by__graph_value *value);
/* Returns the bytes of a value; the size was checked for overflow when the value was added. */
size_t by__graph_value_bytes(const by__graph_value *value);

#endif
