#include "comm_cases.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/half.h"
#include "comm/comm.h"

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            status = by_error_set(error, BY_ESTATE, __VA_ARGS__);                                  \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)
#define STEP(expr)                                                                                 \
    do {                                                                                           \
        status = (expr);                                                                           \
        if (status != BY_OK) {                                                                     \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

/* A cheap hash: references are computed a million times. */
static uint32_t bits_of(int holder, size_t i)
{
    uint32_t x = (uint32_t)i * 0x9e3779b9u + (uint32_t)holder * 0x85ebca6bu + 1u;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* Of large results every few elements are looked at: 7, 31 and 499 share no factor with
 * slices or chunks. */
static size_t stride_of(size_t count)
{
    return count > 1000000 ? 499 : count > 10000 ? 31 : count > 1000 ? 7 : 1;
}

/* Element i of a holder: signs and magnitudes for which the order of additions shows. */
static float value_at(int holder, size_t i)
{
    uint32_t bits = bits_of(holder, i);
    return (by__unit_float(bits) - 0.5f) * (float)(1u << bits % 13);
}

static void put(void *data, size_t i, by_dtype dtype, int holder, size_t index)
{
    float f = value_at(holder, index);
    uint32_t bits = bits_of(holder, index);
    uint16_t half;
    unsigned char byte = (unsigned char)bits;
    switch (dtype) {
    case BY_F32:
        memcpy((float *)data + i, &f, sizeof f);
        break;
    case BY_I32:
        memcpy((uint32_t *)data + i, &bits, sizeof bits);
        break;
    case BY_BF16:
    case BY_F16:
        half = dtype == BY_BF16 ? by__f32_to_bf16(f) : by__f32_to_f16(f);
        memcpy((uint16_t *)data + i, &half, sizeof half);
        break;
    default:
        memcpy((unsigned char *)data + i, &byte, 1);
    }
}

static void fill(void *data, size_t count, by_dtype dtype, int holder, size_t first)
{
    for (size_t i = 0; i < count; i++) {
        put(data, i, dtype, holder, first + i);
    }
}

/* The definition: the sum of leaves [first, first + count) is that of the largest power of two
 * below count and that of the rest. */
static float tree(by_dtype dtype, int first, int count, size_t i)
{
    if (count == 1) {
        float f = value_at(first, i);
        return dtype == BY_BF16  ? by__bf16_to_f32(by__f32_to_bf16(f))
               : dtype == BY_F16 ? by__f16_to_f32(by__f32_to_f16(f))
                                 : f;
    }
    int m = 1;
    while (2 * m < count) {
        m *= 2;
    }
    float left = tree(dtype, first, m, i);
    return left + tree(dtype, first + m, count - m, i);
}

static bool is_sum(const void *data, size_t i, by_dtype dtype, int ranks, size_t index)
{
    unsigned char wanted[4];
    size_t size = by_dtype_size(dtype);
    if (dtype == BY_I32) {
        uint32_t sum = 0;
        for (int r = 0; r < ranks; r++) {
            sum += bits_of(r, index);
        }
        memcpy(wanted, &sum, 4);
    } else {
        float f = tree(dtype, 0, ranks, index);
        uint16_t half = dtype == BY_BF16 ? by__f32_to_bf16(f) : by__f32_to_f16(f);
        memcpy(wanted, dtype == BY_F32 ? (void *)&f : (void *)&half, size);
    }
    return memcmp((const unsigned char *)data + i * size, wanted, size) == 0;
}

static bool is_value(const void *data, size_t i, by_dtype dtype, int holder, size_t index)
{
    unsigned char wanted[4];
    size_t size = by_dtype_size(dtype);
    put(wanted, 0, dtype, holder, index);
    return memcmp((const unsigned char *)data + i * size, wanted, size) == 0;
}

static const by_dtype all_dtypes[] = {BY_F32, BY_BF16, BY_F16, BY_I32, BY_U8, BY_BOOL};
enum { SUM_DTYPES = 4 };

/* Ranks come to a collective at odd times. */
static void dawdle(const by_comm *comm, int step)
{
    uint32_t bits = bits_of(1000 + by_comm_rank(comm), (size_t)step);
    if (bits % 5 == 0) {
        (void)usleep(bits % 700);
    }
}

static by_status all_reduce(by_comm *comm, by_dtype dtype, size_t count, by_error *error)
{
    by_status status = BY_OK;
    void *data = malloc(count * by_dtype_size(dtype) + 1);
    CHECK(data != NULL, "no memory");
    fill(data, count, dtype, by_comm_rank(comm), 0);
    dawdle(comm, (int)count);
    STEP(by_comm_all_reduce(comm, data, count, dtype, "x", error));
    for (size_t i = 0; i < count; i += stride_of(count)) {
        CHECK(is_sum(data, i, dtype, by_comm_size(comm), i), "all-reduce of %zu %s: element %zu",
              count, by_dtype_name(dtype), i);
    }
out:
    free(data);
    return status;
}

/* Uneven slices: rank r has about r + `shift` (mod ranks) times `unit` elements, some none. */
static size_t slices_of(size_t *counts, int ranks, int shift, size_t unit)
{
    size_t total = 0;
    for (int r = 0; r < ranks; r++) {
        size_t share = (size_t)((r + shift) % ranks);
        counts[r] = unit * share + (share > 0 ? (size_t)r % 3 : 0);
        if (ranks == 1) {
            counts[r] = unit;
        }
        total += counts[r];
    }
    return total;
}

static size_t begin_of(const size_t *counts, int rank)
{
    size_t begin = 0;
    for (int r = 0; r < rank; r++) {
        begin += counts[r];
    }
    return begin;
}

static by_status reduce_scatter(by_comm *comm, by_dtype dtype, const size_t *counts, size_t total,
                                bool in_place, by_error *error)
{
    by_status status = BY_OK;
    int rank = by_comm_rank(comm);
    size_t size = by_dtype_size(dtype);
    size_t begin = begin_of(counts, rank);
    unsigned char *in = malloc(total * size + 1);
    unsigned char *other = malloc(counts[rank] * size + 1);
    CHECK(in != NULL && other != NULL, "no memory");
    unsigned char *out = in_place ? in + begin * size : other;
    fill(in, total, dtype, rank, 0);
    dawdle(comm, (int)total);
    STEP(by_comm_reduce_scatter(comm, in, out, counts, dtype, "x", error));
    for (size_t i = 0; i < counts[rank]; i += stride_of(total)) {
        CHECK(is_sum(out, i, dtype, by_comm_size(comm), begin + i),
              "reduce-scatter of %zu %s: element %zu", total, by_dtype_name(dtype), i);
    }
    for (size_t i = 0; i < total; i++) {
        bool mine = i >= begin && i < begin + counts[rank];
        CHECK((mine && in_place) || is_value(in, i, dtype, rank, i),
              "reduce-scatter changed element %zu of its input", i);
    }
out:
    free(in);
    free(other);
    return status;
}

static by_status all_gather(by_comm *comm, by_dtype dtype, const size_t *counts, size_t total,
                            bool in_place, by_error *error)
{
    by_status status = BY_OK;
    int rank = by_comm_rank(comm);
    size_t size = by_dtype_size(dtype);
    size_t begin = begin_of(counts, rank);
    unsigned char *out = calloc(total * size + 1, 1);
    unsigned char *other = malloc(counts[rank] * size + 1);
    CHECK(out != NULL && other != NULL, "no memory");
    unsigned char *in = in_place ? out + begin * size : other;
    fill(in, counts[rank], dtype, rank, 0);
    dawdle(comm, (int)total);
    STEP(by_comm_all_gather(comm, in, out, counts, dtype, "x", error));
    memset(other, 0, counts[rank] * size);
    for (int r = 0; r < by_comm_size(comm); r++) {
        for (size_t i = 0; i < counts[r]; i++) {
            CHECK(is_value(out, begin_of(counts, r) + i, dtype, r, i),
                  "all-gather of %zu %s: element %zu of rank %d", total, by_dtype_name(dtype), i,
                  r);
        }
    }
out:
    free(out);
    free(other);
    return status;
}

static by_status broadcast(by_comm *comm, by_dtype dtype, size_t count, int root, by_error *error)
{
    by_status status = BY_OK;
    void *data = calloc(count * by_dtype_size(dtype) + 1, 1);
    CHECK(data != NULL, "no memory");
    if (by_comm_rank(comm) == root) {
        fill(data, count, dtype, 77, 0);
    }
    STEP(by_comm_broadcast(comm, data, count, dtype, root, "x", error));
    for (size_t i = 0; i < count; i++) {
        CHECK(is_value(data, i, dtype, 77, i), "broadcast of %zu %s: element %zu", count,
              by_dtype_name(dtype), i);
    }
out:
    free(data);
    return status;
}

/* What rank s sends to rank r: some pairs exchange nothing. */
static size_t sent(int s, int r, size_t unit)
{
    return (size_t)((s * 3 + r * 5) % 4) * unit + (size_t)(s % 2);
}

static by_status all_to_all(by_comm *comm, by_dtype dtype, size_t unit, by_error *error)
{
    by_status status = BY_OK;
    int rank = by_comm_rank(comm);
    int ranks = by_comm_size(comm);
    size_t size = by_dtype_size(dtype);
    size_t *send = calloc((size_t)ranks, sizeof *send);
    size_t *receive = calloc((size_t)ranks, sizeof *receive);
    unsigned char *in = malloc((size_t)ranks * (3 * unit + 1) * size);
    unsigned char *out = malloc((size_t)ranks * (3 * unit + 1) * size);
    size_t at = 0;
    CHECK(send != NULL && receive != NULL && in != NULL && out != NULL, "no memory");
    for (int r = 0; r < ranks; r++) {
        send[r] = sent(rank, r, unit);
        receive[r] = sent(r, rank, unit);
        fill(in + at * size, send[r], dtype, rank, (size_t)r * 100000);
        at += send[r];
    }
    dawdle(comm, (int)unit);
    STEP(by_comm_all_to_all(comm, in, send, out, receive, dtype, "x", error));
    memset(in, 0, (size_t)ranks * (3 * unit + 1) * size);
    at = 0;
    for (int r = 0; r < ranks; r++) {
        for (size_t i = 0; i < receive[r]; i++) {
            CHECK(is_value(out, at + i, dtype, r, (size_t)rank * 100000 + i),
                  "all-to-all of %s: element %zu of rank %d", by_dtype_name(dtype), i, r);
        }
        at += receive[r];
    }
out:
    free(send);
    free(receive);
    free(in);
    free(out);
    return status;
}

/* Every rank sends to all (itself too) before it receives, more than once, and receives tags in
 * another order than they were sent in. */
static by_status messages(by_comm *comm, size_t count, by_error *error)
{
    by_status status = BY_OK;
    int rank = by_comm_rank(comm);
    int ranks = by_comm_size(comm);
    float *data = malloc((count + 1) * sizeof *data);
    CHECK(data != NULL, "no memory");
    for (int r = 0; r < ranks; r++) {
        for (int k = 0; k < 4; k++) {
            fill(data, count, BY_F32, rank * 10 + k, 0);
            STEP(by_comm_send(comm, data, count, BY_F32, r, k % 2, "m", error));
        }
    }
    memset(data, 0, (count + 1) * sizeof *data);
    for (int r = ranks - 1; r >= 0; r--) {
        static const int order[] = {1, 3, 0, 2};
        for (int k = 0; k < 4; k++) {
            STEP(by_comm_receive(comm, data, count, BY_F32, r, order[k] % 2, "m", error));
            for (size_t i = 0; i < count; i++) {
                CHECK(is_value(data, i, BY_F32, r * 10 + order[k], i),
                      "message %d of rank %d: element %zu", order[k], r, i);
            }
        }
    }
out:
    free(data);
    return status;
}

/* Neighbours send to each other as many large messages as may wait to be received, and receive
 * then. */
static by_status many_messages(by_comm *comm, by_error *error)
{
    enum { WAITING = 15, COUNT = 150000 };
    by_status status = BY_OK;
    int rank = by_comm_rank(comm);
    int other = rank ^ 1;
    float *data = malloc(COUNT * sizeof *data);
    CHECK(data != NULL, "no memory");
    for (int k = 0; k < WAITING && other < by_comm_size(comm); k++) {
        fill(data, COUNT, BY_F32, rank * 20 + k, 0);
        STEP(by_comm_send(comm, data, COUNT, BY_F32, other, 0, "m", error));
    }
    for (int k = 0; k < WAITING && other < by_comm_size(comm); k++) {
        STEP(by_comm_receive(comm, data, COUNT, BY_F32, other, 0, "m", error));
        CHECK(is_value(data, COUNT - 1, BY_F32, other * 20 + k, COUNT - 1), "message %d of rank %d",
              k, other);
    }
out:
    free(data);
    return status;
}

/* ---- sums over holders ---- */

/* Value of holder h of `ranks` ranks with `each` holders, as a leaf. */
static float holder_tree(int first, int count, size_t i)
{
    return tree(BY_F32, first, count, i);
}

typedef struct holders_case {
    int each; /* holders a rank; the last ones of the last rank may be without data */
    bool gather;
    bool in_place;
    bool backward; /* the first rank has the last slice */
    size_t unit;
} holders_case;

static by_status check_holders(by_comm *comm, const holders_case *c, const size_t *slices,
                               const size_t *first, const float *out, int leaves, by_error *error)
{
    for (int r = 0; r < by_comm_size(comm); r++) {
        for (size_t i = 0; i < slices[r]; i++) {
            size_t at = first[r] + i;
            float wanted = holder_tree(0, leaves, at);
            if ((c->gather || r == by_comm_rank(comm)) &&
                memcmp(&out[at], &wanted, sizeof wanted) != 0) {
                return by_error_set(error, BY_ESTATE,
                                    "holders (%d a rank, gather %d, in place %d): element %zu",
                                    c->each, c->gather, c->in_place, at);
            }
        }
    }
    return BY_OK;
}

static by_status holders(by_comm *comm, const holders_case *c, by_error *error)
{
    by_status status = BY_OK;
    int ranks = by_comm_size(comm);
    int rank = by_comm_rank(comm);
    int count = ranks * c->each;
    float *mine[8] = {NULL};
    float *other = NULL;
    by__sum_merge *merges = NULL;
    int *owners = calloc((size_t)count, sizeof *owners);
    int64_t *begin = calloc((size_t)count + 1, sizeof *begin);
    size_t *slices = calloc((size_t)ranks, sizeof *slices);
    size_t *first = calloc((size_t)ranks, sizeof *first);
    by__comm_holder_plan plan = {.holders = count, .owners = owners};
    CHECK(owners != NULL && begin != NULL && slices != NULL && first != NULL, "no memory");
    /* With several ranks, the last holder of all has no leaf and no buffer. */
    int leaves = count > 2 ? count - 1 : count;
    for (int h = 0; h < count; h++) {
        owners[h] = h / c->each;
        begin[h + 1] = h + 1 < leaves ? h + 1 : leaves;
    }
    STEP(by__sum_tree_merges(&merges, &plan.merge_count, begin, count, error));
    plan.merges = merges;
    size_t total = slices_of(slices, ranks, 1, c->unit);
    size_t before = 0;
    for (int r = 0; r < ranks; r++) {
        before += slices[r];
        first[r] = c->backward ? total - before : before - slices[r];
    }
    other = calloc(total + 1, sizeof *other);
    CHECK(other != NULL, "no memory");
    for (int k = 0; k < c->each && rank * c->each + k < leaves; k++) {
        mine[k] = malloc((total + 1) * sizeof **mine);
        CHECK(mine[k] != NULL, "no memory");
        fill(mine[k], total, BY_F32, rank * c->each + k, 0);
    }
    float *out = c->in_place && mine[0] != NULL ? mine[0] : other;
    dawdle(comm, (int)total);
    const by__comm_holder_sum sum = {.plan = &plan,
                                     .mine = mine,
                                     .out = out,
                                     .count = total,
                                     .slices = slices,
                                     .first = c->backward ? first : NULL,
                                     .gather = c->gather,
                                     .what = "gradients"};
    STEP(by__comm_reduce_holders(comm, &sum, error));
    STEP(check_holders(comm, c, slices, first, out, leaves, error));
out:
    for (int k = 0; k < c->each; k++) {
        free(mine[k]);
    }
    free(other);
    free(merges);
    free(owners);
    free(begin);
    free(first);
    free(slices);
    return status;
}

static by_status holder_cases(by_comm *comm, by_error *error)
{
    for (int i = 0; i < 32; i++) {
        holders_case c = {.each = 1 + i % 2,
                          .gather = (i & 2) != 0,
                          .in_place = (i & 4) != 0,
                          .backward = (i & 16) != 0,
                          .unit = (i & 8) != 0 ? 20011 : 37};
        BY_TRY(holders(comm, &c, error));
    }
    return BY_OK;
}

/* Leaves that come round by round, one of each rank: what earlier rounds have left is in each
 * rank's slice alone. */
typedef struct rounds_case {
    int all;
    size_t unit;
    float *sums[8]; /* this rank's slice */
    float *leaf;
    size_t *slices;
    int *owners;
    int *kept;
    by__sum_node *nodes;
    by__sum_merge *merges;
} rounds_case;

static by_status add_round(by_comm *comm, rounds_case *c, size_t total, int first, by_error *error)
{
    int rank = by_comm_rank(comm);
    int earlier = by__sum_tree_forest(0, first, c->all, c->nodes);
    int held = earlier;
    float *mine[9];
    memcpy(mine, c->sums, sizeof c->sums);
    mine[earlier] = c->leaf;
    for (int leaf = first; leaf < first + by_comm_size(comm) && leaf < c->all; leaf++) {
        c->nodes[held++] = (by__sum_node){leaf, 1, 0};
    }
    for (int h = 0; h < held; h++) {
        c->nodes[h].set = h;
        c->owners[h] = h < earlier ? BY__EVERY_RANK : h - earlier;
    }
    by__comm_holder_plan plan = {.holders = held, .owners = c->owners, .merges = c->merges};
    int left = held;
    plan.merge_count = by__sum_tree_fold(c->merges, c->nodes, &left, c->all);
    for (int i = 0; i < left; i++) {
        c->kept[i] = c->nodes[i].set;
    }
    fill(c->leaf, total, BY_F32, first + rank, 0);
    dawdle(comm, first);
    const by__comm_holder_sum sum = {.plan = &plan,
                                     .mine = mine,
                                     .count = total,
                                     .slices = c->slices,
                                     .kept = c->kept,
                                     .kept_count = left,
                                     .results = c->sums,
                                     .what = "a round"};
    return by__comm_reduce_holders(comm, &sum, error);
}

static by_status rounds(by_comm *comm, rounds_case *c, by_error *error)
{
    by_status status = BY_OK;
    size_t ranks = (size_t)by_comm_size(comm);
    int rank = by_comm_rank(comm);
    size_t most = ranks + BY__SUM_TREE_NODES;
    size_t begin = 0;
    c->slices = calloc(ranks, sizeof *c->slices);
    c->owners = calloc(most, sizeof *c->owners);
    c->kept = calloc(most, sizeof *c->kept);
    c->nodes = calloc(most, sizeof *c->nodes);
    c->merges = calloc(most, sizeof *c->merges);
    CHECK(c->slices != NULL && c->owners != NULL && c->kept != NULL, "no memory");
    CHECK(c->nodes != NULL && c->merges != NULL, "no memory");
    size_t total = slices_of(c->slices, (int)ranks, 1, c->unit);
    c->leaf = calloc(total + 1, sizeof *c->leaf);
    CHECK(c->leaf != NULL, "no memory");
    for (int i = 0; i < 8; i++) {
        c->sums[i] = malloc((c->slices[rank] + 1) * sizeof **c->sums);
        CHECK(c->sums[i] != NULL, "no memory");
    }
    for (int first = 0; first < c->all; first += (int)ranks) {
        STEP(add_round(comm, c, total, first, error));
    }
    for (int r = 0; r < rank; r++) {
        begin += c->slices[r];
    }
    for (size_t i = 0; i < c->slices[rank]; i++) {
        float wanted = holder_tree(0, c->all, begin + i);
        CHECK(memcmp(&c->sums[0][i], &wanted, sizeof wanted) == 0, "another sum of rounds");
    }
out:
    for (int i = 0; i < 8; i++) {
        free(c->sums[i]);
    }
    free(c->leaf);
    free(c->slices);
    free(c->owners);
    free(c->kept);
    free(c->nodes);
    free(c->merges);
    return status;
}

static by_status round_cases(by_comm *comm, by_error *error)
{
    static const int leaves[] = {1, 2, 3, 5, 7, 12};
    for (size_t i = 0; i < 2 * BY_ARRAY_LENGTH(leaves); i++) {
        rounds_case c = {.all = leaves[i / 2], .unit = i % 2 == 0 ? 41 : 9001};
        BY_TRY(rounds(comm, &c, error));
    }
    return BY_OK;
}

/* ---- splits ---- */

static by_status splits(by_comm *comm, by_error *error)
{
    by_status status = BY_OK;
    by_comm *part = NULL;
    by_comm *pair = NULL;
    int rank = by_comm_rank(comm);
    int ranks = by_comm_size(comm);
    int color = rank % 3 == 2 ? -1 : rank % 3;
    /* In reverse order. */
    STEP(by_comm_split(&part, comm, color, -rank, error));
    CHECK((part == NULL) == (color < 0), "a communicator for color %d", color);
    if (part != NULL) {
        int size = (ranks - color + 2) / 3;
        CHECK(by_comm_size(part) == size, "a group of %d ranks, not %d", by_comm_size(part), size);
        CHECK(by_comm_rank(part) == size - 1 - rank / 3, "order in the group");
        float x = (float)rank;
        STEP(by_comm_broadcast(part, &x, 1, BY_F32, size - 1, "x", error));
        CHECK(x == (float)color, "broadcast in a group");
        STEP(all_reduce(part, BY_F32, 5000, error));
        STEP(by_comm_split(&pair, part, by_comm_rank(part) / 2, 0, error));
        STEP(all_reduce(pair, BY_F32, 3, error));
        STEP(all_reduce(pair, BY_F32, 3000, error));
    }
    STEP(by_comm_barrier(comm, "splits", error));
out:
    by_comm_close(&pair);
    by_comm_close(&part);
    return status;
}

by_status comm_cases_all(by_comm *comm, void *user, by_error *error)
{
    static const size_t sizes[] = {0, 1, 7, 255, 256, 1000, 4097, 30011};
    size_t *counts;
    int ranks = by_comm_size(comm);
    by_status status = BY_OK;
    BY_UNUSED(user);
    BY_TRY(by__alloc((void **)&counts, (size_t)ranks, sizeof *counts, "counts", error));
    for (size_t d = 0; d < BY_ARRAY_LENGTH(all_dtypes); d++) {
        by_dtype dtype = all_dtypes[d];
        for (size_t s = 0; s < BY_ARRAY_LENGTH(sizes); s++) {
            size_t unit = sizes[s] / (size_t)ranks;
            size_t total = slices_of(counts, ranks, (int)s, unit);
            if (d < SUM_DTYPES) {
                STEP(all_reduce(comm, dtype, sizes[s], error));
                STEP(reduce_scatter(comm, dtype, counts, total, s % 2 == 0, error));
            }
            STEP(all_gather(comm, dtype, counts, total, s % 2 == 0, error));
            STEP(broadcast(comm, dtype, sizes[s], (int)s % ranks, error));
            STEP(all_to_all(comm, dtype, unit, error));
            STEP(by_comm_barrier(comm, "between", error));
        }
    }
    STEP(all_reduce(comm, BY_F32, 300001, error));
    STEP(messages(comm, 3, error));
    STEP(messages(comm, 40000, error));
    STEP(many_messages(comm, error));
    STEP(holder_cases(comm, error));
    STEP(round_cases(comm, error));
    STEP(splits(comm, error));
    by_comm_counters counters;
    by_comm_count(&counters, comm);
    CHECK(counters.collectives > 100 && counters.seconds > 0.0, "counters");
    CHECK(ranks == 1 || counters.bytes_read + counters.bytes_written + counters.bytes_sent > 100000,
          "counted bytes");
out:
    free(counts);
    return status;
}

by_status comm_cases_large(by_comm *comm, by_error *error)
{
    enum { SLICE = 5 * 131072 + 777 }; /* far more segments than are under way at once */
    size_t count = (size_t)by_comm_size(comm) * SLICE;
    BY_TRY(all_reduce(comm, BY_F32, count, error));
    return all_reduce(comm, BY_BF16, count, error);
}

/* ---- mesh ---- */

static by_status mesh_set(by_comm *comm, by_mesh *mesh, unsigned axes, by_error *error)
{
    by_status status = BY_OK;
    by_comm *set;
    by_comm *again;
    int size = 1;
    int place = 0;
    int first = 0;
    STEP(by_mesh_comm(&set, mesh, axes, error));
    STEP(by_mesh_comm(&again, mesh, axes, error));
    CHECK(set == again, "equal sets have two communicators");
    /* The ranks of the set, by its own numbering, and the world's number of its first one. */
    for (int a = 0; a < BY_MESH_AXES; a++) {
        int its = by_mesh_size(mesh, (by_mesh_axis)a);
        bool in = (axes >> a & 1) != 0;
        first = first * its + (in ? 0 : by_mesh_rank(mesh, (by_mesh_axis)a));
        if (in) {
            size *= its;
            place = place * its + by_mesh_rank(mesh, (by_mesh_axis)a);
        }
    }
    CHECK(by_comm_size(set) == size && by_comm_rank(set) == place, "set %#x: rank %d of %d", axes,
          by_comm_rank(set), by_comm_size(set));
    int32_t world = by_comm_rank(comm);
    STEP(by_comm_broadcast(set, &world, 1, BY_I32, 0, "first", error));
    CHECK(world == first, "set %#x begins with rank %d, not %d", axes, world, first);
out:
    return status;
}

by_status comm_cases_mesh(by_comm *comm, by_mesh *mesh, by_error *error)
{
    int rank = 0;
    for (int a = 0; a < BY_MESH_AXES; a++) {
        rank = rank * by_mesh_size(mesh, (by_mesh_axis)a) + by_mesh_rank(mesh, (by_mesh_axis)a);
    }
    if (rank != by_comm_rank(comm)) {
        return by_error_set(error, BY_ESTATE, "place in the mesh");
    }
    for (unsigned axes = 0; axes < 1u << BY_MESH_AXES; axes++) {
        BY_TRY(mesh_set(comm, mesh, axes, error));
    }
    return BY_OK;
}
