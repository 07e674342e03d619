/* The config module: configs on disk, which inherit from others, and that of a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "config/schema.h"
#include "config_text.h"

typedef struct folder {
    char path[64];
} folder;

static int make_folder(void **state)
{
    static folder made;
    (void)snprintf(made.path, sizeof made.path, "/tmp/banyan-config-XXXXXX");
    *state = &made;
    return mkdtemp(made.path) == NULL ? -1 : 0;
}

static int drop_folder(void **state)
{
    return by__remove_tree(((folder *)*state)->path, NULL) == BY_OK ? 0 : -1;
}

static const char *put(void **state, char path[128], const char *name, const char *text)
{
    (void)snprintf(path, 128, "%s/%s", ((folder *)*state)->path, name);
    assert_int_equal(by__file_write(path, text, strlen(text), NULL), BY_OK);
    return path;
}

static void test_base_chain(void **state)
{
    char path[128];
    char directory[128];
    by_config *config;
    by_error error = {0};
    (void)snprintf(directory, sizeof directory, "%s/shared", ((folder *)*state)->path);
    assert_int_equal(mkdir(directory, 0777), 0);
    put(state, path, "shared/root.yaml",
        "seed: 1\ntrain: {steps: 10, batch: 20}\ndata: {text: [a, b, c]}\n");
    put(state, path, "shared/middle.yaml",
        "base: root.yaml\ntrain:\n  steps: 30\n  micro_batch: 6\noptimizer: {lr: 0.5}\n");
    put(state, path, "child.yaml",
        "data: {text: [z]}\nbase: shared/middle.yaml\noptimizer: {lr: 0.25}\n");
    const char *override = "seed=9";
    assert_int_equal(by_config_open(&config, path, &override, 1, &error), BY_OK);
    assert_true(config->seed == 9);
    assert_int_equal(config->train.steps, 30);
    assert_int_equal(config->train.batch, 20);
    assert_true(config->optimizer.lr == 0.25);
    assert_int_equal(config->data.text.count, 1); /* a list replaces the base's list */
    assert_string_equal(config->data.text.items[0], "z");
    /* A check over two files names the one that set the key. */
    char expected[300];
    (void)snprintf(
        expected, sizeof expected,
        "%s/shared/middle.yaml:4: micro_batch 6 does not divide batch 20; nearest: 5, 10",
        ((folder *)*state)->path);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message, expected);
    by_config_close(&config);
}

static void test_base_errors(void **state)
{
    char path[128];
    char expected[400];
    const char *root = ((folder *)*state)->path;
    by_config *config = NULL;
    by_error error = {0};
    put(state, path, "b.yaml", "base: c.yaml\n");
    put(state, path, "c.yaml", "seed: 1\nbase: ./a.yaml\n");
    put(state, path, "a.yaml", "\nbase: b.yaml\n");
    assert_int_equal(by_config_open(&config, path, NULL, 0, &error), BY_ECONFIG);
    (void)snprintf(expected, sizeof expected,
                   "%s/c.yaml:2: base: a cycle: %s/a.yaml -> %s/b.yaml -> %s/c.yaml -> %s/./a.yaml",
                   root, root, root, root, root);
    assert_string_equal(error.message, expected);

    put(state, path, "lost.yaml", "seed: 1\nbase: gone.yaml\n");
    assert_int_equal(by_config_open(&config, path, NULL, 0, &error), BY_EIO);
    (void)snprintf(expected, sizeof expected,
                   "%s/lost.yaml:2: base: cannot open %s/gone.yaml: No such file or directory",
                   root, root);
    assert_string_equal(error.message, expected);

    /* A wrong value in a base is an error though the child replaces it. */
    put(state, path, "wrong.yaml", "train:\n  steps: none\n");
    put(state, path, "over.yaml", "base: wrong.yaml\ntrain: {steps: 3}\n");
    assert_int_equal(by_config_open(&config, path, NULL, 0, &error), BY_ECONFIG);
    (void)snprintf(expected, sizeof expected,
                   "%s/wrong.yaml:2: train.steps: \"none\" is not a whole "
                   "number from 1 to 1e+15",
                   root);
    assert_string_equal(error.message, expected);

    for (int i = 0; i < 20; i++) {
        char name[32];
        char text[64];
        (void)snprintf(name, sizeof name, "long%d.yaml", 19 - i);
        (void)snprintf(text, sizeof text, "base: long%d.yaml\n", 20 - i);
        put(state, path, name, text);
    }
    assert_int_equal(by_config_open(&config, path, NULL, 0, &error), BY_ECONFIG);
    (void)snprintf(expected, sizeof expected,
                   "%s/long15.yaml:1: base: a chain of more than 16 files", root);
    assert_string_equal(error.message, expected);
    assert_int_equal(by_config_open(&config, "/nowhere/x.yaml", NULL, 0, &error), BY_EIO);
    assert_string_equal(error.message, "cannot open /nowhere/x.yaml: No such file or directory");
    assert_null(config);
    char *large = malloc(1100001);
    assert_non_null(large);
    memset(large, '#', 1100000);
    large[1100000] = '\0';
    put(state, path, "large.yaml", large);
    free(large);
    assert_int_equal(by_config_open(&config, path, NULL, 0, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "1100000 bytes is more than the limit of 1048576"));
}

/* The config of a run that was made before keys had owners: it names every key of every family. */
static void test_config_of_a_run(void **state)
{
    char path[128];
    by_config *config;
    by_error error = {0};
    const char *run = ((folder *)*state)->path;
    put(state, path, "config.yaml",
        "model:\n  kind: gpt2\n  heads: 2\n  kv_heads: 2\n  rope_theta: 10000\n");
    assert_int_equal(by_config_open(&config, path, NULL, 0, &error), BY_ECONFIG);
    assert_int_equal(by_config_open_run(&config, run, NULL, 0, &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_OK);
    assert_int_equal(config->model.heads, 2);
    char *text = config_printed(config);
    assert_null(strstr(text, "rope_theta"));
    free(text);
    by_config_close(&config);
    const char *override = "model.rope_theta=5";
    assert_int_equal(by_config_open_run(&config, run, &override, 1, &error), BY_ECONFIG);
    assert_string_equal(error.message,
                        "override \"model.rope_theta=5\": model.rope_theta belongs to "
                        "llama, mixtral; the kind here is gpt2");
    /* A family's own key comes back. */
    put(state, path, "config.yaml", "model: {kind: llama, rope_theta: 77}\n");
    assert_int_equal(by_config_open_run(&config, run, NULL, 0, &error), BY_OK);
    text = config_printed(config);
    assert_non_null(strstr(text, "  rope_theta: 77\n"));
    free(text);
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_base_chain, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_base_errors, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_config_of_a_run, make_folder, drop_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
