/* Passes: transformations of graphs, one for each scaling technique. The table in
 * src/passes/pass_table.c lists them in the order in which they compose, with the kinds of graphs
 * that each applies to; by_passes_run runs them. banyan/program.h then plans memory and executes.
 *
 * A pass reads and writes only the graph, and leaves a graph for which by_graph_verify held in a
 * state for which it holds. After an error the graph may be half transformed and must be closed.
 */
#ifndef BANYAN_PASSES_H
#define BANYAN_PASSES_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Mixed precision (Micikevicius et al. 2018), for a forward graph: matrices (parameters and caches
 * of rank >= 2) and activations become `compute` (bf16 or f16; f32 changes nothing); vectors,
 * statistics, losses and outputs stay f32. A parameter of the result that is not f32 is a copy for
 * computing; the f32 master belongs to the optimizer. Returns BY_EARG for another dtype. */
BY_API by_status by_pass_precision(by_graph *graph, by_dtype compute, by_error *error);
/* Makes a Markdown table of the operands that mixed precision leaves in f32 for each operation
 * (docs/precision.md). Free it with free(). */
BY_API by_status by_precision_policy(char **out, by_error *error);

/* Low-rank adapters (LoRA, Hu et al. 2021, eq. 3), as in PEFT. */
typedef struct by_lora_options {
    int64_t rank;  /* r, >= 1 */
    float scale;   /* s: alpha / r, or alpha / sqrt(r) */
    float dropout; /* probability, on the adapter's x only */
    by_value rng;  /* i32 [4], see DROPOUT in banyan/op.h; BY_NONE: no dropout */
    by_value head; /* parameter that makes logits, which gets no adapter; or BY_NONE */
    /* Layers to adapt: shell patterns (fnmatch) for the end of their names, after a dot, where a
     * layer's name is that of its weight without ".weight"; "all-linear": all. */
    const char *const *targets;
    size_t target_count;
    const char *const *train_also; /* patterns for complete names of parameters that stay
                                      trainable */
    size_t train_also_count;
} by_lora_options;

/* Replaces each product y = x W + b with the weight NAME.weight of a target layer by y = x
 * W + b + s (x A^T) B^T, with new parameters NAME.lora_A.weight [r, in], uniform in [-1/sqrt(in),
 * 1/sqrt(in)], and NAME.lora_B.weight [out, r], zeros; W may be [in, out] or [out, in]. Freezes all
 * other parameters except those of train_also. For a forward graph, before the other passes.
 * Returns BY_ECONFIG if a target names no layer or a pattern matches no parameter (the message
 * lists what there is), BY_EARG if the rank is below 1 or there is no target. */
BY_API by_status by_pass_lora(by_graph *graph, const by_lora_options *options, by_error *error);

/* Codes to train weights for. */
typedef struct by_fake_quantize_options {
    by_packing_kind kind; /* BY_PACKING_INT8 or BY_PACKING_INT4 */
    int64_t group;        /* INT4: inputs that share a scale */
} by_fake_quantize_options;

/* Quantization-aware training (Jacob et al. 2018): products in blocks read FAKE_QUANTIZE of their
 * weights, which stay f32. For a forward graph, before the other passes. */
BY_API by_status by_pass_fake_quantize(by_graph *graph, const by_fake_quantize_options *options,
                                       by_error *error);

/* How frozen weights are held. */
typedef struct by_frozen_options {
    by_packing_kind kind; /* BY_PACKING_INT8 or BY_PACKING_INT4; BY_PACKING_NONE: as they are */
    int64_t group;        /* INT4: inputs that share a scale, 32, 64 or 128 */
} by_frozen_options;

/* QLoRA (Dettmers et al. 2023): packs frozen matrices that only products in blocks read as codes
 * (banyan/packing.h), as by_pass_pack does. Gradients flow through these products to their other
 * operand: dx = dy W with W decoded, one weight at a time. For a forward graph with adapters, after
 * by_pass_precision and before by_pass_gradients. Returns the errors of by_pass_pack. */
BY_API by_status by_pass_quantise_frozen(by_graph *graph, const by_frozen_options *options,
                                         by_error *error);

/* Reverse-mode differentiation. Adds the backward pass of `loss` (f32 [1]), seeded with `seed` (f32
 * [1]: the derivative of the objective by the loss), which makes the gradient of every parameter
 * NAME that is not frozen a value "grad.NAME", f32, of role gradient. Returns BY_EARG if the loss
 * does not depend on a parameter, or an operation has no gradient. */
BY_API by_status by_pass_gradients(by_graph *graph, by_value loss, by_value seed, by_error *error);

/* Rematerialization (for registers: Briggs, Cooper and Torczon 1992): results of activation
 * functions and norms of at least `least_bytes` that the backward pass reads are recomputed just
 * before, from operands that it keeps anyway for their gradients. This costs one pass over memory
 * for each and does not change results. */
BY_API by_status by_pass_rematerialize(by_graph *graph, size_t least_bytes, by_error *error);

/* What the backward pass recomputes instead of keeping it from the forward pass. */
typedef enum by_recompute_kind {
    BY_RECOMPUTE_NONE = 0,
    /* Everything inside blocks; their inputs are kept (Chen et al. 2016). The last block is exempt,
     * because its activations are needed at once. */
    BY_RECOMPUTE_BLOCK,
    /* Keeps only the input of every k-th block. The inputs of the next k blocks are recomputed from
     * it together, then the inside of each block: nearly two additional forward passes. */
    BY_RECOMPUTE_EVERY,
    /* The same with k the square root of the number of blocks, including the last one: the least
     * memory. */
    BY_RECOMPUTE_FULL
} by_recompute_kind;

/* Speeds of the machine, to weigh time against memory. 0: unknown, use a typical figure. */
typedef struct by_speeds {
    double f32_flops;  /* FLOP/s of matrix products */
    double bf16_flops; /* FLOP/s of matrix products */
    double bytes;      /* main memory, bytes per second read and written */
    double disk;       /* disk for offloaded state, bytes per second read and written */
} by_speeds;

typedef struct by_recompute_options {
    by_recompute_kind kind; /* default BY_RECOMPUTE_NONE */
    int64_t every;          /* BY_RECOMPUTE_EVERY: blocks between kept inputs, >= 2 */
    /* BY_RECOMPUTE_NONE: bytes that activations may take after all passes; 0: any number.
     * by_passes_run chooses node by node what to recompute so that they fit at the least cost or,
     * if nothing fits, the least memory. */
    size_t arena_bytes;
    /* With arena_bytes: recompute only values that stay within a block, because other ranks compute
     * the neighboring blocks. */
    bool within_blocks;
    by_speeds speeds; /* determine the cost */
} by_recompute_options;

/* Recomputes activations of blocks in the backward pass, without changing results. options NULL:
 * BY_RECOMPUTE_BLOCK; arena_bytes is ignored. Returns BY_EARG if `every` is below 2. */
BY_API by_status by_pass_recompute(by_graph *graph, const by_recompute_options *options,
                                   by_error *error);

/* Keeps activations for the backward pass in fewer bits: rounded to `dtype` when they are made, and
 * widened just before they are read. BY_BF16 applies to f32 activations; BY_U8 to all, as 8-bit
 * codes with a scale per BY_ROW_CODE_BLOCK elements of a row (ENCODE8), with an error of at most
 * 1/254 of the largest magnitude in the block; BY_F32 changes nothing. The forward pass is
 * unchanged; gradients are those of the rounded values. Statistics of rows, and operands that an
 * operation needs in f32, are not narrowed. Returns BY_EARG for another dtype. */
BY_API by_status by_pass_narrow(by_graph *graph, by_dtype dtype, by_error *error);

/* What a mesh axis splits. */
typedef enum by_shard_kind {
    BY_SHARD_SEQUENCE = 0, /* sequences, by time (context parallelism) */
    BY_SHARD_TENSOR,       /* vocabulary, heads and hidden units of MLPs */
    BY_SHARD_EXPERT,       /* experts, and the examples of a micro-batch */
    BY_SHARD_KINDS
} by_shard_kind;

/* A mesh axis, and this rank's place on it. */
typedef struct by_shard_axis {
    int ranks;     /* 0 or 1: the axis is not used */
    int rank;      /* coordinate of this rank */
    unsigned mesh; /* the axis as a set, for collectives */
    /* BY_SHARD_TENSOR: values between split products are split along the sequence (Korthikanti et
     * al. 2023), which saves their memory and turns each all-reduce into a reduce-scatter and an
     * all-gather. */
    bool sequence;
    /* BY_SHARD_SEQUENCE: leave the gradient of a parameter as this rank's contribution, to be
     * summed over the axis by whoever runs the graph, after all micro-batches of a step. false:
     * each graph sums it. */
    bool addends;
} by_shard_axis;

/* Turns the graph of the whole model into that of one rank of a mesh axis (Megatron-LM, Shoeybi et
 * al. 2019; propagated as in GSPMD, Xu et al. 2021). Parameters are split by the logical names of
 * their axes, values as the operations that make and read them permit; collectives assemble what an
 * operation cannot take in pieces. May run before or after by_pass_gradients; after it, gradients
 * of split parameters are split, and those of others are the same on every rank. Shapes become
 * local; names stay. Returns BY_EARG if a parameter cannot be split into that many parts.
 *
 * BY_SHARD_SEQUENCE splits no parameter. Inputs with an axis "time" are passed whole; the axis is
 * cut into 2 * ranks chunks, and rank r computes chunks r and 2 * ranks - 1 - r, so that causal
 * attention is the same amount of work for each. Returns BY_EARG if no input has such an axis that
 * can be divided.
 *
 * BY_SHARD_EXPERT (GShard, Lepikhin et al. 2021) runs after by_pass_gradients. Inputs with one row
 * per example are passed whole, and each rank computes its share of the examples; tokens are
 * exchanged with the ranks that hold their experts by all-to-all. A rank has room for as many
 * tokens from another rank as an expert's capacity divided by the ranks; without a capacity, for
 * all of them. Returns BY_EARG if the examples of an input cannot be divided.
 */
BY_API by_status by_pass_shard(by_graph *graph, by_shard_kind kind, const by_shard_axis *axis,
                               by_error *error);

/* Makes fewer and larger nodes: fuses residual additions into matrix products and norm gradients,
 * the embedding's gradient into that of the tied head, the head's loss and gradient into one, and
 * chains of element-wise operations into maps. Drops nodes without effect. */
BY_API by_status by_pass_fuse(by_graph *graph, by_error *error);

/* Callback that may change how the parameter `name` is packed. */
typedef void by_packing_choice(const void *user, const char *name, by_packing_kind *kind,
                               int64_t *group);

typedef struct by_packing_options {
    by_packing_kind kind;      /* BY_PACKING_NONE: the graph is not changed */
    int64_t group;             /* BY_PACKING_INT4: inputs that share a scale */
    by_packing_choice *choose; /* NULL: `kind` for all parameters */
    const void *user;          /* passed to `choose` */
    /* Another program over the same parameters, on which this pass has run: pack them as there.
     * NULL: as this graph reads them. */
    const by_graph *like;
} by_packing_options;

/* Packs constant weights (banyan/packing.h): parameters that are read by products, all in the same
 * way, and otherwise only by look-ups of their outputs, such as a token embedding that is also the
 * head. They become u8 [panels, bytes of a panel], and their readers PACKED_MATMUL,
 * PACKED_GROUPED_MATMUL and PACKED_EMBEDDING, in which a row does not depend on the number of rows.
 * For graphs that only run forward. Returns BY_EARG if options->like has packed a parameter that a
 * node here cannot read in that form. */
BY_API by_status by_pass_pack(by_graph *graph, const by_packing_options *options, by_error *error);

/* Transposes weights [k, n] that only products read to [n, k]: products with few rows, as in
 * decoding, read them faster, as one stream of rows. Shape and axes of such a parameter are
 * exchanged, and it must be given the values of the transposed matrix (by_value_info.transposed).
 * For graphs that only run forward. */
BY_API by_status by_pass_layout(by_graph *graph, by_error *error);

/* Which ranks share the parameters that by_pass_gather divides. */
typedef struct by_gather_options {
    unsigned mesh; /* set of mesh axes: bit i is axis i of by_mesh_axis */
    int ranks;     /* ranks that differ in these axes; 0 or 1: none */
    bool keep;     /* parameters gathered in the forward pass stay for the backward pass */
    /* GATHER_PARAMETER uses the number of a parameter among those of this graph, found by name;
     * parameters frozen there are whole. NULL: the graph itself. */
    const by_graph *parameters;
} by_gather_options;

/* Divided parameters (ZeRO stage 3, Rajbhandari et al. 2020; FSDP, Zhao et al. 2023). The caller no
 * longer binds trainable parameters of rank >= 2. Instead, a GATHER_PARAMETER node, executed by the
 * caller, assembles one before the first node of a block that reads it in the forward pass, and
 * again in the backward pass. Parameters read outside of blocks are gathered separately for nodes
 * before and after them. Results are bit for bit those with whole parameters. Returns BY_EARG if
 * options->parameters lacks one. */
BY_API by_status by_pass_gather(by_graph *graph, const by_gather_options *options, by_error *error);

/* The ranks whose micro-batches by_pass_synchronise normalises together. */
typedef struct by_synchronise_options {
    uint32_t mesh; /* set of mesh axes, as of by_all_reduce */
    int64_t ranks; /* the product of their sizes; 0 or 1: nothing to do */
} by_synchronise_options;

/* Makes every batch norm take its mean and variance over the micro-batches of all ranks, which must
 * have as many rows each: synchronised batch norm (Peng et al. 2017, MegDet, section 3.2). Results
 * equal those of one micro-batch of all rows but for rounding. Runs after gradients are derived.
 * Costs two exchanges of a number for each channel in the forward and two in the backward pass. */
BY_API by_status by_pass_synchronise(by_graph *graph, const by_synchronise_options *options,
                                     by_error *error);

/* Which values by_pass_observe measures. */
typedef struct by_observe_options {
    bool blocks;     /* what each block passes on to later ones */
    by_value hidden; /* a further value, measured if it still exists; or BY_NONE */
    by_value output; /* another one */
} by_observe_options;

/* Adds a MEASURE of activations for monitoring: outputs "activation.block.N", "activation.hidden"
 * and "activation.output". For a block it is the largest value that later nodes of the forward pass
 * read, the last one among equals. No other node changes; values removed by fusion are left out. */
BY_API by_status by_pass_observe(by_graph *graph, const by_observe_options *options,
                                 by_error *error);

/* Reorders nodes to lower peak memory: computes a greedy schedule and adopts it if its peak is
 * lower than that of the present order. */
BY_API by_status by_pass_order(by_graph *graph, by_error *error);

/* Overlaps collectives with computation by list scheduling (Graham 1966) with the collective queue
 * as a second machine: each collective starts as early, and is waited for as late, as its operands,
 * the readers of its result and memory permit, and independent work fills the time between. Peak
 * memory grows by at most prefetch_bytes. Results that could be made at any time, such as gathered
 * parameters, occupy at most that many bytes before they are waited for (one result of any size if
 * there is nothing else to do). Collectives keep their order. A graph without collectives is not
 * changed. */
BY_API by_status by_pass_overlap(by_graph *graph, size_t prefetch_bytes, by_error *error);

/* ---- the table of passes ---- */

/* What a graph is for, which determines the passes that apply to it. */
typedef enum by_purpose {
    BY_PURPOSE_TRAIN = 1 << 0,  /* forward and backward pass of a micro-batch */
    BY_PURPOSE_LOSS = 1 << 1,   /* the loss only */
    BY_PURPOSE_UPDATE = 1 << 2, /* norm and sum of gradients, optimizer update */
    BY_PURPOSE_INFER = 1 << 3   /* forward only, with constant weights */
} by_purpose;

/* Arguments of the passes in the table, named by pass. */
typedef struct by_pass_options {
    by_dtype compute;                   /* precision: dtype of activations and matrix products */
    by_frozen_options frozen;           /* quantise: how frozen weights are held */
    by_synchronise_options synchronise; /* synchronise: ranks that batch norm is taken over */
    /* gradients: value to differentiate; its seed becomes an input "loss_scale". */
    by_value loss;
    by_recompute_options recompute;      /* recompute: what the backward pass recomputes */
    by_packing_options pack;             /* pack: how constant weights are stored */
    by_dtype kept;                       /* narrow: dtype of kept activations;
                                            BY_F32 (0): unchanged */
    by_shard_axis shard[BY_SHARD_KINDS]; /* shard: the mesh axes, and this rank's place */
    by_gather_options gather;            /* gather: divided parameters */
    by_observe_options observe;          /* observe: activations to measure */
    /* overlap: memory for collectives in progress; 0: that of the largest result. */
    size_t prefetch_bytes;
    /* recompute: unit of the offsets of activations, by_device_info.alignment; 0: 64. */
    size_t unit;
} by_pass_options;

/* Returns the number of passes in the table. */
BY_API int by_pass_count(void);
/* Returns the name of the i-th pass; NULL past the last. Static storage. */
BY_API const char *by_pass_name(int i);
/* Returns a one-line description of the i-th pass; NULL past the last. Static storage. */
BY_API const char *by_pass_summary(int i);
/* Runs the passes that apply to `purpose`, in the order of the table, up to and including the one
 * named `last` (NULL: all; "forward": none), and verifies the graph. Returns BY_EARG, with a list
 * of names, if there is no such pass, and errors of the passes. */
BY_API by_status by_passes_run(by_graph *graph, by_purpose purpose, const by_pass_options *options,
                               const char *last, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
