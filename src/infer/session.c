#include <string.h>

#include "infer/scheduler.h"

const char *by_finish_name(by_finish finish)
{
    static const char *const names[] = {"", "stop", "length", "cancelled", "deadline", "failed"};
    return (unsigned)finish < BY_ARRAY_LENGTH(names) ? names[finish] : "";
}

void by__infer_report(by_engine *e, const by__infer_sequence *s, const by__infer_choice *choice,
                      by_finish finish)
{
    if (e->events_reported) {
        e->event_count = 0;
        e->events_reported = false;
    }
    by_top_token *top = e->top + e->event_count * BY_TOP_TOKENS;
    by_event *event = &e->events[e->event_count++];
    *event = (by_event){.session = s->session,
                        .index = s->index,
                        .token = -1,
                        .finish = finish,
                        .failure = finish == BY_FINISH_FAILED ? s->failure.message : NULL,
                        .status = finish == BY_FINISH_FAILED ? s->failure.status : BY_OK};
    if (choice != NULL) {
        event->token = choice->token;
        event->log_probability = (float)choice->log_probability;
        event->top = top;
        event->top_count = s->top;
        memcpy(top, choice->top, (size_t)s->top * sizeof *top);
    }
}

void by__infer_end(by_engine *e, int64_t at)
{
    by__infer_sequence *s = &e->slots[e->order[at]];
    by__infer_speculate_end(e, s);
    by__infer_release(e, s);
    s->state = BY__SLOT_FREE;
    e->live--;
    memmove(e->order + at, e->order + at + 1, (size_t)(e->live - at) * sizeof *e->order);
}

static by_status check_tokens(const by_engine *e, const char *what, const int32_t *tokens,
                              size_t count, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= e->vocab) {
            return by_error_set(error, BY_EARG, "%s %zu is id %d; the vocabulary has %lld", what, i,
                                (int)tokens[i], (long long)e->vocab);
        }
    }
    return BY_OK;
}

/* Returns the number of tokens of a sequence of the request at its end. The last token is never
 * computed, so it needs no room in the context; a sequence that is only a prompt has none there. */
static int64_t limit_of(const by_engine *e, const by_request *r)
{
    int64_t most = e->context + 1;
    int64_t prompt = (int64_t)r->prompt_count;
    if (r->only_prompt) {
        return prompt + 1;
    }
    return r->tokens == 0 || r->tokens > most - prompt ? most : prompt + r->tokens;
}

static by_status check_request(const by_engine *e, const by_request *r, by_error *error)
{
    if (r->prompt_count < 1 || r->prompt_count > (size_t)e->context) {
        return by_error_set(error, BY_EARG,
                            "a prompt of %zu tokens; it must have 1 to %lld, the context",
                            r->prompt_count, (long long)e->context);
    }
    if (r->tokens < 0 || r->n < 0 || r->stop_count > BY_STOP_TOKENS || !(r->deadline >= 0.0)) {
        return by_error_set(error, BY_EARG,
                            "tokens %lld, n %d, %zu stop tokens (at most %d) or deadline %g is out "
                            "of range",
                            (long long)r->tokens, (int)r->n, r->stop_count, BY_STOP_TOKENS,
                            r->deadline);
    }
    if (r->top < 0 || r->top > BY_TOP_TOKENS) {
        return by_error_set(error, BY_EARG, "top %d is not in 0 .. %d", (int)r->top, BY_TOP_TOKENS);
    }
    if (r->score_from < 0 || r->score_from > (int64_t)r->prompt_count) {
        return by_error_set(error, BY_EARG, "score_from %lld is not in 0 .. %zu, the prompt",
                            (long long)r->score_from, r->prompt_count);
    }
    BY_TRY(check_tokens(e, "token", r->prompt, r->prompt_count, error));
    BY_TRY(check_tokens(e, "stop token", r->stop, r->stop_count, error));
    BY_TRY(by_sampling_check(&r->sampling, error));
    if (r->n > e->slot_count) {
        return by_error_set(error, BY_EARG, "n %d; the engine holds %lld sequences", (int)r->n,
                            (long long)e->slot_count);
    }
    int64_t tokens = limit_of(e, r) - 1;
    int64_t pages = (tokens + BY_PAGE_TOKENS - 1) / BY_PAGE_TOKENS;
    if (pages > e->pool.count) {
        return by_error_set(error, BY_EARG,
                            "%lld tokens need %lld pages; the pool has %lld: ask for fewer tokens "
                            "or open the engine with more pages",
                            (long long)tokens, (long long)pages, (long long)e->pool.count);
    }
    return BY_OK;
}

/* Inserts a slot after those of the same rank. */
static void enqueue(by_engine *e, int32_t slot)
{
    int64_t at = e->live;
    while (at > 0 && e->slots[e->order[at - 1]].priority < e->slots[slot].priority) {
        at--;
    }
    memmove(e->order + at + 1, e->order + at, (size_t)(e->live - at) * sizeof *e->order);
    e->order[at] = slot;
    e->live++;
}

static void fill(by_engine *e, by__infer_sequence *s, const by_request *r, int32_t index)
{
    int32_t *tokens = s->tokens;
    *s = (by__infer_sequence){.state = index == 0 ? BY__WAITING : BY__PARKED,
                              .session = e->sessions,
                              .id = ++e->ids,
                              .index = index,
                              .n = r->n == 0 ? 1 : r->n,
                              .top = r->top < e->vocab ? r->top : (int32_t)e->vocab,
                              .priority = r->priority,
                              .salt = r->salt,
                              .deadline = r->deadline > 0.0 ? by__now() + r->deadline : 0.0,
                              .sampling = r->sampling,
                              .stop_count = r->stop_count,
                              .process = r->process,
                              .prepare = r->process == NULL ? NULL : r->prepare,
                              .user = r->user,
                              .scores = r->score && index == 0,
                              .scored = r->score_from > 1 ? r->score_from - 1 : 0,
                              .only_prompt = r->only_prompt,
                              .tokens = tokens,
                              .prompt = (int64_t)r->prompt_count,
                              .count = (int64_t)r->prompt_count,
                              .limit = limit_of(e, r),
                              .row = -1};
    s->sampling.seed += (uint64_t)index;
    memcpy(tokens, r->prompt, r->prompt_count * sizeof *tokens);
    if (r->stop_count > 0) {
        memcpy(s->stop, r->stop, r->stop_count * sizeof *s->stop);
    }
}

by_status by_engine_submit(by_engine *engine, const by_request *request, uint64_t *session,
                           by_error *error)
{
    by_engine *e = engine;
    int32_t n = request->n == 0 ? 1 : request->n;
    BY_TRY(check_request(e, request, error));
    if (n > e->slot_count - e->live - e->cancelled) {
        return by_error_set(error, BY_ESTATE,
                            "the engine has %lld sequences, and room for %lld: %d more have to be "
                            "submitted behind a step",
                            (long long)(e->live + e->cancelled), (long long)e->slot_count, (int)n);
    }
    e->sessions++;
    int32_t slot = 0;
    for (int32_t index = 0; index < n; index++) {
        while (e->slots[slot].state != BY__SLOT_FREE) {
            slot++;
        }
        fill(e, &e->slots[slot], request, index);
        enqueue(e, slot);
    }
    *session = e->sessions;
    return BY_OK;
}

by_status by_engine_cancel(by_engine *engine, uint64_t session, by_error *error)
{
    bool found = false;
    for (int64_t i = engine->live; i-- > 0;) {
        by__infer_sequence *s = &engine->slots[engine->order[i]];
        if (s->session == session) {
            found = true;
            by__infer_report(engine, s, NULL, BY_FINISH_CANCELLED);
            by__infer_end(engine, i);
            s->state = BY__CANCELLED;
            engine->cancelled++;
        }
    }
    return found ? BY_OK
                 : by_error_set(error, BY_EARG, "session %llu is not one that lives",
                                (unsigned long long)session);
}
