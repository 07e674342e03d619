/* Jobs of a worker: made of messages, held in lists, freed. */
#include <stdlib.h>
#include <string.h>

#include "serve/protocol/messages.h"
#include "serve/worker/worker.h"

by_status by__worker_job_new(by__worker_job **out, json_t *message, by_error *error)
{
    const char *id = by__protocol_get_text(message, "id");
    by__worker_job *job;
    if (id == NULL || !by__serve_id_valid(id)) {
        return by_error_set(error, BY_EARG, "a request without an id");
    }
    BY_TRY(by__alloc((void **)&job, 1, sizeof *job, "a request", error));
    double left = by__protocol_get_number(message, "left", 0.0);
    memcpy(job->id, id, strlen(id) + 1);
    job->attempt = by__protocol_get_integer(message, "attempt");
    job->message = json_incref(message);
    job->bytes = json_string_length(json_object_get(message, "request"));
    job->since = by__now();
    job->deadline = left > 0.0 ? job->since + left : 0.0;
    *out = job;
    return BY_OK;
}

void by__worker_job_free(by__worker_job *job)
{
    if (job == NULL) {
        return;
    }
    if (job->input != NULL) {
        job->close(job->input);
    }
    by__worker_generation_close(&job->generation);
    json_decref(job->message);
    json_decref(job->results);
    json_decref(job->rows);
    free(job);
}

by__worker_job **by__worker_jobs_find(by__worker_job **list, const by__worker_job *job)
{
    while (*list != NULL && *list != job) {
        list = &(*list)->next;
    }
    return list;
}

void by__worker_jobs_append(by__worker_job **list, by__worker_job *job)
{
    job->next = NULL;
    *by__worker_jobs_find(list, NULL) = job;
}

by__worker_job *by__worker_jobs_remove(by__worker_job **link)
{
    by__worker_job *job = *link;
    if (job != NULL) {
        *link = job->next;
        job->next = NULL;
    }
    return job;
}

void by__worker_jobs_free(by__worker_job *list)
{
    while (list != NULL) {
        by__worker_job_free(by__worker_jobs_remove(&list));
    }
}
