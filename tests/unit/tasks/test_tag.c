/* Entities in the tags of words: what counts as one, and which are right (seqeval). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tasks/examples/examples.h"

#define WORDS   8
#define CLASSES 6

extern const by__task_row by__task_tag;

static const char *names[CLASSES] = {"B-MISC", "B-PER", "I-MISC", "I-PER", "O", "PER"};

static int32_t class_of(const char *name)
{
    int32_t c = 0;
    while (strcmp(names[c], name) != 0) {
        c++;
    }
    return c;
}

/* A text of words with these tags, of which others are predicted. */
typedef struct tagged {
    const char *there[WORDS];
    const char *found[WORDS];
} tagged;

static void measure(double metrics[4], const tagged *texts, size_t count)
{
    static const by_evaluation none;
    double sums[5] = {0};
    double *places[5];
    by__task_examples d = {
        .base = {.task = &by__task_tag.task}, .labels = names, .label_count = CLASSES};
    for (int i = 0; i < 5; i++) {
        places[i] = &sums[i];
    }
    for (size_t t = 0; t < count; t++) {
        /* The second token of each word is not its first. */
        int32_t labels[2 * WORDS];
        float values[2 * WORDS * CLASSES] = {0};
        for (size_t w = 0; w < WORDS; w++) {
            bool is_word = texts[t].there[w] != NULL;
            labels[2 * w] = is_word ? class_of(texts[t].there[w]) : -1;
            labels[2 * w + 1] = -1;
            values[2 * w * CLASSES + (is_word ? (size_t)class_of(texts[t].found[w]) : 0)] = 1.0f;
            values[(2 * w + 1) * CLASSES] = 1.0f;
        }
        const by_array array = {
            .name = "labels", .dtype = BY_I32, .shape = BY_SHAPE(1, 2 * WORDS), .data = labels};
        const by_batch batch = {.arrays = &array, .array_count = 1, .batch = 1};
        by__task_tag.task.measure(&d.base, places, &batch, values, 2 * WORDS * CLASSES);
    }
    for (size_t m = 0; m < 4; m++) {
        metrics[m] =
            by__task_tag.task.metrics[m].value(&d.base, (const double *const *)places, &none);
    }
}

/* The example of seqeval's README: an F1 of 0.5. */
static void test_documented(void **state)
{
    BY_UNUSED(state);
    const tagged texts[] = {{{"O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"},
                             {"O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"}},
                            {{"B-PER", "I-PER", "O"}, {"B-PER", "I-PER", "O"}}};
    double metrics[4];
    measure(metrics, texts, 2);
    assert_true(fabs(metrics[0] - 0.5) < 1e-12);
    assert_true(fabs(metrics[3] - 0.8) < 1e-12);
}

/* An entity without a beginning is one, two that touch are two, as are two types in a row, and a
 * type alone is a scheme, too. Figures of seqeval. */
static void test_schemes(void **state)
{
    BY_UNUSED(state);
    const tagged texts[] = {
        {{"I-PER", "I-PER", "I-MISC", "B-MISC"}, {"B-PER", "I-PER", "I-MISC", "I-MISC"}},
        {{"PER", "PER", "O", "B-PER"}, {"PER", "PER", "O", "O"}}};
    double metrics[4];
    measure(metrics, texts, 2);
    assert_true(fabs(metrics[1] - 2.0 / 3.0) < 1e-12);
    assert_true(fabs(metrics[2] - 2.0 / 5.0) < 1e-12);
    assert_true(fabs(metrics[0] - 0.5) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_documented),
                                       cmocka_unit_test(test_schemes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
