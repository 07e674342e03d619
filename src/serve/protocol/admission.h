/* Admission control: decides whether a new request is accepted from the time it would wait for its
 * first text. A function of measurements alone, shared by both kinds of broker (broker_admission.c,
 * redis_gateway.c) and by tests that simulate a load.
 *
 * Workers run a limited number of sequences at a time, their sessions; further sequences wait, at
 * the worker or in the queue. The rate at which sessions become free follows from the service
 * demand law (Denning & Buzen 1978, "The Operational Analysis of Queueing Network Models"): the
 * busy seconds of all sessions divided by the number of completed sequences give the service time
 * of one sequence. All sessions together then complete `sessions / service time` sequences a
 * second, and by Little's law a queue of n in front of a request takes n / rate seconds. A bound in
 * seconds is therefore a bound on the number of sequences ahead.
 *
 * The steps of a batch grow with it, so the service time at a light load is up to several times as
 * short as at the full one, and the rate that follows is too high. The rate measured while nearly
 * all sessions were busy is therefore kept, and the lower of the two counts.
 *
 * A queue evens out bursts; one that is always full only adds delay (Nichols & Jacobson 2012,
 * "Controlling Queue Delay"). So where no setting limits the wait, the queue is as long as an
 * ordinary load needs: for Poisson arrivals at 80 % of the capacity of 16 sessions, 95 % of
 * requests find fewer than 8 in front of them (Erlang's C formula). When more than
 * BY__ADMISSION_OVERLOAD of the requests are refused, which happens with a queue of one only at a
 * load above the capacity, the queue shrinks to one, so that the requests which are accepted are as
 * fast as at an ordinary load. */
#ifndef BY_SERVE_PROTOCOL_ADMISSION_H
#define BY_SERVE_PROTOCOL_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

/* Default length of the queue in sequences where no setting limits the wait: at least what
 * completes in BY__ADMISSION_MIN_SECONDS seconds (fast models), at most what completes in
 * BY__ADMISSION_MAX_SECONDS (slow ones), and never less than one. */
#define BY__ADMISSION_QUEUE       8.0
#define BY__ADMISSION_MIN_SECONDS 0.1
#define BY__ADMISSION_MAX_SECONDS 2.0
/* The share of refused requests above which the queue shrinks, and the factor by which it does. */
#define BY__ADMISSION_OVERLOAD 0.25
#define BY__ADMISSION_PART     0.125
/* Sequences per session that may wait until the rate of busy sessions was measured: after a start
 * of the server, or when there is no worker but one is being started. */
#define BY__ADMISSION_COLD 4.0
/* The share of sessions from which on nearly all of them are busy. */
#define BY__ADMISSION_BUSY 0.75
/* Assumed number of sessions of a worker until one has been seen. */
#define BY__ADMISSION_SESSIONS 16.0

/* State of one model's workers and queue. Counters may start at any value; only differences are
 * used. */
typedef struct by__protocol_admission_sample {
    double now;         /* seconds, of a clock that does not jump */
    int64_t sessions;   /* sequences that the workers can run at a time */
    int64_t at_workers; /* sequences at the workers */
    int64_t ended;      /* sequences that have left the workers */
    int64_t arrived;    /* requests that arrived */
    int64_t refused;    /* requests that were refused */
} by__protocol_admission_sample;

typedef struct by__protocol_service {
    double busy; /* busy seconds of sessions, */
    double done; /* and completed sequences, both over the last few for each session */
} by__protocol_service;

/* Measurements so far; all zero: nothing was measured yet. */
typedef struct by__protocol_admission {
    by__protocol_admission_sample last;
    double sessions; /* the last number above 0; 0: none seen yet */
    /* of all times, and of those in which nearly all sessions were busy */
    by__protocol_service any;
    by__protocol_service full;
    double arrived; /* requests of the last second, */
    double refused; /* and those that were refused */
} by__protocol_admission;

/* Adds a measurement; called several times a second. */
void by__protocol_admission_add(by__protocol_admission *a,
                                const by__protocol_admission_sample *sample);
/* Sequences completed in a second when all sessions are busy; 0: not known. */
double by__protocol_admission_rate(const by__protocol_admission *a);
/* Seconds that a request may wait. setting: the configured limit in seconds; 0: use the rule
 * above. */
double by__protocol_admission_bound(const by__protocol_admission *a, double setting);

typedef struct by__protocol_admission_rule {
    /* a request is accepted while fewer sequences than this are ahead, at workers and waiting */
    int64_t limit;
    const char
        *why; /* reason for a refusal as by__protocol_refusal_of knows it: "wait" or "late" */
} by__protocol_admission_rule;

/* The rule for a request that may wait as long as by__protocol_admission_bound says (by
 * BY__ADMISSION_COLD while little is known), and at most `left` seconds (0: no limit). patient:
 * only `left` counts, since no client is connected. */
by__protocol_admission_rule by__protocol_admission_rule_of(const by__protocol_admission *a,
                                                           double setting, double left,
                                                           bool patient);
/* Expected seconds until a request gets a session when `ahead` sequences are in front of it; 0: not
 * known. */
double by__protocol_admission_wait(const by__protocol_admission *a, int64_t ahead);

#endif
