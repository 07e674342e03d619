/* Pages of keys and values: who has them, which go first, and what the prefix cache finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "infer/page_pool.h"
#include "infer/scheduler.h"

static by__infer_page_pool open_pool(int64_t pages)
{
    by_error error = {0};
    by__infer_page_pool pool;
    assert_int_equal(by__infer_pool_open(&pool, pages, &error), BY_OK);
    return pool;
}

static const int32_t *text(int32_t first)
{
    static int32_t tokens[BY_PAGE_TOKENS];
    for (int32_t i = 0; i < BY_PAGE_TOKENS; i++) {
        tokens[i] = first + i;
    }
    return tokens;
}

static void test_take_and_release(void **state)
{
    BY_UNUSED(state);
    by__infer_page_pool pool = open_pool(3);
    int32_t a = by__infer_pool_allocate(&pool);
    int32_t b = by__infer_pool_allocate(&pool);
    int32_t c = by__infer_pool_allocate(&pool);
    assert_true(a != b && b != c && a != c && a >= 0 && b >= 0 && c >= 0);
    assert_int_equal(by__infer_pool_allocate(&pool), BY__NO_PAGE);
    by__infer_pool_share(&pool, b);
    by__infer_pool_release(&pool, b);
    assert_int_equal(by__infer_pool_available(&pool), 0); /* the other one still has it */
    by__infer_pool_release(&pool, b);
    assert_int_equal(by__infer_pool_available(&pool), 1);
    assert_int_equal(by__infer_pool_allocate(&pool), b);
    by__infer_pool_close(&pool);
}

/* Sequences that grow in turn have pages that follow each other, as long as these are free. */
static void test_stretches(void **state)
{
    enum { EACH = 4 };
    BY_UNUSED(state);
    by__infer_page_pool pool = open_pool(3 * EACH + 1);
    int32_t held[4][EACH];
    for (int page = 0; page < EACH; page++) {
        for (int s = 0; s < 3; s++) {
            int64_t wanted = page > 0 ? held[s][page - 1] + 1 : by__infer_pool_stretch(&pool, EACH);
            held[s][page] = by__infer_pool_allocate_at(&pool, wanted);
            assert_int_equal(held[s][page], held[s][0] + page);
        }
    }
    int32_t rest =
        by__infer_pool_allocate_at(&pool, held[1][2]); /* it has a sequence: another one */
    assert_int_equal(rest, 3 * EACH);
    assert_int_equal(by__infer_pool_allocate_at(&pool, 0), BY__NO_PAGE);
    for (int page = 0; page < EACH; page++) {
        by__infer_pool_release(&pool, held[0][page]);
    }
    assert_int_equal(by__infer_pool_stretch(&pool, EACH), 0); /* behind the last one is no room */
    assert_int_equal(by__infer_pool_allocate_at(&pool, 2), 2);
    assert_int_not_equal(by__infer_pool_allocate_at(&pool, -1),
                         by__infer_pool_allocate_at(&pool, 3 * EACH + 1));
    assert_int_equal(by__infer_pool_available(&pool), 1);
    by__infer_pool_close(&pool);
}

/* Equal tokens are found behind what they were behind, and under their salt, alone. */
static void test_prefix(void **state)
{
    BY_UNUSED(state);
    by__infer_page_pool pool = open_pool(8);
    by__infer_prefix salt = {7, true};
    by__infer_prefix other = {8, true};
    int32_t a = by__infer_pool_allocate(&pool);
    int32_t b = by__infer_pool_allocate(&pool);
    assert_int_equal(by__infer_prefix_find(&pool, salt, text(1)), BY__NO_PAGE);
    assert_int_equal(by__infer_prefix_insert(&pool, a, salt, text(1)), a);
    by__infer_prefix behind = by__infer_prefix_of(&pool, a);
    assert_int_equal(by__infer_prefix_insert(&pool, b, behind, text(1)), b);
    assert_int_equal(by__infer_prefix_find(&pool, salt, text(1)), a);
    assert_int_equal(by__infer_prefix_find(&pool, behind, text(1)), b);
    assert_int_equal(by__infer_prefix_find(&pool, other, text(1)), BY__NO_PAGE);
    assert_int_equal(by__infer_prefix_find(&pool, salt, text(2)), BY__NO_PAGE);
    /* A number that is a salt is not a page's. */
    by__infer_prefix page = {behind.number, true};
    assert_int_equal(by__infer_prefix_find(&pool, page, text(1)), BY__NO_PAGE);
    /* Who computes the same again is told of the page that is there. */
    int32_t c = by__infer_pool_allocate(&pool);
    assert_int_equal(by__infer_prefix_insert(&pool, c, salt, text(1)), a);
    by__infer_pool_release(&pool, c);
    assert_int_equal(by__infer_pool_available(&pool), 6);
    assert_int_equal(pool.kept_count, 0);
    by__infer_pool_close(&pool);
}

/* The page whose last use is longest ago goes first, one in use never; free ones before all. */
static void test_eviction(void **state)
{
    BY_UNUSED(state);
    by__infer_page_pool pool = open_pool(4);
    by__infer_prefix salt = {0, true};
    int32_t page[3];
    for (int i = 0; i < 3; i++) {
        page[i] = by__infer_pool_allocate(&pool);
        assert_int_equal(by__infer_prefix_insert(&pool, page[i], salt, text(10 * i)), page[i]);
    }
    by__infer_pool_release(&pool, page[0]);
    by__infer_pool_release(&pool, page[1]);
    by__infer_pool_share(&pool, page[0]); /* found again, and used last */
    by__infer_pool_release(&pool, page[0]);
    assert_int_equal(pool.kept_count, 2);
    int32_t fresh = by__infer_pool_allocate(&pool);
    assert_true(fresh != page[0] && fresh != page[1] && fresh != page[2]);
    assert_int_equal(pool.evictions, 0);
    assert_int_equal(by__infer_pool_allocate(&pool), page[1]);
    assert_int_equal(pool.evictions, 1);
    assert_int_equal(by__infer_prefix_find(&pool, salt, text(10)), BY__NO_PAGE);
    assert_int_equal(by__infer_prefix_find(&pool, salt, text(0)), page[0]);
    assert_int_equal(by__infer_pool_allocate(&pool), page[0]);
    assert_int_equal(by__infer_pool_allocate(&pool), BY__NO_PAGE);
    assert_int_equal(by__infer_prefix_find(&pool, salt, text(20)), page[2]);
    by__infer_pool_close(&pool);
}

/* What stood behind an evicted page is not found behind the page that takes its place. */
static void test_serials(void **state)
{
    BY_UNUSED(state);
    by__infer_page_pool pool = open_pool(2);
    by__infer_prefix salt = {0, true};
    int32_t a = by__infer_pool_allocate(&pool);
    int32_t b = by__infer_pool_allocate(&pool);
    (void)by__infer_prefix_insert(&pool, a, salt, text(1));
    by__infer_prefix behind_a = by__infer_prefix_of(&pool, a);
    (void)by__infer_prefix_insert(&pool, b, behind_a, text(2));
    by__infer_pool_release(&pool, a);
    assert_int_equal(by__infer_pool_allocate(&pool),
                     a); /* evicted: b is left without its beginning */
    assert_int_equal(by__infer_prefix_insert(&pool, a, salt, text(3)), a);
    assert_int_equal(by__infer_prefix_find(&pool, by__infer_prefix_of(&pool, a), text(2)),
                     BY__NO_PAGE);
    by__infer_pool_close(&pool);
}

/* Many pages, at random: every page is in one of its states, and what is found is what was put
 * there. */
static void test_random(void **state)
{
    enum { PAGES = 37, TEXTS = 64 };
    BY_UNUSED(state);
    by__infer_page_pool pool = open_pool(PAGES);
    by__infer_prefix salt = {3, true};
    int32_t held[PAGES];
    int count = 0;
    uint32_t key[2] = {1, 2};
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t bits[4];
        by__philox(bits, key, (uint32_t[4]){i, 0, 0, 0});
        int32_t which = (int32_t)(bits[1] % TEXTS);
        int32_t page = by__infer_prefix_find(&pool, salt, text(which));
        if (page != BY__NO_PAGE) {
            assert_memory_equal(pool.pages[page].tokens, text(which), sizeof pool.pages[0].tokens);
        }
        if (bits[0] % 2 == 0 && count > 0) {
            int at = (int)(bits[2] % (uint32_t)count);
            by__infer_pool_release(&pool, held[at]);
            held[at] = held[--count];
        } else if (page != BY__NO_PAGE && count < PAGES) {
            by__infer_pool_share(&pool, page);
            held[count++] = page;
        } else if (count < PAGES && (page = by__infer_pool_allocate_at(
                                         &pool, (int64_t)(bits[2] % (2 * PAGES)))) != BY__NO_PAGE) {
            held[count++] = page;
            if (bits[3] % 3 != 0) {
                assert_int_equal(by__infer_prefix_insert(&pool, page, salt, text(which)), page);
            }
        }
        int64_t used = 0;
        for (int p = 0; p < PAGES; p++) {
            used += pool.pages[p].uses > 0;
        }
        assert_int_equal(used + by__infer_pool_available(&pool), PAGES);
    }
    assert_true(pool.evictions > 100);
    by__infer_pool_close(&pool);
}

/* A pool without a given size holds all sequences if they fit into half of the free memory, and one
 * of full length in any case. */
static void test_default(void **state)
{
    (void)state;
    const size_t page = 1000;
    assert_int_equal(by__infer_pool_default(8, 16, page, 1u << 30), 128);
    assert_int_equal(by__infer_pool_default(8, 16, page, 200 * page), 100);
    assert_int_equal(by__infer_pool_default(8, 16, page, 3 * page), 8);
    assert_int_equal(by__infer_pool_default(8, 16, page, 0), 8);
    assert_int_equal(by__infer_pool_default(8, 16, 0, 0), 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_and_release), cmocka_unit_test(test_stretches),
        cmocka_unit_test(test_prefix),           cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_serials),          cmocka_unit_test(test_random),
        cmocka_unit_test(test_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
