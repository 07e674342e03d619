#include "serve/base/thread.h"

#include <omp.h>

#include "serve/base/serve.h"

by_status by__serve_thread_start(by__serve_thread *out, uv_thread_cb run, void *user,
                                 const char *name, by_error *error)
{
    by__serve_thread *t = out;
    t->closing = false;
    int code = uv_mutex_init(&t->lock);
    if (code < 0) {
        return by__serve_uv_error(error, "start", name, code);
    }
    code = uv_cond_init(&t->changed);
    if (code == 0) {
        code = uv_thread_create(&t->id, run, user);
        if (code < 0) {
            uv_cond_destroy(&t->changed);
        }
    }
    if (code < 0) {
        uv_mutex_destroy(&t->lock);
        return by__serve_uv_error(error, "start", name, code);
    }
    return BY_OK;
}

void by__serve_thread_release_helpers(void)
{
    /* Fails only inside a parallel region. */
    (void)omp_pause_resource_all(omp_pause_soft);
}

void by__serve_thread_end(by__serve_thread *thread)
{
    uv_mutex_lock(&thread->lock);
    thread->closing = true;
    uv_cond_signal(&thread->changed);
    uv_mutex_unlock(&thread->lock);
    (void)uv_thread_join(&thread->id);
    uv_cond_destroy(&thread->changed);
    uv_mutex_destroy(&thread->lock);
}
