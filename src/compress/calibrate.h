/* A walk over the blocks of a model with calibration data: its records, shared by calibrate.c,
 * which goes from block to block, calibrate_layers.c, which measures and changes their layers, and
 * calibrate_stage.c, which runs them. */
#ifndef BY_COMPRESS_CALIBRATE_H
#define BY_COMPRESS_CALIBRATE_H

#include "compress/compress.h"
#include "exec/exec.h"
#include "passes/stages.h"

/* A value that one part makes and others read, for all batches. */
typedef struct by__compress_crossing {
    by_value value; /* in the whole graph */
    size_t stride;
    size_t bytes;
    uint8_t *data; /* NULL: not made yet, or no longer needed */
    int last;      /* the last part that reads it */
} by__compress_crossing;

typedef struct by__compress_walk {
    by__compress_state *c;
    by_graph *graph;
    int *part; /* of each node */
    int parts;
    by__pass_crossing *list;
    size_t list_count;
    by__compress_crossing *crossings;
    size_t crossing_count;
    by_device *device;
    by__compress_calibration_tokens tokens;
    by__compress_calibrate_fn *fn;   /* NULL: weights stay unchanged */
    by__compress_block_fn *block_fn; /* may be NULL */
    by_value stream[2];              /* in the whole graph: before and after the block */
    void *user;
    size_t done, all; /* counts of layers */
} by__compress_walk;

/* A part that is ready to run. */
typedef struct by__compress_stage {
    by_graph *graph;
    by_program *program;
    by_memory arena, workspace;
    by_memory *bound; /* of each value: memory owned by the stage */
    /* Of each value that the stage owns: where the host reads and changes it. On a device with
     * memory of its own a copy, which is brought up to date. */
    void **host;
    bool copies;
    int number;
} by__compress_stage;

/* Layers that read one value, or the same rows of it, and the norm weights that scale its
 * columns. */
typedef struct by__compress_layer_group {
    by_value x;
    int64_t part;     /* matrix of a stack, which multiplies the rows of its group; else -1 */
    by_value product; /* an output: H, of a stack those of all its matrices */
    by__compress_calibrated what;
    by_value weights[BY__GROUP_LAYERS];
} by__compress_layer_group;

/* ---- calibrate_stage.c ---- */

/* Allocates memory for a crossing value of all batches, backed by an unnamed file. */
by_status by__compress_state_map(by__compress_walk *w, by__compress_crossing *x, by_error *error);
void by__compress_state_unmap(const by__compress_walk *w, by__compress_crossing *x);
/* The crossing value of this name; NULL: there is none. */
by__compress_crossing *by__compress_crossing_find(const by__compress_walk *w, const char *name);
/* Compiles the stage's graph, and gives it memory and weights. Closed also if this fails. */
by_status by__compress_stage_open(const by__compress_walk *w, by__compress_stage *s,
                                  by_error *error);
void by__compress_stage_close(by__compress_stage *s);
/* Runs the stage for a batch. */
by_status by__compress_stage_run(const by__compress_walk *w, by__compress_stage *s, size_t batch,
                                 by_error *error);
/* Copies a value that the stage owns to the device. */
by_status by__compress_stage_send(const by__compress_stage *s, by_value value, by_error *error);

/* ---- calibrate_layers.c ---- */

/* Finds the layers of a stage, and adds nodes that compute their H. */
by_status by__compress_layers_find(const by__compress_walk *w, by__compress_stage *s,
                                   by__compress_layer_group **out, size_t *count, by_error *error);
/* Frees what groups own, and the list. */
void by__compress_layers_close(by__compress_layer_group *groups, size_t count);
/* Runs the stage for all batches and adds up H. */
by_status by__compress_layers_measure(by__compress_walk *w, by__compress_stage *s,
                                      by__compress_layer_group *groups, size_t count,
                                      by_error *error);
/* Lets the method change the weights of a group, and gives them to the stage. */
by_status by__compress_layers_change(const by__compress_walk *w, by__compress_stage *s,
                                     by__compress_layer_group *group, by_error *error);

#endif
