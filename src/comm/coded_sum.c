#include "comm/coded_sum.h"

#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/sum_tree.h"

/* Blocks per chunk, over all slices: 16 MiB of f32. */
#define CHUNK_BLOCKS 256

struct by__comm_coded_sum {
    by_comm *comm;
    const by__comm_codec *codec;
    double density;
    int threads;
    int ranks;
    int rank;
    size_t count;
    size_t step;      /* elements of a chunk of one slice */
    size_t *first;    /* [ranks + 1]: offsets of slices */
    size_t *sent;     /* [ranks]: bytes of a chunk's codes sent to each rank, */
    size_t *received; /* and received from each rank */
    size_t *gathered; /* [ranks]: bytes of the codes of each rank's sums */
    float *residual;  /* [count], owned by the caller */
    float *owned;     /* [first[rank + 1] - first[rank]] residual of the sums */
    float *total;     /* [step]: sums of a chunk */
    float *terms;     /* [sets][BY__CODEC_BLOCK]: partial sums of the tree */
    uint8_t *codes;   /* codes to send, later codes that were gathered */
    uint8_t *others;  /* received codes, later the codes of the sums */
};

/* Sizes of a sum's allocations. */
typedef struct sizes {
    size_t step;
    size_t owned; /* elements of the largest slice */
    size_t codes; /* bytes of the codes of a chunk of all slices */
    size_t sets;
} sizes;

static size_t blocks_of(size_t count)
{
    return (count + BY__CODEC_BLOCK - 1) / BY__CODEC_BLOCK;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static sizes size_up(size_t ranks, const by__comm_codec *codec, double density, size_t count)
{
    size_t blocks = CHUNK_BLOCKS / ranks > 0 ? CHUNK_BLOCKS / ranks : 1;
    size_t largest = (blocks_of(count) + ranks - 1) / ranks;
    sizes s = {.step = smaller(blocks, largest) * BY__CODEC_BLOCK,
               .owned = largest * BY__CODEC_BLOCK,
               .sets = (size_t)by__sum_tree_sets(0, (int64_t)ranks, (int64_t)ranks)};
    s.codes = ranks * by__comm_codec_bytes(codec, s.step, density);
    return s;
}

size_t by__comm_coded_sum_bytes(int rank_count, const by__comm_codec *codec, double density,
                                size_t count)
{
    size_t ranks = (size_t)rank_count;
    sizes s = size_up(ranks, codec, density, count);
    return (s.owned + s.step + s.sets * BY__CODEC_BLOCK) * sizeof(float) + 2 * s.codes +
           (4 * ranks + 1) * sizeof(size_t);
}

static by_status allocate(void *out, size_t count, size_t size, by_error *error)
{
    return by__alloc((void **)out, count > 0 ? count : 1, size, "compressed sum", error);
}

static by_status allocate_all(by__comm_coded_sum *s, by_error *error)
{
    size_t ranks = (size_t)s->ranks;
    sizes n = size_up(ranks, s->codec, s->density, s->count);
    s->step = n.step;
    BY_TRY(allocate(&s->first, ranks + 1, sizeof *s->first, error));
    BY_TRY(allocate(&s->sent, ranks, sizeof *s->sent, error));
    BY_TRY(allocate(&s->received, ranks, sizeof *s->received, error));
    BY_TRY(allocate(&s->gathered, ranks, sizeof *s->gathered, error));
    BY_TRY(allocate(&s->owned, n.owned, sizeof *s->owned, error));
    BY_TRY(allocate(&s->total, n.step, sizeof *s->total, error));
    BY_TRY(allocate(&s->terms, n.sets * BY__CODEC_BLOCK, sizeof *s->terms, error));
    BY_TRY(allocate(&s->codes, n.codes, 1, error));
    BY_TRY(allocate(&s->others, n.codes, 1, error));
    for (int r = 0; r <= s->ranks; r++) {
        int64_t block = (int64_t)blocks_of(s->count);
        int64_t size;
        if (r < s->ranks) {
            by__sum_tree_block((int64_t)blocks_of(s->count), s->ranks, r, &block, &size);
        }
        s->first[r] = smaller((size_t)block * BY__CODEC_BLOCK, s->count);
    }
    return BY_OK;
}

by_status by__comm_coded_sum_open(by__comm_coded_sum **out, by_comm *comm,
                                  const by__comm_codec *codec, double density, float *residual,
                                  size_t count, int threads, by_error *error)
{
    by__comm_coded_sum *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "compressed sum", error));
    s->comm = comm;
    s->codec = codec;
    s->density = density;
    s->residual = residual;
    s->count = count;
    s->threads = threads;
    s->ranks = by_comm_size(comm);
    s->rank = by_comm_rank(comm);
    by_status status = allocate_all(s, error);
    if (status != BY_OK) {
        by__comm_coded_sum_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}

void by__comm_coded_sum_close(by__comm_coded_sum **sum)
{
    if (sum == NULL || *sum == NULL) {
        return;
    }
    by__comm_coded_sum *s = *sum;
    free(s->first);
    free(s->sent);
    free(s->received);
    free(s->gathered);
    free(s->owned);
    free(s->total);
    free(s->terms);
    free(s->codes);
    free(s->others);
    free(s);
    *sum = NULL;
}

/* Number of elements of rank r's slice in the chunk at offset `at` of every slice. */
static size_t chunk_of(const by__comm_coded_sum *s, int r, size_t at)
{
    size_t size = s->first[r + 1] - s->first[r];
    return at < size ? smaller(s->step, size - at) : 0;
}

static size_t code_bytes(const by__comm_coded_sum *s, size_t count)
{
    return by__comm_codec_bytes(s->codec, count, s->density);
}

/* Encodes this rank's values of the chunk of every slice, one after another. */
static by_status send_chunk(by__comm_coded_sum *s, const float *data, size_t at, by_error *error)
{
    uint8_t *code = s->codes;
    for (int r = 0; r < s->ranks; r++) {
        size_t first = s->first[r] + at;
        size_t count = chunk_of(s, r, at);
        BY_TRY(by__comm_codec_send(s->codec, data + first, s->residual + first, count, s->density,
                                   code, s->threads, error));
        s->sent[r] = code_bytes(s, count);
        s->received[r] = code_bytes(s, chunk_of(s, s->rank, at));
        code += s->sent[r];
    }
    return BY_OK;
}

/* total[first, first + count) = the decoded values of all ranks, added in the order of the sum
 * tree. */
static by_status add_block(by__comm_coded_sum *s, size_t first, size_t count, size_t bytes,
                           by_error *error)
{
    by__sum_tree tree;
    by__sum_addition pair;
    int sets = by__sum_tree_sets(0, s->ranks, s->ranks);
    by__sum_tree_begin(&tree, 0, s->ranks, sets);
    for (int r = 0; r < s->ranks; r++) {
        int set = by__sum_tree_acquire(&tree);
        const uint8_t *code = s->others + (size_t)r * bytes + code_bytes(s, first);
        BY_TRY(by__comm_codec_receive(s->codec, code, count, s->density, false,
                                      s->terms + (size_t)set * BY__CODEC_BLOCK, 1, error));
        by__sum_tree_release(&tree, set);
        while (by__sum_tree_add(&tree, &pair)) {
            const float *left = s->terms + (size_t)pair.left * BY__CODEC_BLOCK;
            float *right = s->terms + (size_t)pair.right * BY__CODEC_BLOCK;
            for (size_t i = 0; i < count; i++) {
                right[i] = left[i] + right[i];
            }
        }
    }
    memcpy(s->total + first, s->terms + (size_t)tree.held[0].set * BY__CODEC_BLOCK,
           count * sizeof(float));
    return BY_OK;
}

/* Sums what was received for this rank's slice and encodes the sum. */
static by_status add_chunk(by__comm_coded_sum *s, size_t at, by_error *error)
{
    size_t count = chunk_of(s, s->rank, at);
    for (size_t first = 0; first < count; first += BY__CODEC_BLOCK) {
        BY_TRY(add_block(s, first, smaller(BY__CODEC_BLOCK, count - first), code_bytes(s, count),
                         error));
    }
    return by__comm_codec_send(s->codec, s->total, s->owned + at, count, s->density, s->others,
                               s->threads, error);
}

/* Decodes the sums of the chunk of every slice. */
static by_status decode_chunk(by__comm_coded_sum *s, float *data, size_t at, by_error *error)
{
    const uint8_t *code = s->codes;
    for (int r = 0; r < s->ranks; r++) {
        size_t count = chunk_of(s, r, at);
        BY_TRY(by__comm_codec_receive(s->codec, code, count, s->density, false,
                                      data + s->first[r] + at, s->threads, error));
        code += code_bytes(s, count);
    }
    return BY_OK;
}

by_status by__comm_coded_sum_run(by__comm_coded_sum *s, float *data, const char *what,
                                 by_error *error)
{
    size_t largest = s->first[1] - s->first[0]; /* the first slices are the larger ones */
    for (size_t at = 0; at < largest; at += s->step) {
        BY_TRY(send_chunk(s, data, at, error));
        BY_TRY(by_comm_all_to_all(s->comm, s->codes, s->sent, s->others, s->received, BY_U8, what,
                                  error));
        BY_TRY(add_chunk(s, at, error));
        for (int r = 0; r < s->ranks; r++) {
            s->gathered[r] = code_bytes(s, chunk_of(s, r, at));
        }
        BY_TRY(by_comm_all_gather(s->comm, s->others, s->codes, s->gathered, BY_U8, what, error));
        BY_TRY(decode_chunk(s, data, at, error));
    }
    return BY_OK;
}

by_status by__comm_rounded_sum(by_comm *comm, float *data, size_t count, const char *what,
                               by_error *error)
{
    enum { PIECE = 1 << 20 };
    uint16_t *halves;
    by_status status = BY_OK;
    if (by_comm_size(comm) == 1) {
        return BY_OK;
    }
    BY_TRY(allocate(&halves, smaller(count, PIECE), sizeof *halves, error));
    for (size_t at = 0; at < count && status == BY_OK; at += PIECE) {
        size_t n = smaller(count - at, PIECE);
        for (size_t i = 0; i < n; i++) {
            halves[i] = by__f32_to_bf16(data[at + i]);
        }
        status = by_comm_all_reduce(comm, halves, n, BY_BF16, what, error);
        for (size_t i = 0; i < n; i++) {
            data[at + i] = by__bf16_to_f32(halves[i]);
        }
    }
    free(halves);
    return status;
}

by_status by__comm_coded_sum_settle(by__comm_coded_sum *s, by_error *error)
{
    size_t first = s->first[s->rank];
    size_t owned = s->first[s->rank + 1] - first;
    for (size_t i = 0; i < owned; i++) {
        s->residual[first + i] += s->owned[i];
        s->owned[i] = 0.0f;
    }
    return by_comm_all_reduce(s->comm, s->residual, s->count, BY_F32, "residuals", error);
}
