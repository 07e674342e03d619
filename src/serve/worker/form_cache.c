#include "serve/worker/form_cache.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "serve/protocol/messages.h"

typedef struct form {
    by__worker_form_kind kind;
    char *source;
    size_t length;
    by_constraint *constraint;
    size_t bytes; /* of constraint and source */
    size_t users;
    struct form *next; /* less recently used */
} form;

struct by__worker_form_cache {
    const by_token_list *list;
    size_t most, most_idle;
    uv_mutex_t lock;
    /* Under the lock: */
    form *forms; /* most recently used first */
    size_t bytes, idle;
};

by_status by__worker_form_cache_open(by__worker_form_cache **out, const by_token_list *list,
                                     size_t most, size_t idle, by_error *error)
{
    by__worker_form_cache *c;
    *out = NULL;
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "a cache of formats", error));
    c->list = list;
    c->most = most;
    c->most_idle = idle;
    int code = uv_mutex_init(&c->lock);
    if (code < 0) {
        free(c);
        return by__serve_uv_error(error, "make", "a lock", code);
    }
    *out = c;
    return BY_OK;
}

static void free_form(form *f)
{
    by_constraint_close(&f->constraint);
    free(f->source);
    free(f);
}

void by__worker_form_cache_close(by__worker_form_cache **cache)
{
    by__worker_form_cache *c = *cache;
    if (c == NULL) {
        return;
    }
    *cache = NULL;
    for (form *f = c->forms, *next; f != NULL; f = next) {
        next = f->next;
        free_form(f);
    }
    uv_mutex_destroy(&c->lock);
    free(c);
}

/* The link to the least recently used idle form; NULL: there is none. */
static form **find_idle(by__worker_form_cache *c)
{
    form **last = NULL;
    for (form **at = &c->forms; *at != NULL; at = &(*at)->next) {
        last = (*at)->users == 0 ? at : last;
    }
    return last;
}

/* Drops idle forms until at most `idle` bytes of them are left. */
static void shrink(by__worker_form_cache *c, size_t idle)
{
    form **at;
    while (c->idle > idle && (at = find_idle(c)) != NULL) {
        form *gone = *at;
        *at = gone->next;
        c->idle -= gone->bytes;
        c->bytes -= gone->bytes;
        free_form(gone);
    }
}

/* Finds a form, moves it to the front and counts one more user; NULL: it is not cached. */
static form *find(by__worker_form_cache *c, by__worker_form_kind kind, const char *source,
                  size_t length)
{
    for (form **at = &c->forms; *at != NULL; at = &(*at)->next) {
        form *f = *at;
        if (f->kind == kind && f->length == length && memcmp(f->source, source, length) == 0) {
            *at = f->next;
            f->next = c->forms;
            c->forms = f;
            c->idle -= f->users++ == 0 ? f->bytes : 0;
            return f;
        }
    }
    return NULL;
}

static by_status make(form **out, const by__worker_form_cache *c, by__worker_form_kind kind,
                      const char *source, size_t length, by_error *error)
{
    form *f;
    BY_TRY(by__alloc((void **)&f, 1, sizeof *f, "a format", error));
    f->kind = kind;
    f->length = length;
    f->users = 1;
    by_status status = by__alloc((void **)&f->source, length + 1, 1, "a format", error);
    if (status == BY_OK) {
        memcpy(f->source, source, length);
        status = kind == BY__FORM_OBJECT
                     ? by_constraint_open_json(&f->constraint, true, c->list, error)
                 : kind == BY__FORM_REGEX
                     ? by_constraint_open_regex(&f->constraint, source, length, c->list, error)
                     : by_constraint_open_schema(&f->constraint, source, length, c->list, error);
    }
    if (status != BY_OK) {
        free_form(f);
        return status;
    }
    f->bytes = sizeof *f + length + by_constraint_bytes(f->constraint);
    *out = f;
    return BY_OK;
}

/* Adds a form, dropping idle ones to make room. */
static by_status add(by__worker_form_cache *c, form *f, by_error *error)
{
    size_t used = c->bytes - c->idle;
    if (used + f->bytes > c->most) {
        return by_error_set(error, BY_ESTATE,
                            "the formats of the requests that run take %zu MiB, and this one would "
                            "be beyond %zu MiB; try again later",
                            used >> 20, c->most >> 20);
    }
    size_t room = c->most - used - f->bytes;
    shrink(c, room < c->most_idle ? room : c->most_idle);
    f->next = c->forms;
    c->forms = f;
    c->bytes += f->bytes;
    return BY_OK;
}

by_status by__worker_form_acquire(const by_constraint **out, by__worker_form_cache *cache,
                                  by__worker_form_kind kind, const char *source, size_t length,
                                  by_error *error)
{
    by__worker_form_cache *c = cache;
    by_status status = BY_OK;
    uv_mutex_lock(&c->lock);
    form *f = find(c, kind, source, length);
    uv_mutex_unlock(&c->lock);
    if (f == NULL) {
        BY_TRY(make(&f, c, kind, source, length, error));
        uv_mutex_lock(&c->lock);
        status = add(c, f, error);
        uv_mutex_unlock(&c->lock);
        if (status != BY_OK) {
            free_form(f);
            return status;
        }
    }
    *out = f->constraint;
    return BY_OK;
}

void by__worker_form_release(by__worker_form_cache *cache, const by_constraint *constraint)
{
    by__worker_form_cache *c = cache;
    if (constraint == NULL) {
        return;
    }
    uv_mutex_lock(&c->lock);
    form *f = c->forms;
    while (f->constraint != constraint) {
        f = f->next;
    }
    if (--f->users == 0) {
        c->idle += f->bytes;
        shrink(c, c->most_idle);
    }
    uv_mutex_unlock(&c->lock);
}

size_t by__worker_form_cache_count(by__worker_form_cache *cache)
{
    size_t count = 0;
    uv_mutex_lock(&cache->lock);
    for (const form *f = cache->forms; f != NULL; f = f->next) {
        count++;
    }
    uv_mutex_unlock(&cache->lock);
    return count;
}
