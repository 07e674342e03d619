/* Capacity: simulated services against queueing theory and by hand, engines without a model against
 * real ones, and the fit of the time of steps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/capacity.h"
#include "base/base.h"
#include "plan/serving/curve_steps.h"
#include "sanitizer.h"
#include "small_engine.h"
#include "temporary.h"

enum { many = BY_TESTS_SANITIZED ? 4000 : 100000 };

static void assert_close(double a, double b, double share)
{
    if (!(fabs(a - b) <= share * fabs(b))) {
        fail_msg("%.12g is not %.12g", a, b);
    }
}

/* A curve whose programs are those of an engine with these limits, each as slow. */
static by_engine_curve even_curve(int64_t sessions, int64_t rows, int64_t pages, double seconds)
{
    by_engine_curve c = {
        .context = pages * BY_PAGE_TOKENS, .sessions = sessions, .rows = rows, .pages = pages};
    by_engine_options options = {
        .context = c.context, .sessions = sessions, .waiting = 1, .rows = rows, .pages = pages};
    by_engine *engine;
    by_error error;
    assert_int_equal(by_engine_open_dry(&engine, &options, &error), BY_OK);
    by_curve_program *p = c.programs;
    while (by_engine_program_size(engine, c.program_count, &p->rows, &p->wanted)) {
        p->seconds = seconds;
        p++;
        c.program_count++;
    }
    by_engine_close(&engine);
    return c;
}

static by_serving_figures simulate(by_served_request *served, const by_engine_curve *curve,
                                   const by_load_request *load, size_t count,
                                   const by_serving_options *options)
{
    by_serving_figures f;
    by_error error;
    if (by_serving_simulate(&f, served, curve, load, count, options, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return f;
}

static void *take(size_t count, size_t size)
{
    void *p = calloc(count, size);
    assert_non_null(p);
    return p;
}

/* One request at a time, all as long: the queue M/D/1, whose mean wait is
 * rho D / (2 (1 - rho)). */
static void test_single_server(void **state)
{
    (void)state;
    const double service = 0.02;
    by_engine_curve curve = even_curve(1, 16, 4, service);
    by_load_request *load = take(many, sizeof *load);
    by_served_request *served = take(many, sizeof *served);
    for (int step = 0; step < 3; step++) {
        double rho = 0.3 + 0.25 * step;
        double wait = 0.0;
        by_load_poisson(load, many, rho / service, 4, 1, 5);
        (void)simulate(served, &curve, load, many, &(by_serving_options){0});
        for (size_t i = 0; i < many; i++) {
            wait += served[i].first - load[i].seconds - service;
        }
        assert_close(wait / many, rho * service / (2.0 * (1.0 - rho)), many < 100000 ? 0.3 : 0.05);
    }
    free(load);
    free(served);
}

/* A replica that stays for a time without a request, and requests that take next to none: the share
 * of those that find no replica is exp(-rate * keep_alive). */
static void test_cold_starts(void **state)
{
    (void)state;
    by_engine_curve curve = even_curve(1, 16, 4, 1e-7);
    by_load_request *load = take(many, sizeof *load);
    by_serving_options options = {.serverless = true, .boot = 1e-7, .keep_alive = 30.0};
    by_load_poisson(load, many, 0.05, 4, 1, 5);
    by_serving_figures f = simulate(NULL, &curve, load, many, &options);
    assert_close((double)f.starts / many, exp(-1.5), 0.06);
    /* What is billed: a start to an end is the time of its requests and the last wait. */
    assert_true(f.billed > (double)f.starts * 30.0 && f.billed < f.span);
    options.free_idle = true;
    f = simulate(NULL, &curve, load, many, &options);
    assert_close(f.billed, many * 1e-7 + (double)f.starts * 1e-7, 1e-3);
    free(load);
}

/* By hand: three prompts of 16 tokens at once, 24 rows, steps of a second. The first one's rows are
 * complete with the first step, and half of the second's. */
static void test_by_hand(void **state)
{
    (void)state;
    by_engine_curve curve = even_curve(4, 24, 16, 1.0);
    const by_load_request load[] = {{0.0, 16, 3}, {0.0, 16, 3}, {0.5, 16, 1}};
    by_served_request served[3];
    by_serving_figures f = simulate(served, &curve, load, 3, &(by_serving_options){0});
    assert_close(served[0].first, 1.0, 1e-12);
    assert_close(served[0].last, 3.0, 1e-12);
    assert_close(served[1].first, 2.0, 1e-12);
    assert_close(served[2].first, 3.0, 1e-12); /* 23 rows: 8 of the second, 15 of its own */
    assert_close(f.token[0], 1.0, 1e-12);
    assert_close(f.span, 4.0, 1e-12);
    assert_int_equal(f.steps, 4);
    /* A replica more takes the second; the third goes to the first of two with one request each. */
    f = simulate(served, &curve, load, 3, &(by_serving_options){.replicas = 2});
    assert_close(served[1].first, 1.0, 1e-12);
    assert_close(served[2].first, 2.0, 1e-12);
    assert_close(f.billed, 2.0 * f.span, 1e-12);
    /* What a server adds, there and back. */
    f = simulate(served, &curve, load, 1, &(by_serving_options){.overhead = 0.25});
    assert_close(f.first_token[0], 1.5, 1e-12);
}

/* Requests of many lengths that a short pool makes preempt each other. */
static by_load_request *mixed_load(size_t count, double rate, int64_t longest)
{
    by_load_request *load = take(count, sizeof *load);
    uint32_t key[2];
    uint32_t bits[4];
    by__philox_key(key, 3, 4);
    by_load_poisson(load, count, rate, 1, 1, 9);
    for (size_t i = 0; i < count; i++) {
        by__philox(bits, key, (const uint32_t[4]){(uint32_t)i, 0, 0, 0});
        load[i].prompt = 1 + (int64_t)(bits[0] % (uint32_t)(longest / 2));
        load[i].tokens = 1 + (int64_t)(bits[1] % (uint32_t)(longest / 2));
    }
    return load;
}

static void test_conservation(void **state)
{
    (void)state;
    enum { count = 600 };
    by_engine_curve curve = even_curve(8, 32, 24, 0.01);
    curve.decode_key = 1e-5;
    curve.ratios[0] = 0.5;
    curve.ratios[1] = 1.5;
    curve.ratio_count = 2;
    by_load_request *load = mixed_load(count, 2.0, 300);
    by_served_request served[count];
    by_serving_options options = {.replicas = 3, .seed = 4};
    by_serving_figures f = simulate(served, &curve, load, count, &options);
    uint64_t tokens = 0;
    for (size_t i = 0; i < count; i++) {
        tokens += (uint64_t)load[i].tokens;
        assert_true(served[i].first > load[i].seconds);
        /* Tokens of a request are of different steps. */
        assert_true(served[i].last - served[i].first >=
                    0.005 * (double)(load[i].tokens - 1) - 1e-9);
    }
    assert_int_equal(f.tokens, tokens);
    assert_true(f.preemptions > 0);
    assert_true(f.stepping <= f.most * f.span);
    by_serving_figures again = simulate(NULL, &curve, load, count, &options);
    assert_memory_equal(&again, &f, sizeof f);
    free(load);
}

static void test_monotony(void **state)
{
    (void)state;
    enum { count = 800 };
    by_engine_curve curve = even_curve(4, 64, 200, 0.02);
    double before = 0.0;
    for (int i = 0; i < 5; i++) {
        double rate = ldexp(1.0, i);
        by_load_request *load = mixed_load(count, rate, 60);
        by_serving_figures f = simulate(NULL, &curve, load, count, &(by_serving_options){0});
        assert_true(f.first_token[1] >= before);
        before = f.first_token[1];
        free(load);
    }
    by_load_request *load = mixed_load(count, 30.0, 60);
    before = INFINITY;
    for (int replicas = 1; replicas < 20; replicas *= 2) {
        by_serving_figures f =
            simulate(NULL, &curve, load, count, &(by_serving_options){.replicas = replicas});
        assert_true(f.first_token[1] <= before * (1.0 + 1e-9));
        before = f.first_token[1];
    }
    /* The least number that meets a target, and one less does not. */
    by_serving_targets targets = {{INFINITY, 0.1}, {INFINITY, INFINITY}};
    by_serving_options options = {.replicas = 64};
    by_serving_figures f;
    by_error error;
    int found;
    assert_int_equal(
        by_serving_replicas(&found, &f, &curve, load, count, &options, &targets, &error), BY_OK);
    assert_true(found > 1 && f.first_token[1] <= 0.1 && f.most == found);
    options.replicas = found - 1;
    f = simulate(NULL, &curve, load, count, &options);
    assert_true(f.first_token[1] > 0.1);
    /* Nothing is faster than a step: no number of replicas helps. */
    targets.first_token[1] = 0.019;
    options.replicas = 64;
    assert_int_equal(
        by_serving_replicas(&found, &f, &curve, load, count, &options, &targets, &error), BY_OK);
    assert_int_equal(found, 0);
    free(load);
}

/* Steps of two engines with the same requests. */
static void compare_steps(by_engine *real, by_engine *dry, const by_load_request *load,
                          size_t count)
{
    int32_t prompt[CONTEXT] = {0};
    by_error error;
    size_t next = 0;
    for (int step = 0; next < count || by_engine_busy(real); step++) {
        uint64_t session;
        const by_event *events;
        size_t event_count[2];
        while (next < count && load[next].seconds <= (double)step) {
            by_request q = {.prompt = prompt,
                            .prompt_count = (size_t)load[next].prompt,
                            .tokens = load[next].tokens,
                            .sampling = {.top_p = 1.0},
                            .salt = next + 1};
            by_status status = by_engine_submit(real, &q, &session, &error);
            assert_int_equal(by_engine_submit(dry, &q, &session, &error), status);
            if (status == BY_ESTATE) {
                break;
            }
            assert_int_equal(status, BY_OK);
            next++;
        }
        assert_int_equal(by_engine_step(real, &events, &event_count[0], &error), BY_OK);
        assert_int_equal(by_engine_step(dry, &events, &event_count[1], &error), BY_OK);
        by_engine_work a = by_engine_last_work(real);
        by_engine_work b = by_engine_last_work(dry);
        a.seconds = b.seconds = 0.0;
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_equal(event_count[0], event_count[1]);
    }
    assert_false(by_engine_busy(dry));
    by_engine_statistics a = by_engine_statistics_now(real);
    by_engine_statistics b = by_engine_statistics_now(dry);
    assert_true(a.preemptions > 0);
    assert_int_equal(a.preemptions, b.preemptions);
    assert_int_equal(a.recomputed, b.recomputed);
    assert_int_equal(a.found, b.found);
    assert_int_equal(a.evictions, b.evictions);
}

static void test_dry_engine(void **state)
{
    (void)state;
    enum { count = 60 };
    by_engine_options options = {
        .context = CONTEXT, .sessions = 6, .waiting = 8, .rows = ROWS, .pages = 14};
    by_config *config = small_engine_config("llama", "f32");
    by_engine *real = small_engine_open(config, &options);
    by_engine *dry;
    by_error error;
    by_load_request *load = mixed_load(count, 0.3, CONTEXT);
    assert_int_equal(by_engine_open_dry(&dry, &options, &error), BY_OK);
    int64_t rows[2];
    int64_t wanted[2];
    int i = 0;
    for (; by_engine_program_size(real, i, &rows[0], &wanted[0]); i++) {
        assert_true(by_engine_program_size(dry, i, &rows[1], &wanted[1]));
        assert_true(rows[0] == rows[1] && wanted[0] == wanted[1]);
    }
    assert_false(by_engine_program_size(dry, i, &rows[1], &wanted[1]));
    assert_null(by_engine_program(dry, 0));
    compare_steps(real, dry, load, count);
    options.pages = 0;
    by_engine *none = NULL;
    assert_int_equal(by_engine_open_dry(&none, &options, &error), BY_EARG);
    assert_null(none);
    by_engine_close(&real);
    by_engine_close(&dry);
    by_config_close(&config);
    free(load);
}

/* Steps of a known machine, a tenth of them disturbed. */
static void test_fit(void **state)
{
    (void)state;
    by_engine_curve truth = even_curve(8, 64, 64, 0.0);
    by_engine_curve curve = truth;
    by__serving_steps steps = {0};
    by_error error;
    uint32_t key[2];
    uint32_t bits[4];
    truth.decode_key = 3e-7;
    truth.prompt_key = 5e-8;
    by__philox_key(key, 1, 2);
    for (int p = 0; p < truth.program_count; p++) {
        truth.programs[p].seconds = 1e-3 + 2e-5 * (double)truth.programs[p].rows;
    }
    for (uint32_t i = 0; i < 800; i++) {
        by__philox(bits, key, (const uint32_t[4]){i, 0, 0, 0});
        by_engine_work w = {.program = (int)(bits[0] % (uint32_t)(truth.program_count - 1)),
                            .rows = 1,
                            .decode_keys = (double)(bits[1] % 8000),
                            .prompt_keys = bits[2] % 2 == 0 ? 0.0 : (double)(bits[2] % 30000)};
        w.seconds = by_engine_curve_seconds(&truth, &w) * (bits[3] % 10 == 0 ? 1.8 : 1.0);
        assert_int_equal(by__serving_steps_add(&steps, &w, &error), BY_OK);
    }
    assert_int_equal(by__serving_curve_fit(&curve, &steps, &error), BY_OK);
    assert_close(curve.decode_key, truth.decode_key, 0.02);
    assert_close(curve.prompt_key, truth.prompt_key, 0.02);
    for (int p = 0; p < truth.program_count - 1; p++) {
        assert_close(curve.programs[p].seconds, truth.programs[p].seconds, 0.02);
    }
    /* The last has no steps: it gets at least what the one below has. */
    assert_true(curve.programs[truth.program_count - 1].seconds >=
                curve.programs[truth.program_count - 2].seconds);
    assert_true(curve.error < 0.02);
    assert_close(curve.ratios[curve.ratio_count / 2], 1.0, 0.02);
    assert_close(curve.ratios[curve.ratio_count - 1], 1.8, 0.05);
    steps.count = 0;
    assert_int_equal(by__serving_curve_fit(&curve, &steps, &error), BY_ESTATE);
    by__serving_steps_close(&steps);
}

static by_status read_text(const char *folder, const char *text, by_error *error)
{
    char path[256];
    by_engine_curve curve;
    (void)snprintf(path, sizeof path, "%s/curve.json", folder);
    assert_int_equal(by__file_write(path, text, strlen(text), error), BY_OK);
    return by_engine_curve_read(&curve, path, error);
}

static void test_files(void **state)
{
    (void)state;
    by_engine_curve curve = even_curve(8, 64, 64, 0.25);
    by_engine_curve back;
    char path[256];
    char *folder = temporary_make();
    by_error error;
    curve.decode_key = 1.5e-7;
    curve.ratios[0] = 0.9;
    curve.ratio_count = 1;
    (void)snprintf(path, sizeof path, "%s/curve.json", folder);
    assert_int_equal(by_engine_curve_write(&curve, path, &error), BY_OK);
    assert_int_equal(by_engine_curve_read(&back, path, &error), BY_OK);
    assert_memory_equal(&back, &curve, sizeof curve);
    assert_int_equal(read_text(folder, "{\"context\":0}", &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "context"));
    assert_int_equal(read_text(folder, "[", &error), BY_EFORMAT);
    /* Loads. */
    static const char *const bad[] = {
        "seconds,prompt_tokens,generated_tokens\n1,2,3\n0,2,3\n",
        "seconds,prompt_tokens,generated_tokens\n1,0,3\n",
        "seconds,prompt_tokens,generated_tokens\n1,2,2.5\n",
    };
    by_load_request *load;
    by_table *table;
    size_t count;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        assert_int_equal(by_table_parse(&table, "load.csv", bad[i], strlen(bad[i]), NULL, &error),
                         BY_OK);
        assert_int_equal(by_load_read(&load, &count, table, &error), BY_EFORMAT);
        by_table_close(&table);
    }
    const by_load_request long_one = {0.0, 2000, 1};
    by_serving_figures f;
    assert_int_equal(
        by_serving_simulate(&f, NULL, &curve, &long_one, 1, &(by_serving_options){0}, &error),
        BY_EARG);
    assert_non_null(strstr(error.message, "2000"));
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single_server), cmocka_unit_test(test_cold_starts),
        cmocka_unit_test(test_by_hand),       cmocka_unit_test(test_conservation),
        cmocka_unit_test(test_monotony),      cmocka_unit_test(test_dry_engine),
        cmocka_unit_test(test_fit),           cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
