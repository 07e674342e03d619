/* What the processes of a server keep of the environment that they inherit. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/serve.h"
#include "base/base.h"

static bool keeps(const char *name)
{
    return getenv(name) != NULL;
}

/* A bit for each of the variables that a process of a kind still has; 128: one was not wiped, or
 * one that all keep was. */
static int kept_by(by_serve_process process, bool redis)
{
    static const char *const names[] = {"OMP_NUM_THREADS", "BANYAN_REDIS_PASSWORD",
                                        "BANYAN_FEATURES_PASSWORD", "HTTPS_PROXY"};
    /* Where a worker finds NVIDIA's libraries. */
    static const char *const libraries[] = {"BANYAN_CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"};
    static const char *const secrets[] = {"AWS_SECRET_ACCESS_KEY",   "MLFLOW_TRACKING_PASSWORD",
                                          "OPENAI_API_KEY",          "OMPI_X",
                                          "BANYAN_REDIS_PASSWORD_X", "BANYAN_REDIS"};
    char entry[] = "HF_TOKEN=secret";
    int bits = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        (void)setenv(names[i], "1", 1);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(libraries); i++) {
        (void)setenv(libraries[i], "1", 1);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(secrets); i++) {
        (void)setenv(secrets[i], "1", 1);
    }
    (void)putenv(entry);
    int inherited = dup(STDERR_FILENO);
    by_serve_clean_environment(process, redis);
    bits |= (fcntl(inherited, F_GETFD) == -1) == (process == BY_SERVE_SUPERVISOR) ? 128 : 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        bits |= keeps(names[i]) ? 1 << i : 0;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(libraries); i++) {
        bits |= keeps(libraries[i]) ? 0 : 128;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(secrets); i++) {
        bits |= keeps(secrets[i]) ? 128 : 0;
    }
    for (size_t i = 0; i < sizeof entry; i++) {
        bits |= entry[i] != '\0' ? 128 : 0;
    }
    return bits;
}

static void test_kinds(void **state)
{
    static const struct {
        by_serve_process process;
        bool redis;
        int bits;
    } rows[] = {{BY_SERVE_WORKER, false, 1},  {BY_SERVE_WORKER, true, 3},
                {BY_SERVE_BROKER, false, 1},  {BY_SERVE_GATEWAY, false, 13},
                {BY_SERVE_GATEWAY, true, 15}, {BY_SERVE_SUPERVISOR, true, 15}};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            _exit(kept_by(rows[i].process, rows[i].redis));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), rows[i].bits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
