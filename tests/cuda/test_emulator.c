/* The emulator: correct kernels have no fault and the right results, and each planted fault is
 * found. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef BY_HAS_EMULATOR
#include "base/half.h"
#include "cuda/emulated_calls.h"
#include "cuda/emulator.h"
#include "cuda/faulty.h"

typedef void kernel(const void *args);
#define KERNEL(name) kernel emulated_plain_##name, emulated_checked_##name;
KERNEL(faulty_sum)
KERNEL(faulty_blocks)
KERNEL(faulty_halves)
KERNEL(faulty_lanes)
KERNEL(faulty_copies)
KERNEL(faulty_product)
KERNEL(faulty_counts)

/* A kernel, what is wrong with it, and what the report must name. */
typedef struct planted {
    kernel *run;
    const char *name;
    unsigned blocks;
    unsigned threads;
    fault what;
    const char *report; /* NULL: no fault */
} planted;

#define PLANTED(name, blocks, threads, what, report)                                               \
    {                                                                                              \
        emulated_checked_##name, #name, blocks, threads, what, report                              \
    }

static const planted all[] = {
    PLANTED(faulty_sum, 2, 256, FAULT_NONE, NULL),
    PLANTED(faulty_sum, 2, 256, FAULT_BOUND, "outside the device's memory"),
    PLANTED(faulty_sum, 2, 256, FAULT_UNWRITTEN, "nothing has written"),
    PLANTED(faulty_sum, 2, 256, FAULT_DIVERGENT, "do not meet"),
    PLANTED(faulty_sum, 2, 256, FAULT_TWO_BARRIERS, "do not meet"),
    PLANTED(faulty_sum, 2, 256, FAULT_NO_BARRIER, ""),
    PLANTED(faulty_sum, 2, 256, FAULT_REUSED, "race in shared memory"),
    PLANTED(faulty_sum, 2, 256, FAULT_ALL_WRITE, "race in global memory"),
    PLANTED(faulty_blocks, 2, 256, FAULT_NONE, NULL),
    PLANTED(faulty_blocks, 2, 256, FAULT_OTHER_BLOCK, ""),
    PLANTED(faulty_blocks, 2, 256, FAULT_BLOCKS_WRITE, "another block"),
    PLANTED(faulty_blocks, 2, 256, FAULT_ATOMIC, "depends on the order"),
    PLANTED(faulty_blocks, 2, 256, FAULT_MISALIGNED, "not aligned"),
    PLANTED(faulty_blocks, 2, 256, FAULT_HOST, "outside the device's memory"),
    PLANTED(faulty_blocks, 16, 256, FAULT_PAST_END, "outside the device's memory"),
    PLANTED(faulty_halves, 1, 256, FAULT_NONE, NULL),
    PLANTED(faulty_lanes, 1, 256, FAULT_NONE, NULL),
    PLANTED(faulty_lanes, 1, 256, FAULT_NO_WARP_BARRIER, ""),
    PLANTED(faulty_lanes, 1, 256, FAULT_OTHER_WARP, ""),
    PLANTED(faulty_lanes, 1, 256, FAULT_SHUFFLE_LANE, "a shuffle from lane 32"),
    PLANTED(faulty_lanes, 1, 256, FAULT_HALF_SHUFFLES, "do not meet"),
    PLANTED(faulty_copies, 1, 256, FAULT_NONE, NULL),
    PLANTED(faulty_copies, 1, 256, FAULT_SAME_STAGE, "copy is under way"),
    PLANTED(faulty_copies, 1, 256, FAULT_WAIT_COUNT, "copy is under way"),
    PLANTED(faulty_copies, 1, 256, FAULT_BARRIER_BEFORE_WAIT, ""),
    PLANTED(faulty_copies, 1, 256, FAULT_NO_BARRIER_BEHIND, "shared memory"),
    PLANTED(faulty_copies, 1, 256, FAULT_NEVER_WAITED, "never waited for"),
    PLANTED(faulty_product, 1, 32, FAULT_NONE, NULL),
    PLANTED(faulty_product, 1, 32, FAULT_NO_WARP_BARRIER, ""),
    PLANTED(faulty_product, 1, 32, FAULT_TILE_EDGE, ""),
    PLANTED(faulty_counts, 1, 256, FAULT_NONE, NULL),
    PLANTED(faulty_counts, 1, 256, FAULT_PLAIN_COUNT, "race in global memory"),
};

enum { COUNT = 4096 };

typedef struct buffers {
    float *x, *y, *z;
    float host[4];
} buffers;

static void buffers_open(buffers *b)
{
    b->x = emulator_alloc(COUNT * sizeof(float));
    b->y = emulator_alloc(COUNT * sizeof(float));
    b->z = emulator_alloc(COUNT * sizeof(float));
    for (int i = 0; i < COUNT; i++) {
        b->x[i] = (float)(i * 7 % 31) - 15.0f;
    }
    memset(b->z, 0, COUNT * sizeof(float));
    emulator_written(b->x, COUNT * sizeof(float));
    emulator_written(b->z, 4 * sizeof(float)); /* counts */
}

static void buffers_close(buffers *b)
{
    emulator_free(b->x);
    emulator_free(b->y);
    emulator_free(b->z);
}

static int run(const buffers *b, const planted *p)
{
    faulty_args args = {b->x, b->y, b->z, b->host, (int)p->what};
    emulator_grid grid = {{p->blocks, 1, 1}, p->threads, 0};
    emulator_here.checked = true;
    return emulator_run(&grid, p->name, p->run, &args);
}

static void test_planted(void **state)
{
    (void)state;
    int faults = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (unsigned seed = 0; seed < 8; seed++) {
            buffers b = {0};
            buffers_open(&b);
            emulator_seed(seed);
            int found = run(&b, &all[i]);
            if ((found > 0) != (all[i].report != NULL) ||
                (found > 0 && strstr(emulator_fault(), all[i].report) == NULL)) {
                fail_msg("%s, fault %d, seed %u: found %d, '%s'", all[i].name, (int)all[i].what,
                         seed, found, emulator_fault());
            }
            buffers_close(&b);
        }
        faults += all[i].report != NULL;
    }
    print_message("%d planted faults found in 8 orders each\n", faults);
    assert_true(faults >= 20);
}

/* A copy that is read before its wait is NaN, on both builds; a part of one is zeros. */
static void test_late_copies(void **state)
{
    (void)state;
    kernel *const builds[2] = {emulated_plain_faulty_copies, emulated_checked_faulty_copies};
    for (int i = 0; i < 2; i++) {
        buffers b = {0};
        buffers_open(&b);
        faulty_args args = {b.x, b.y, b.z, b.host, FAULT_WAIT_COUNT};
        emulator_grid grid = {{1, 1, 1}, 256, 0};
        emulator_here.checked = i == 1;
        (void)emulator_run(&grid, "copies", builds[i], &args);
        assert_true(isnan(b.z[5]));
        args.fault = FAULT_SHORT_COPY;
        (void)emulator_run(&grid, "copies", builds[i], &args);
        float want = b.x[(4 * 3 + 37) % 1024] + b.x[1024 + 49]; /* 49 % 4 is 1: copied */
        want += b.x[2048 + 49] + b.x[3072 + 49];
        assert_true(b.z[3] == want);
        buffers_close(&b);
    }
}

/* The sums of the correct kernels. */
static void test_results(void **state)
{
    (void)state;
    buffers b = {0};
    buffers_open(&b);
    planted sum = PLANTED(faulty_sum, 2, 256, FAULT_NONE, NULL);
    assert_int_equal(run(&b, &sum), 0);
    float want = 0.0f;
    for (int i = 256; i < 512; i++) {
        want += b.x[i];
    }
    assert_true(b.y[1] == want); /* integers: exact */
    planted product = PLANTED(faulty_product, 1, 32, FAULT_NONE, NULL);
    assert_int_equal(run(&b, &product), 0);
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 8; j++) {
            float total = 0.0f;
            for (int k = 0; k < 16; k++) {
                total += b.x[i * 16 + k] * b.x[256 + k * 8 + j];
            }
            assert_true(b.z[i * 8 + j] == total);
        }
    }
    planted counts = PLANTED(faulty_counts, 1, 256, FAULT_NONE, NULL);
    memset(b.z, 0, 4 * sizeof(float));
    emulator_written(b.z, 4 * sizeof(float));
    assert_int_equal(run(&b, &counts), 0);
    int32_t count;
    memcpy(&count, b.z + 1, sizeof count);
    assert_int_equal(count, 64);
    buffers_close(&b);
}

/* Launches of different queues race unless an order is between them. */
static void test_queues(void **state)
{
    (void)state;
    planted copy = PLANTED(faulty_blocks, 2, 256, FAULT_NONE, NULL);
    for (int ordered = 0; ordered < 2; ordered++) {
        buffers b = {0};
        buffers_open(&b);
        emulator_queue(1);
        assert_int_equal(run(&b, &copy), 0);
        if (ordered == 1) {
            emulator_order(1, 2);
        }
        emulator_queue(2);
        int found = run(&b, &copy);
        assert_int_equal(found > 0, ordered == 0);
        assert_true(ordered == 1 || strstr(emulator_fault(), "another queue") != NULL);
        emulator_order(2, 0);
        emulator_order(1, 0);
        emulator_queue(0);
        assert_int_equal(run(&b, &copy), 0);
        emulator_order(0, 1);
        emulator_order(0, 2);
        buffers_close(&b);
    }
}

/* Memory that was removed, and memory that begins uninitialised. */
static void test_memory(void **state)
{
    (void)state;
    planted copy = PLANTED(faulty_blocks, 2, 256, FAULT_NONE, NULL);
    buffers b = {0};
    buffers_open(&b);
    emulator_memory_remove(b.x);
    assert_true(run(&b, &copy) > 0);
    assert_non_null(strstr(emulator_fault(), "outside the device's memory"));
    emulator_memory_add(b.x, COUNT * sizeof(float));
    assert_true(isnan(b.x[0]));
    assert_true(run(&b, &copy) > 0);
    assert_non_null(strstr(emulator_fault(), "nothing has written"));
    emulator_written(b.x, 512 * sizeof(float));
    assert_int_equal(run(&b, &copy), 0);
    buffers_close(&b);
    emulator_grid grid = {{1, 1, 1}, 32, 0};
    assert_int_equal(emulator_launch(&grid, "by_cuda_nothing", NULL), 1);
    assert_non_null(strstr(emulator_fault(), "no kernel by_cuda_nothing"));
    grid.block = 2048;
    assert_int_equal(emulator_launch(&grid, "by_cuda_fill", NULL), 1);
}

/* Conversions that stand for instructions: all halves, and f32 near the boundaries of rounding. */
static void test_conversions(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        float bf16 = by_emulated_from_bf16((uint16_t)i);
        float f16 = by_emulated_from_f16((uint16_t)i);
        assert_true(isnan(bf16) ||
                    (bf16 == by__bf16_to_f32((uint16_t)i) && by_emulated_to_bf16(bf16) == i));
        assert_true(isnan(f16) ||
                    (f16 == by__f16_to_f32((uint16_t)i) && by_emulated_to_f16(f16) == i));
        for (uint32_t low = 0; low < 8; low++) {
            static const uint32_t lower[8] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001};
            float f = by__bits_float(i << 16 | lower[low]);
            assert_true(isnan(f) || (by_emulated_to_bf16(f) == by__f32_to_bf16(f) &&
                                     by_emulated_to_f16(f) == by__f32_to_f16(f)));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted), cmocka_unit_test(test_late_copies),
        cmocka_unit_test(test_results), cmocka_unit_test(test_queues),
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_conversions),
    };
    return cmocka_run_group_tests_name("emulator", tests, NULL, NULL);
}

#else

int main(void)
{
    printf("skipped: there is no clang++ that compiles kernels for the emulator\n");
    return 77;
}

#endif
