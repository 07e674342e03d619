/* Discrete events of replicas that serve a load. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/capacity.h"
#include "base/base.h"

/* A replica: an engine without a model, and its clock. */
typedef struct sim_replica {
    by_engine *engine; /* NULL: it has never run */
    size_t *queue;     /* [capacity] requests that are not submitted yet, from `head` on */
    size_t head, tail, capacity;
    uint64_t *sessions; /* [slots] of live requests ... */
    size_t *requests;   /* ... and which ones they are */
    size_t live;
    double free_at; /* when its last step ended */
    int unfinished; /* requests as a router knows them: with those whose last token is under way */
    int finishing;  /* of them, ones that end with its last step */
    uint64_t steps;
    bool on;        /* serverless: it is billed */
    double since;   /* when it started */
    double ready;   /* when it can run */
    double idle_at; /* since when it has no request */
    double busy;    /* seconds with a request since it started */
} sim_replica;

typedef struct sim_service {
    const by_engine_curve *curve;
    const by_load_request *load;
    const by_serving_options *options;
    by_served_request *served;
    int64_t *got; /* [requests] tokens so far */
    by_engine_options engine;
    int32_t *prompt; /* zeros, as many as the longest has */
    sim_replica *replicas;
    int most;
    by_serving_figures sums;
} sim_service;

static size_t slots_of(const sim_service *s)
{
    return (size_t)(s->engine.sessions + s->engine.waiting);
}

static void close_service(sim_service *s)
{
    for (int i = 0; s->replicas != NULL && i < s->most; i++) {
        by_engine_close(&s->replicas[i].engine);
        free(s->replicas[i].queue);
        free(s->replicas[i].sessions);
        free(s->replicas[i].requests);
    }
    free(s->replicas);
    free(s->got);
    free(s->prompt);
}

/* ---- the load ---- */

/* The engine's limits; a context of the longest request is enough, and takes less memory. */
static by_status check_load(sim_service *s, size_t count, by_error *error)
{
    const by_engine_curve *c = s->curve;
    int64_t context = 1;
    int64_t prompt = 1;
    for (size_t i = 0; i < count; i++) {
        const by_load_request *r = &s->load[i];
        if (r->prompt < 1 || r->tokens < 1 || r->prompt > c->context ||
            r->tokens > c->context + 1 - r->prompt) {
            return by_error_set(error, BY_EARG,
                                "request %zu has %lld tokens of prompt and %lld to generate; the "
                                "context of the engine is %lld",
                                i + 1, (long long)r->prompt, (long long)r->tokens,
                                (long long)c->context);
        }
        if (!(r->seconds >= (i == 0 ? 0.0 : s->load[i - 1].seconds))) {
            return by_error_set(error, BY_EARG, "request %zu arrives at %g s, before the last one",
                                i + 1, r->seconds);
        }
        int64_t both = r->prompt + r->tokens - 1;
        context = both > context ? both : context;
        prompt = r->prompt > prompt ? r->prompt : prompt;
    }
    s->engine = (by_engine_options){.context = context,
                                    .sessions = c->sessions,
                                    .waiting = 4 * c->sessions,
                                    .rows = c->rows,
                                    .pages = c->pages};
    return by__alloc((void **)&s->prompt, (size_t)prompt, sizeof *s->prompt, "a prompt", error);
}

static by_status open_replica(sim_service *s, sim_replica *r, by_error *error)
{
    if (r->engine != NULL) {
        return BY_OK;
    }
    size_t slots = slots_of(s);
    BY_TRY(by__alloc((void **)&r->sessions, slots, sizeof *r->sessions, "replicas", error));
    BY_TRY(by__alloc((void **)&r->requests, slots, sizeof *r->requests, "replicas", error));
    return by_engine_open_dry(&r->engine, &s->engine, error);
}

static by_status enqueue(sim_replica *r, size_t request, by_error *error)
{
    if (r->tail == r->capacity) {
        size_t capacity = 2 * r->capacity + 256;
        size_t *larger = realloc(r->queue, capacity * sizeof *larger);
        if (larger == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: requests");
        }
        r->queue = larger;
        r->capacity = capacity;
    }
    r->queue[r->tail++] = request;
    r->unfinished++;
    return BY_OK;
}

/* ---- steps ---- */

/* When a request reaches its engine. */
static double arrival(const sim_service *s, size_t request)
{
    return s->load[request].seconds + s->options->overhead;
}

/* Submits what has arrived, as far as the engine has room. */
static by_status submit(sim_service *s, sim_replica *r, double now, by_error *error)
{
    while (r->head < r->tail && r->live < slots_of(s)) {
        size_t i = r->queue[r->head];
        if (arrival(s, i) > now) {
            break;
        }
        by_request q = {.prompt = s->prompt,
                        .prompt_count = (size_t)s->load[i].prompt,
                        .tokens = s->load[i].tokens,
                        .sampling = {.top_p = 1.0},
                        .salt = i + 1}; /* no two prompts have a common beginning */
        BY_TRY(by_engine_submit(r->engine, &q, &r->sessions[r->live], error));
        r->requests[r->live++] = i;
        r->head++;
    }
    return BY_OK;
}

/* The ratio of a step's time to the formula's. */
static double ratio(const sim_service *s, const sim_replica *r)
{
    const by_engine_curve *c = s->curve;
    uint32_t key[2];
    uint32_t bits[4];
    if (c->ratio_count == 0) {
        return 1.0;
    }
    by__philox_key(key, s->options->seed, 0x73746570u); /* "step" in ASCII */
    by__philox(bits, key,
               (const uint32_t[4]){(uint32_t)r->steps, (uint32_t)(r->steps >> 32),
                                   (uint32_t)(r - s->replicas), 0});
    return c->ratios[(uint64_t)bits[0] * (uint64_t)c->ratio_count >> 32];
}

static void take_event(sim_service *s, sim_replica *r, const by_event *event)
{
    size_t at = 0;
    while (r->sessions[at] != event->session) {
        at++;
    }
    size_t i = r->requests[at];
    double seen = r->free_at + s->options->overhead;
    s->served[i].first = s->got[i] == 0 ? seen : s->served[i].first;
    s->served[i].last = seen;
    s->got[i]++;
    s->sums.tokens++;
    if (event->finish != BY_FINISH_NONE) {
        r->live--;
        r->sessions[at] = r->sessions[r->live];
        r->requests[at] = r->requests[r->live];
        r->finishing++;
    }
}

/* The router learns of the requests that ended with the last step. */
static void settle(sim_replica *r)
{
    r->unfinished -= r->finishing;
    if (r->finishing > 0 && r->unfinished == 0) {
        r->busy += r->free_at - r->idle_at;
        r->idle_at = r->free_at;
    }
    r->finishing = 0;
}

/* Runs one step that begins at `now`. */
static by_status step(sim_service *s, sim_replica *r, double now, by_error *error)
{
    const by_event *events;
    size_t count;
    BY_TRY(by_engine_step(r->engine, &events, &count, error));
    by_engine_work work = by_engine_last_work(r->engine);
    double seconds = by_engine_curve_seconds(s->curve, &work) * ratio(s, r);
    if (work.program < 0) {
        return by_error_set(error, BY_ESTATE, "a simulated engine has requests and no step");
    }
    r->free_at = now + seconds;
    r->steps++;
    s->sums.steps++;
    s->sums.stepping += seconds;
    for (size_t i = 0; i < count; i++) {
        take_event(s, r, &events[i]);
    }
    return BY_OK;
}

/* Runs the steps of a replica that begin before `until`. */
static by_status advance(sim_service *s, sim_replica *r, double until, by_error *error)
{
    while (r->unfinished > 0) {
        double now = fmax(r->free_at, r->ready);
        if (r->live == 0 && r->head < r->tail) {
            now = fmax(now, arrival(s, r->queue[r->head]));
        }
        if (r->free_at <= until) {
            settle(r);
        }
        if (now >= until || r->unfinished == r->finishing) {
            return BY_OK;
        }
        BY_TRY(submit(s, r, now, error));
        BY_TRY(step(s, r, now, error));
    }
    return BY_OK;
}

/* ---- routing ---- */

/* Ends a serverless replica whose time without a request is over. */
static void expire(sim_service *s, sim_replica *r, double now)
{
    const by_serving_options *o = s->options;
    if (r->on && r->unfinished == 0 && r->idle_at + o->keep_alive <= now) {
        double whole = r->idle_at + o->keep_alive - r->since;
        /* Requests wait during a start, which is part of the time with a request. */
        double boot = r->ready - r->since;
        double billed = o->free_idle ? r->busy : whole;
        s->sums.billed += billed - (o->free_boot ? boot : 0.0);
        r->on = false;
    }
}

static sim_replica *fewest(const sim_service *s, bool on)
{
    sim_replica *best = NULL;
    for (int i = 0; i < s->most; i++) {
        sim_replica *r = &s->replicas[i];
        if ((!on || r->on) && (best == NULL || r->unfinished < best->unfinished)) {
            best = r;
        }
    }
    return best;
}

static by_status start(sim_service *s, sim_replica *r, double now, by_error *error)
{
    r->on = true;
    r->since = now;
    r->ready = now + s->options->boot;
    r->idle_at = now;
    r->busy = 0.0;
    s->sums.starts++;
    return open_replica(s, r, error);
}

/* The serverless replica for a request: one with room, else a new one, else that with the
 * fewest. */
static by_status route_serverless(sim_service *s, sim_replica **out, double now, by_error *error)
{
    int on = 0;
    for (int i = 0; i < s->most; i++) {
        expire(s, &s->replicas[i], now);
        on += s->replicas[i].on;
    }
    sim_replica *r = fewest(s, true);
    if ((r == NULL || r->unfinished >= s->engine.sessions) && on < s->most) {
        r = s->replicas;
        while (r->on) {
            r++;
        }
        BY_TRY(start(s, r, now, error));
        on++;
    }
    s->sums.most = on > s->sums.most ? on : s->sums.most;
    *out = r;
    return BY_OK;
}

static by_status route(sim_service *s, size_t request, by_error *error)
{
    double now = s->load[request].seconds;
    sim_replica *r;
    for (int i = 0; i < s->most; i++) {
        BY_TRY(advance(s, &s->replicas[i], now, error));
    }
    if (s->options->serverless) {
        BY_TRY(route_serverless(s, &r, now, error));
    } else {
        r = fewest(s, false);
        BY_TRY(open_replica(s, r, error));
    }
    r->idle_at = r->unfinished == 0 ? now : r->idle_at;
    return enqueue(r, request, error);
}

/* ---- figures ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void put_quantiles(double out[2], double *values, size_t count)
{
    if (count > 0) {
        qsort(values, count, sizeof *values, ascending);
        out[0] = values[(size_t)(0.5 * (double)(count - 1) + 0.5)];
        out[1] = values[(size_t)(0.95 * (double)(count - 1) + 0.5)];
    }
}

static by_status sum_up(sim_service *s, size_t count, by_error *error)
{
    by_serving_figures *f = &s->sums;
    double *values;
    double last = 0.0;
    size_t spaced = 0;
    BY_TRY(by__alloc((void **)&values, count, sizeof *values, "figures", error));
    for (size_t i = 0; i < count; i++) {
        values[i] = s->served[i].first - s->load[i].seconds;
        last = fmax(last, s->served[i].last);
        f->prompt_tokens += (uint64_t)s->load[i].prompt;
    }
    put_quantiles(f->first_token, values, count);
    for (size_t i = 0; i < count; i++) {
        if (s->load[i].tokens > 1) {
            values[spaced++] =
                (s->served[i].last - s->served[i].first) / (double)(s->load[i].tokens - 1);
        }
    }
    put_quantiles(f->token, values, spaced);
    free(values);
    f->requests = count;
    f->span = last - s->load[0].seconds;
    for (int i = 0; i < s->most; i++) {
        if (s->options->serverless) {
            expire(s, &s->replicas[i], INFINITY);
        }
        if (s->replicas[i].engine != NULL) {
            f->preemptions += by_engine_statistics_now(s->replicas[i].engine).preemptions;
        }
    }
    if (!s->options->serverless) {
        f->most = s->most;
        f->billed = s->most * f->span;
    }
    return BY_OK;
}

static by_status run(sim_service *s, size_t count, by_error *error)
{
    BY_TRY(check_load(s, count, error));
    BY_TRY(by__alloc((void **)&s->got, count, sizeof *s->got, "requests", error));
    BY_TRY(
        by__alloc((void **)&s->replicas, (size_t)s->most, sizeof *s->replicas, "replicas", error));
    for (size_t i = 0; i < count; i++) {
        BY_TRY(route(s, i, error));
    }
    for (int i = 0; i < s->most; i++) {
        BY_TRY(advance(s, &s->replicas[i], INFINITY, error));
        settle(&s->replicas[i]);
    }
    return sum_up(s, count, error);
}

by_status by_serving_simulate(by_serving_figures *out, by_served_request *served,
                              const by_engine_curve *curve, const by_load_request *requests,
                              size_t count, const by_serving_options *options, by_error *error)
{
    by_served_request *own = NULL;
    sim_service s = {.curve = curve, .load = requests, .options = options};
    s.most = options->replicas == 0 ? 1 : options->replicas;
    if (count == 0 || s.most < 1 || curve->program_count < 1 || !(options->overhead >= 0.0) ||
        !(options->boot >= 0.0) || !(options->keep_alive >= 0.0)) {
        return by_error_set(error, BY_EARG,
                            "%zu requests for %d replicas with %d programs: all are from 1 on, and "
                            "seconds from 0",
                            count, s.most, curve->program_count);
    }
    if (served == NULL) {
        BY_TRY(by__alloc((void **)&own, count, sizeof *own, "requests", error));
    }
    s.served = served == NULL ? own : served;
    by_status status = run(&s, count, error);
    if (status == BY_OK) {
        *out = s.sums;
    }
    close_service(&s);
    free(own);
    return status;
}
