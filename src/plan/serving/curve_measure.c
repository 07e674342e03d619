/* Measures the steps of an engine.
 *
 * Three series make steps of all kinds. Idle: prompts of each program's rows, one at a time, and a
 * prompt that fills the context, whose chunks read more and more keys. Mixed: prompts of each
 * program's rows that come while others decode. Descents: as many sequences as the engine holds
 * decode, behind short texts and then behind long ones, and fewer and fewer, so that steps of each
 * number of sequences are seen. What each step computed is known exactly (by_engine_last_work), so
 * it does not matter that a series also makes steps between these. */
#include <stdio.h>
#include <stdlib.h>

#include "plan/serving/curve_steps.h"

enum {
    repeats = 6,       /* steps of a kind in a round */
    short_prompt = 4,  /* tokens */
    long_prompt = 1024 /* at most: a text behind which a step reads many keys */
};

typedef struct curve_lab {
    by_engine *engine;
    const by_engine_curve *curve; /* limits and programs */
    by__serving_steps *steps;
    int32_t *prompt; /* [context] */
    int64_t vocab;
    uint64_t seed;
    uint64_t *live; /* [sessions] that decode */
    int64_t live_count;
} curve_lab;

/* Submits a prompt of random tokens, so that experts and caches see what they see in use. */
static by_status submit(curve_lab *lab, int64_t prompt, int64_t tokens, uint64_t *session,
                        by_error *error)
{
    uint32_t key[2];
    uint32_t bits[4];
    by_request q = {.prompt = lab->prompt,
                    .prompt_count = (size_t)prompt,
                    .tokens = tokens,
                    .sampling = {.top_p = 1.0}};
    by__philox_key(key, ++lab->seed, 0x63757276u); /* "curv" in ASCII */
    for (int64_t i = 0; i < prompt; i++) {
        by__philox(bits, key, (const uint32_t[4]){(uint32_t)i, 0, 0, 0});
        lab->prompt[i] = (int32_t)((uint64_t)bits[0] * (uint64_t)lab->vocab >> 32);
    }
    return by_engine_submit(lab->engine, &q, session, error);
}

static void forget(curve_lab *lab, uint64_t session)
{
    for (int64_t i = 0; i < lab->live_count; i++) {
        if (lab->live[i] == session) {
            lab->live[i] = lab->live[--lab->live_count];
            return;
        }
    }
}

/* Runs a step and keeps what it took. */
static by_status step(curve_lab *lab, by_error *error)
{
    const by_event *events;
    size_t count;
    BY_TRY(by_engine_step(lab->engine, &events, &count, error));
    for (size_t i = 0; i < count; i++) {
        if (events[i].finish != BY_FINISH_NONE) {
            forget(lab, events[i].session);
        }
    }
    by_engine_work work = by_engine_last_work(lab->engine);
    return !(work.seconds > 0.0) ? BY_OK : by__serving_steps_add(lab->steps, &work, error);
}

/* Steps until nothing is left but sequences that decode. */
static by_status settle(curve_lab *lab, by_error *error)
{
    by_engine_work work;
    do {
        BY_TRY(step(lab, error));
        work = by_engine_last_work(lab->engine);
    } while (work.prompt_keys > 0.0);
    return BY_OK;
}

/* Ends or starts sequences until `count` decode, those that start behind `prompt` tokens. */
static by_status hold(curve_lab *lab, int64_t count, int64_t prompt, by_error *error)
{
    while (lab->live_count > count) {
        uint64_t session = lab->live[lab->live_count - 1];
        BY_TRY(by_engine_cancel(lab->engine, session, error));
        forget(lab, session);
    }
    bool starts = lab->live_count < count;
    while (lab->live_count < count) {
        BY_TRY(submit(lab, prompt, 0, &lab->live[lab->live_count], error));
        lab->live_count++;
    }
    return starts ? settle(lab, error) : BY_OK;
}

static by_status drain(curve_lab *lab, by_error *error)
{
    BY_TRY(hold(lab, 0, 0, error));
    while (by_engine_busy(lab->engine)) {
        BY_TRY(step(lab, error));
    }
    return BY_OK;
}

/* Prompts alone: of each program's rows, and long ones. */
static by_status measure_idle(curve_lab *lab, by_error *error)
{
    const by_engine_curve *c = lab->curve;
    int64_t longest = c->pages * BY_PAGE_TOKENS;
    uint64_t session;
    for (int i = 0; i < c->program_count; i++) {
        int64_t rows = c->programs[i].rows;
        bool again = i > 0 && c->programs[i - 1].rows == rows;
        for (int k = 0; !again && rows <= c->context && k < repeats; k++) {
            BY_TRY(submit(lab, rows, 1, &session, error));
            BY_TRY(drain(lab, error));
        }
    }
    longest = longest < c->context ? longest : c->context;
    longest = longest < 8 * c->rows ? longest : 8 * c->rows;
    for (int k = 0; k < 2; k++) {
        BY_TRY(submit(lab, longest, 1, &session, error));
        BY_TRY(drain(lab, error));
    }
    return BY_OK;
}

/* Prompts that come while others decode, so that each program is full. */
static by_status measure_mixed(curve_lab *lab, by_error *error)
{
    const by_engine_curve *c = lab->curve;
    uint64_t session;
    for (int i = 0; i < c->program_count && c->sessions > 1; i++) {
        for (int k = 0; k < repeats / 2; k++) {
            BY_TRY(hold(lab, c->sessions - 1, short_prompt, error));
            int64_t rows = c->programs[i].rows - lab->live_count;
            if (rows > 0 && rows <= c->context) {
                BY_TRY(submit(lab, rows, 1, &session, error));
                BY_TRY(step(lab, error));
            }
        }
    }
    return BY_OK;
}

/* Decodes with fewer and fewer sequences: each number that fills a program. */
static by_status descend(curve_lab *lab, int64_t prompt, by_error *error)
{
    const by_engine_curve *c = lab->curve;
    for (int i = c->program_count; i-- > 0;) {
        int64_t rows = c->programs[i].rows;
        rows = rows < c->sessions ? rows : c->sessions;
        bool again = i + 1 < c->program_count && c->programs[i + 1].rows == c->programs[i].rows;
        for (int k = 0; !again && k < repeats; k++) {
            BY_TRY(hold(lab, rows, prompt, error));
            BY_TRY(step(lab, error));
        }
    }
    return drain(lab, error);
}

static by_status measure_round(curve_lab *lab, by_error *error)
{
    const by_engine_curve *c = lab->curve;
    int64_t each = c->pages * BY_PAGE_TOKENS / c->sessions; /* of sequences that all run */
    each = each < c->context ? each : c->context;
    int64_t few = each / 2 < short_prompt ? each / 2 : short_prompt;
    int64_t many = 3 * each / 4 < long_prompt ? 3 * each / 4 : long_prompt;
    BY_TRY(measure_idle(lab, error));
    BY_TRY(measure_mixed(lab, error));
    BY_TRY(descend(lab, few > 0 ? few : 1, error));
    return descend(lab, many > 0 ? many : 1, error);
}

static void describe(by_engine_curve *c, const by_engine *engine)
{
    int64_t rows;
    int64_t wanted;
    for (int i = 0; i < BY_CURVE_PROGRAMS && by_engine_program_size(engine, i, &rows, &wanted);
         i++) {
        c->programs[i] = (by_curve_program){.rows = rows, .wanted = wanted};
        c->program_count = i + 1;
    }
    c->rows = c->programs[c->program_count - 1].rows;
    c->pages = by_engine_statistics_now(engine).pages;
}

static by_status measure_all(by_engine_curve *curve, curve_lab *lab, int rounds, by_error *error)
{
    /* What is touched for the first time is slower. */
    BY_TRY(measure_idle(lab, error));
    lab->steps->count = 0;
    for (int i = 0; i < (rounds < 1 ? 1 : rounds); i++) {
        BY_TRY(measure_round(lab, error));
    }
    return by__serving_curve_fit(curve, lab->steps, error);
}

by_status by_engine_curve_measure(by_engine_curve *out, const by_config *config,
                                  const by_weights *weights, const by_engine_options *options,
                                  int rounds, by_error *error)
{
    by__serving_steps steps = {0};
    by_engine_options o = *options;
    by_engine_curve curve = {.context = o.context == 0 ? config->model.context : o.context,
                             .sessions = o.sessions == 0 ? 16 : o.sessions};
    curve_lab lab = {.curve = &curve, .steps = &steps, .vocab = config->model.vocab};
    double began = by__now();
    o.no_prefix_cache = true;
    o.sessions = curve.sessions;
    BY_TRY(by_engine_open(&lab.engine, config, weights, &o, error));
    curve.open_seconds = by__now() - began;
    describe(&curve, lab.engine);
    by_status status = by__alloc((void **)&lab.prompt, (size_t)curve.context, sizeof *lab.prompt,
                                 "a prompt", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&lab.live, (size_t)curve.sessions, sizeof *lab.live,
                           "sequences", error);
    }
    if (status == BY_OK) {
        status = measure_all(&curve, &lab, rounds, error);
    }
    if (status == BY_OK) {
        *out = curve;
    }
    by__serving_steps_close(&steps);
    by_engine_close(&lab.engine);
    free(lab.prompt);
    free(lab.live);
    return status;
}
