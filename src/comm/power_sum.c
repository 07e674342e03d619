#include "comm/power_sum.h"

#include <stdlib.h>
#include <string.h>

#include "comm/power_sgd.h"

/* A matrix, and the offsets of its factors among those of all. */
typedef struct factored_matrix {
    size_t first;
    size_t rows;
    size_t columns;
    size_t left;
    size_t right;
} factored_matrix;

struct by__comm_power_sum {
    by_comm *comm;
    size_t count;
    size_t rank;
    factored_matrix *matrices;
    size_t matrix_count;
    by__comm_power_tensor *plain; /* tensors that are summed uncompressed */
    size_t plain_count;
    size_t plain_elements;
    size_t left_elements;
    size_t right_elements;
    float *residual; /* [count], owned by the caller */
    uint64_t seed;
    float *left;  /* P of all matrices, followed by the plain tensors: one sum */
    float *right; /* Q of all matrices; kept between sums */
};

static bool pays(const by__comm_power_tensor *tensor, size_t rank)
{
    return tensor->columns > 0 &&
           (tensor->rows + tensor->columns) * rank < tensor->rows * tensor->columns;
}

size_t by__comm_power_sum_bytes(const by__comm_power_tensor *tensors, size_t tensor_count,
                                size_t rank)
{
    size_t bytes = 0;
    for (size_t i = 0; i < tensor_count; i++) {
        const by__comm_power_tensor *t = &tensors[i];
        size_t plain = t->rows * (t->columns > 0 ? t->columns : 1);
        bytes += sizeof(factored_matrix) + sizeof *t;
        bytes += (pays(t, rank) ? (t->rows + t->columns) * rank : plain) * sizeof(float);
    }
    return bytes;
}

static void add_tensor(by__comm_power_sum *s, const by__comm_power_tensor *tensor)
{
    if (!pays(tensor, s->rank)) {
        by__comm_power_tensor *plain = &s->plain[s->plain_count++];
        *plain = *tensor;
        plain->rows *= tensor->columns > 0 ? tensor->columns : 1;
        plain->columns = 0;
        s->plain_elements += plain->rows;
        return;
    }
    s->matrices[s->matrix_count++] = (factored_matrix){.first = tensor->first,
                                                       .rows = tensor->rows,
                                                       .columns = tensor->columns,
                                                       .left = s->left_elements,
                                                       .right = s->right_elements};
    s->left_elements += tensor->rows * s->rank;
    s->right_elements += tensor->columns * s->rank;
}

static by_status allocate(float **out, size_t count, by_error *error)
{
    return by__alloc((void **)out, count > 0 ? count : 1, sizeof **out, "PowerSGD", error);
}

static void draw_factors(by__comm_power_sum *s)
{
    for (size_t i = 0; i < s->matrix_count; i++) {
        by__comm_power_begin(s->right + s->matrices[i].right, s->matrices[i].columns, s->rank,
                             s->seed, (uint32_t)i);
    }
}

static by_status fill(by__comm_power_sum *s, const by__comm_power_tensor *tensors,
                      size_t tensor_count, by_error *error)
{
    size_t capacity = tensor_count > 0 ? tensor_count : 1;
    BY_TRY(by__alloc((void **)&s->matrices, capacity, sizeof *s->matrices, "PowerSGD", error));
    BY_TRY(by__alloc((void **)&s->plain, capacity, sizeof *s->plain, "PowerSGD", error));
    for (size_t i = 0; i < tensor_count; i++) {
        add_tensor(s, &tensors[i]);
    }
    BY_TRY(allocate(&s->left, s->left_elements + s->plain_elements, error));
    BY_TRY(allocate(&s->right, s->right_elements, error));
    draw_factors(s);
    return BY_OK;
}

by_status by__comm_power_sum_open(by__comm_power_sum **out, by_comm *comm,
                                  const by__comm_power_tensor *tensors, size_t tensor_count,
                                  float *residual, size_t count, size_t rank, uint64_t seed,
                                  by_error *error)
{
    by__comm_power_sum *s;
    if (rank < 1 || rank > BY__POWER_MAX_RANK) {
        return by_error_set(error, BY_EARG, "PowerSGD: the rank is %zu; it must be 1 to %d", rank,
                            BY__POWER_MAX_RANK);
    }
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "PowerSGD", error));
    s->comm = comm;
    s->count = count;
    s->rank = rank;
    s->seed = seed;
    s->residual = residual;
    by_status status = fill(s, tensors, tensor_count, error);
    if (status != BY_OK) {
        by__comm_power_sum_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}

void by__comm_power_sum_close(by__comm_power_sum **sum)
{
    if (sum == NULL || *sum == NULL) {
        return;
    }
    by__comm_power_sum *s = *sum;
    free(s->matrices);
    free(s->plain);
    free(s->left);
    free(s->right);
    free(s);
    *sum = NULL;
}

/* Computes the left factors of data + residual, which is stored in the residual, and copies the
 * plain tensors after them. */
static void make_left(by__comm_power_sum *s, const float *data)
{
    float *plain = s->left + s->left_elements;
    for (size_t k = 0; k < s->matrix_count; k++) {
        const factored_matrix *m = &s->matrices[k];
        float *sum = s->residual + m->first;
        for (size_t i = 0; i < m->rows * m->columns; i++) {
            sum[i] += data[m->first + i];
        }
        by__comm_power_left(sum, m->rows, m->columns, s->rank, s->right + m->right,
                            s->left + m->left);
    }
    for (size_t k = 0; k < s->plain_count; k++) {
        memcpy(plain, data + s->plain[k].first, s->plain[k].rows * sizeof *plain);
        plain += s->plain[k].rows;
    }
}

/* Computes the right factors from the summed left ones. */
static void make_right(by__comm_power_sum *s)
{
    for (size_t k = 0; k < s->matrix_count; k++) {
        const factored_matrix *m = &s->matrices[k];
        by__comm_power_orthonormalize(s->left + m->left, m->rows, s->rank);
        by__comm_power_right(s->residual + m->first, m->rows, m->columns, s->rank,
                             s->left + m->left, s->right + m->right);
    }
}

/* Subtracts from the residual what this rank has contributed to the sum: P times its own Q. */
static void subtract_own(by__comm_power_sum *s, float *scratch)
{
    for (size_t k = 0; k < s->matrix_count; k++) {
        const factored_matrix *m = &s->matrices[k];
        float *own = scratch + m->first;
        float *residual = s->residual + m->first;
        by__comm_power_product(s->left + m->left, s->right + m->right, m->rows, m->columns, s->rank,
                               own);
        for (size_t i = 0; i < m->rows * m->columns; i++) {
            float lost = residual[i] - own[i];
            residual[i] = lost - lost == 0.0f ? lost : 0.0f;
        }
    }
}

static void read_sums(by__comm_power_sum *s, float *data)
{
    const float *plain = s->left + s->left_elements;
    for (size_t k = 0; k < s->matrix_count; k++) {
        const factored_matrix *m = &s->matrices[k];
        by__comm_power_product(s->left + m->left, s->right + m->right, m->rows, m->columns, s->rank,
                               data + m->first);
    }
    for (size_t k = 0; k < s->plain_count; k++) {
        memcpy(data + s->plain[k].first, plain, s->plain[k].rows * sizeof *plain);
        plain += s->plain[k].rows;
    }
}

by_status by__comm_power_sum_run(by__comm_power_sum *s, float *data, const char *what,
                                 by_error *error)
{
    make_left(s, data);
    BY_TRY(by_comm_all_reduce(s->comm, s->left, s->left_elements + s->plain_elements, BY_F32, what,
                              error));
    make_right(s);
    subtract_own(s, data); /* the values are in the residual by now */
    BY_TRY(by_comm_all_reduce(s->comm, s->right, s->right_elements, BY_F32, what, error));
    read_sums(s, data);
    return BY_OK;
}

by_status by__comm_power_sum_settle(by__comm_power_sum *s, by_error *error)
{
    draw_factors(s);
    return by_comm_all_reduce(s->comm, s->residual, s->count, BY_F32, "residuals", error);
}
