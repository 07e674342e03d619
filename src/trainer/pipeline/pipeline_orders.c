/* The order of a rank's passes, for each kind of schedule. */
#include "trainer/pipeline/pipeline.h"

typedef struct pass_order {
    by__pipeline_pass_unit *out;
    size_t count;
    int64_t done[3]; /* number of passes of each kind so far */
} pass_order;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Appends the next pass of that kind, of a rank with one stage. */
static void put(pass_order *o, by_pipeline_action_kind kind, int rank)
{
    o->out[o->count++] = (by__pipeline_pass_unit){kind, rank, o->done[kind]++};
}

static void gpipe(const by_pipeline_options *options, int rank, pass_order *o)
{
    for (int64_t i = 0; i < options->micro_batches; i++) {
        put(o, BY_PIPELINE_FORWARD, rank);
    }
    for (int64_t i = 0; i < options->micro_batches; i++) {
        put(o, BY_PIPELINE_BACKWARD, rank);
    }
}

/* Before its first backward pass, a rank runs as many forward passes as there are ranks from it on,
 * so that the backward pass can start at once. */
static void one_forward_one_backward(const by_pipeline_options *options, int rank, pass_order *o)
{
    int64_t all = options->micro_batches;
    for (int64_t i = smaller(all, options->ranks - rank); i > 0; i--) {
        put(o, BY_PIPELINE_FORWARD, rank);
    }
    for (int64_t i = 0; i < all; i++) {
        put(o, BY_PIPELINE_BACKWARD, rank);
        if (o->done[BY_PIPELINE_FORWARD] < all) {
            put(o, BY_PIPELINE_FORWARD, rank);
        }
    }
}

/* ZB-H1: as 1F1B, but the gradient of the weights lags `rank` micro-batches behind that of the
 * input, which fills the bubble at the end. Every rank then holds as many micro-batches as the
 * first one. */
static void zero_bubble(const by_pipeline_options *options, int rank, pass_order *o)
{
    int64_t all = options->micro_batches;
    for (int64_t i = smaller(all, options->ranks - rank); i > 0; i--) {
        put(o, BY_PIPELINE_FORWARD, rank);
    }
    for (int64_t i = 0; i < all; i++) {
        put(o, BY_PIPELINE_BACKWARD, rank);
        if (o->done[BY_PIPELINE_BACKWARD] - o->done[BY_PIPELINE_WEIGHT] > rank) {
            put(o, BY_PIPELINE_WEIGHT, rank);
        }
        if (o->done[BY_PIPELINE_FORWARD] < all) {
            put(o, BY_PIPELINE_FORWARD, rank);
        }
    }
    while (o->done[BY_PIPELINE_WEIGHT] < all) {
        put(o, BY_PIPELINE_WEIGHT, rank);
    }
}

/* Forward pass k of a rank with several chunks: micro-batches go through a chunk in groups of as
 * many as there are ranks; the last group is the remainder. */
static by__pipeline_pass_unit chunked(const by_pipeline_options *options, int rank, int64_t k,
                                      by_pipeline_action_kind kind)
{
    int64_t p = options->ranks;
    int64_t group = k / (p * options->chunks);
    int64_t size = smaller(p, options->micro_batches - group * p);
    int64_t within = k - group * p * options->chunks;
    int chunk = (int)(within / size);
    if (kind == BY_PIPELINE_BACKWARD) {
        chunk = options->chunks - 1 - chunk;
    }
    return (by__pipeline_pass_unit){kind, chunk * options->ranks + rank, group * p + within % size};
}

/* The warm-up of Narayanan et al. 2021: enough for the first backward pass of the last chunk, and
 * two more for each following rank. */
static void interleaved(const by_pipeline_options *options, int rank, int64_t slack, pass_order *o)
{
    int64_t p = options->ranks;
    int64_t all = options->micro_batches * options->chunks;
    int64_t warm = smaller(all, 2 * (p - rank - 1) + (options->chunks - 1) * p + 1 + slack);
    int64_t forward = 0;
    for (; forward < warm; forward++) {
        o->out[o->count++] = chunked(options, rank, forward, BY_PIPELINE_FORWARD);
    }
    for (int64_t backward = 0; backward < all; backward++) {
        o->out[o->count++] = chunked(options, rank, backward, BY_PIPELINE_BACKWARD);
        if (forward < all) {
            o->out[o->count++] = chunked(options, rank, forward++, BY_PIPELINE_FORWARD);
        }
    }
}

size_t by__pipeline_order_count(const by_pipeline_options *options)
{
    size_t passes = options->kind == BY_PIPELINE_ZERO_BUBBLE ? 3 : 2;
    return passes * (size_t)options->chunks * (size_t)options->micro_batches;
}

void by__pipeline_order(const by_pipeline_options *options, int rank, int64_t slack,
                        by__pipeline_pass_unit *out)
{
    pass_order o = {.out = out};
    switch (options->kind) {
    case BY_PIPELINE_GPIPE:
        gpipe(options, rank, &o);
        break;
    case BY_PIPELINE_INTERLEAVED:
        if (options->chunks > 1) {
            interleaved(options, rank, slack, &o);
            break;
        }
        one_forward_one_backward(options, rank, &o); /* what one chunk makes of it */
        break;
    case BY_PIPELINE_ZERO_BUBBLE:
        zero_bubble(options, rank, &o);
        break;
    default:
        one_forward_one_backward(options, rank, &o);
        break;
    }
}
