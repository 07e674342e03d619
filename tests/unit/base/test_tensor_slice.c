/* Parts of tensors: copies between boxes that overlap, and the runs of a box. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/tensor_slice.h"

/* A tensor [4, 5, 3] whose elements are their own numbers, and the box of it from a corner on. */
static const int64_t shape[] = {4, 5, 3};

static by_tensor_slice box_of(int64_t a, int64_t b, int64_t c, int64_t rows, int64_t columns,
                              int64_t depth)
{
    return (by_tensor_slice){.offset = {a, b, c}, .shape = {rows, columns, depth}};
}

/* The dense values of a box, by its runs. */
static void fill(int32_t *out, const by_tensor_slice *box)
{
    by__slice_runs runs;
    uint64_t first;
    size_t count;
    by__slice_runs_begin(&runs, 3, shape, box);
    while (by__slice_runs_next(&runs, &first, &count)) {
        for (size_t i = 0; i < count; i++) {
            *out++ = (int32_t)(first + i);
        }
    }
}

static void test_runs(void **state)
{
    BY_UNUSED(state);
    int32_t values[60];
    const by_tensor_slice box = box_of(1, 3, 0, 2, 2, 3);
    const int32_t want[] = {24, 25, 26, 27, 28, 29, 39, 40, 41, 42, 43, 44};
    fill(values, &box);
    assert_int_equal(by__slice_elements(3, &box), 12);
    assert_memory_equal(values, want, sizeof want);
    const by_tensor_slice flat = {true, {7}, {3}};
    fill(values, &flat);
    assert_int_equal(by__slice_elements(3, &flat), 3);
    assert_int_equal(values[2], 9);
}

/* Every pair of boxes of some sizes: what they share has its values in the other's memory, and
 * nothing else was written. */
static void check_pair(const by_tensor_slice *from, const by_tensor_slice *to)
{
    int32_t source[60];
    int32_t target[60];
    int32_t want[60];
    by_tensor_slice common;
    fill(source, from);
    fill(want, to);
    memset(target, 0xff, sizeof target);
    if (by__slice_common(&common, 3, from, to)) {
        by__slice_copy(3, &common, target, to, source, from, sizeof *source);
    }
    for (uint64_t i = 0; i < by__slice_elements(3, to); i++) {
        int64_t index[] = {want[i] / 15, want[i] / 3 % 5, want[i] % 3};
        bool shared = true;
        for (int axis = 0; axis < 3; axis++) {
            shared = shared && index[axis] >= from->offset[axis] &&
                     index[axis] < from->offset[axis] + from->shape[axis];
        }
        assert_int_equal(target[i], shared ? want[i] : -1);
    }
}

static void test_copies(void **state)
{
    BY_UNUSED(state);
    const by_tensor_slice boxes[] = {box_of(0, 0, 0, 4, 5, 3), box_of(1, 0, 0, 2, 5, 3),
                                     box_of(0, 1, 0, 4, 3, 3), box_of(0, 0, 1, 4, 5, 2),
                                     box_of(2, 3, 1, 2, 2, 1), box_of(3, 0, 2, 1, 5, 1),
                                     box_of(0, 4, 0, 2, 1, 3), box_of(2, 2, 0, 1, 1, 1)};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(boxes); i++) {
        for (size_t k = 0; k < BY_ARRAY_LENGTH(boxes); k++) {
            check_pair(&boxes[i], &boxes[k]);
        }
    }
    const int64_t none = 0;
    const by_tensor_slice scalar = by__slice_whole(0, &none);
    int32_t value = 7;
    int32_t copy = 0;
    by__slice_copy(0, &scalar, &copy, &scalar, &value, &scalar, sizeof value);
    assert_int_equal(copy, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs), cmocka_unit_test(test_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
