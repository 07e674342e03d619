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
#include "sanitizer.h"
#include "trainer/plan/trainer_plan.h"

/* 10 microseconds for 1e6 FLOPs, small models at half the speed. */
static const by_dial_machine machine = {
    .count = 3, .flops = {1e6, 1e7, 1e8}, .seconds = {2e-5, 1.2e-4, 1e-3}};
static const by_dial_data text = {
    .tokens = 5e6, .bytes_per_token = 3.5, .tokenizer = 4096, .vocab = 4096};

static char path[] = "book.txt";
static char *paths[] = {path};
static const by_dial_request book = {.text = {paths, 1}, .name = "book"};

static by_status try_choose(by_dial_choice *out, by_dial_budget budget, by_error *error)
{
    by_dial_request request = book;
    request.budget = budget;
    return by_dial_choose(out, &request, &text, &machine, error);
}

static by_dial_choice choose(by_dial_budget budget)
{
    by_dial_choice choice;
    by_error error = {0};
    check_ok(try_choose(&choice, budget, &error), &error);
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
            if (try_choose(&other, fixed, NULL) == BY_OK) {
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
        assert_int_equal(try_choose(&choice, budget, &error), BY_EARG);
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
    const by_dial_budget none = {0};
    check_error(try_choose(&choice, none, &error), BY_EARG, &error, "the dial is set to nothing");
    const by_dial_budget little = {.seconds = 1e-3};
    check_error(try_choose(&choice, little, &error), BY_EARG, &error, "less than 20 steps");
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
    /* A large text is long enough for the law of new text; a small one is not read for ever. */
    by_dial_choice c;
    by_dial_request request = book;
    request.budget = (by_dial_budget){.layers = 12};
    by_dial_data data = text;
    const double tokens[] = {1e12, 3e7, 1e6};
    for (size_t i = 0; i < 3; i++) {
        data.tokens = tokens[i];
        assert_int_equal(by_dial_choose(&c, &request, &data, &machine, NULL), BY_OK);
        assert_string_equal(c.limit, i < 2 ? "depth" : "repeats");
        assert_true(i == 0 ? c.epochs < 1.0 : c.epochs > 1.0 && c.epochs < 1.0 + laws->repeats);
        double unique = data.tokens * data.bytes_per_token;
        double bytes = c.tokens * data.bytes_per_token;
        for (int times = -1; times <= 1 && i < 2; times += 2) { /* the same FLOPs, another size */
            double n = c.blocks * (1.0 + 0.1 * times);
            double d = by__dial_effective(laws, bytes * c.blocks / n, unique);
            assert_true(by_law_loss(&laws->bits, n, d) > c.bits);
        }
    }
    assert_int_equal(by__dial_vocab(laws, 1000.0), 512);
    assert_int_equal(by__dial_vocab(laws, 3.1e6), 1024);
    assert_int_equal(by__dial_vocab(laws, 1e9), 4096);
}

/* The config of a choice, as training completes it, plans no more than its memory.budget. */
static void check_fits(const by_dial_choice *c)
{
    by_config *config;
    by_trainer *trainer;
    uint64_t bytes;
    by_error error = {0};
    const by_trainer_options none = {0};
    check_ok(by__dial_open(&config, c, &text, &book, &error), &error);
    config->model.vocab = text.vocab;
    check_ok(by_trainer_open_fitting(&trainer, config, &none, &error), &error);
    check_ok(by__trainer_needs(&bytes, trainer, &none, &error), &error);
    assert_int_equal(config->memory.budget, c->bytes);
    if (bytes > c->bytes) {
        fail_msg("%llu bytes are planned, of %llu", (unsigned long long)bytes,
                 (unsigned long long)c->bytes);
    }
    by_trainer_close(&trainer);
    by_config_close(&config);
}

/* What is chosen for some memory trains in it, more is never worse, and what is too little is
 * refused with the least that is enough. A sanitizer's memory grows between two plans. */
static void test_memory(void **state)
{
    BY_UNUSED(state);
    static const by_dial_budget budgets[] = {
        {.flops = 1e14}, {.seconds = 60.0}, {.layers = 3}, {.bytes = 1}};
    static const uint64_t more[] = {0, 8, 32, 128, 512};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(budgets); i++) {
        by_dial_budget budget = budgets[i];
        by_dial_choice c;
        double last = INFINITY;
        by_error error = {0};
        budget.bytes = (uint64_t)1 << 20;
        assert_int_equal(try_choose(&c, budget, &error), BY_EMEMORY);
        assert_non_null(strstr(error.message, "and may have 1 MiB"));
        const char *at = strstr(error.message, " trains in ");
        assert_non_null(at);
        uint64_t least = strtoull(at + strlen(" trains in "), NULL, 10);
        budget.bytes = (least - 6) << 20;
        assert_true(BY_TESTS_SANITIZED || try_choose(&c, budget, NULL) == BY_EMEMORY);
        least += BY_TESTS_SANITIZED ? 512 : 0;
        for (size_t m = 0; m < BY_ARRAY_LENGTH(more); m += BY_TESTS_SANITIZED ? 4 : 1) {
            budget.bytes = (least + more[m]) << 20;
            c = choose(budget);
            assert_true(c.planned > 0 && c.planned <= c.bytes && c.bits <= last);
            last = c.bits;
            check_fits(&c);
        }
    }
}

/* Sizes and FLOPs are those of the graph, and the YAML says what was chosen. */
static void test_config(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_dial_choice choice = choose((by_dial_budget){.seconds = 300.0, .bytes = (uint64_t)6 << 30});
    memcpy(choice.precision, "bf16", sizeof "bf16");
    choice.micro_batch = choice.batch / 2;
    char *yaml;
    char *lines;
    by_config *config;
    by_trainer *trainer;
    char first[] = "c:\\d #e.txt";
    char second[] = "f";
    char *two[] = {first, second};
    const by_string_list of = {two, 2};
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
    assert_int_equal(config->train.micro_batch, choice.micro_batch);
    assert_string_equal(config->precision.compute, "bf16");
    assert_non_null(strstr(lines, "precision  bf16: this device multiplies it faster"));
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
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
