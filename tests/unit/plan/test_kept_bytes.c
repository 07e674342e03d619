/* What a compiled plan keeps of a block for the backward pass, to the byte, against table 2 of
 * Korthikanti et al. 2022 (arXiv 2205.05198). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runner.h"
#include "trainer/state/trainer.h"

static const char *const common[] = {"model.kind=gpt2",
                                     "model.heads=8",
                                     "model.width=256",
                                     "model.vocab=512",
                                     "model.context=128",
                                     "model.dropout=0.1",
                                     "train.threads=1",
                                     "train.steps=10",
                                     "checkpoint.every=0",
                                     "parallel.data=1",
                                     "device=cpu",
                                     "precision.compute=bf16",
                                     NULL};

enum { CONTEXT = 128, WIDTH = 256, HEADS = 8 };

typedef struct kept_case {
    const char *settings[4];
    int tensor;
    int batch;
    bool sequence_parallel;
    bool recomputes; /* whole blocks */
} kept_case;

/* Bytes of the arena of a model of so many blocks. */
static double arena_of(const kept_case *k, int layers)
{
    by_error error = {0};
    by_trainer *t;
    char texts[4][48];
    const char *settings[8];
    size_t count = 0;
    for (; k->settings[count] != NULL; count++) {
        settings[count] = k->settings[count];
    }
    (void)snprintf(texts[0], sizeof texts[0], "model.layers=%d", layers);
    (void)snprintf(texts[1], sizeof texts[1], "train.batch=%d", k->batch);
    (void)snprintf(texts[2], sizeof texts[2], "train.micro_batch=%d", k->batch);
    (void)snprintf(texts[3], sizeof texts[3], "parallel.tensor=%d", k->tensor);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        settings[count++] = texts[i];
    }
    settings[count] = NULL;
    by_config *config = config_of(common, settings);
    const by_trainer_options options = {.ranks = k->tensor};
    check_ok(by_trainer_open(&t, config, &options, &error), &error);
    double bytes = (double)by_program_arena_bytes(t->model.gradients->program);
    by_trainer_close(&t);
    by_config_close(&config);
    return bytes;
}

/* Terms of the paper's sum, in bytes, with 16-bit activations: s b h (34 + 5 a s / h) on one rank.
 * What is multiplied by `whole` is not divided along `tensor` unless sequences are. */
static double expected(const kept_case *k)
{
    const double s = CONTEXT;
    const double b = k->batch;
    const double h = WIDTH;
    const double a = HEADS;
    const double t = k->tensor;
    const double whole = k->sequence_parallel ? 1.0 / t : 1.0;
    if (k->recomputes) {
        return 2.0 * s * b * h * whole; /* its input */
    }
    double paper = s * b * h * (10.0 * whole + 24.0 / t) + 5.0 * a * s * s * b / t;
    /* Masks of dropout are drawn again: one byte for each element behind attention and MLP. */
    double masks = 2.0 * s * b * h * whole;
    /* Attention computes its scores again, which the paper calls selective recomputation: of them
     * softmax and dropout are kept there, and the mask. */
    double scores = 5.0 * a * s * s * b / t;
    /* The paper leaves out what is kept in f32: mean and deviation of each row of both norms, and
     * the logarithm of the sum of each row of scores. */
    double rows = 2.0 * 8.0 * s * b * whole + 4.0 * a * s * b / t;
    /* From 4 MiB on, results of norms and activation functions are computed again. */
    double norms = 2.0 * 2.0 * s * b * h * whole;
    double norm_of_rank = 2.0 * s * b * h * whole;
    double activated = 8.0 * s * b * h / t;
    double again =
        (norm_of_rank >= 4194304.0 ? norms : 0.0) + (activated >= 4194304.0 ? activated : 0.0);
    return paper - masks - scores + rows - again;
}

static void test_blocks(void **state)
{
    BY_UNUSED(state);
    static const kept_case cases[] = {
        {.tensor = 1, .batch = 4},
        {.tensor = 1, .batch = 1},
        {.tensor = 2, .batch = 4},
        {.tensor = 4,
         .batch = 8,
         .settings = {"parallel.sequence_parallel=true"},
         .sequence_parallel = true},
        {.tensor = 1, .batch = 4, .settings = {"memory.recompute=block"}, .recomputes = true},
        {.tensor = 1, .batch = 64},
        {.tensor = 2,
         .batch = 128,
         .settings = {"parallel.sequence_parallel=true"},
         .sequence_parallel = true},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        double kept = arena_of(&cases[i], 4) - arena_of(&cases[i], 3);
        double want = expected(&cases[i]);
        if (kept < want || kept > want) {
            fail_msg("case %zu: a block keeps %.0f bytes, not %.0f", i, kept, want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
