#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "data/nodes/partition/partition.h"

/* First nodes that a half is grown from, of which the best cut is kept. */
#define TRIES 4
/* Passes of moves, and moves of a pass without a gain. */
#define PASSES    6
#define FRUITLESS 64

/* A node that may move, and what this would take from the cut when it was written here. */
typedef struct gain_entry {
    int64_t gain;
    int32_t node;
} gain_entry;

typedef struct bisection {
    const by__nodes_level *level;
    const int32_t *part_of; /* [nodes]; the nodes of part `part` are cut into two */
    int32_t part;
    const int32_t *list; /* [count] these nodes */
    int64_t count;
    int64_t size;
    int64_t want;        /* size of half 1 */
    int64_t slack;       /* it may be so much smaller or larger */
    int8_t *half;        /* [nodes of the level] 0 or 1 */
    int8_t *best;        /* [count] the best halves so far */
    int8_t *moved;       /* [nodes of the level] in this pass */
    int64_t *gain;       /* [nodes of the level] */
    int32_t *order;      /* [count] moves of this pass */
    gain_entry *heap[2]; /* of each half; entries whose gain has changed are left in it */
    size_t heap_count[2];
    size_t heap_capacity[2];
    uint32_t key[2];
    uint32_t draws;
} bisection;

static bool gains_more(const void *user, const void *a, const void *b)
{
    const gain_entry *x = a;
    const gain_entry *y = b;
    BY_UNUSED(user);
    return x->gain > y->gain || (x->gain == y->gain && x->node < y->node);
}

static by_status push(bisection *b, int32_t v, by_error *error)
{
    int half = b->half[v] == 0 ? 0 : 1;
    const gain_entry entry = {b->gain[v], v};
    BY_TRY(by__reserve((void **)&b->heap[half], &b->heap_capacity[half], b->heap_count[half] + 1,
                       sizeof entry, error));
    by__heap_push(b->heap[half], b->heap_count[half]++, sizeof entry, &entry, gains_more, NULL);
    return BY_OK;
}

/* The node of a half whose move gains most, which stays in the heap; -1: there is none. */
static int32_t first_of(bisection *b, int half)
{
    while (b->heap_count[half] > 0) {
        gain_entry e = b->heap[half][0];
        if (b->half[e.node] == half && b->moved[e.node] == 0 && b->gain[e.node] == e.gain) {
            return e.node;
        }
        by__heap_pop(b->heap[half], b->heap_count[half]--, sizeof e, &e, gains_more, NULL);
    }
    return -1;
}

static void compute_gains(const bisection *b)
{
    const by__nodes_level *l = b->level;
    for (int64_t i = 0; i < b->count; i++) {
        int32_t v = b->list[i];
        b->gain[v] = 0;
        for (int64_t k = l->offsets[v]; k < l->offsets[v + 1]; k++) {
            int32_t u = l->ends[k];
            if (b->part_of[u] == b->part) {
                b->gain[v] += by__nodes_level_weight(l, k) * (b->half[u] == b->half[v] ? -1 : 1);
            }
        }
    }
}

/* Moves a node to the other half, and pushes the neighbours, whose gains change. */
static by_status move(bisection *b, int32_t v, by_error *error)
{
    const by__nodes_level *l = b->level;
    b->half[v] = (int8_t)(1 - b->half[v]);
    b->moved[v] = 1;
    b->gain[v] = -b->gain[v];
    for (int64_t k = l->offsets[v]; k < l->offsets[v + 1]; k++) {
        int32_t u = l->ends[k];
        if (b->part_of[u] != b->part) {
            continue;
        }
        b->gain[u] +=
            2 * (int64_t)by__nodes_level_weight(l, k) * (b->half[u] == b->half[v] ? -1 : 1);
        if (b->moved[u] == 0) {
            BY_TRY(push(b, u, error));
        }
    }
    return BY_OK;
}

static void begin_pass(bisection *b)
{
    b->heap_count[0] = b->heap_count[1] = 0;
    for (int64_t i = 0; i < b->count; i++) {
        b->moved[b->list[i]] = 0;
    }
}

static int64_t cut_of(const bisection *b)
{
    const by__nodes_level *l = b->level;
    int64_t cut = 0;
    for (int64_t i = 0; i < b->count; i++) {
        int32_t v = b->list[i];
        for (int64_t k = l->offsets[v]; k < l->offsets[v + 1]; k++) {
            int32_t u = l->ends[k];
            bool other = b->part_of[u] == b->part && b->half[u] != b->half[v];
            cut += other ? by__nodes_level_weight(l, k) : 0;
        }
    }
    return cut / 2;
}

/* ---- growing ---- */

static int32_t random_node(bisection *b)
{
    uint32_t bits[4];
    const uint32_t counter[4] = {b->draws++, 0, 0, 0};
    by__philox(bits, b->key, counter);
    return b->list[(uint64_t)bits[0] * (uint64_t)b->count >> 32];
}

/* Half 1 grows from a random node; where it has no neighbour left, from the next one. */
static by_status grow(bisection *b, int64_t *size, by_error *error)
{
    int64_t next = 0;
    *size = 0;
    begin_pass(b);
    for (int64_t i = 0; i < b->count; i++) {
        b->half[b->list[i]] = 0;
    }
    compute_gains(b);
    int32_t v = random_node(b);
    while (*size < b->want) {
        while (v < 0 && next < b->count) {
            int32_t u = b->list[next++];
            v = b->half[u] == 0 ? u : -1;
        }
        if (v < 0) {
            return BY_OK;
        }
        *size += by__nodes_level_size(b->level, v);
        BY_TRY(move(b, v, error));
        v = first_of(b, 0);
    }
    return BY_OK;
}

/* ---- moves between halves ---- */

static int64_t distance(int64_t size, int64_t want)
{
    return size > want ? size - want : want - size;
}

/* Which node moves next: what gains more, of what keeps the sizes or mends them. */
static int32_t choose(bisection *b, int64_t size)
{
    int32_t best = -1;
    for (int half = 0; half < 2; half++) {
        int32_t v = first_of(b, half);
        if (v < 0) {
            continue;
        }
        int64_t after = size + by__nodes_level_size(b->level, v) * (half == 0 ? 1 : -1);
        bool fits = distance(after, b->want) <= b->slack ||
                    distance(after, b->want) < distance(size, b->want);
        if (fits && (best < 0 || b->gain[v] > b->gain[best])) {
            best = v;
        }
    }
    return best;
}

/* One pass. *gained: what it took from the cut, or 1 if sizes came nearer to what is wanted. */
static by_status improve(bisection *b, int64_t *size, int64_t *gained, by_error *error)
{
    int64_t count = 0;
    int64_t kept = 0;
    int64_t sum = 0;
    int64_t best = 0;
    int64_t now = *size;
    bool began = distance(now, b->want) <= b->slack;
    bool in = began;
    begin_pass(b);
    compute_gains(b);
    for (int64_t i = 0; i < b->count; i++) {
        BY_TRY(push(b, b->list[i], error));
    }
    for (int32_t v; count - kept < FRUITLESS && (v = choose(b, now)) >= 0;) {
        sum += b->gain[v];
        now += by__nodes_level_size(b->level, v) * (b->half[v] == 0 ? 1 : -1);
        BY_TRY(move(b, v, error));
        b->order[count++] = v;
        bool fits = distance(now, b->want) <= b->slack;
        bool nearer = distance(now, b->want) < distance(*size, b->want);
        if ((fits && (sum > best || !in)) || (!in && nearer)) {
            best = sum;
            in = fits;
            kept = count;
            *size = now;
        }
    }
    while (count > kept) {
        int32_t v = b->order[--count];
        b->half[v] = (int8_t)(1 - b->half[v]);
    }
    *gained = kept == 0 ? 0 : began ? best : 1;
    return BY_OK;
}

static by_status halve(bisection *b, by_error *error)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        int64_t size;
        int64_t gained = 1;
        BY_TRY(grow(b, &size, error));
        for (int pass = 0; pass < PASSES && gained > 0; pass++) {
            BY_TRY(improve(b, &size, &gained, error));
        }
        int64_t cut = cut_of(b);
        if (cut < least) {
            least = cut;
            for (int64_t k = 0; k < b->count; k++) {
                b->best[k] = b->half[b->list[k]];
            }
        }
    }
    return BY_OK;
}

/* ---- recursion ---- */

/* Cuts part `first`, which has `parts` parts, into these. The list has its nodes. */
static by_status cut(bisection *b, int32_t *out, int32_t *list, int64_t count, int32_t first,
                     int32_t parts, by_error *error)
{
    int32_t right = parts / 2;
    int64_t size = 0;
    int64_t largest = 0;
    int64_t left = 0;
    if (parts == 1 || count == 0) {
        return BY_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t own = by__nodes_level_size(b->level, list[i]);
        size += own;
        largest = own > largest ? own : largest;
    }
    b->part = first;
    b->list = list;
    b->count = count;
    b->want = size * right / parts;
    b->slack = size / (64 * (int64_t)parts) > largest ? size / (64 * (int64_t)parts) : largest;
    BY_TRY(halve(b, error));
    /* Nodes of the first half in front, in their order; those of the other one behind. */
    for (int64_t i = 0; i < count; i++) {
        out[list[i]] = b->best[i] == 0 ? first : first + parts - right;
        b->order[i] = list[i];
    }
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < count; i++) {
            if (b->best[i] == side) {
                list[left++] = b->order[i];
            }
        }
    }
    int64_t ones = 0;
    for (int64_t i = 0; i < count; i++) {
        ones += b->best[i];
    }
    BY_TRY(cut(b, out, list, count - ones, first, parts - right, error));
    return cut(b, out, list + count - ones, ones, first + parts - right, right, error);
}

by_status by__nodes_bisect(int32_t *out, const by__nodes_level *level, int64_t parts, uint64_t seed,
                           by_error *error)
{
    bisection b = {.level = level, .part_of = out};
    size_t nodes = (size_t)level->nodes;
    int32_t *list = NULL;
    struct {
        void **out;
        size_t size;
    } arrays[] = {{(void **)&b.half, 1},
                  {(void **)&b.best, 1},
                  {(void **)&b.moved, 1},
                  {(void **)&b.gain, sizeof *b.gain},
                  {(void **)&b.order, sizeof *b.order},
                  {(void **)&list, sizeof *list}};
    by_status status = BY_OK;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays) && status == BY_OK; i++) {
        status = by__alloc(arrays[i].out, nodes, arrays[i].size, "a partition", error);
    }
    if (status == BY_OK) {
        by__philox_key(b.key, seed, 0x62697365u); /* "bise" in ASCII */
        for (size_t v = 0; v < nodes; v++) {
            out[v] = 0;
            list[v] = (int32_t)v;
        }
        status = cut(&b, out, list, level->nodes, 0, (int32_t)parts, error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
        free(*arrays[i].out);
    }
    free(b.heap[0]);
    free(b.heap[1]);
    return status;
}
