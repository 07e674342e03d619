/* The dial: what it chooses is the best of its depths, more of anything is never worse, limits are
 * kept, and the config is that of the choice. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/dial/dial.h"
#include "runner.h"

/* 10 microseconds for 1e6 FLOPs, small models at half the speed. */
static const by_dial_machine machine = {
    .count = 3, .flops = {1e6, 1e7, 1e8}, .seconds = {2e-5, 1.2e-4, 1e-3}};
static const by_dial_data text = {
    .tokens = 5e6, .bytes_per_token = 3.5, .tokenizer = 4096, .vocab = 4096};

static by_dial_choice choose(by_dial_budget budget)
{
    by_dial_choice choice;
    by_error error = {0};
    check_ok(by_dial_choose(&choice, &budget, &text, &machine, &error), &error);
    return choice;
}

static void test_speed(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < machine.count; i++) {
        double seconds = by_dial_seconds(&machine, machine.flops[i]);
        assert_true(fabs(seconds / machine.seconds[i] - 1.0) < 1e-12);
    }
    double middle = by_dial_seconds(&machine, sqrt(1e13));
    assert_true(fabs(middle / sqrt(2e-5 * 1.2e-4) - 1.0) < 1e-12);
    /* Beyond the last one no model is faster per operation. */
    assert_true(fabs(by_dial_seconds(&machine, 1e9) / 1e-2 - 1.0) < 1e-12);
}

static void test_best(void **state)
{
    BY_UNUSED(state);
    double last = INFINITY;
    for (int i = 0; i < 8; i++) {
        double seconds = 30.0 * pow(3.0, i);
        by_dial_choice best = choose((by_dial_budget){.seconds = seconds});
        assert_string_equal(best.limit, "time");
        assert_true(best.seconds <= seconds && best.seconds > 0.5 * seconds);
        assert_true(best.bits < last && best.low < best.bits && best.bits < best.high);
        last = best.bits;
        for (int64_t layers = 1; layers <= 16; layers++) {
            by_dial_budget fixed = {.seconds = seconds, .layers = layers};
            by_dial_choice other;
            if (by_dial_choose(&other, &fixed, &text, &machine, NULL) == BY_OK) {
                assert_int_equal(other.layers, layers);
                assert_true(other.bits >= best.bits);
            }
        }
        assert_int_equal(best.width, 32 * best.layers);
        assert_true(best.tokens == (double)best.steps * (double)best.batch * (double)best.context);
    }
}

/* The shortest training is chosen in exactly its time, and refused in less. */
static void test_least(void **state)
{
    BY_UNUSED(state);
    static const int64_t depths[] = {0, 1, 7};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(depths); i++) {
        double least = by_dial_least_seconds(&text, &machine, depths[i], 0);
        by_dial_budget budget = {.seconds = least * (1.0 + 1e-9), .layers = depths[i]};
        by_dial_choice choice = choose(budget);
        by_error error = {0};
        assert_int_equal(choice.steps, 20);
        assert_int_equal(choice.batch, 4);
        budget.seconds = 0.99 * least;
        assert_int_equal(by_dial_choose(&choice, &budget, &text, &machine, &error), BY_EARG);
    }
}

static void test_limits(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_dial_choice choice = choose((by_dial_budget){.flops = 1e14});
    assert_string_equal(choice.limit, "FLOPs");
    assert_true(choice.tokens * choice.flops_per_token <= 1e14);
    assert_true(choice.tokens * choice.flops_per_token > 0.9e14);
    choice = choose((by_dial_budget){.flops = 1e14, .seconds = 10.0});
    assert_string_equal(choice.limit, "time");
    choice = choose((by_dial_budget){.layers = 3});
    assert_string_equal(choice.limit, "depth");
    assert_int_equal(choice.layers, 3);
    by_dial_choice small = choose((by_dial_budget){.bytes = (uint64_t)200 << 20});
    by_dial_choice large = choose((by_dial_budget){.bytes = (uint64_t)2 << 30});
    assert_string_equal(small.limit, "memory");
    assert_true(large.layers > small.layers && small.bytes == (uint64_t)200 << 20);
    const by_dial_budget none = {0};
    check_error(by_dial_choose(&choice, &none, &text, &machine, &error), BY_EARG, &error,
                "the dial is set to nothing");
    const by_dial_budget little = {.seconds = 1e-3};
    check_error(by_dial_choose(&choice, &little, &text, &machine, &error), BY_EARG, &error,
                "less than 20 steps");
}

/* A text that is read 40 times is not worth 40 times its bytes. */
static void test_repeats(void **state)
{
    BY_UNUSED(state);
    const by__dial_laws *laws = &by__dial_laws_of_text;
    assert_true(by__dial_effective(laws, 1e6, 2e6) == 1e6);
    double four = by__dial_effective(laws, 4e6, 1e6);
    double many = by__dial_effective(laws, 4e8, 1e6);
    assert_true(four > 3.6e6 && four < 4e6);
    assert_true(many > 16e6 && many < 16.5e6); /* 1 + R* */
    assert_int_equal(by__dial_vocab(laws, 1000.0), 512);
    assert_int_equal(by__dial_vocab(laws, 3.1e6), 1024);
    assert_int_equal(by__dial_vocab(laws, 1e9), 4096);
}

/* Sizes and FLOPs are those of the graph, and the YAML says what was chosen. */
static void test_config(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_dial_choice choice = choose((by_dial_budget){.seconds = 300.0, .bytes = (uint64_t)6 << 30});
    char *yaml;
    char *lines;
    by_config *config;
    by_trainer *trainer;
    char first[] = "c:\\d #e.txt";
    char second[] = "f";
    char *paths[] = {first, second};
    const by_string_list of = {paths, 2};
    check_ok(by_dial_config(&yaml, &lines, &choice, &text, "a \"b\"", &of, &error), &error);
    check_ok(by_config_parse(&config, "dial", yaml, strlen(yaml), NULL, 0, &error), &error);
    config->model.vocab = text.vocab;
    check_ok(by_config_resolve(config, &error), &error);
    assert_string_equal(config->name, "a \"b\"");
    assert_int_equal(config->data.text.count, 2);
    assert_string_equal(config->data.text.items[0], first);
    assert_string_equal(config->data.text.items[1], second);
    assert_int_equal(config->train.steps, choice.steps);
    assert_int_equal(config->train.batch, choice.batch);
    assert_int_equal(config->memory.budget, (int64_t)6 << 30);
    assert_true(fabs(config->optimizer.lr / choice.lr - 1.0) < 1e-3);
    check_ok(by_trainer_open(&trainer, config, NULL, &error), &error);
    const by_model_size *size = by_trainer_size(trainer);
    assert_true((double)size->parameters == choice.parameters);
    assert_true(fabs(size->flops_per_example / choice.flops_per_token - 1.0) < 0.02);
    by_trainer_close(&trainer);
    by_config_close(&config);
    size_t count = 0;
    for (const char *line = lines; (line = strchr(line, '\n')) != NULL; line++) {
        count++;
    }
    assert_true(count >= 8 && count <= 10);
    free(yaml);
    free(lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_speed),   cmocka_unit_test(test_best),
        cmocka_unit_test(test_least),   cmocka_unit_test(test_limits),
        cmocka_unit_test(test_repeats), cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
