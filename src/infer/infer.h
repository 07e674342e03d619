/* infer: trained weights to tokens. pretrained.c finds them, generator.c continues a sequence,
 * sampling.c chooses a token, logits.c runs whole sequences.
 *
 * Types: a by__forward is a model's graph in one mode and the program compiled from it. A
 * by__weight_block is one flat block with all parameters in the type the graph computes with,
 * loaded once and bound to any number of forwards of the same model.
 *
 * A generator has one decode program (one token, logits) and a ladder of prefill programs (a chunk
 * of tokens, no logits), all over the same weights, caches, arena and workspace. A chunk that is
 * longer than what is left of the prompt is filled up with token 0: the keys and values of that
 * filling lie behind the valid ones, are overwritten before their positions become valid, and no
 * valid position ever attends to them. So the caches have room for one smallest chunk beyond the
 * context.
 *
 * Ownership: forwards and blocks belong to the handle that opened them and point into nothing of
 * the caller's. Names in a block are those of the graph it was laid out from, which must outlive
 * it.
 *
 * Never put here: kernels, model families, file formats, printing.
 */
#ifndef BY_INFER_INFER_H
#define BY_INFER_INFER_H

#include "banyan/infer.h"
#include "device/cpu/pages.h"
#include "exec/exec.h"

/* How programs are made from a config. */
typedef struct by__forward_options {
    const by_model_config *config;
    by_model_builder *builder; /* NULL: the model that config names */
    void *user;
    by_dtype compute;
    int threads;
    uint64_t seed; /* of initial weights */
} by__forward_options;

typedef struct by__forward {
    by_graph *graph;
    by_device *device;
    by_program *program;
    by_model model;
} by__forward;

/* Fills compute and threads from a config; precision NULL and threads 0 take the config's. */
by_status by__forward_options_read(by__forward_options *out, const by_config *config,
                                   const char *precision, int threads, by_error *error);
/* The graph of a mode in its precision. */
by_status by__forward_build(by__forward *out, const by__forward_options *options,
                            const by_model_request *request, by_error *error);
/* Fuses, orders and compiles it. */
by_status by__forward_compile(by__forward *forward, int threads, by_error *error);
/* {0} is accepted. */
void by__forward_close(by__forward *forward);
/* Binds the value of that name if the graph has one. */
by_status by__forward_bind(by__forward *forward, const char *name, void *data, by_error *error);

/* Values of a graph, each at an offset of one block of pages. */
typedef struct by__block_slot {
    const char *name; /* the graph's */
    size_t offset;
} by__block_slot;

typedef struct by__block {
    by__pages pages;
    by__block_slot *slots;
    size_t count;
} by__block;

/* Lays out all values of a role and takes zeroed pages for them. */
by_status by__block_open(by__block *out, const by_graph *graph, by_role role, const char *what,
                         by_error *error);
void by__block_close(by__block *block);
by_status by__block_bind(const by__block *block, by__forward *forward, by_error *error);
/* A block of all parameters with the values of `weights`, rounded where the graph computes in bf16.
 * Every tensor is checked before memory is taken. weights NULL: initial values. */
by_status by__weights_block_open(by__block *out, const by_graph *graph,
                                 const by__forward_options *options, const by_weights *weights,
                                 by_error *error);

#endif
