/* The tensor store: layout of flat buffers, conversion of values, loading from files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/name_table.h"
#include "base/tensor_slice.h"
#include "checkpoint/storage.h"
#include "runner.h"
#include "store/store.h"

typedef struct fixture {
    by_device *device;
    by__store *store;
} fixture;

static void open_store(fixture *f)
{
    by_error error = {0};
    check_ok(by_device_open(&f->device, "cpu", 2, &error), &error);
    check_ok(by__store_open(&f->store, f->device, &error), &error);
}

static void close_store(fixture *f)
{
    by__store_close(&f->store);
    by_device_close(&f->device);
}

static by__store_handle add(fixture *f, const char *name, by_shape shape, int group)
{
    by_error error = {0};
    by__store_handle handle;
    by__store_tensor tensor = {.name = name,
                               .axes = "a b",
                               .shape = shape,
                               .format = group == 0 ? BY_BF16 : BY_F32,
                               .group = group,
                               .trainable = true};
    check_ok(by__store_add(f->store, &tensor, &handle, &error), &error);
    return handle;
}

static int add_flat(fixture *f, by__store_buffer_role role, by_dtype dtype, unsigned groups,
                    by__store_shape_rule *shape)
{
    by_error error = {0};
    int flat;
    by__store_flat_spec spec = {
        .role = role, .name = "m", .dtype = dtype, .groups = groups, .shape = shape};
    check_ok(by__store_add_flat(f->store, &spec, &flat, &error), &error);
    return flat;
}

static void test_names(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__name_table table = {0};
    char names[1000][32];
    assert_int_equal(by__name_table_find(&table, "x"), -1);
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(names[i], sizeof names[i], "name %d", i);
        check_ok(by__name_table_add(&table, names[i], i, &error), &error);
    }
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(by__name_table_find(&table, names[i]), i);
    }
    assert_int_equal(by__name_table_find(&table, "name 1000"), -1);
    by__name_table_free(&table);
}

/* Groups are neighbours whatever the order of declaration, at the same element offsets in every
 * format, and the plan is what is taken. */
static void test_layout(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    fixture f;
    open_store(&f);
    by__store_handle v = add(&f, "vector", BY_SHAPE(5), 1);
    by__store_handle a = add(&f, "a", BY_SHAPE(3, 11), 0);
    by__store_handle b = add(&f, "b", BY_SHAPE(4, 16), 0);
    by__store_handle again;
    by__store_tensor twice = {.name = "a", .shape = BY_SHAPE(1)};
    check_error(by__store_add(f.store, &twice, &again, &error), BY_EARG, &error, "two tensors");
    int masters = add_flat(&f, BY__MASTER, BY_F32, 3, NULL);
    int copies = add_flat(&f, BY__COPY, BY_BF16, 1, NULL);
    int gradients = add_flat(&f, BY__GRADIENT, BY_F32, 3, NULL);
    int more = add_flat(&f, BY__GRADIENT, BY_F32, 3, NULL);
    assert_int_equal(by__store_find(f.store, "b"), b);
    assert_int_equal(by__store_find(f.store, "c"), BY__NO_ENTRY);
    assert_int_equal(by__store_bytes(f.store, BY__MASTER), (64 + 64 + 32) * 4);
    assert_int_equal(by__store_bytes(f.store, BY__COPY), (64 + 64) * 2);
    assert_int_equal(by__store_bytes(f.store, BY__GRADIENT), 2 * (64 + 64 + 32) * 4);
    check_ok(by__store_allocate(f.store, NULL, &error), &error);
    check_error(by__store_allocate(f.store, NULL, &error), BY_ESTATE, &error, "allocated already");
    uintptr_t base = by__store_group(f.store, masters, 0).address;
    assert_int_equal(by__store_buffer(f.store, masters, a).address, base);
    assert_int_equal(by__store_buffer(f.store, masters, b).address, base + 64 * 4);
    assert_int_equal(by__store_buffer(f.store, masters, v).address, base + 128 * 4);
    assert_int_equal(by__store_buffer(f.store, masters, v).bytes, 5 * 4);
    assert_int_equal(by__store_group_elements(f.store, masters, 0), 128);
    assert_int_equal(by__store_group_elements(f.store, masters, 1), 32);
    base = by__store_group(f.store, copies, 0).address;
    assert_int_equal(by__store_buffer(f.store, copies, b).address, base + 64 * 2);
    assert_int_equal(by__store_buffer(f.store, copies, v).bytes, 0);
    assert_int_equal(by__store_group(f.store, more, 0).address,
                     by__store_group(f.store, gradients, 0).address + 160 * 4);
    close_store(&f);
}

/* Parts of groups: what they share, and which entries have elements in them. */
static void test_parts(void **state)
{
    BY_UNUSED(state);
    fixture f;
    open_store(&f);
    by__store_handle a = add(&f, "a", BY_SHAPE(3, 11), 0);
    by__store_handle vector = add(&f, "vector", BY_SHAPE(5), 1);
    by__store_handle b = add(&f, "b", BY_SHAPE(4, 16), 0);
    by__store_part all = by__store_group_part(f.store, 0);
    by__store_part part = by__store_entry_part(f.store, b);
    assert_int_equal(all.count, 128);
    assert_int_equal(part.first, 64);
    assert_int_equal(part.count, 64);
    assert_true(by__store_part_has(all, part));
    assert_false(by__store_part_has(part, all));
    assert_int_equal(by__store_part_common(part, (by__store_part){0, 0, 64}).count, 0);
    assert_int_equal(by__store_part_common(part, (by__store_part){1, 64, 64}).count, 0);
    by__store_handle next = a;
    part = by__store_next_entry(f.store, (by__store_part){0, 32, 40}, &next);
    assert_int_equal(next, a);
    assert_int_equal(part.first, 32);
    assert_int_equal(part.count, 1);
    next++;
    part = by__store_next_entry(f.store, (by__store_part){0, 32, 40}, &next);
    assert_int_equal(next, b);
    assert_int_equal(part.first, 64);
    assert_int_equal(part.count, 8);
    next++;
    assert_int_equal(by__store_next_entry(f.store, all, &next).count, 0);
    next = 0;
    assert_int_equal(by__store_next_entry(f.store, (by__store_part){1, 0, 1}, &next).count, 1);
    assert_int_equal(next, vector);
    close_store(&f);
}

static bool rows_only(const by_shape *tensor, const char *axes, by_shape *buffer)
{
    BY_UNUSED(axes);
    *buffer = BY_SHAPE(tensor->dim[0]);
    return tensor->rank == 2;
}

/* A state of another shape than the tensor's, and none for vectors. */
static void test_shape_rule(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    fixture f;
    open_store(&f);
    by__store_handle a = add(&f, "a", BY_SHAPE(3, 11), 0);
    by__store_handle v = add(&f, "v", BY_SHAPE(7), 1);
    int rows = add_flat(&f, BY__STATE, BY_F32, 3, rows_only);
    check_ok(by__store_allocate(f.store, NULL, &error), &error);
    assert_int_equal(by__store_shape(f.store, rows, a).rank, 1);
    assert_int_equal(by__store_shape(f.store, rows, a).dim[0], 3);
    assert_int_equal(by__store_shape(f.store, rows, v).rank, -1);
    assert_int_equal(by__store_bytes(f.store, BY__STATE), 32 * 4);
    assert_string_equal(by__store_flat_name(f.store, rows), "m");
    close_store(&f);
}

/* Rounding, transposition and fewer rows than the tensor has. */
static void test_values(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    fixture f;
    float values[70 * 90];
    float read[70 * 90];
    by__store_handle plain;
    by__store_handle transposed;
    for (int i = 0; i < 70 * 90; i++) {
        values[i] = (float)i * 0.37f;
    }
    open_store(&f);
    by__store_tensor tensor = {
        .name = "plain", .shape = BY_SHAPE(70, 90), .format = BY_F32, .grows = true};
    check_ok(by__store_add(f.store, &tensor, &plain, &error), &error);
    tensor.name = "transposed";
    tensor.transposed = true;
    tensor.format = BY_BF16;
    check_ok(by__store_add(f.store, &tensor, &transposed, &error), &error);
    int flat = add_flat(&f, BY__COPY, BY_DTYPE_COUNT, 1, NULL);
    check_ok(by__store_allocate(f.store, NULL, &error), &error);
    check_ok(by__store_write(f.store, flat, plain, values, BY_F32, 60 * 90, 2, &error), &error);
    check_ok(by__store_read(f.store, flat, plain, read, &error), &error);
    for (int i = 0; i < 70 * 90; i++) {
        assert_true(read[i] == (i < 60 * 90 ? values[i] : 0.0f));
    }
    check_ok(by__store_write(f.store, flat, transposed, values, BY_F32, 70 * 90, 2, &error),
             &error);
    const uint16_t *held = by__store_host(f.store, flat, transposed);
    for (int r = 0; r < 70; r++) {
        for (int c = 0; c < 90; c++) {
            assert_int_equal(held[c * 70 + r], by__f32_to_bf16(values[r * 90 + c]));
        }
    }
    check_error(by__store_write(f.store, flat, transposed, values, BY_F32, 90, 2, &error), BY_EARG,
                &error, "'transposed'");
    check_error(by__store_write(f.store, flat, plain, values, BY_I32, 90, 2, &error), BY_EARG,
                &error, "i32");
    check_error(by__store_read(f.store, flat, transposed, read, &error), BY_EARG, &error,
                "no values");
    check_ok(by__store_clear(f.store, BY__COPY, &error), &error);
    assert_int_equal(held[5], 0);
    close_store(&f);
}

/* Packed weights, from either order of their axes; a table of fewer rows leaves zeros. */
static void test_packed_values(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    fixture f;
    enum { N = 70, K = 33 };
    float values[N * K];
    by__store_handle rows;
    by__store_handle columns;
    for (int i = 0; i < N * K; i++) {
        values[i] = (float)i * 0.37f;
    }
    open_store(&f);
    by__store_tensor tensor = {
        .name = "rows",
        .shape = BY_SHAPE(N, K),
        .format = BY_U8,
        .packing = {.kind = BY_PACKING_PACKED, .dtype = BY_F32, .n = N, .k = K},
        .out_in = true,
        .grows = true};
    check_ok(by__store_add(f.store, &tensor, &rows, &error), &error);
    tensor.name = "columns";
    tensor.shape = BY_SHAPE(K, N);
    tensor.packing.dtype = BY_BF16;
    tensor.out_in = false;
    tensor.grows = false;
    check_ok(by__store_add(f.store, &tensor, &columns, &error), &error);
    int flat = add_flat(&f, BY__COPY, BY_DTYPE_COUNT, 1, NULL);
    check_ok(by__store_allocate(f.store, NULL, &error), &error);
    assert_int_equal(by__store_bytes(f.store, BY__COPY), 3 * 32 * (33 * 4 + 34 * 2));
    check_ok(by__store_write(f.store, flat, rows, values, BY_F32, (N - 1) * K, 2, &error), &error);
    check_ok(by__store_write(f.store, flat, columns, values, BY_F32, N * K, 2, &error), &error);
    const void *held = by__store_host(f.store, flat, rows);
    const void *narrow = by__store_host(f.store, flat, columns);
    by_packing bf16 = tensor.packing;
    by_packing f32 = tensor.packing;
    f32.dtype = BY_F32;
    for (int j = 0; j < N; j++) {
        for (int i = 0; i < K; i++) {
            float value = j < N - 1 ? values[j * K + i] : 0.0f;
            assert_true(by__packed_at(&f32, held, j, i) == value);
            value = by__bf16_to_f32(by__f32_to_bf16(values[i * N + j]));
            assert_true(by__packed_at(&bf16, narrow, j, i) == value);
        }
    }
    check_error(by__store_write(f.store, flat, columns, values, BY_F32, N, 2, &error), BY_EARG,
                &error, "'columns'");
    check_error(by__store_write_part(f.store, flat, rows, K, values, BY_F32, K, 2, &error), BY_EARG,
                &error, "'rows'");
    unsigned char panels[3 * 32 * K * sizeof(float)];
    check_ok(by__store_read(f.store, flat, rows, panels, &error), &error);
    assert_memory_equal(panels, held, sizeof panels);
    close_store(&f);
}

/* Of what is held in part the values of that part are written, but not of a transpose, whose rows
 * are not rows of the values. */
static void test_values_of_parts(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    fixture f;
    by__store_handle plain;
    by__store_handle transposed;
    int flat;
    float values[64 * 64];
    float read[64 * 64];
    const by__store_part held = {0, 1024,
                                 4096}; /* the end of the first and the begin of the second */
    const by__store_flat_spec spec = {
        .role = BY__MASTER, .dtype = BY_F32, .groups = 1, .held = &held, .held_count = 1};
    by__store_tensor tensor = {.name = "plain", .shape = BY_SHAPE(64, 64), .format = BY_F32};
    for (int i = 0; i < 64 * 64; i++) {
        values[i] = (float)i;
    }
    open_store(&f);
    check_ok(by__store_add(f.store, &tensor, &plain, &error), &error);
    tensor.name = "transposed";
    tensor.transposed = true;
    check_ok(by__store_add(f.store, &tensor, &transposed, &error), &error);
    check_ok(by__store_add_flat(f.store, &spec, &flat, &error), &error);
    check_ok(by__store_allocate(f.store, NULL, &error), &error);
    check_ok(by__store_write(f.store, flat, plain, values, BY_F32, 64 * 64, 1, &error), &error);
    check_ok(by__store_read_part(f.store, flat, plain, 1024, 3072, read, &error), &error);
    assert_memory_equal(read, values + 1024, 3072 * sizeof *read);
    check_error(by__store_write(f.store, flat, transposed, values, BY_F32, 64 * 64, 1, &error),
                BY_EARG, &error, "'transposed'");
    check_error(by__store_write_part(f.store, flat, plain, -1, values, BY_F32, 2, 1, &error),
                BY_EARG, &error, "'plain'");
    check_error(by__store_write_part(f.store, flat, plain, 1, values, BY_F32, INT64_MAX, 1, &error),
                BY_EARG, &error, "'plain'");
    close_store(&f);
}

/* The values of a range of a box, read as boxes of the part. */
static void check_boxes(const by__store_tensor *entry, const by_tensor_slice *box,
                        const by_tensor_slice *place, const by_tensor_slice *range,
                        const float *values, const float *want)
{
    by_tensor_slice boxes[BY__SLICE_BOXES];
    int rank = entry->shape.rank;
    int count = by__slice_boxes(boxes, rank, box->shape, range);
    for (int i = 0; i < count; i++) {
        by__slice_runs runs;
        uint64_t at;
        size_t length;
        for (int axis = 0; axis < rank; axis++) {
            boxes[i].offset[axis] += place->offset[axis];
        }
        by__slice_runs_begin(&runs, rank, entry->local.dim, &boxes[i]);
        for (; by__slice_runs_next(&runs, &at, &length); want += length) {
            assert_memory_equal(values + at, want, length * sizeof *want);
        }
    }
}

/* The elements [first, first + count) of a part that are in box k, found one by one. */
static void check_range(const by__store_tensor *entry, int64_t k, int64_t first, int64_t count)
{
    enum { MOST = 256 };
    float values[MOST];
    float want[MOST];
    int64_t places[MOST]; /* of the box's elements in the part */
    int64_t found = 0;
    int64_t skipped = 0;
    by_tensor_slice place;
    int rank = entry->shape.rank;
    const by_tensor_slice box = by__store_box(entry, k, &place);
    int64_t inside = (int64_t)by__slice_elements(rank, &box);
    assert_in_range(by_shape_count(&entry->local), 1, MOST);
    for (int64_t i = 0; i < MOST; i++) {
        values[i] = -1.0f;
    }
    /* The part is numbered by copying boxes of place numbers into it. */
    for (int64_t b = 0; b < by__store_box_count(entry); b++) {
        float dense[MOST];
        for (int64_t i = 0; i < inside; i++) {
            dense[i] = b == k ? (float)i : -1.0f;
        }
        by__store_box_copy(entry, b, dense, values, sizeof *dense, true);
    }
    for (int64_t i = 0; i < by_shape_count(&entry->local); i++) {
        if (values[i] >= 0.0f) {
            places[(int64_t)values[i]] = i;
        }
    }
    for (int64_t i = 0; i < inside; i++) {
        skipped += places[i] < first;
        if (places[i] >= first && places[i] < first + count) {
            want[found++] = (float)i;
        }
    }
    const by_tensor_slice range = by__store_box_range(entry, k, (by__store_part){0, first, count});
    assert_true(range.flat);
    assert_int_equal(range.shape[0], found);
    assert_int_equal(range.offset[0], skipped);
    check_boxes(entry, &box, &place, &range, values, want);
}

/* What each box of a part has of a slice of it, which begins and ends anywhere. */
static void test_ranges_of_parts(void **state)
{
    BY_UNUSED(state);
    const by__store_tensor parts[] = {
        {.shape = BY_SHAPE(8, 5), .local = BY_SHAPE(4, 5), .first = {4}},
        {.shape = BY_SHAPE(4, 10), .local = BY_SHAPE(4, 5), .first = {0, 5}},
        {.shape = BY_SHAPE(12, 3), .local = BY_SHAPE(6, 3), .first = {2}, .sections = {3}},
        {.shape = BY_SHAPE(3, 12), .local = BY_SHAPE(3, 6), .first = {0, 2}, .sections = {0, 3}},
        {.shape = BY_SHAPE(4, 4, 8),
         .local = BY_SHAPE(2, 4, 4),
         .first = {2},
         .sections = {0, 0, 2}},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(parts); i++) {
        int64_t all = by_shape_count(&parts[i].local);
        for (int64_t k = 0; k < by__store_box_count(&parts[i]); k++) {
            for (int64_t first = 0; first < all; first++) {
                for (int64_t count = 1; first + count <= all; count++) {
                    check_range(&parts[i], k, first, count);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),           cmocka_unit_test(test_layout),
        cmocka_unit_test(test_parts),           cmocka_unit_test(test_shape_rule),
        cmocka_unit_test(test_values),          cmocka_unit_test(test_packed_values),
        cmocka_unit_test(test_ranges_of_parts), cmocka_unit_test(test_values_of_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
