#include "serve/protocol/admission.h"

#include <math.h>

/* Length of the averages in sequences per session, and at least in total: a mean follows a change
 * of the load within about as many. */
#define MEMORY     4.0
#define MIN_MEMORY 32.0
/* Least number of requests over which the share of refused ones is taken. */
#define MIN_ARRIVED 16.0

static double known_sessions(const by__protocol_admission *a)
{
    return a->sessions > 0.0 ? a->sessions : BY__ADMISSION_SESSIONS;
}

/* Adds to a pair of sums, decaying them to about the last `memory` counts. */
static void add(double *sum, double more, double *count, double more_count, double memory)
{
    *sum += more;
    *count += more_count;
    if (*count > memory) {
        *sum *= memory / *count;
        *count = memory;
    }
}

void by__protocol_admission_add(by__protocol_admission *a,
                                const by__protocol_admission_sample *sample)
{
    const by__protocol_admission_sample last = a->last;
    double elapsed = sample->now - last.now;
    double ended = (double)(sample->ended - last.ended);
    double arrived = (double)(sample->arrived - last.arrived);
    double refused = (double)(sample->refused - last.refused);
    bool follows = last.now > 0.0 && elapsed > 0.0;
    a->last = *sample;
    a->sessions = sample->sessions > 0 ? (double)sample->sessions : a->sessions;
    /* A counter that falls has been restarted. */
    if (follows && ended >= 0.0) {
        double sessions = (double)last.sessions;
        double work = elapsed * fmin((double)sample->at_workers, sessions);
        double memory = fmax(MEMORY * known_sessions(a), MIN_MEMORY);
        add(&a->any.busy, work, &a->any.done, ended, memory);
        double least = fmin((double)last.at_workers, (double)sample->at_workers);
        if (sessions > 0.0 && least >= BY__ADMISSION_BUSY * sessions) {
            add(&a->full.busy, work, &a->full.done, ended, memory);
        }
    }
    if (follows && arrived >= 0.0 && refused >= 0.0) {
        add(&a->refused, refused, &a->arrived, arrived, fmax(arrived / elapsed, MIN_ARRIVED));
    }
}

/* Before one sequence per session has completed, those still running are assumed to complete now:
 * the estimate then falls as long as they go on. */
static double rate_of(const by__protocol_service *service, double sessions)
{
    return service->busy > 0.0 ? sessions * fmax(service->done, sessions) / service->busy
                               : INFINITY;
}

double by__protocol_admission_rate(const by__protocol_admission *a)
{
    double sessions = known_sessions(a);
    double rate = fmin(rate_of(&a->any, sessions), rate_of(&a->full, sessions));
    return isfinite(rate) ? rate : 0.0;
}

double by__protocol_admission_bound(const by__protocol_admission *a, double setting)
{
    double rate = by__protocol_admission_rate(a);
    if (setting > 0.0) {
        return setting;
    }
    double queue = rate > 0.0 ? BY__ADMISSION_QUEUE / rate : BY__ADMISSION_MAX_SECONDS;
    double bound = fmin(fmax(queue, BY__ADMISSION_MIN_SECONDS), BY__ADMISSION_MAX_SECONDS);
    return bound * (a->refused > BY__ADMISSION_OVERLOAD * a->arrived ? BY__ADMISSION_PART : 1.0);
}

by__protocol_admission_rule by__protocol_admission_rule_of(const by__protocol_admission *a,
                                                           double setting, double left,
                                                           bool patient)
{
    double sessions = known_sessions(a);
    double rate = by__protocol_admission_rate(a);
    bool known = rate > 0.0 && a->last.sessions > 0;
    double waiting = known && !patient ? by__protocol_admission_bound(a, setting) * rate : INFINITY;
    if (setting <= 0.0) {
        waiting = fmax(waiting, 1.0);
    }
    double late = known && left > 0.0 ? left * rate : INFINITY;
    if (!patient && (a->full.done < sessions || a->last.sessions <= 0)) {
        waiting = fmin(waiting, BY__ADMISSION_COLD * sessions);
    }
    return (by__protocol_admission_rule){.limit =
                                             (int64_t)fmin(sessions + fmin(waiting, late), 1e15),
                                         .why = late < waiting ? "late" : "wait"};
}

double by__protocol_admission_wait(const by__protocol_admission *a, int64_t ahead)
{
    double rate = by__protocol_admission_rate(a);
    double before = (double)ahead + 1.0 - known_sessions(a);
    return rate > 0.0 && before > 0.0 ? before / rate : 0.0;
}
