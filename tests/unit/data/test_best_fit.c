/* Best-fit packing: every document is in its pieces, bins hold no more than they can, and pieces
 * are where a search through all bins would put them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/data.h"
#include "base/base.h"
#include "data/corpus/best_fit.h"
#include "data/corpus/token_manifest.h"
#include "formats/npy.h"
#include "temporary.h"

enum { DOCUMENTS = 700 };

static by__data_bins open_bins(const uint64_t *offsets, uint64_t documents, uint32_t capacity)
{
    by__data_bins bins;
    by_error error = {0};
    if (by__data_bins_open(&bins, offsets, documents, capacity, false, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return bins;
}

/* Lengths with many short documents, some empty ones and some that are longer than a bin. */
static void make_offsets(uint64_t *offsets, uint32_t most)
{
    uint32_t state = 12345;
    offsets[0] = 0;
    for (size_t i = 0; i < DOCUMENTS; i++) {
        state = state * 1664525u + 1013904223u;
        uint32_t length = (state >> 16) % most;
        offsets[i + 1] = offsets[i] + (i % 7 == 3 ? 0 : i % 50 == 9 ? 5 * length : length);
    }
}

typedef struct slow_bins {
    uint32_t room[8 * DOCUMENTS];
    uint32_t changed[8 * DOCUMENTS]; /* when a bin got its last piece */
    uint32_t count;
} slow_bins;

/* The bin for a piece: the fullest with room for it, of such the one that changed last. */
static uint32_t slow_place(slow_bins *b, uint32_t length, uint32_t time, uint32_t capacity)
{
    uint32_t best = b->count;
    for (uint32_t i = 0; i < b->count; i++) {
        bool fits = b->room[i] >= length;
        if (fits && (best == b->count || b->room[i] < b->room[best] ||
                     (b->room[i] == b->room[best] && b->changed[i] > b->changed[best]))) {
            best = i;
        }
    }
    if (best == b->count) {
        b->room[b->count++] = capacity;
    }
    b->room[best] -= length;
    b->changed[best] = time;
    return best;
}

static void check_places(const by__data_bins *bins)
{
    slow_bins *slow = calloc(1, sizeof *slow);
    uint32_t *next = calloc(bins->count, sizeof *next);
    uint32_t time = 0;
    for (uint32_t length = bins->capacity; length > 0; length--) {
        /* Pieces of a length, in the order of their documents. */
        for (;;) {
            uint32_t at = UINT32_MAX;
            for (uint32_t bin = 0; bin < bins->count; bin++) {
                uint32_t i = bins->first[bin] + next[bin];
                if (i < bins->first[bin + 1] && bins->pieces[i].length == length &&
                    (at == UINT32_MAX ||
                     bins->pieces[i].begin < bins->pieces[bins->first[at] + next[at]].begin)) {
                    at = bin;
                }
            }
            if (at == UINT32_MAX) {
                break;
            }
            assert_int_equal(slow_place(slow, length, ++time, bins->capacity), at);
            next[at]++;
        }
    }
    assert_int_equal(time, bins->piece_count);
    assert_int_equal(slow->count, bins->count);
    free(next);
    free(slow);
}

static int by_begin(const void *a, const void *b)
{
    uint64_t x = ((const by__data_piece *)a)->begin;
    uint64_t y = ((const by__data_piece *)b)->begin;
    return (x > y) - (x < y);
}

/* Pieces in the order of the data: the documents from end to end, those that are longer than a bin
 * with a token twice at each cut. */
static void check_pieces(const by__data_bins *bins, const uint64_t *offsets)
{
    by__data_piece *sorted = malloc(bins->piece_count * sizeof *sorted);
    uint32_t i = 0;
    uint64_t cut = 0;
    memcpy(sorted, bins->pieces, bins->piece_count * sizeof *sorted);
    qsort(sorted, bins->piece_count, sizeof *sorted, by_begin);
    for (size_t d = 0; d < DOCUMENTS; d++) {
        uint64_t at = offsets[d];
        cut += offsets[d + 1] - at > bins->capacity;
        while (at < offsets[d + 1]) {
            assert_true(sorted[i].begin == at && sorted[i].length <= bins->capacity);
            at += sorted[i].length;
            at -= at < offsets[d + 1];
            assert_true(at == offsets[d + 1] || sorted[i].length == bins->capacity);
            i++;
        }
        assert_true(at == offsets[d + 1]);
    }
    assert_int_equal(i, bins->piece_count);
    assert_int_equal(bins->cut, cut);
    free(sorted);
}

static void test_bins(void **state)
{
    static const uint32_t capacities[] = {2, 3, 17, 64, 65, 200, 4097};
    uint64_t offsets[DOCUMENTS + 1];
    BY_UNUSED(state);
    for (size_t k = 0; k < BY_ARRAY_LENGTH(capacities); k++) {
        uint32_t capacity = capacities[k];
        make_offsets(offsets, capacity < 40 ? 40 : capacity);
        by__data_bins bins = open_bins(offsets, DOCUMENTS, capacity);
        uint64_t tokens = 0;
        for (uint32_t i = 0; i < bins.count; i++) {
            assert_in_range(by__data_bins_used(&bins, i), 1, capacity);
            tokens += by__data_bins_used(&bins, i);
        }
        assert_true(tokens == bins.tokens);
        check_pieces(&bins, offsets);
        if (capacity >= 17) { /* others are too many pieces for a slow search */
            check_places(&bins);
        }
        by__data_bins_close(&bins);
    }
}

/* Lengths 6, 4, 3, 3, 2, 2 in bins of 10: {6, 4} and {3, 3, 2, 2}. */
static void test_small(void **state)
{
    static const uint64_t offsets[] = {0, 2, 5, 11, 11, 13, 16, 20};
    static const by__data_piece expected[] = {{5, 6}, {16, 4}, {2, 3}, {13, 3}, {0, 2}, {11, 2}};
    BY_UNUSED(state);
    by__data_bins bins = open_bins(offsets, 7, 10);
    assert_int_equal(bins.count, 2);
    assert_int_equal(bins.first[1], 2);
    assert_int_equal(bins.first[2], 6);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(expected); i++) {
        assert_true(bins.pieces[i].begin == expected[i].begin &&
                    bins.pieces[i].length == expected[i].length);
    }
    by__data_bins_close(&bins);
    bins = open_bins(offsets, 0, 10);
    assert_int_equal(bins.count, 0);
    by__data_bins_close(&bins);
}

/* ---- memory ---- */

/* A number of kilobytes in /proc/self/status, as bytes. */
static uint64_t read_status(const char *key)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            kib = strtoull(line + strlen(key), NULL, 10);
        }
    }
    assert_int_equal(fclose(file), 0);
    return 1024 * (uint64_t)kib;
}

static bool reset_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    bool done = file != NULL && fputs("5", file) >= 0;
    return (file == NULL || fclose(file) == 0) && done;
}

static void assert_within(uint64_t measured, uint64_t planned, double share)
{
    double off = (double)measured - (double)planned;
    if (off > share * (double)planned || off < -share * (double)planned) {
        fail_msg("measured %llu bytes, planned %llu", (unsigned long long)measured,
                 (unsigned long long)planned);
    }
}

/* What a source of bins takes is what it is said to take, while it is opened and afterwards. No two
 * documents fit a bin, so that there are as many bins as pieces. */
static void test_memory(void **state)
{
    BY_UNUSED(state);
#ifdef __SANITIZE_ADDRESS__
    skip(); /* freed memory is not given back */
#endif
    enum { MANY = 600000, LENGTH = 3 };
    char *directory = temporary_make();
    by__data_token_shard shard = {.file = (char *)(uintptr_t) "t.npy", .tokens = MANY * LENGTH};
    by__data_token_manifest m = {.width = 2,
                                 .vocab = 2,
                                 .eos = -1,
                                 .tokens = MANY * LENGTH,
                                 .documents = MANY,
                                 .tokenizer_file = (char *)(uintptr_t) "tokenizer.json",
                                 .tokenizer_hash = "0123456789abcdef0123456789abcdef",
                                 .offsets_file = (char *)(uintptr_t) "documents.npy",
                                 .shards = &shard,
                                 .shard_count = 1};
    by__format_npy_writer *writers[2];
    by_error error = {0};
    char *path = by__path_join(directory, shard.file);
    assert_int_equal(by__format_npy_writer_open(&writers[0], path, 2, &error), BY_OK);
    free(path);
    path = by__path_join(directory, m.offsets_file);
    assert_int_equal(by__format_npy_writer_open(&writers[1], path, 8, &error), BY_OK);
    free(path);
    for (uint64_t i = 0; i <= MANY; i++) {
        const uint64_t offset = i * LENGTH;
        const uint32_t tokens[LENGTH] = {0};
        assert_int_equal(by__format_npy_writer_add_u64(writers[1], &offset, 1, &error), BY_OK);
        if (i < MANY) {
            assert_int_equal(by__format_npy_writer_add_u32(writers[0], tokens, LENGTH, &error),
                             BY_OK);
        }
    }
    assert_int_equal(by__format_npy_writer_finish(writers[0], shard.hash, &error), BY_OK);
    assert_int_equal(by__format_npy_writer_finish(writers[1], m.offsets_hash, &error), BY_OK);
    by__format_npy_writer_close(&writers[0]);
    by__format_npy_writer_close(&writers[1]);
    assert_int_equal(by__data_token_manifest_write(&m, directory, &error), BY_OK);

    const by_token_options options = {
        .context = LENGTH, .shuffle = true, .packing = BY_TOKENS_BEST_FIT};
    by_dataset *data;
    by_source *source;
    uint64_t bytes;
    uint64_t opening;
    assert_int_equal(by_dataset_open(&data, directory, NULL, &error), BY_OK);
    assert_int_equal(by_token_source_bytes(&bytes, &opening, data, &options, &error), BY_OK);
    if (!reset_peak()) {
        skip();
    }
    uint64_t before = read_status("VmRSS:");
    assert_int_equal(by_token_source_open(&source, data, &options, &error), BY_OK);
    assert_int_equal(source->samples, MANY);
    assert_within(read_status("VmHWM:") - before, opening, 0.05);
    assert_within(read_status("VmRSS:") - before, bytes, 0.05);
    by_source_close(&source);
    by_dataset_close(&data);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bins), cmocka_unit_test(test_small),
                                       cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
