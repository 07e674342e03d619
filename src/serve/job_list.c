#include "serve/job_list.h"

#include <stdlib.h>

void by__job_enqueue(by__job_list *list, by__job *job, bool front)
{
    by__job *after = list->last; /* the job goes behind it */
    while (after != NULL &&
           (front ? after->priority <= job->priority : after->priority < job->priority)) {
        after = after->previous;
    }
    job->previous = after;
    job->next = after == NULL ? list->first : after->next;
    *(job->previous == NULL ? &list->first : &job->previous->next) = job;
    *(job->next == NULL ? &list->last : &job->next->previous) = job;
    list->count++;
    list->cost += job->cost;
}

void by__job_unlink(by__job_list *list, by__job *job)
{
    *(job->previous == NULL ? &list->first : &job->previous->next) = job->next;
    *(job->next == NULL ? &list->last : &job->next->previous) = job->previous;
    job->previous = job->next = NULL;
    list->count--;
    list->cost -= job->cost;
}

void by__job_free(by__job *job)
{
    json_decref(job->request);
    by__gather_close(&job->gather);
    by__mirror_release(job);
    free(job);
}
