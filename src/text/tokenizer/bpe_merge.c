/* BPE merges (Sennrich et al. 2016): merges the leftmost pair of lowest rank until no pair is in
 * the list. Short pieces scan all pairs for each merge; long ones keep them in a heap ordered by
 * (rank, position), so that n symbols in one piece cost O(n log n). */
#include "base/heap.h"
#include "text/tokenizer/encoder.h"

size_t by__tokenizer_merge_short(const by_tokenizer *t, uint32_t *ids, size_t n)
{
    uint32_t ranks[BY__SHORT_PIECE];
    for (size_t i = 0; i + 1 < n; i++) {
        ranks[i] = by__pair_rank(t, ids[i], ids[i + 1]);
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            best = ranks[i] < ranks[best] ? i : best;
        }
        if (ranks[best] == BY__NO_TOKEN) {
            break;
        }
        ids[best] = t->merges[ranks[best]].id;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            ranks[i - 1] = ranks[i];
        }
        if (best > 0) {
            ranks[best - 1] = by__pair_rank(t, ids[best - 1], ids[best]);
        }
        if (best + 1 < n) {
            ranks[best] = by__pair_rank(t, ids[best], ids[best + 1]);
        }
    }
    return n;
}

static bool before(const void *user, const void *a, const void *b)
{
    (void)user;
    return *(const uint64_t *)a < *(const uint64_t *)b;
}

/* Sets and returns the rank of the pair of the symbol at `at` and the next one. */
static uint32_t rank_at(const by_tokenizer *t, by__tokenizer_symbol *symbols, uint32_t at)
{
    uint32_t next = symbols[at].next;
    symbols[at].rank =
        next == BY__NO_TOKEN ? BY__NO_TOKEN : by__pair_rank(t, symbols[at].id, symbols[next].id);
    return symbols[at].rank;
}

static void merge_heap(by_encoder *e)
{
    const by_tokenizer *t = e->tokenizer;
    by__tokenizer_symbol *symbols = e->symbols;
    while (e->heap_count > 0) {
        uint64_t top;
        by__heap_pop(e->heap, e->heap_count--, sizeof top, &top, before, NULL);
        uint32_t at = (uint32_t)top;
        uint32_t rank = (uint32_t)(top >> 32);
        if (symbols[at].id == BY__NO_TOKEN || symbols[at].rank != rank) {
            continue; /* the pair has changed since it was pushed */
        }
        uint32_t gone = symbols[at].next;
        symbols[at].id = t->merges[rank].id;
        symbols[at].next = symbols[gone].next;
        symbols[gone].id = BY__NO_TOKEN;
        if (symbols[at].next != BY__NO_TOKEN) {
            symbols[symbols[at].next].previous = at;
        }
        uint32_t around[2] = {symbols[at].previous, at};
        for (unsigned k = 0; k < 2; k++) {
            if (around[k] != BY__NO_TOKEN) {
                uint32_t pair = rank_at(t, symbols, around[k]);
                if (pair != BY__NO_TOKEN) {
                    uint64_t entry = (uint64_t)pair << 32 | around[k];
                    by__heap_push(e->heap, e->heap_count++, sizeof entry, &entry, before, NULL);
                }
            }
        }
    }
}

by_status by__tokenizer_merge_long(by_encoder *e, uint32_t *ids, size_t *count, by_error *error)
{
    const by_tokenizer *t = e->tokenizer;
    size_t n = *count;
    if (n >= BY__NO_TOKEN) {
        return by_error_set(error, BY_EARG,
                            "a run of %zu bytes without a border is longer than 2^32 - 2", n);
    }
    BY_TRY(by__reserve((void **)&e->symbols, &e->symbol_capacity, n, sizeof *e->symbols, error));
    /* A merge pops one entry and pushes at most two, and there are fewer than n merges. */
    BY_TRY(by__reserve((void **)&e->heap, &e->heap_capacity, 2 * n, sizeof *e->heap, error));
    for (size_t i = 0; i < n; i++) {
        e->symbols[i] =
            (by__tokenizer_symbol){ids[i], i == 0 ? BY__NO_TOKEN : (uint32_t)(i - 1),
                                   i + 1 == n ? BY__NO_TOKEN : (uint32_t)(i + 1), BY__NO_TOKEN};
    }
    e->heap_count = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        uint32_t rank = rank_at(t, e->symbols, (uint32_t)i);
        if (rank != BY__NO_TOKEN) {
            e->heap[e->heap_count++] = (uint64_t)rank << 32 | i;
        }
    }
    for (size_t i = e->heap_count / 2; i-- > 0;) {
        uint64_t entry = e->heap[i];
        by__heap_sink(e->heap, e->heap_count, sizeof entry, i, &entry, before, NULL);
    }
    merge_heap(e);
    *count = 0;
    for (uint32_t i = 0; i != BY__NO_TOKEN; i = e->symbols[i].next) {
        ids[(*count)++] = e->symbols[i].id;
    }
    return BY_OK;
}
