#include "banyan/program.h"
#include "bench/bench_engine.h"

/* Runs steps until the model has processed at least `rows` rows since the engine was opened. */
static by_status step_until(cli_engine_bench *b, uint64_t rows, by_error *error)
{
    by_status status = BY_OK;
    while (status == BY_OK && by_engine_statistics_now(b->engine).rows < rows) {
        status = cli_engine_step_once(b, error);
    }
    return status;
}

static by_status run_one(cli_engine_bench *b, cli_engine_sample *s, by_error *error)
{
    const cli_engine_request *r = b->r;
    uint64_t other;
    uint64_t rows = by_engine_statistics_now(b->engine).rows;
    int64_t done = b->done;
    by_status status = cli_engine_submit(b, &other, r->background, 1, error);
    if (status == BY_OK) {
        status = step_until(b, rows + (uint64_t)r->background / 2, error);
    }
    if (status == BY_OK) {
        status = cli_engine_submit(b, &s->session, r->prompt, r->tokens, error);
        s->arrived = by_clock();
    }
    while (status == BY_OK && b->done == done) {
        s->steps += s->tokens == 0;
        status = cli_engine_step_once(b, error);
    }
    if (status == BY_OK) {
        by_error ended = {0}; /* it may have ended already */
        (void)by_engine_cancel(b->engine, other, &ended);
        while (status == BY_OK && by_engine_busy(b->engine)) {
            status = cli_engine_step_once(b, error);
        }
    }
    return status;
}

by_status cli_engine_run_background(cli_engine_bench *b, by_error *error)
{
    by_status status = BY_OK;
    for (int64_t i = 0; i < b->r->requests && status == BY_OK; i++) {
        status = run_one(b, &b->samples[i], error);
    }
    return status;
}
