/* Passes: transformations of a graph. Each scaling technique is one. The table of
 * src/passes/pass_table.c lists them in the order in which they compose and says for which graphs
 * each is meant; by_passes_run applies it. Then banyan/program.h plans memory and runs.
 *
 * Every pass reads and writes only the graph and leaves it verified (by_graph_verify holds after it
 * when it held before). On an error the graph may be half transformed and must be closed.
 */
#ifndef BANYAN_PASSES_H
#define BANYAN_PASSES_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Mixed precision (Micikevicius et al. 2018), `compute` bf16 or f16. For a
 * forward graph: matrices (parameters and caches of rank >= 2) and activations become `compute`;
 * vectors, statistics, losses and outputs stay f32. A parameter of the result whose dtype is not
 * f32 is a compute copy: the f32 master belongs to the optimizer. compute f32 changes nothing. */
BY_API by_status by_pass_precision(by_graph *graph, by_dtype compute, by_error *error);
/* Which operands of which operations that leaves in f32, as a table in Markdown (docs/precision.md
 * has it). Freed with free(). */
BY_API by_status by_precision_policy(char **out, by_error *error);

/* Low-rank adapters (LoRA, Hu et al. 2021, eq. 3), as PEFT has them. */
typedef struct by_lora_options {
    int64_t rank;  /* r, 1 or more */
    float scale;   /* s: alpha / r, or alpha / sqrt(r) */
    float dropout; /* probability, on x for the adapter alone */
    by_value rng;  /* i32 [4], see DROPOUT in banyan/op.h; BY_NONE: no dropout */
    by_value head; /* the parameter that makes logits, which gets no adapter; or BY_NONE */
    /* The layers that get one: shell patterns (fnmatch) of the ends of their names, which are those
     * of their weights without ".weight", after a dot; "all-linear": all. */
    const char *const *targets;
    size_t target_count;
    /* Patterns of whole names of parameters that stay trained. */
    const char *const *train_also;
    size_t train_also_count;
} by_lora_options;

/* Makes each product y = x W + b with the weight NAME.weight of a layer that a target names
 * y = x W + b + s (x A^T) B^T, with new parameters NAME.lora_A.weight [r, in], uniform between
 * -1/sqrt(in) and 1/sqrt(in), and NAME.lora_B.weight [out, r], zeros; W may be [in, out] or [out,
 * in]. Freezes every other parameter but those of train_also. For a forward graph, before the other
 * passes. BY_ECONFIG names a target that no layer has, or a pattern that no parameter matches, and
 * what there is. */
BY_API by_status by_pass_lora(by_graph *graph, const by_lora_options *options, by_error *error);

/* Codes that weights are trained for. */
typedef struct by_fake_quantize_options {
    by_packing_kind kind; /* INT8 or INT4 */
    int64_t group;        /* INT4: inputs that share a scale */
} by_fake_quantize_options;

/* Lets the products of blocks read FAKE_QUANTIZE of their weights, which stay f32 (Jacob et al.
 * 2018). For a forward graph, before the other passes. */
BY_API by_status by_pass_fake_quantize(by_graph *graph, const by_fake_quantize_options *options,
                                       by_error *error);

/* Reverse-mode differentiation. Adds the backward pass of `loss` ([1] f32), seeded with `seed` ([1]
 * f32: d objective / d loss), and makes the gradient of every parameter NAME that is not frozen an
 * f32 value "grad.NAME" of role gradient. BY_EARG names a parameter that the loss does not depend
 * on, and an op without a gradient. */
BY_API by_status by_pass_gradients(by_graph *graph, by_value loss, by_value seed, by_error *error);

/* Rematerialization (Briggs, Cooper and Torczon 1992, of registers): results of activations and
 * norms of at least `least_bytes` that the backward pass reads are made again just before it does,
 * from operands that it keeps for their gradients anyway. A pass over memory each, instead of
 * memory from the forward pass to there. The bits are the same. */
BY_API by_status by_pass_rematerialize(by_graph *graph, size_t least_bytes, by_error *error);

/* What the backward pass computes again instead of keeping it from the forward pass. */
typedef enum by_recompute_kind {
    BY_RECOMPUTE_NONE = 0,
    /* The inputs of blocks are kept, what is inside of them is not (Chen et al. 2016). The last
     * block is left alone: its activations are needed at once. */
    BY_RECOMPUTE_BLOCK,
    /* Of the inputs of blocks only every k-th is kept. Those of the next k blocks are made again
     * from it at once, then each block's inside: nearly two forward passes more. */
    BY_RECOMPUTE_EVERY,
    /* The least memory: the same with the square root of the number of blocks, the last one too. */
    BY_RECOMPUTE_FULL
} by_recompute_kind;

/* What a machine does in a second, to weigh time against memory. 0: unknown, a usual figure. */
typedef struct by_speeds {
    double f32_flops; /* in matrix products */
    double bf16_flops;
    double bytes; /* read from and written to main memory */
    double disk;  /* bytes read from or written to the disk of what is offloaded */
} by_speeds;

typedef struct by_recompute_options {
    by_recompute_kind kind;
    int64_t every; /* BY_RECOMPUTE_EVERY: blocks between inputs that are kept, 2 or more */
    /* BY_RECOMPUTE_NONE: bytes that the activations may take, 0: any number. by_passes_run then
     * chooses node by node what is computed again so that they fit behind all passes, at the least
     * cost; where nothing fits, what leaves the least. */
    size_t arena_bytes;
    bool within_blocks; /* ... of what blocks do not hand to each other: others compute it */
    by_speeds speeds;   /* the cost */
} by_recompute_options;

/* Recomputation: the backward pass computes activations of blocks again. No bit of a result depends
 * on the choice. options NULL: BY_RECOMPUTE_BLOCK; arena_bytes is not looked at. BY_EARG: `every`
 * is below 2. */
BY_API by_status by_pass_recompute(by_graph *graph, const by_recompute_options *options,
                                   by_error *error);

/* Activations that the backward pass reads are kept for it in fewer bits: rounded to `dtype` when
 * they were made, widened just before they are read again. BY_BF16: those in f32. BY_U8: all, as
 * codes of 8 bits with a scale for each BY_ROW_CODE_BLOCK elements of a row (ENCODE8), which differ
 * from what they stand for by at most 1/254 of the largest magnitude of their block. BY_F32 changes
 * nothing. The forward pass computes as before; gradients become those of the rounded values.
 * Statistics of rows and what an op wants in f32 stay as they are. BY_EARG: another dtype. */
BY_API by_status by_pass_narrow(by_graph *graph, by_dtype dtype, by_error *error);

/* What a mesh axis splits. */
typedef enum by_shard_kind {
    BY_SHARD_SEQUENCE = 0, /* sequences by time (context parallelism) */
    BY_SHARD_TENSOR,       /* vocabulary, heads and hidden units of MLPs */
    BY_SHARD_EXPERT,       /* experts, and the examples of a micro-batch */
    BY_SHARD_KINDS
} by_shard_kind;

typedef struct by_shard_axis {
    int ranks; /* 0 or 1: the axis is not used */
    int rank;
    unsigned mesh; /* the axis, as a set, for the collectives */
    /* tensor: what lies between the split products is split along the sequence (Korthikanti et al.
     * 2023), which saves its memory and turns each all-reduce into a reduce-scatter and an
     * all-gather */
    bool sequence;
    /* sequence: the gradient of a parameter stays what this rank adds to it. Who runs the graph
     * adds them up over the axis, after all micro-batches of a step; else each graph does so. */
    bool addends;
} by_shard_axis;

/* From the graph of the whole to that of one rank of a mesh axis (Megatron-LM, Shoeybi et al.
 * 2019; as GSPMD, Xu et al. 2021, propagates it). Parameters are split by the logical names of
 * their axes, values as the ops that read and make them allow, and collectives put together what
 * the next op cannot take in pieces. It may stand before or behind by_pass_gradients; behind it
 * the gradients of split parameters are split, those of the others are the same on every rank.
 * Shapes become local; names stay. BY_EARG names a parameter that cannot be split into so many.
 *
 * sequence: no parameter is split; inputs with an axis "time", which is cut into 2 ranks chunks,
 * are given whole, and rank r works on chunks r and 2 ranks - 1 - r, so that causal attention is
 * as much work for each.
 *
 * expert (GShard, Lepikhin et al. 2021): the inputs that have a row for each example are given
 * whole, and each rank works on its share of the examples; tokens go to the ranks that have
 * their experts, and back, by all-to-all. A rank has room for as many tokens of another rank as
 * an expert has a capacity for, divided by the ranks; without a limit, for all of them. It
 * stands behind by_pass_gradients. BY_EARG names an input with examples that cannot be divided. */
BY_API by_status by_pass_shard(by_graph *graph, by_shard_kind kind, const by_shard_axis *axis,
                               by_error *error);

/* Fewer and larger nodes: residual additions into matrix products and norm gradients, the
 * embedding's gradient into the tied head's, the head's loss and gradient into one. Drops nodes
 * without effect. */
BY_API by_status by_pass_fuse(by_graph *graph, by_error *error);

/* Changes how the parameter of that name is packed. */
typedef void by_packing_choice(const void *user, const char *name, by_packing_kind *kind,
                               int64_t *group);

typedef struct by_packing_options {
    by_packing_kind kind;      /* BY_PACKING_NONE: the graph stays as it is */
    int64_t group;             /* of BY_PACKING_INT4 */
    by_packing_choice *choose; /* NULL: all parameters are packed so */
    const void *user;
    /* Another program over the same parameters, which this pass has run on: they are packed as
     * there. NULL: as this graph reads them. */
    const by_graph *like;
} by_packing_options;

/* Weights that do not change are packed (banyan/packing.h): those parameters that a product
 * multiplies and nothing else reads but products in the same way and look-ups of its outputs, as of
 * a token embedding that is the head, too. Such a parameter becomes u8 [panels, bytes of a panel],
 * and its readers products and look-ups of packed weights, whose rows do not depend on how many
 * there are. For graphs that are only run forward. BY_EARG names a parameter that options->like has
 * packed and a node here cannot read so. */
BY_API by_status by_pass_pack(by_graph *graph, const by_packing_options *options, by_error *error);

/* Weights [k, n] that products alone read become [n, k]: a product with few rows, as each step of
 * decoding is, reads them faster, one row of n after the other as one stream of memory. The shape
 * and the axes of such a parameter are swapped, and its values must be those of the transposed
 * matrix (by_value_info.transposed). For graphs that are only run forward. */
BY_API by_status by_pass_layout(by_graph *graph, by_error *error);

/* Among whom by_pass_gather finds the parameters divided. */
typedef struct by_gather_options {
    unsigned mesh; /* set of mesh axes: bit i is axis i of by_mesh_axis */
    int ranks;     /* that differ in these axes; 0 or 1: none is divided */
    bool keep;     /* what the forward pass has gathered stays for the backward pass */
    /* GATHER_PARAMETER has the number of a parameter among those of this graph, found by its name;
     * what is frozen there is whole. NULL: the graph itself. */
    const by_graph *parameters;
} by_gather_options;

/* Parameters in parts (ZeRO stage 3, Rajbhandari et al. 2020; FSDP, Zhao et al. 2023). The caller
 * no longer binds those that are trained and have two axes or more: a GATHER_PARAMETER node, which
 * the caller carries out, makes one whole before the first node of a block that reads it in the
 * forward pass, and again in the backward pass. What is read outside of the blocks is gathered for
 * the nodes before and behind them apart. The bits of values are those of whole parameters. BY_EARG
 * names one that options->parameters lacks. */
BY_API by_status by_pass_gather(by_graph *graph, const by_gather_options *options, by_error *error);

/* Which values by_pass_observe measures. */
typedef struct by_observe_options {
    bool blocks;     /* what each block gives to those behind it */
    by_value hidden; /* more values, measured where they are left; BY_NONE */
    by_value output;
} by_observe_options;

/* Adds a MEASURE to the values that people look at while a model trains: output
 * "activation.block.N" of block N, "activation.hidden" and "activation.output". A block's is the
 * largest of the values that the forward pass reads behind it, the last of equal ones. No other
 * node changes. A value that fusion has removed is left out. */
BY_API by_status by_pass_observe(by_graph *graph, const by_observe_options *options,
                                 by_error *error);

/* The sequence in which nodes run: a greedy schedule for little memory, taken when its peak is
 * lower than that of the present order. */
BY_API by_status by_pass_order(by_graph *graph, by_error *error);

/* Collectives beside computation, as in a list schedule (Graham 1966) whose second machine is
 * the collective queue: each starts as early and is waited for as late as its operands, the
 * readers of its result and memory allow, and what no collective needs is left to fill the time.
 * The peak of memory grows by no more than prefetch_bytes; of results that could be made at any
 * time, as all-gathers of parameters, at most so many bytes are there before they are waited for
 * (one result, however large, when nothing else is left to do). Collectives keep their order. A
 * graph without any stays as it is. */
BY_API by_status by_pass_overlap(by_graph *graph, size_t prefetch_bytes, by_error *error);

/* ---- the table ---- */

/* What a graph is for: decides which passes of the table apply to it. */
typedef enum by_purpose {
    BY_PURPOSE_TRAIN = 1 << 0,  /* forward and backward of a micro-batch */
    BY_PURPOSE_LOSS = 1 << 1,   /* the loss alone */
    BY_PURPOSE_UPDATE = 1 << 2, /* norm and sum of gradients, the optimizer's update */
    BY_PURPOSE_INFER = 1 << 3   /* forward only, weights that do not change */
} by_purpose;

/* What the passes of the table are told. */
typedef struct by_pass_options {
    by_dtype compute; /* precision: format of activations and matrix products */
    by_value loss; /* gradients: the value to differentiate; its seed becomes input "loss_scale" */
    by_recompute_options recompute;
    by_packing_options pack; /* pack: how weights that do not change are held */
    by_dtype kept; /* narrow: the format that activations are kept in; BY_F32, 0: their own */
    by_shard_axis shard[BY_SHARD_KINDS]; /* shard: the mesh axes, and this rank's place */
    by_gather_options gather;            /* gather: parameters in parts */
    by_observe_options observe;          /* observe: activations that are measured */
    size_t prefetch_bytes; /* overlap: memory for collectives under way; 0: as much as the largest
                                 result of one */
} by_pass_options;

/* Number of passes, and name and one-line description of the i-th; NULL behind the last. Static. */
BY_API int by_pass_count(void);
BY_API const char *by_pass_name(int i);
BY_API const char *by_pass_summary(int i);
/* Applies the passes that are meant for `purpose`, in the table's order, up to and with the one
 * named `last` (NULL: all; "forward": none), and verifies the graph. BY_EARG: no pass has that
 * name; the message lists the names. */
BY_API by_status by_passes_run(by_graph *graph, by_purpose purpose, const by_pass_options *options,
                               const char *last, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
