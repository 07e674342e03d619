/* Ranks whose numbers would differ in bits do not train together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "job/job.h"

typedef struct builds {
    const char *version[2];
    const char *level[2];
    const char *hash[2];
} builds;

static by_status compare(by_comm *comm, void *user, by_error *error)
{
    const builds *b = user;
    int rank = by_comm_rank(comm);
    return by__job_ranks_compute_alike(comm, b->version[rank], b->hash[rank], b->level[rank],
                                       error);
}

static void test_builds(void **state)
{
    builds same = {{"0.1.0", "0.1.0"}, {"avx512", "avx512"}, {"ab", "ab"}};
    builds versions = {{"0.1.0", "0.2.0"}, {"avx512", "avx512"}, {"ab", "ab"}};
    builds levels = {{"0.1.0", "0.1.0"}, {"avx512", "avx2"}, {"ab", "ab"}};
    builds hashes = {{"0.1.0", "0.1.0"}, {"avx512", "avx512"}, {"ab", "cd"}};
    by_error error = {0};
    (void)state;
    assert_int_equal(by_comm_run_threads(2, NULL, compare, &same, &error), BY_OK);
    assert_int_equal(by_comm_run_threads(2, NULL, compare, &versions, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "runs banyan 0.2.0 and rank 0"));
    assert_int_equal(by_comm_run_threads(2, NULL, compare, &levels, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "kernels for avx2 and rank 0"));
    assert_non_null(strstr(error.message, "BANYAN_ISA"));
    assert_int_equal(by_comm_run_threads(2, NULL, compare, &hashes, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "another build of banyan 0.1.0 (cd) than rank 0"));
}

static by_status ask(by_comm *comm, void *user, by_error *error)
{
    uint64_t before;
    uint64_t after;
    char text[128] = "?";
    (void)user;
    by_comm_last(comm, &before, text, sizeof text);
    if (text[0] != '\0' && strstr(text, "barrier") == NULL) {
        return by_error_set(error, BY_ESTATE, "before the first: '%s'", text);
    }
    BY_TRY(by_comm_barrier(comm, "a test", error));
    by_comm_last(comm, &after, text, sizeof text);
    return after == before + 1 && strcmp(text, "barrier \"a test\"") == 0
               ? BY_OK
               : by_error_set(error, BY_ESTATE, "%s, %d", text, (int)(after - before));
}

/* What a heartbeat tells the supervisor. */
static void test_last_collective(void **state)
{
    by_error error = {0};
    (void)state;
    if (by_comm_run_threads(3, NULL, ask, NULL, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builds),
        cmocka_unit_test(test_last_collective),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
