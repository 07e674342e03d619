#include <float.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "infer/scheduler.h"

static void free_cancelled(by_engine *e)
{
    for (int64_t i = 0; i < e->slot_count && e->cancelled > 0; i++) {
        if (e->slots[i].state == BY__CANCELLED) {
            e->slots[i].state = BY__SLOT_FREE;
            e->cancelled--;
        }
    }
}

/* Waking other threads costs about as much as processing this many logits. */
#define SERIAL_LOGITS 16384

/* Ends sequences that are past their deadlines. */
static void end_late(by_engine *e)
{
    double now = 0.0;
    for (int64_t i = e->live; i-- > 0;) {
        by__infer_sequence *s = &e->slots[e->order[i]];
        if (s->deadline == 0.0) {
            continue;
        }
        now = now == 0.0 ? by__now() : now;
        if (now >= s->deadline) {
            by__infer_report(e, s, NULL, BY_FINISH_DEADLINE);
            by__infer_end(e, i);
        }
    }
}

/* Counts a step by its number of sequences. */
static void count_sequences(by_engine_statistics *st, uint64_t sequences)
{
    size_t k = 0;
    while (k + 1 < BY_STEP_SIZES && sequences > (uint64_t)1 << k) {
        k++;
    }
    st->step_sizes[k]++;
    st->sequences += sequences;
}

/* Work of preparing for logits that any step may do, in elementary steps of a few nanoseconds.
 * Beyond that, a step may prepare for as long as the model took in the last one. */
#define PREPARE_WORK  1000000
#define PREPARE_SLICE 100000

static void allow_work(by_engine *e)
{
    e->prepare_until = by__now() + e->model_seconds;
}

/* Prepares a sequence for the token after its last. Returns whether that is done. */
static bool prepare(by_engine *e, const by__infer_sequence *s)
{
    for (;;) {
        bool may = e->prepare_left > 0 || by__now() < e->prepare_until;
        int64_t left = may ? PREPARE_SLICE : 0; /* 0: done if others did the work */
        int64_t given = left;
        bool done = s->prepare(s->user, s->index, s->tokens, s->count, s->prompt, &left);
        e->prepare_left -= given - left;
        if (done || !may) {
            return done;
        }
    }
}

/* Holds back the sequences that are not prepared. Begins with another one in each step, so that
 * none takes the work of all. */
static void defer_unprepared(by_engine *e)
{
    e->prepare_left = PREPARE_WORK;
    e->prepare_turn++;
    allow_work(e);
    for (int64_t i = 0; i < e->live; i++) {
        int64_t at = (i + (int64_t)(e->prepare_turn % (uint64_t)e->live)) % e->live;
        by__infer_sequence *s = &e->slots[e->order[at]];
        s->held = s->prepare != NULL && s->state != BY__PARKED && !prepare(e, s);
    }
}

/* Writes the rows of the plan to the inputs and returns their number. */
static int64_t fill_rows(by_engine *e)
{
    by__infer_step_programs *p = &e->steps;
    by_engine_statistics *st = &e->statistics;
    int64_t rows = 0;
    double keys = 0.0;
    double window_keys = 0.0;
    uint64_t sequences = 0;
    e->wanted_count = 0;
    for (int64_t i = 0; i < e->live; i++) {
        int32_t slot = e->order[i];
        by__infer_sequence *s = &e->slots[slot];
        sequences += s->rows > 0;
        bool decodes = s->count - s->cached == 1;
        for (int64_t k = 0; k < s->rows; k++, rows++) {
            int64_t position = s->cached + k;
            p->tokens[rows] = s->tokens[position];
            p->positions[rows] = (int32_t)position;
            p->row_sessions[rows] = s->row;
            st->recomputed += position < s->computed;
            keys += (double)(position + 1);
            *(decodes ? &e->work.decode_keys : &e->work.prompt_keys) += (double)(position + 1);
            window_keys += fmin((double)(position + 1), p->window);
            bool scored = s->scores && position >= s->scored && position + 1 < s->prompt;
            if (scored || position + 1 >= s->count) {
                p->wanted_rows[e->wanted_count] = (int32_t)rows;
                e->wanted[e->wanted_count++] = (by__infer_wanted){slot, position + 1};
            }
        }
    }
    count_sequences(st, sequences);
    st->flops += p->row_flops * (double)rows + p->wanted_flops * (double)e->wanted_count +
                 p->key_flops * keys + p->window_flops * window_keys;
    st->bytes += p->weight_bytes + p->key_bytes * keys + p->window_bytes * window_keys;
    return rows;
}

static bool is_stop(const by__infer_sequence *s, int32_t token)
{
    for (size_t i = 0; i < s->stop_count; i++) {
        if (s->stop[i] == token) {
            return true;
        }
    }
    return false;
}

/* Whether the model itself leaves a token to choose. */
static bool has_choice(const float *logits, int64_t vocab)
{
    bool any = false;
    for (int64_t i = 0; i < vocab; i++) {
        if (!(logits[i] <= FLT_MAX)) {
            return false;
        }
        any = any || logits[i] > -INFINITY;
    }
    return any;
}

/* Computes the log-probability of out->token, and those of the most probable tokens. */
static by_status report(const by_engine *e, const by__infer_sequence *s, const float *logits,
                        void *scratch, by__infer_choice *out)
{
    int32_t ids[BY_TOP_TOKENS];
    double values[BY_TOP_TOKENS];
    BY_TRY(by_log_probabilities(logits, e->vocab, out->token, &out->log_probability, s->top, ids,
                                values, scratch, &out->error));
    for (int32_t i = 0; i < s->top; i++) {
        out->top[i] = (by_top_token){ids[i], (float)values[i]};
    }
    return BY_OK;
}

/* Chooses the token after the first `count` from logits, which are not changed. */
static by_status choose(by_engine *e, const by__infer_sequence *s, int64_t count,
                        const float *logits, void *scratch, by__infer_choice *out)
{
    const float *used = logits;
    by_error *error = &out->error;
    if (s->process == NULL && s->top == 0) {
        return by__infer_sample_with_probability(&out->token, &out->log_probability, &s->sampling,
                                                 logits, e->vocab, (uint64_t)count, scratch, error);
    }
    if (s->process != NULL) {
        memcpy(e->processed, logits, (size_t)e->vocab * sizeof *logits);
        BY_TRY(s->process(s->user, s->index, e->processed, e->vocab, s->tokens, count, s->prompt,
                          error));
        used = e->processed;
    }
    by_status status =
        by_sample(&out->token, &s->sampling, used, e->vocab, (uint64_t)count, scratch, error);
    if (status == BY_ESTATE && used != logits && has_choice(logits, e->vocab)) {
        return by_error_set(error, BY_EARG,
                            "no token can follow: the biases forbid all that the rest of the "
                            "request allows");
    }
    BY_TRY(status);
    return report(e, s, logits, scratch, out);
}

static const float *logits_of(const by_engine *e, int64_t wanted)
{
    return e->steps.logits + wanted * e->steps.vocab;
}

static bool is_scored(const by_engine *e, int64_t i)
{
    return e->wanted[i].count < e->slots[e->wanted[i].slot].count;
}

static void choose_wanted(by_engine *e, int64_t i, void *scratch)
{
    const by__infer_sequence *s = &e->slots[e->wanted[i].slot];
    by__infer_choice *choice = &e->choices[i];
    if (is_scored(e, i)) {
        choice->token = s->tokens[e->wanted[i].count];
        choice->status = report(e, s, logits_of(e, i), scratch, choice);
    } else if (s->only_prompt) {
        choice->status = BY_OK;
    } else {
        choice->status = choose(e, s, e->wanted[i].count, logits_of(e, i), scratch, choice);
    }
}

/* Chooses a token for each row that has logits, in parallel over rows. Rows of requests with
 * callbacks are left to this thread, which handles them only for tokens that the sequence keeps
 * (accept_tokens). */
static void choose_all(by_engine *e)
{
    int64_t count = e->wanted_count;
    int threads = e->forward.options.threads;
    bool shared = threads > 1 && count > 1 && count * e->vocab >= SERIAL_LOGITS;
#pragma omp parallel for schedule(static) num_threads(threads) if (shared)
    for (int64_t i = 0; i < count; i++) {
        if (e->slots[e->wanted[i].slot].process == NULL || is_scored(e, i)) {
            choose_wanted(e, i,
                          (char *)e->scratch + (size_t)omp_get_thread_num() * e->scratch_bytes);
        }
    }
}

/* Appends the chosen token to the sequence. The caller ends the sequence if it is finished. */
static by_finish append_choice(by_engine *e, by__infer_sequence *s, const by__infer_choice *choice)
{
    int32_t token = choice->token;
    if (s->only_prompt) {
        by__infer_report(e, s, NULL, BY_FINISH_LENGTH);
        return BY_FINISH_LENGTH;
    }
    if (choice->status != BY_OK) {
        by_finish end = choice->status == BY_ESTOPPED ? BY_FINISH_STOP : BY_FINISH_FAILED;
        s->failure = choice->error;
        by__infer_report(e, s, NULL, end);
        return end;
    }
    s->tokens[s->count++] = token;
    e->statistics.generated++;
    by_finish finish = is_stop(s, token)      ? BY_FINISH_STOP
                       : s->count == s->limit ? BY_FINISH_LENGTH
                                              : BY_FINISH_NONE;
    by__infer_report(e, s, choice, finish);
    return finish;
}

static void end_slot(by_engine *e, int32_t slot)
{
    int64_t at = 0;
    while (e->order[at] != slot) {
        at++;
    }
    by__infer_end(e, at);
}

/* Wakes the sequences parked until a prompt was computed. Those that get a row of the page table
 * continue at once, with the prompt's logits. */
static void wake(by_engine *e, const by__infer_sequence *first, const float *logits)
{
    for (int64_t i = 0; i < e->live; i++) {
        by__infer_sequence *s = &e->slots[e->order[i]];
        if (s->session != first->session || s->state != BY__PARKED) {
            continue;
        }
        by__infer_fork(e, s, first);
        if (s->state == BY__RUNNING) {
            by__infer_choice choice = {0};
            choice.status =
                s->only_prompt ? BY_OK : choose(e, s, s->count, logits, e->scratch, &choice);
            if (append_choice(e, s, &choice) != BY_FINISH_NONE) {
                by__infer_end(e, i--);
            }
        }
    }
}

/* Extends the sequence by the tokens chosen from its logits, starting at wanted row `i`: as long as
 * a chosen token equals the draft, the next row's logits are valid too. */
static by_finish accept_tokens(by_engine *e, by__infer_sequence *s, int64_t i)
{
    int64_t last = i + s->drafts;
    e->statistics.drafted += (uint64_t)s->drafts;
    for (;; i++) {
        int32_t draft = i < last ? s->tokens[s->count] : -1;
        if (s->process != NULL) {
            choose_wanted(e, i, e->scratch);
        }
        by_finish finish = append_choice(e, s, &e->choices[i]);
        bool right = i < last && e->choices[i].status == BY_OK && e->choices[i].token == draft;
        e->statistics.accepted += right;
        if (finish != BY_FINISH_NONE || !right || (s->prepare != NULL && !prepare(e, s))) {
            return finish;
        }
        s->cached++; /* the draft's keys and values are those of the token */
        s->computed = s->cached > s->computed ? s->cached : s->computed;
        by__infer_register(e, s);
    }
}

/* Ends all sequences of a request, of which those that are parked would wait for ever. */
static void fail_session(by_engine *e, uint64_t session, const by_error *error)
{
    for (int64_t i = e->live; i-- > 0;) {
        by__infer_sequence *s = &e->slots[e->order[i]];
        if (s->session == session) {
            s->failure = *error;
            by__infer_report(e, s, NULL, BY_FINISH_FAILED);
            by__infer_end(e, i);
        }
    }
}

/* Reports the scores of a prompt from wanted row `i` on. Returns the number of these rows; all that
 * the slot has in this step if one has none. */
static int64_t report_scores(by_engine *e, int64_t i)
{
    const int32_t slot = e->wanted[i].slot;
    by__infer_sequence *s = &e->slots[slot];
    int64_t rows = 0;
    for (; i + rows < e->wanted_count && e->wanted[i + rows].slot == slot; rows++) {
        const by__infer_choice *choice = &e->choices[i + rows];
        if (s->state == BY__SLOT_FREE) {
            continue;
        }
        if (!is_scored(e, i + rows)) {
            break;
        }
        if (choice->status != BY_OK) {
            fail_session(e, s->session, &choice->error);
            continue;
        }
        s->scored = e->wanted[i + rows].count;
        by__infer_report(e, s, choice, BY_FINISH_NONE);
        e->events[e->event_count - 1].prompt_position = (int32_t)s->scored;
    }
    return rows;
}

static void read_results(by_engine *e)
{
    for (int64_t i = 0; i < e->live; i++) {
        by__infer_sequence *s = &e->slots[e->order[i]];
        if (s->rows > 0) {
            s->cached += s->rows - s->drafts;
            s->computed = s->cached > s->computed ? s->cached : s->computed;
            by__infer_register(e, s);
        }
    }
    allow_work(e);
    choose_all(e);
    int64_t rows = 0; /* rows of one sequence */
    for (int64_t i = 0; i < e->wanted_count; i += rows) {
        by__infer_sequence *s = &e->slots[e->wanted[i].slot];
        if (is_scored(e, i)) {
            rows = report_scores(e, i);
            continue;
        }
        bool first = s->index == 0 && s->count == s->prompt && s->n > 1;
        rows = 1 + s->drafts;
        by_finish finish = accept_tokens(e, s, i);
        if (first) {
            wake(e, s, logits_of(e, i));
        }
        if (finish != BY_FINISH_NONE) {
            end_slot(e, e->wanted[i].slot);
        }
    }
}

static by_status run_rows(by_engine *e, int64_t rows, by_error *error)
{
    by__infer_step_program *program = by__infer_steps_choose(&e->steps, rows, e->wanted_count);
    e->statistics.steps++;
    e->statistics.rows += (uint64_t)rows;
    e->statistics.padding += (uint64_t)(program->rows - rows);
    e->work.program = (int)(program - e->steps.list);
    e->work.rows = rows;
    e->work.wanted = e->wanted_count;
    if (e->dry != NULL) {
        return BY_OK;
    }
    for (int64_t i = 0; i < e->copy_count; i++) {
        BY_TRY(by__infer_steps_copy_page(&e->steps, e->copies[i], error));
    }
    return by__infer_steps_run(&e->steps, program, rows, e->wanted_count, error);
}

by_status by_engine_step(by_engine *engine, const by_event **events, size_t *count, by_error *error)
{
    by_engine *e = engine;
    if (e->events_reported) {
        e->event_count = 0;
        e->events_reported = false;
    }
    double entered = by__now();
    e->work = (by_engine_work){.program = -1};
    free_cancelled(e);
    end_late(e);
    defer_unprepared(e);
    int64_t rows = by__infer_plan(e);
    if (rows > 0) {
        BY_TRY(by__infer_speculate(e, &rows, error));
        double began = by__now();
        BY_TRY(run_rows(e, fill_rows(e), error));
        e->model_seconds = by__now() - began;
        read_results(e);
        e->work.seconds = by__now() - entered;
    }
    *events = e->events;
    *count = e->event_count;
    e->events_reported = true;
    return BY_OK;
}

bool by_engine_busy(const by_engine *engine)
{
    return engine->live > 0 || (engine->event_count > 0 && !engine->events_reported);
}

by_engine_statistics by_engine_statistics_now(const by_engine *engine)
{
    by_engine_statistics st = engine->statistics;
    st.evictions = engine->pool.evictions;
    for (int64_t i = 0; i < engine->live; i++) {
        bool runs = engine->slots[engine->order[i]].state == BY__RUNNING;
        *(runs ? &st.running : &st.waiting) += 1;
    }
    st.pages = engine->pool.count;
    st.pages_cached = engine->pool.kept_count;
    st.pages_used = st.pages - st.pages_cached - engine->pool.free_count;
    return st;
}
