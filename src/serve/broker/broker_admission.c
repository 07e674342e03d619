/* Admission in the broker: limits on everything that waits, and on the time that a request would
 * wait. */
#include <string.h>

#include "serve/broker/broker.h"

/* Workers of a version that gets no new requests do not add capacity for them. */
bool by__broker_open(const by__broker_pool *pool, const by__broker_peer *p)
{
    return p->role == BY__WORKER && p->pool == pool && !p->leaving &&
           (!pool->routed || p->version->share > 0.0);
}

int64_t by__broker_sessions(const by__broker *b, const by__broker_pool *pool)
{
    int64_t sessions = 0;
    for (const by__broker_peer *p = b->peers; p != NULL; p = p->next) {
        sessions += by__broker_open(pool, p) ? p->sessions : 0;
    }
    return sessions;
}

static int64_t at_workers(const by__broker *b, const by__broker_pool *pool)
{
    int64_t sequences = 0;
    for (const by__broker_peer *p = b->peers; p != NULL; p = p->next) {
        sequences += by__broker_open(pool, p) ? p->jobs.sequences : 0;
    }
    return sequences;
}

void by__broker_measure(by__broker *b)
{
    for (by__broker_pool *pool = b->pools; pool != NULL; pool = pool->next) {
        const by__protocol_admission_sample sample = {.now = by__now(),
                                                      .sessions = by__broker_sessions(b, pool),
                                                      .at_workers = at_workers(b, pool),
                                                      .ended = pool->ended,
                                                      .arrived = (int64_t)pool->arrived,
                                                      .refused = (int64_t)pool->refused};
        by__protocol_admission_add(&pool->admission, &sample);
    }
}

double by__broker_wait(const by__broker *b, const by__broker_pool *pool)
{
    return by__protocol_admission_wait(
        &pool->admission, at_workers(b, pool) + by__broker_job_ahead(&pool->queue, 0, false));
}

const by__protocol_refusal *by__broker_no_pool(const by__broker *b, double *seconds)
{
    bool starting = b->pools == NULL;
    *seconds = starting ? 1.0 : 0.0;
    return by__protocol_refusal_of(starting ? "starting" : "unknown");
}

/* Length of the part of an id that all prompts of a request share. */
static size_t common_length(const char *id)
{
    const char *end = id == NULL ? NULL : strrchr(id, '-');
    return end == NULL ? 0 : (size_t)(end - id);
}

const by__protocol_refusal *by__broker_refusal(by__broker *b, by__broker_peer *from,
                                               by__broker_pool *pool, const json_t *request,
                                               double left, bool task, double *seconds)
{
    int64_t cost = by__protocol_get_integer(request, "cost");
    int64_t ahead =
        at_workers(b, pool) +
        by__broker_job_ahead(&pool->queue, by__protocol_get_integer(request, "priority"), task);
    by__protocol_admission_rule rule =
        by__protocol_admission_rule_of(&pool->admission, b->options.queue_wait, left, task);
    bool full = pool->queue.count >= b->options.queue_requests ||
                pool->queue.cost + cost > b->options.queue_tokens;
    /* The other prompts of a request were admitted together with the first one. */
    bool follows = json_is_true(json_object_get(request, "follows"));
    const char *id = by__protocol_get_text(request, "id");
    size_t length = common_length(id);
    bool part_refused = follows && length > 0 && strlen(from->refused) == length &&
                        memcmp(from->refused, id, length) == 0;
    pool->arrived++;
    if (!full && !part_refused && (follows || ahead < rule.limit)) {
        return NULL;
    }
    if (length > 0 && length < sizeof from->refused) {
        memcpy(from->refused, id, length);
        from->refused[length] = '\0';
    }
    pool->refused++;
    *seconds = by__protocol_retry_after(by__protocol_admission_wait(&pool->admission, ahead));
    return by__protocol_refusal_of(full ? "full" : rule.why);
}
