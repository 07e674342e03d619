/* Shadow traffic: a copy of a request also goes to another version. Its answer is not sent to
 * anyone, only compared with the client's. */
#include <stdlib.h>
#include <string.h>

#include "serve/broker/broker.h"
#include "serve/protocol/answer_hash.h"

/* Most copies in flight: a version under test must not fill the queue. */
#define MAX_COPIES 64

/* An answer so far. */
typedef struct shadow_answer {
    by__protocol_answer_hash hash;
    bool ended;
    bool failed;
} shadow_answer;

/* Shared by a request and its copy; freed with the second of them. */
struct by__broker_mirror {
    shadow_answer answers[2]; /* the client's, the copy's */
    by__broker_pool *pool;
    char version[65]; /* version that gets the copy */
    int holders;
};

static void compare(const struct by__broker_mirror *m)
{
    by__broker_version *v = by__broker_find_version(m->pool, m->version, false);
    if (v == NULL || !m->answers[1].ended) {
        return;
    }
    v->mirror_failed += m->answers[1].failed;
    if (!m->answers[0].ended || m->answers[0].failed || m->answers[1].failed) {
        return;
    }
    bool same = memcmp(&m->answers[0].hash, &m->answers[1].hash, sizeof m->answers[0].hash) == 0;
    v->same += same;
    v->different += !same;
}

void by__broker_mirror_release(by__broker_job *job)
{
    struct by__broker_mirror *m = job->mirrors != NULL ? job->mirrors : job->mirror;
    bool is_copy = job->mirror != NULL;
    job->mirrors = job->mirror = NULL;
    if (m == NULL) {
        return;
    }
    by__broker_version *v = by__broker_find_version(m->pool, m->version, false);
    if (is_copy && v != NULL && v->copies > 0) {
        v->copies--;
    }
    if (--m->holders == 0) {
        compare(m);
        free(m);
    }
}

void by__broker_mirror_event(by__broker_job *job, const json_t *event)
{
    struct by__broker_mirror *m = job->mirrors != NULL ? job->mirrors : job->mirror;
    const char *kind = by__protocol_get_text(event, "e");
    if (m == NULL || kind == NULL) {
        return;
    }
    shadow_answer *a = &m->answers[job->mirror != NULL];
    by__protocol_answer_hash_add(&a->hash, event);
    if (strcmp(kind, "again") == 0) {
        *a = (shadow_answer){0};
    } else if (by__protocol_event_is_last(event)) {
        a->ended = true;
        a->failed = by__protocol_event_is_fault(event);
    }
}

void by__broker_start_mirror(by__broker *b, by__broker_job *job)
{
    by__broker_pool *pool = job->pool;
    by__broker_version *v = pool->versions;
    by__broker_job *copy = NULL;
    struct by__broker_mirror *m = NULL;
    char id[BY__ID_BYTES];
    by_error ignored = {0};
    while (v != NULL && !(v->shadow && v->workers > 0)) {
        v = v->next;
    }
    if (v == NULL || job->gather != NULL || job->version == v || v->copies >= MAX_COPIES ||
        by__serve_request_id(id, "shadow_", &ignored) != BY_OK ||
        by__alloc((void **)&m, 1, sizeof *m, "a copy", &ignored) != BY_OK) {
        return;
    }
    by_status status = by__alloc((void **)&copy, 1, sizeof *copy, "a copy", &ignored);
    if (status == BY_OK) {
        status = by__serve_id_add(&b->jobs, &copy->entry, id, &ignored);
    }
    if (status != BY_OK) {
        free(copy);
        free(m);
        return;
    }
    m->pool = pool;
    m->holders = 2;
    memcpy(m->version, v->name, sizeof m->version);
    job->mirrors = copy->mirror = m;
    copy->request = json_incref(job->request);
    copy->pool = pool;
    copy->cost = job->cost;
    copy->priority = job->priority;
    copy->deadline = job->deadline;
    copy->since = by__now();
    copy->version = v;
    copy->bound = true;
    v->mirrored++;
    v->copies++;
    by__broker_job_enqueue(&pool->queue, copy, false);
}
