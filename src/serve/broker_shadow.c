/* Shadow traffic: a copy of a request goes to another version too; nobody gets its answer, which is
 * compared with the one that the client got. */
#include <stdlib.h>
#include <string.h>

#include "serve/broker.h"

/* Copies that run at a time, at most: a version under test must not fill the queue. */
#define MOST_COPIES 64
/* Of a request. */
#define SEQUENCES 8

/* An answer while it comes: hashes of its texts, since the text itself is of no use. */
typedef struct answer {
    uint64_t texts[SEQUENCES];
    bool ended;
    bool failed;
} answer;

/* What a request and its copy share; freed with the second of them. */
struct by__mirror {
    answer answers[2]; /* the client's, the copy's */
    by__pool *pool;
    char version[65]; /* of the copy */
    int holders;
};

/* FNV-1a, which takes a text in pieces. */
static uint64_t add_hash(uint64_t hash, const char *data, size_t length)
{
    hash = hash == 0 ? 0xcbf29ce484222325u : hash;
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3u;
    }
    return hash;
}

static void compare(const struct by__mirror *m)
{
    by__version *v = by__broker_version(m->pool, m->version, false);
    if (v == NULL || !m->answers[1].ended) {
        return;
    }
    v->mirror_failed += m->answers[1].failed;
    if (!m->answers[0].ended || m->answers[0].failed || m->answers[1].failed) {
        return;
    }
    bool same = memcmp(m->answers[0].texts, m->answers[1].texts, sizeof m->answers[0].texts) == 0;
    v->same += same;
    v->different += !same;
}

void by__mirror_release(by__job *job)
{
    struct by__mirror *m = job->mirrors != NULL ? job->mirrors : job->mirror;
    bool is_copy = job->mirror != NULL;
    job->mirrors = job->mirror = NULL;
    if (m == NULL) {
        return;
    }
    by__version *v = by__broker_version(m->pool, m->version, false);
    if (is_copy && v != NULL && v->copies > 0) {
        v->copies--;
    }
    if (--m->holders == 0) {
        compare(m);
        free(m);
    }
}

void by__mirror_event(by__job *job, const json_t *event)
{
    struct by__mirror *m = job->mirrors != NULL ? job->mirrors : job->mirror;
    const char *kind = by__get_text(event, "e");
    if (m == NULL || kind == NULL) {
        return;
    }
    answer *a = &m->answers[job->mirror != NULL];
    if (strcmp(kind, "text") == 0) {
        const json_t *text = json_object_get(event, "text");
        int64_t i = by__get_integer(event, "i");
        size_t at = i < 0 || i >= SEQUENCES ? 0 : (size_t)i;
        a->texts[at] = add_hash(a->texts[at], json_is_string(text) ? json_string_value(text) : "",
                                json_string_length(text));
    } else if (strcmp(kind, "again") == 0) {
        memset(a, 0, sizeof *a);
    } else if (by__event_is_last(event)) {
        a->ended = true;
        a->failed = by__get_integer(event, "status") >= 500;
    }
}

void by__broker_mirror(by__broker *b, by__job *job)
{
    by__pool *pool = job->pool;
    by__version *v = pool->versions;
    by__job *copy = NULL;
    struct by__mirror *m = NULL;
    char id[BY__ID_BYTES];
    by_error ignored = {0};
    while (v != NULL && !(v->shadow && v->workers > 0)) {
        v = v->next;
    }
    if (v == NULL || job->gather != NULL || job->version == v || v->copies >= MOST_COPIES ||
        by__request_id(id, "shadow_", &ignored) != BY_OK ||
        by__alloc((void **)&m, 1, sizeof *m, "a copy", &ignored) != BY_OK) {
        return;
    }
    by_status status = by__alloc((void **)&copy, 1, sizeof *copy, "a copy", &ignored);
    if (status == BY_OK) {
        status = by__id_add(&b->jobs, &copy->entry, id, &ignored);
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
    by__job_enqueue(&pool->queue, copy, false);
}
