/* Sums, maxima and attention over the edges of graphs, which are the entries of sparse matrices in
 * rows (CSR): a thread makes a result from a row's entries in their order, or from one entry.
 * Gradients read the transposed matrix, so nothing is added by more than one thread. */
#include "functions.cuh"

/* Where entries begin in row r of matrix b (the end of row r - 1), whatever the offsets are. */
__device__ inline int64_t by__edges_begin(const by__cuda_edges &e, int64_t b, int64_t r)
{
    int64_t at = e.offsets[b * (e.rows + 1) + r];
    return at < 0 ? 0 : at > e.entries ? e.entries : at;
}

/* The column of entry k of matrix b; -1: none. */
__device__ inline int64_t by__edges_source(const by__cuda_edges &e, int64_t b, int64_t k)
{
    int64_t source = e.sources[b * e.entries + k];
    return source < 0 || source >= e.columns ? -1 : source;
}

/* The edge of entry k of matrix b; -1: none. */
__device__ inline int64_t by__edges_number(const by__cuda_edges &e, int64_t b, int64_t k)
{
    int64_t number = e.numbers == nullptr ? k : e.numbers[b * e.entries + k];
    return number < 0 || number >= e.entries ? -1 : number;
}

/* The row of entry k of matrix b; -1: none. */
__device__ inline int64_t by__edges_row(const by__cuda_edges &e, int64_t b, int64_t k)
{
    int64_t low = 0;
    int64_t high = e.rows;
    while (low < high) { /* the first row that ends behind k */
        int64_t middle = (low + high) >> 1;
        if (by__edges_begin(e, b, middle + 1) <= k) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < e.rows && by__edges_begin(e, b, low) <= k ? low : -1;
}

/* Of element i of a tensor [batch, rows, width]: its column, and its row's matrix and entries. */
struct by__edges_place {
    int64_t column, batch, row, begin, end;
};

__device__ inline by__edges_place by__edges_at(const by__cuda_edges &e, int64_t i, int64_t width)
{
    int64_t row = i / width;
    int64_t b = row / e.rows;
    int64_t r = row - b * e.rows;
    return {i - row * width, b, row, by__edges_begin(e, b, r), by__edges_begin(e, b, r + 1)};
}

BY__KERNEL(sparse_matmul, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.count) {
        return;
    }
    by__edges_place at = by__edges_at(a.edges, i, a.width);
    int64_t group = a.w == nullptr ? 0 : at.column / (a.width / a.groups);
    float sum = 0.0f;
    for (int64_t k = at.begin; k < at.end; k++) {
        int64_t source = by__edges_source(a.edges, at.batch, k);
        int64_t edge = by__edges_number(a.edges, at.batch, k);
        if (source < 0 || (edge < 0 && a.w != nullptr)) {
            continue;
        }
        float x =
            by__get(a.x, a.dtype, (at.batch * a.edges.columns + source) * a.width + at.column);
        float w =
            a.w == nullptr ? 1.0f : a.w[(at.batch * a.edges.entries + edge) * a.groups + group];
        sum = by__fma(w, x, sum);
    }
    by__put(a.y, a.dtype, i, sum);
}

BY__KERNEL(edge_dots, 256)
{
    unsigned lanes = (unsigned)a.lanes;
    unsigned lane = threadIdx.x & (lanes - 1);
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    float sum = 0.0f;
    if (i < a.count) { /* all threads of a warp shuffle below */
        int64_t entry = i / a.heads;
        int64_t b = entry / a.edges.entries;
        int64_t k = entry - b * a.edges.entries;
        int64_t row = by__edges_row(a.edges, b, k);
        int64_t source = by__edges_source(a.edges, b, k);
        int64_t first = (i - entry * a.heads) * a.width;
        int64_t columns = a.heads * a.width;
        for (int64_t c = lane; row >= 0 && source >= 0 && c < a.width; c += lanes) {
            float x = by__get(a.a, a.dtype, (b * a.edges.rows + row) * columns + first + c);
            float y = by__get(a.b, a.dtype, (b * a.edges.columns + source) * columns + first + c);
            sum = by__fma(x, y, sum);
        }
    }
    for (unsigned distance = lanes / 2; distance > 0; distance /= 2) {
        sum += by__shuffle(sum, by__lane() ^ distance);
    }
    if (i < a.count && lane == 0) {
        a.y[i] = sum;
    }
}

BY__KERNEL(edge_sum, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.count) {
        return;
    }
    by__edges_place at = by__edges_at(a.edges, i, a.heads);
    float sum = 0.0f;
    for (int64_t k = at.begin; k < at.end; k++) {
        int64_t edge = by__edges_number(a.edges, at.batch, k);
        if (edge >= 0) {
            sum += a.v[(at.batch * a.edges.entries + edge) * a.heads + at.column];
        }
    }
    a.y[i] = sum;
}

/* The sum s + d of entry k of a place's row. False: the entry is none. */
template <class ARGS>
__device__ inline bool by__edge_score(const ARGS &a, const by__edges_place &at, int64_t k, float *z)
{
    int64_t source = by__edges_source(a.edges, at.batch, k);
    if (source >= 0) {
        *z = a.s[(at.batch * a.edges.columns + source) * a.heads + at.column] +
             a.d[at.row * a.heads + at.column];
    }
    return source >= 0;
}

__device__ inline float by__leaky(float z, float slope)
{
    return z > 0.0f ? z : slope * z;
}

BY__KERNEL(edge_attention, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.count) {
        return;
    }
    by__edges_place at = by__edges_at(a.edges, i, a.heads);
    float z;
    float high = -BY__INFINITY;
    float sum = 0.0f;
    for (int64_t k = at.begin; k < at.end; k++) {
        if (by__edge_score(a, at, k, &z)) {
            high = by__at_least(high, by__leaky(z, a.slope));
        }
    }
    float *y = a.y + at.batch * a.edges.entries * a.heads + at.column;
    for (int64_t k = at.begin; k < at.end; k++) {
        float e = by__edge_score(a, at, k, &z) ? by__exp(by__leaky(z, a.slope) - high) : 0.0f;
        y[k * a.heads] = e;
        sum += e;
    }
    for (int64_t k = at.begin; k < at.end && sum > 0.0f; k++) {
        y[k * a.heads] = y[k * a.heads] / sum;
    }
}

BY__KERNEL(edge_attention_grad, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.count) {
        return;
    }
    by__edges_place at = by__edges_at(a.edges, i, a.heads);
    int64_t first = at.batch * a.edges.entries * a.heads + at.column;
    float mean = 0.0f;
    float sum = 0.0f;
    for (int64_t k = at.begin; k < at.end; k++) {
        mean = by__fma(a.y[first + k * a.heads], a.dy[first + k * a.heads], mean);
    }
    for (int64_t k = at.begin; k < at.end; k++) {
        float z = 0.0f;
        bool there = by__edge_score(a, at, k, &z);
        float g = a.y[first + k * a.heads] * (a.dy[first + k * a.heads] - mean);
        g = !there ? 0.0f : z > 0.0f ? g : g * a.slope;
        a.de[first + k * a.heads] = g;
        sum += g;
    }
    a.dd[i] = sum;
}

BY__KERNEL(sparse_max, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.count) {
        return;
    }
    by__edges_place at = by__edges_at(a.edges, i, a.width);
    int64_t best = -1;
    float high = 0.0f;
    for (int64_t k = at.begin; k < at.end; k++) {
        int64_t source = by__edges_source(a.edges, at.batch, k);
        if (source < 0) {
            continue;
        }
        float v =
            by__get(a.x, a.dtype, (at.batch * a.edges.columns + source) * a.width + at.column);
        if (best < 0 || v > high) {
            best = k;
            high = v;
        }
    }
    by__put(a.y, a.dtype, i, high);
    a.entry[i] = (int32_t)best;
}

BY__KERNEL(sparse_max_grad, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.count) {
        return;
    }
    by__edges_place at = by__edges_at(a.edges, i, a.width);
    float sum = 0.0f;
    for (int64_t k = at.begin; k < at.end; k++) {
        int64_t target = by__edges_source(a.edges, at.batch, k);
        if (target < 0) {
            continue;
        }
        int64_t from = (at.batch * a.edges.columns + target) * a.width + at.column;
        if (a.entry[from] == by__edges_number(a.edges, at.batch, k)) {
            sum += by__get(a.x, a.dtype, from);
        }
    }
    by__put(a.y, a.dtype, i, sum);
}
