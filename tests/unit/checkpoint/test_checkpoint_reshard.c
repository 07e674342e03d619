/* Any cut of tensors over writers is read back by any other: random tensors, written by 1 to 8
 * writers as random boxes or ranges of elements, are read as random slices, and have one digest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint/storage.h"
#include "temporary.h"

enum { TENSORS = 9, MODEL = 6, MAX_WRITERS = 8, MAX_PARTS = 4096 };

/* Odd vocabularies, a scalar, no elements, an axis of one, four axes. */
static by_tensor_view tensors[TENSORS] = {{"wte", BY_F32, 2, {50257, 3}, NULL},
                                          {"small", BY_BF16, 2, {17, 5}, NULL},
                                          {"cube", BY_F32, 4, {3, 1, 7, 5}, NULL},
                                          {"bias", BY_F16, 1, {127}, NULL},
                                          {"scalar", BY_F32, 0, {0}, NULL},
                                          {"empty", BY_F32, 2, {0, 4}, NULL},
                                          {"m.wte", BY_F32, 2, {50257, 3}, NULL},
                                          {"m.cube", BY_F32, 4, {3, 1, 7, 5}, NULL},
                                          {"t", BY_I32, 1, {1}, NULL}};

static const by_checkpoint_file config = {"config.json", "{}", 2, NULL, NULL};

static uint64_t state_of_draws = 1;

/* Uniform in [0, n), n at least 1. */
static int64_t draw(int64_t n)
{
    state_of_draws = state_of_draws * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int64_t)((state_of_draws >> 33) % (uint64_t)n);
}

static void check(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s", error->message);
    }
}

static size_t elements_of(const by_tensor_view *tensor)
{
    size_t elements;
    assert_int_equal(by_tensor_size(tensor, &elements, NULL, NULL), BY_OK);
    return elements;
}

static int fill(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < TENSORS; i++) {
        size_t bytes = elements_of(&tensors[i]) * by_dtype_size(tensors[i].dtype);
        uint8_t *data = malloc(bytes + 1);
        for (size_t k = 0; data != NULL && k < bytes; k++) {
            data[k] = (uint8_t)draw(60); /* every float is finite */
        }
        tensors[i].data = data;
    }
    return 0;
}

static int release(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < TENSORS; i++) {
        free((void *)(uintptr_t)tensors[i].data);
    }
    return 0;
}

/* Which part each writer has: parts[first[w]] up to parts[first[w + 1]]. */
typedef struct cut {
    by_checkpoint_part parts[MAX_PARTS];
    int owner[MAX_PARTS];
    size_t count;
} cut;

static void add(cut *c, size_t tensor, const by_tensor_slice *slice, int owner)
{
    size_t elements;
    assert_int_equal(by__checkpoint_slice_check(&tensors[tensor], slice, &elements, NULL), BY_OK);
    if (elements > 0) {
        assert_true(c->count < MAX_PARTS);
        c->parts[c->count] = (by_checkpoint_part){tensor, *slice};
        c->owner[c->count++] = owner;
    }
}

/* Ranges of elements, cut anywhere, one a writer and some writers without. */
static void cut_flat(cut *c, size_t tensor, int writers)
{
    int64_t left = (int64_t)elements_of(&tensors[tensor]);
    int64_t at = 0;
    for (int w = 0; w < writers; w++) {
        int64_t n = w == writers - 1 ? left : draw(left + 1);
        by_tensor_slice slice = {.flat = true, .offset = {at}, .shape = {n}};
        add(c, tensor, &slice, w);
        at += n;
        left -= n;
    }
}

/* Cuts a box in two along a random axis, some times over. */
static void cut_box(cut *c, size_t tensor, by_tensor_slice box, int depth, int writers)
{
    int rank = tensors[tensor].rank;
    int axis = rank == 0 ? 0 : (int)draw(rank);
    if (depth == 0 || rank == 0 || box.shape[axis] < 2) {
        add(c, tensor, &box, (int)draw(writers));
        return;
    }
    by_tensor_slice second = box;
    int64_t at = 1 + draw(box.shape[axis] - 1);
    box.shape[axis] = at;
    second.offset[axis] += at;
    second.shape[axis] -= at;
    cut_box(c, tensor, box, depth - 1, writers);
    cut_box(c, tensor, second, depth - 1, writers);
}

/* kind 0: whole tensors, 1: ranges, 2: boxes, 3: any of these. */
static void make_cut(cut *c, int writers, int kind)
{
    c->count = 0;
    for (size_t i = 0; i < TENSORS; i++) {
        int k = kind == 3 ? (int)draw(3) : kind;
        if (k == 1) {
            cut_flat(c, i, writers);
        } else {
            cut_box(c, i, by_tensor_whole(&tensors[i]), k == 0 ? 0 : 3, writers);
        }
    }
}

/* The bytes of a slice, element by element from the whole tensor; freed with free(). */
static uint8_t *extract(size_t tensor, const by_tensor_slice *slice)
{
    const by_tensor_view *t = &tensors[tensor];
    size_t size = by_dtype_size(t->dtype);
    size_t total = elements_of(t);
    size_t elements;
    assert_int_equal(by__checkpoint_slice_check(t, slice, &elements, NULL), BY_OK);
    uint8_t *out = malloc(elements * size + 1);
    assert_non_null(out);
    size_t at = 0;
    for (size_t i = 0; i < total; i++) {
        bool inside = true;
        size_t rest = i;
        if (slice->flat) {
            inside =
                (int64_t)i >= slice->offset[0] && (int64_t)i < slice->offset[0] + slice->shape[0];
        } else {
            for (int k = t->rank - 1; k >= 0; k--) {
                int64_t index = (int64_t)(rest % (size_t)t->shape[k]);
                rest /= (size_t)t->shape[k];
                inside = inside && index >= slice->offset[k] &&
                         index < slice->offset[k] + slice->shape[k];
            }
        }
        if (inside) {
            memcpy(out + size * at++, (const uint8_t *)t->data + size * i, size);
        }
    }
    assert_int_equal(at, elements);
    return out;
}

static void write_parts(by_checkpoint_writer *w, const by_checkpoint_part *parts, size_t count,
                        by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        /* Half of the time in the order of the file, which streams. */
        size_t k = state_of_draws % 2 == 0 ? by_checkpoint_order(w, i) : i;
        uint8_t *data = extract(parts[k].tensor, &parts[k].slice);
        check(by_checkpoint_add_part(w, k, data, error), error);
        free(data);
    }
}

static void save(const char *root, uint64_t step, const cut *c, int writers)
{
    by_checkpoint_writer *first = NULL;
    by_error error = {0};
    by_checkpoint_part own[MAX_PARTS];
    by_checkpoint_part own_first[MAX_PARTS];
    size_t first_count = 0;
    for (int rank = 0; rank < writers; rank++) {
        by_checkpoint_writer *w;
        by_checkpoint_part *parts = rank == 0 ? own_first : own;
        size_t count = 0;
        for (size_t i = 0; i < c->count; i++) {
            if (c->owner[i] == rank) {
                parts[count++] = c->parts[i];
            }
        }
        const by_checkpoint_layout layout = {.model = tensors,
                                             .model_count = MODEL,
                                             .optimizer = tensors + MODEL,
                                             .optimizer_count = TENSORS - MODEL,
                                             .writers = writers,
                                             .parts = parts,
                                             .part_count = count};
        if (rank == 0) {
            check(by_checkpoint_begin(&first, root, step, &layout, &error), &error);
            first_count = count;
            continue;
        }
        check(by_checkpoint_join(&w, root, step, &layout, rank, by_checkpoint_token(first), &error),
              &error);
        write_parts(w, parts, count, &error);
        check(by_checkpoint_finish(&w, &error), &error);
    }
    write_parts(first, own_first, first_count, &error);
    check(by_checkpoint_commit(&first, NULL, 0, &config, 1, &error), &error);
}

static void save_alone(const char *root, uint64_t step)
{
    by_checkpoint_writer *w;
    by_error error = {0};
    const by_checkpoint_layout layout = {.model = tensors,
                                         .model_count = MODEL,
                                         .optimizer = tensors + MODEL,
                                         .optimizer_count = TENSORS - MODEL};
    check(by_checkpoint_begin(&w, root, step, &layout, &error), &error);
    for (size_t i = 0; i < TENSORS; i++) {
        size_t k = by_checkpoint_order(w, i);
        check(by_checkpoint_add_part(w, k, tensors[k].data, &error), &error);
    }
    check(by_checkpoint_commit(&w, NULL, 0, &config, 1, &error), &error);
}

/* Reads the slices of another cut, then whole tensors. */
static void load(const char *root, const cut *c)
{
    by_checkpoint *checkpoint;
    by_error error = {0};
    check(by_checkpoint_open(&checkpoint, root, true, &error), &error);
    for (size_t i = 0; i < c->count; i++) {
        const by_checkpoint_part *part = &c->parts[i];
        const by_tensor_view *t = &tensors[part->tensor];
        size_t elements;
        uint8_t *expected = extract(part->tensor, &part->slice);
        assert_int_equal(by__checkpoint_slice_check(t, &part->slice, &elements, NULL), BY_OK);
        size_t bytes = elements * by_dtype_size(t->dtype);
        uint8_t *got = malloc(bytes + 1);
        assert_non_null(got);
        check(by_weights_read(part->tensor < MODEL ? by_checkpoint_model(checkpoint)
                                                   : by_checkpoint_optimizer(checkpoint),
                              t->name, &part->slice, got, elements, &error),
              &error);
        assert_memory_equal(got, expected, bytes);
        free(got);
        free(expected);
    }
    for (size_t i = 0; i < TENSORS; i++) {
        by_tensor_view view;
        check(by_weights_tensor(i < MODEL ? by_checkpoint_model(checkpoint)
                                          : by_checkpoint_optimizer(checkpoint),
                                tensors[i].name, &view, &error),
              &error);
        assert_int_equal(view.rank, tensors[i].rank);
        assert_memory_equal(view.shape, tensors[i].shape, (size_t)view.rank * sizeof view.shape[0]);
        assert_memory_equal(view.data, tensors[i].data,
                            elements_of(&view) * by_dtype_size(view.dtype));
    }
    by_checkpoint_close(&checkpoint);
}

static void any_cut_reads_any_other(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    by_error error = {0};
    by_digest expected;
    cut *written = malloc(sizeof *written);
    cut *wanted = malloc(sizeof *wanted);
    assert_non_null(written);
    assert_non_null(wanted);
    save_alone(root, 1);
    check(by_checkpoint_digest(&expected, root, 1, &error), &error);
    uint64_t step = 1;
    for (int writers = 2; writers <= MAX_WRITERS; writers++) {
        for (int kind = 0; kind < 4; kind++) {
            by_digest digest;
            make_cut(written, writers, kind);
            make_cut(wanted, 1 + (int)draw(MAX_WRITERS), 3);
            save(root, ++step, written, writers);
            load(root, wanted);
            check(by_checkpoint_digest(&digest, root, 2, &error), &error);
            assert_string_equal(digest.all, expected.all);
            assert_int_equal(digest.count, TENSORS);
            for (size_t i = 0; i < TENSORS; i++) {
                assert_string_equal(digest.tensors[i].sha256, expected.tensors[i].sha256);
            }
            by_digest_free(&digest);
        }
        check(by_checkpoint_prune(root, 1, &error), &error);
    }
    by_digest_free(&expected);
    free(written);
    free(wanted);
    temporary_remove(root);
}

/* Without a cut tensor the files have an index that other programs load. */
static void whole_tensors_have_the_common_index(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    by_weights *weights;
    by_error error = {0};
    cut *c = malloc(sizeof *c);
    assert_non_null(c);
    make_cut(c, 3, 0);
    save(root, 1, c, 3);
    char *path = by__path_join(root, "step-00000001");
    char *index = by__path_join(path, "model.safetensors.index.json");
    char *slices = by__path_join(path, "model.slices.json");
    assert_true(by__path_exists(index));
    assert_false(by__path_exists(slices));
    check(by_weights_open(&weights, path, &error), &error);
    assert_int_equal(by_weights_count(weights), MODEL);
    by_weights_close(&weights);
    make_cut(c, 3, 1);
    save(root, 1, c, 3);
    assert_false(by__path_exists(index));
    assert_true(by__path_exists(slices));
    check(by_weights_open(&weights, path, &error), &error);
    assert_int_equal(by_weights_count(weights), MODEL);
    by_weights_close(&weights);
    free(slices);
    free(index);
    free(path);
    free(c);
    temporary_remove(root);
}

static void assert_same_file(const char *one, const char *other, const char *name)
{
    char hash[2][33];
    const char *directories[2] = {one, other};
    for (int i = 0; i < 2; i++) {
        char *path = by__path_join(directories[i], name);
        assert_int_equal(by__hash_file_hex(hash[i], path, NULL), BY_OK);
        free(path);
    }
    assert_string_equal(hash[0], hash[1]);
}

static void merging_gives_the_bytes_of_one_writer(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    by_error error = {0};
    by_weights *weights;
    char **names;
    size_t count;
    cut *c = malloc(sizeof *c);
    assert_non_null(c);
    save_alone(root, 1);
    make_cut(c, 5, 3);
    save(root, 2, c, 5);
    char *alone = by__path_join(root, "step-00000001");
    char *out = by__path_join(root, "merged/");
    check(by_checkpoint_merge(root, out, 0, false, NULL, &error), &error);
    assert_same_file(alone, out, "model.safetensors");
    assert_same_file(alone, out, "config.json");
    assert_int_equal(by__list_dir(&names, &count, out, NULL), BY_OK);
    assert_int_equal(count, 2);
    by__names_free(names, count);
    /* Nothing is overwritten, not even an empty directory. */
    assert_int_equal(by_checkpoint_merge(root, out, 0, false, NULL, &error), BY_EARG);
    assert_non_null(strstr(error.message, "merged already exists"));
    char *empty = by__path_join(root, "empty");
    check(by__make_dirs(empty, &error), &error);
    assert_int_equal(by_checkpoint_merge(root, empty, 0, false, NULL, &error), BY_EARG);
    char *shards = by__path_join(root, "shards");
    check(by_checkpoint_merge(root, shards, 1000, false, NULL, &error), &error);
    check(by_weights_open(&weights, shards, &error), &error);
    assert_int_equal(by_weights_count(weights), MODEL);
    by_weights_close(&weights);
    /* What cannot be finished is not there. */
    char *nowhere = by__path_join(root, "no/such/directory");
    assert_int_equal(by_checkpoint_merge(root, nowhere, 0, false, NULL, &error), BY_EIO);
    assert_int_equal(by__list_dir(&names, &count, root, NULL), BY_OK);
    assert_int_equal(count, 6); /* .lock, two steps, merged, empty, shards */
    by__names_free(names, count);
    free(nowhere);
    free(shards);
    free(empty);
    free(out);
    free(alone);
    free(c);
    temporary_remove(root);
}

/* Every range of a small tensor is the boxes that make it up, in order. */
static void ranges_are_boxes(void **state)
{
    BY_UNUSED(state);
    by_tensor_view t = {"t", BY_F32, 3, {3, 4, 5}, NULL};
    for (int64_t first = 0; first < 60; first++) {
        for (int64_t end = first; end <= 60; end++) {
            by_tensor_slice slice = {.flat = true, .offset = {first}, .shape = {end - first}};
            by_tensor_slice boxes[BY__SLICE_BOXES];
            int n = by__slice_boxes(boxes, t.rank, t.shape, &slice);
            int64_t at = first;
            assert_true(n <= 5);
            for (int i = 0; i < n; i++) {
                by__slice_runs runs;
                uint64_t begin;
                size_t count;
                size_t elements;
                assert_int_equal(by__checkpoint_slice_check(&t, &boxes[i], &elements, NULL), BY_OK);
                by__slice_runs_begin(&runs, t.rank, t.shape, &boxes[i]);
                assert_true(by__slice_runs_next(&runs, &begin, &count));
                assert_int_equal(begin, at);
                assert_int_equal(count, elements); /* one run */
                at += (int64_t)count;
            }
            assert_int_equal(at, end);
        }
    }
}

static void bad_indices_are_refused(void **state)
{
    BY_UNUSED(state);
    static const char head[] = "{\"format\": \"banyan-slices\", \"version\": 1, \"tensors\": ";
    static const struct {
        const char *tensors;
        const char *message;
    } cases[] = {
        {"{}}", "a version and tensors"},
        {"{\"w\": {\"dtype\": \"F32\", \"shape\": [4], \"slices\": []}}}", "a list of slices"},
        {"{\"w\": {\"dtype\": \"I64\", \"shape\": [4], \"slices\": [{}]}}}", "expected a dtype"},
        {"{\"w\": {\"dtype\": \"F32\", \"shape\": [4], \"slices\": [{\"file\": \"../a\"}]}}}",
         "expected slices with a file"},
        {"{\"w\": {\"dtype\": \"F32\", \"shape\": [4], \"slices\": [{\"file\": \"a\", \"range\": "
         "[0, 5]}]}}}",
         "elements 0 + 5 are not within its 4"},
        {"{\"w\": {\"dtype\": \"F32\", \"shape\": [4], \"slices\": [{\"file\": \"a\", \"range\": "
         "[0, 3]}]}}}",
         "a part is missing"},
        {"{\"w\": {\"dtype\": \"F32\", \"shape\": [4], \"slices\": [{\"file\": \"a\"}, {\"file\": "
         "\"b\", \"range\": [3, 4]}]}}}",
         "slices overlap"},
        {"{\"w\": {\"dtype\": \"F32\", \"shape\": [4], \"slices\": [{\"file\": \"a\"}, {\"file\": "
         "\"b\", \"range\": [3, 3]}]}}}",
         "an empty slice"},
        {"{\"w\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904, 16], \"slices\": [{}]}}}",
         "overflows"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by__checkpoint_slice_index index;
        by_error error = {0};
        char text[512];
        int n = snprintf(text, sizeof text, "%s%s", head, cases[i].tensors);
        assert_int_equal(by__checkpoint_slice_index_parse(&index, "x", text, (size_t)n, &error),
                         BY_EFORMAT);
        if (strstr(error.message, cases[i].message) == NULL) {
            fail_msg("case %zu: '%s' is not in '%s'", i, cases[i].message, error.message);
        }
    }
}

/* What the manifest cannot find: an index of other files. */
static void an_index_of_other_files_is_refused(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    by_weights *weights;
    by_error error = {0};
    const float data[4] = {1, 2, 3, 4};
    const by_tensor_view part = {"w[0:3]", BY_F32, 1, {3}, data};
    char *file = by__path_join(directory, "model-00001-of-00002.safetensors");
    char *index = by__path_join(directory, "model.slices.json");
    static const char text[] =
        "{\"format\": \"banyan-slices\", \"version\": 1, \"tensors\": {\"w\": {\"dtype\": \"F32\", "
        "\"shape\": [4], \"slices\": [{\"file\": \"model-00001-of-00002.safetensors\", \"range\": "
        "[0, 4]}]}}}";
    check(by_tensors_write(file, &part, 1, &error), &error);
    check(by__file_write(index, text, strlen(text), &error), &error);
    assert_int_equal(by_weights_open(&weights, directory, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "lacks 'w', 4 elements of type F32"));
    free(index);
    free(file);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_reads_any_other),
        cmocka_unit_test(whole_tensors_have_the_common_index),
        cmocka_unit_test(merging_gives_the_bytes_of_one_writer),
        cmocka_unit_test(ranges_are_boxes),
        cmocka_unit_test(bad_indices_are_refused),
        cmocka_unit_test(an_index_of_other_files_is_refused),
    };
    return cmocka_run_group_tests(tests, fill, release);
}
