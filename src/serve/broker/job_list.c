#include "serve/broker/job_list.h"

#include <stdlib.h>

#include "serve/protocol/task_turn.h"

/* No client is connected for a task: it comes after requests of equal priority. */
static int64_t rank_of(int64_t priority, bool task)
{
    return 2 * priority - (task ? 1 : 0);
}

static int64_t rank(const by__broker_job *job)
{
    return job->promoted ? INT64_MAX : rank_of(job->priority, job->gather != NULL);
}

void by__broker_job_enqueue(by__broker_job_list *list, by__broker_job *job, bool front)
{
    by__broker_job *after = list->last; /* the job is inserted after it */
    while (after != NULL && (front ? rank(after) <= rank(job) : rank(after) < rank(job))) {
        after = after->previous;
    }
    job->previous = after;
    job->next = after == NULL ? list->first : after->next;
    *(job->previous == NULL ? &list->first : &job->previous->next) = job;
    *(job->next == NULL ? &list->last : &job->next->previous) = job;
    list->count++;
    list->cost += job->cost;
    list->sequences += job->sequences;
}

void by__broker_job_unlink(by__broker_job_list *list, by__broker_job *job)
{
    *(job->previous == NULL ? &list->first : &job->previous->next) = job->next;
    *(job->next == NULL ? &list->last : &job->next->previous) = job->previous;
    job->previous = job->next = NULL;
    list->count--;
    list->cost -= job->cost;
    list->sequences -= job->sequences;
}

int64_t by__broker_job_ahead(const by__broker_job_list *list, int64_t priority, bool task)
{
    int64_t ahead = list->sequences;
    for (const by__broker_job *job = list->last; job != NULL && rank(job) < rank_of(priority, task);
         job = job->previous) {
        ahead -= job->sequences;
    }
    return ahead;
}

bool by__broker_job_promote(by__broker_job_list *list, double now)
{
    by__broker_job *oldest = NULL;
    for (by__broker_job *job = list->first; job != NULL; job = job->next) {
        if (job->gather != NULL && !job->promoted && now - job->since >= BY__TASK_WAIT &&
            (oldest == NULL || job->since < oldest->since)) {
            oldest = job;
        }
    }
    if (oldest != NULL) {
        by__broker_job_unlink(list, oldest);
        oldest->promoted = true;
        by__broker_job_enqueue(list, oldest, false);
    }
    return oldest != NULL;
}

void by__broker_job_free(by__broker_job *job)
{
    json_decref(job->request);
    by__protocol_gather_close(&job->gather);
    by__broker_mirror_release(job);
    free(job);
}
