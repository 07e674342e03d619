/* A run that is stopped in an evaluation evaluates when it is resumed. If it dies after that and
 * before its next checkpoint, the next resume evaluates once more: the events are those of a run
 * that was never interrupted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

#include "banyan/train.h"
#include "run_root.h"
#include "runner.h"
#include "temporary.h"

/* What a process of the run does. */
typedef struct process {
    bool stops;     /* in its first evaluation */
    bool dies;      /* behind the first evaluation, in the next step */
    bool evaluates; /* it has begun to */
} process;

#define DIED 9

static void on_progress(void *user, int64_t step, const char *phase)
{
    process *p = user;
    BY_UNUSED(step);
    if (strcmp(phase, "evaluation") == 0) {
        p->evaluates = true;
    } else if (strcmp(phase, "step") == 0 && p->dies && p->evaluates) {
        _exit(DIED);
    }
}

static bool on_stop(void *user)
{
    const process *p = user;
    return p->stops && p->evaluates;
}

/* Trains in a process of its own; returns its status. */
static int train(const by_config *config, const char *resume, process p)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const by_train_options options = {.config = config,
                                          .resume = resume,
                                          .progress = on_progress,
                                          .stop = on_stop,
                                          .user = &p};
        by_error error = {0};
        by_status status = by_train(&options, NULL, &error);
        _exit(status == BY_OK ? 0 : status == BY_ESTOPPED ? 1 : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static by_config *open_config(const char *root, const char *name)
{
    static const char *const common[] = {"model.layers=1",        "model.heads=2",
                                         "model.width=8",         "model.context=8",
                                         "data.tokenizer=char",   "train.threads=1",
                                         "train.steps=6",         "train.batch=2",
                                         "train.log_every=1",     "train.eval_every=2",
                                         "train.eval_batches=2",  "optimizer.warmup=1",
                                         "checkpoint.every=3",    "track.sample_every=2",
                                         "track.sample_tokens=4", NULL};
    static const char *const none[] = {NULL};
    const char *const own[] = {name, "track.sample_prompt=ab", NULL};
    return run_root_config(root, common, own, none);
}

/* The kinds and steps of a run's events: "train 1;train 2;eval 2;...". */
static char *events_of(const char *root, const char *run)
{
    by_string path = {0};
    by_string out = {0};
    char *text = NULL;
    char *list = NULL;
    size_t size;
    by_error error = {0};
    by_string_format(&path, "%s/runs/%s/events.jsonl", root, run);
    check_ok(by__file_read(&text, &size, path.data, 1 << 20, &error), &error);
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        char kind[16];
        int step;
        assert_int_equal(sscanf(line, "{\"event\":\"%15[a-z]\",\"step\":%d", kind, &step), 2);
        if (strcmp(kind, "use") != 0) { /* of which each process that ends has one */
            by_string_format(&out, "%s %d;", kind, step);
        }
    }
    check_ok(by__string_release(&out, &list, &error), &error);
    by_string_free(&path);
    free(text);
    return list;
}

static void test_events(void **state)
{
    BY_UNUSED(state);
    char *root = run_root_make();
    by_config *whole = open_config(root, "name=whole");
    by_config *cut = open_config(root, "name=cut");
    char *run = by__path_join(root, "runs/cut");
    assert_int_equal(train(whole, NULL, (process){0}), 0);
    assert_int_equal(train(cut, NULL, (process){.stops = true}), 1);
    assert_int_equal(train(cut, run, (process){.dies = true}), DIED);
    assert_int_equal(train(cut, run, (process){0}), 0);
    char *expected = events_of(root, "whole");
    char *got = events_of(root, "cut");
    assert_non_null(strstr(expected, "train 2;eval 2;sample 2;train 3;"));
    assert_string_equal(got, expected);
    free(got);
    free(expected);
    free(run);
    by_config_close(&whole);
    by_config_close(&cut);
    temporary_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_events)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
