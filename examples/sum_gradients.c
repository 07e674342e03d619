/* Data-parallel training by hand: a small network with hand-written gradients, which the ranks of a
 * job sum over MPI.
 *
 * A step has 12 micro-batches. Each rank sums the gradients of a contiguous block of them, and
 * by_comm_all_reduce adds the ranks' sums. Floating-point addition depends on its order, so both
 * follow one tree: the first part of a node is the largest power of two below its size. So 1, 3, 6
 * and 12 ranks, whose blocks are nodes of the tree, get the same bits; 2 or 5 ranks get different
 * last digits.
 *
 *   cmake --build build/release --target example_sum_gradients
 *   build/release/example_sum_gradients
 *   mpirun -n 3 build/release/example_sum_gradients
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "banyan/comm.h"

enum { IN = 2, HIDDEN = 8, BATCHES = 12, SAMPLES = 16, STEPS = 400 };

/* y = w2 . tanh(w1 x + b1) + b2. Gradients use the same struct; the loss is its last field. */
typedef struct network {
    float w1[HIDDEN][IN];
    float b1[HIDDEN];
    float w2[HIDDEN];
    float b2;
    float loss;
} network;

enum { VALUES = sizeof(network) / sizeof(float), WEIGHTS = VALUES - 1 };

/* Numbers in [-1, 1) that depend on their index alone, never on the rank. */
static float random_value(unsigned index)
{
    unsigned x = index * 0x9e3779b9u + 1;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return (float)((x ^ x >> 16) >> 8) / 8388608.0f - 1.0f;
}

/* Gradients of the squared error over one micro-batch. */
static void micro_batch(network *g, const network *n, int step, int batch)
{
    memset(g, 0, sizeof *g);
    for (int s = 0; s < SAMPLES; s++) {
        unsigned sample = (unsigned)((step * BATCHES + batch) * SAMPLES + s);
        float x[IN] = {random_value(2 * sample), random_value(2 * sample + 1)};
        float hidden[HIDDEN];
        float y = n->b2;
        for (int h = 0; h < HIDDEN; h++) {
            hidden[h] = tanhf(n->w1[h][0] * x[0] + n->w1[h][1] * x[1] + n->b1[h]);
            y += n->w2[h] * hidden[h];
        }
        float error = y - x[0] * x[1]; /* the target is the product of the inputs */
        g->loss += error * error;
        g->b2 += 2.0f * error;
        for (int h = 0; h < HIDDEN; h++) {
            float back = 2.0f * error * n->w2[h] * (1.0f - hidden[h] * hidden[h]);
            g->w2[h] += 2.0f * error * hidden[h];
            g->b1[h] += back;
            g->w1[h][0] += back * x[0];
            g->w1[h][1] += back * x[1];
        }
    }
}

/* Gradients of micro-batches [first, first + count), in the order of the tree. */
static void sum_of(network *sum, const network *n, int step, int first, int count)
{
    if (count < 2) {
        micro_batch(sum, n, step, first);
        return;
    }
    int half = 1;
    while (2 * half < count) {
        half *= 2;
    }
    network right;
    sum_of(sum, n, step, first, half);
    sum_of(&right, n, step, first + half, count - half);
    for (int i = 0; i < VALUES; i++) {
        ((float *)sum)[i] += ((float *)&right)[i];
    }
}

static by_status train(by_comm *comm, by_error *error)
{
    int rank = by_comm_rank(comm);
    int ranks = by_comm_size(comm);
    int first = BATCHES * rank / ranks;
    int count = BATCHES * (rank + 1) / ranks - first;
    network n;
    network g;
    if (ranks > BATCHES) {
        return by_error_set(error, BY_EARG, "%d ranks share %d micro-batches: at most %d ranks",
                            ranks, BATCHES, BATCHES);
    }
    for (int i = 0; i < VALUES; i++) {
        ((float *)&n)[i] = random_value(1000000u + (unsigned)i);
    }
    for (int step = 0; step < STEPS; step++) {
        sum_of(&g, &n, step, first, count);
        by_status status = by_comm_all_reduce(comm, &g, VALUES, BY_F32, "gradients", error);
        if (status != BY_OK) {
            return status;
        }
        for (int i = 0; i < WEIGHTS; i++) {
            ((float *)&n)[i] -= 0.1f * ((float *)&g)[i] / (BATCHES * SAMPLES);
        }
        if (rank == 0 && (step + 1) % 100 == 0) {
            printf("step %d loss %.6g\n", step + 1, (double)g.loss / (BATCHES * SAMPLES));
        }
    }
    for (int i = 0; rank == 0 && i < WEIGHTS; i++) {
        printf("%.9g%c", (double)((float *)&n)[i],
               (i + 1) % 6 == 0 || i + 1 == WEIGHTS ? '\n' : ' ');
    }
    return BY_OK;
}

int main(void)
{
    by_comm *comm = NULL;
    by_error error = {0};
    by_status status = by_comm_open(&comm, NULL, &error);
    if (status == BY_OK) {
        /* Notifies the other ranks if this one fails. */
        status = by_comm_fail(comm, train(comm, &error), &error);
    }
    if (status != BY_OK) {
        fprintf(stderr, "%s\n", error.message);
    }
    by_comm_close(&comm);
    return status == BY_OK ? 0 : 1;
}
