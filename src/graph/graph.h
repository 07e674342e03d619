/* graph: values and nodes. The one form in which banyan holds a model, its backward pass, its
 * optimizer step and its inference step.
 *
 * A graph owns two arrays. `values` hold what a tensor is (dtype, shape, role, name); `nodes` hold
 * operations in an order in which they can run: every operand is defined by an earlier node or is
 * an input, a parameter or a state, whose memory the caller binds. Those and outputs are the
 * external values. A by_value is an index into `values` and stays valid for the life of the graph;
 * nodes may be reordered, rewritten or dropped by passes, values are never removed (an unused one
 * costs nothing).
 *
 * The graph does not know what an op means: rows of the ops room say that, which also verifies and
 * prints, and by__graph_append takes the inferred outputs from it.
 *
 * Life: passes mark nodes dead and drop them with by__graph_compact. Attributes that are pointers
 * are owned by the graph (by__graph_own).
 *
 * Never put here: op semantics, devices, buffers, anything of a particular model.
 */
#ifndef BY_GRAPH_GRAPH_H
#define BY_GRAPH_GRAPH_H

#include "banyan/graph.h"
#include "base/base.h"
#include "base/name_table.h"

typedef enum by__phase { BY__FORWARD = 0, BY__BACKWARD, BY__UPDATE } by__phase;

/* A value holds one rank's part of the one that the graph was built with: along `axis`, which is
 * `sections` equal sections one behind the other, of each section the slice of rank `rank` of
 * `ranks` neighbouring ones. */
typedef struct by__value_part {
    int axis;
    int64_t sections;
    int ranks;
    int rank;
    uint32_t mesh; /* the set of mesh axes that these ranks are neighbours along */
} by__value_part;

#define BY__MAX_PARTS 2 /* by as many mesh axes */

typedef struct by__value {
    char *name; /* NULL when unnamed */
    char *axes; /* NULL when unknown */
    by_dtype dtype;
    by_shape shape;
    by_role role;
    by_init init;
    bool frozen; /* a parameter that gradients leave out; a state that is only read, and bound by
                    whoever added it */
    bool inputs_first;  /* the matrix of a linear layer is [inputs, outputs], as GPT-2 has it */
    int producer;       /* node index; -1: external. Kept true by by__graph_compact. */
    bool transposed;    /* by_pass_layout has transposed it */
    by_packing packing; /* by_pass_pack has packed it: dtype and shape are those of the panels */
    bool out_in;        /* packed: as files have it it is [n, k], else [k, n] */
    by__value_part part[BY__MAX_PARTS];
    int part_count;
    by_shape whole; /* shape without the parts, when there are any */
    int block;
} by__value;

typedef struct by__node {
    by_op op;
    by_attrs attrs;
    int input_count;
    int output_count;
    by_value *in;                 /* owned; BY_NONE for an absent optional input */
    by_value out[BY_MAX_OUTPUTS]; /* BY_NONE for an absent optional output */
    by__phase phase;
    int block;
    bool dead; /* marked by a pass, dropped by by__graph_compact */
} by__node;

struct by_graph {
    by__value *values;
    by__node *nodes;
    by__name_table names; /* of all values that have one: it points to their names */
    size_t value_count;
    size_t value_capacity;
    size_t node_count;
    size_t node_capacity;
    void **owned; /* memory that attributes point to */
    size_t owned_count;
    size_t owned_capacity;
    int block;       /* of nodes that are added now */
    by__phase phase; /* of nodes that are added now */
    by_error error;  /* first error of building */
};

/* Type of one output, as an op's shape rule tells it. */
typedef struct by__type {
    by_dtype dtype;
    by_shape shape;
} by__type;

/* A copy with the same values and nodes. Attributes that are pointers stay the source's, which
 * outlives the copy. */
by_status by__graph_clone(by_graph **out, const by_graph *source, by_error *error);
/* Appends another graph's nodes, outside blocks. Its inputs become those of the same name, its
 * parameters frozen states named PREFIX NAME; map[v]: the value that its value v has become. */
by_status by__graph_graft(by_graph *graph, const by_graph *source, const char *prefix,
                          by_value *map, by_error *error);
/* True when `value` names a value of the graph. */
static inline bool by__graph_has(const by_graph *graph, by_value value)
{
    return value >= 0 && (size_t)value < graph->value_count;
}

/* Keeps the first error of building. */
void by__graph_fail(by_graph *graph, by_status status, const char *format, ...) BY_PRINTF(3, 4);
/* Memory for an attribute that is a pointer: zeroed, freed with the graph. Its error is kept,
 * too. */
by_status by__graph_own(by_graph *graph, void **out, size_t bytes);
/* Appends a value. name and axes (copied) may be NULL. BY_NONE after an error. */
by_value by__graph_add_value(by_graph *graph, by_role role, const char *name, const char *axes,
                             by__type type);
/* Names the axes of an external value (copied). */
void by__graph_set_axes(by_graph *graph, by_value value, const char *axes);
/* Appends a node with fresh outputs of the given types (an output whose rank is -1 is absent).
 * Returns the node's index, -1 after an error. */
int by__graph_append(by_graph *graph, by_op op, const by_attrs *attrs, const by_value *in,
                     int input_count, const by__type *types, int output_count);
/* Number of times each value is read by a live node; an array of value_count, freed with free(). */
by_status by__graph_uses(const by_graph *graph, int **uses, by_error *error);
/* Which nodes read each value: reader[first[v]] .. reader[first[v + 1] - 1], ascending. `first` has
 * value_count + 1 entries, `reader` one for each operand of a node, `waits` (of each node, how many
 * of its operands nodes make) node_count; first and waits are zero before. */
void by__graph_readers(const by_graph *graph, size_t *first, size_t *reader, int *waits);
/* Drops nodes marked dead and sets every value's producer anew. */
void by__graph_compact(by_graph *graph);
/* Puts nodes into an order in which they can run, each as near to its place as its operands allow.
 * BY_ESTATE on a cycle. */
by_status by__graph_sort(by_graph *graph, by_error *error);
/* True when the memory of this role is bound by the caller. */
static inline bool by__role_is_external(by_role role)
{
    return role != BY_ROLE_ACTIVATION;
}
/* Elements of a parameter in files, where parts are whole and nothing is packed. */
int64_t by__value_elements(const by__value *value);
/* Bytes of a value, overflow-checked when it was made. */
size_t by__value_bytes(const by__value *value);

#endif
