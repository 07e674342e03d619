/* Compiled formats of a worker: one for equal sources, bounded in bytes, the least recently used
 * gone first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "serve/worker/form_cache.h"

static by_status letter(void *user, uint32_t id, const char **data, size_t *length, by_error *error)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789{}[]\":, ";
    BY_UNUSED(user);
    BY_UNUSED(error);
    *data = letters + id;
    *length = 1;
    return BY_OK;
}

static by_token_list *list;

static int open_list(void **state)
{
    by_error error;
    BY_UNUSED(state);
    return by_token_list_open(&list, letter, NULL, 44, &error);
}

static int close_list(void **state)
{
    BY_UNUSED(state);
    by_token_list_close(&list);
    return 0;
}

static const by_constraint *take(by__worker_form_cache *cache, by__worker_form_kind kind,
                                 const char *source)
{
    const by_constraint *constraint = NULL;
    by_error error = {0};
    if (by__worker_form_acquire(&constraint, cache, kind, source, strlen(source), &error) !=
        BY_OK) {
        fail_msg("%s: %s", source, error.message);
    }
    return constraint;
}

static void test_shared(void **state)
{
    by__worker_form_cache *cache;
    by_error error = {0};
    bool matches;
    BY_UNUSED(state);
    assert_int_equal(by__worker_form_cache_open(&cache, list, 1 << 20, 1 << 20, &error), BY_OK);
    const by_constraint *first = take(cache, BY__FORM_REGEX, "true");
    const by_constraint *second = take(cache, BY__FORM_REGEX, "true");
    const by_constraint *schema = take(cache, BY__FORM_SCHEMA, "true");
    assert_ptr_equal(first, second);
    assert_ptr_not_equal(first, schema); /* the same text of another kind */
    by__worker_form_release(cache, first);
    by__worker_form_release(cache, second);
    assert_ptr_equal(take(cache, BY__FORM_REGEX, "true"), first); /* kept while nobody used it */
    assert_int_equal(by_constraint_matches(first, "true", 4, &matches, &error), BY_OK);
    assert_true(matches);
    by__worker_form_release(cache, first);
    by__worker_form_release(cache, schema);
    by__worker_form_release(cache, NULL);
    /* What cannot be compiled is an error each time. */
    for (int i = 0; i < 2; i++) {
        const by_constraint *none;
        assert_int_equal(by__worker_form_acquire(&none, cache, BY__FORM_REGEX, "(", 1, &error),
                         BY_EARG);
    }
    by__worker_form_cache_close(&cache);
}

static void test_least_recently_used(void **state)
{
    by__worker_form_cache *cache;
    by_error error = {0};
    const by_constraint *made[3];
    static const char *const sources[] = {"a{300}", "b{300}", "c{300}"};
    BY_UNUSED(state);
    by_constraint *sized;
    assert_int_equal(by_constraint_open_regex(&sized, sources[0], 6, list, &error), BY_OK);
    size_t bytes = by_constraint_bytes(sized);
    by_constraint_close(&sized);
    assert_int_equal(
        by__worker_form_cache_open(&cache, list, 10 * bytes, 2 * bytes + bytes / 2, &error), BY_OK);
    for (int i = 0; i < 2; i++) {
        made[i] = take(cache, BY__FORM_REGEX, sources[i]);
        by__worker_form_release(cache, made[i]);
    }
    assert_ptr_equal(take(cache, BY__FORM_REGEX, sources[0]), made[0]);
    by__worker_form_release(cache, made[0]);
    made[2] = take(cache, BY__FORM_REGEX, sources[2]);
    by__worker_form_release(cache, made[2]); /* drops sources[1] */
    assert_int_equal(by__worker_form_cache_count(cache), 2);
    assert_ptr_equal(take(cache, BY__FORM_REGEX, sources[0]), made[0]);
    assert_ptr_equal(take(cache, BY__FORM_REGEX, sources[2]), made[2]);
    by__worker_form_release(cache, made[0]);
    by__worker_form_release(cache, made[2]);
    by__worker_form_cache_close(&cache);
}

static void test_bound(void **state)
{
    by__worker_form_cache *cache;
    by_error error = {0};
    const by_constraint *used[3];
    const by_constraint *none;
    by_constraint *sized;
    BY_UNUSED(state);
    assert_int_equal(by_constraint_open_regex(&sized, "a{300}", 6, list, &error), BY_OK);
    size_t bytes = by_constraint_bytes(sized);
    by_constraint_close(&sized);
    assert_int_equal(
        by__worker_form_cache_open(&cache, list, 3 * bytes + bytes / 2, bytes * 3, &error), BY_OK);
    for (int i = 0; i < 3; i++) {
        char source[16];
        (void)snprintf(source, sizeof source, "%c{300}", 'a' + i);
        used[i] = take(cache, BY__FORM_REGEX, source);
    }
    assert_int_equal(by__worker_form_acquire(&none, cache, BY__FORM_REGEX, "d{300}", 6, &error),
                     BY_ESTATE);
    assert_non_null(strstr(error.message, "try again later"));
    assert_ptr_equal(take(cache, BY__FORM_REGEX, "a{300}"), used[0]); /* takes no room */
    by__worker_form_release(cache, used[0]);
    by__worker_form_release(cache, used[1]);
    used[1] = take(cache, BY__FORM_REGEX, "d{300}"); /* in the place of what is idle */
    assert_int_equal(by__worker_form_cache_count(cache), 3);
    for (int i = 0; i < 3; i++) {
        by__worker_form_release(cache, used[i]);
    }
    by__worker_form_cache_close(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_least_recently_used),
        cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests(tests, open_list, close_list);
}
