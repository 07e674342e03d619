/* Whether a new request is taken: by how long it would wait for its first text. A function of
 * measurements alone, for both kinds of broker (broker_admission.c, redis_gateway.c) and for
 * tests that simulate a load.
 *
 * Workers run a number of sequences at a time, their sessions; what they have beyond that waits, at
 * the worker or in the queue. How fast sessions become free is measured by the service demand law
 * (Denning & Buzen 1978, "The Operational Analysis of Queueing Network Models"): the seconds of
 * sessions that were at work, divided by the sequences that ended, are what one sequence takes, at
 * any load. All sessions together then end `sessions / that` sequences a second, and by Little's
 * law a queue of n in front of a request is n / rate seconds long. So a bound in seconds is a bound
 * of what may be there: a number.
 *
 * A queue evens out bursts; one that is always full gives nothing but waiting (Nichols & Jacobson
 * 2012, "Controlling Queue Delay"). So where no setting says how long a request may wait, the queue
 * is as long as an ordinary load needs: for Poisson arrivals at 80 % of the capacity of 16 sessions
 * 95 % find fewer than 8 in front of them (Erlang's C formula). And when more than
 * BY__ADMISSION_OVERLOAD of the requests are refused, which a queue of one does at a load above the
 * capacity only, it shrinks to one: those that are taken are as fast as at an ordinary load. */
#ifndef BY_SERVE_ADMISSION_H
#define BY_SERVE_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

/* Sequences that may wait where no setting says how long; what ends in BY__ADMISSION_LEAST seconds
 * if that is more (fast models), what ends in BY__ADMISSION_MOST if that is less (slow ones); one
 * may always wait. */
#define BY__ADMISSION_QUEUE 8.0
#define BY__ADMISSION_LEAST 0.1
#define BY__ADMISSION_MOST  2.0
/* The share of refused requests above which that is too long, and the part that is left of it. */
#define BY__ADMISSION_OVERLOAD 0.25
#define BY__ADMISSION_PART     0.125
/* Sequences for each session that may wait while nothing was measured: behind a start of the
 * server, or when there is no worker, but one is being started. */
#define BY__ADMISSION_COLD 4.0
/* Sessions that a worker is taken to have while none has been seen. */
#define BY__ADMISSION_SESSIONS 16.0

/* Of one model, as its workers and its queue are now. Counts are those since any beginning. */
typedef struct by__admission_sample {
    double now;         /* seconds, of a clock that does not jump */
    int64_t sessions;   /* sequences that the workers run at a time */
    int64_t at_workers; /* sequences that they have */
    int64_t ended;      /* sequences that have left workers */
    int64_t asked;      /* requests that came */
    int64_t refused;    /* of them */
} by__admission_sample;

/* Zero: nothing was measured yet. */
typedef struct by__admission {
    by__admission_sample last;
    double sessions; /* the last number above 0; 0: none yet */
    double busy;     /* seconds of sessions at work, */
    double done;     /* and sequences that ended: of the last few for each session */
    double asked;    /* requests of the last second, */
    double refused;  /* and those that were refused */
} by__admission;

/* Takes a measurement; several a second. */
void by__admission_look(by__admission *a, const by__admission_sample *sample);
/* Sequences that end in a second while all sessions are at work; 0: not known. */
double by__admission_rate(const by__admission *a);
/* Seconds that a request may wait. setting: seconds; 0: by the rule above. */
double by__admission_bound(const by__admission *a, double setting);

typedef struct by__admission_rule {
    int64_t limit; /* a request is taken while fewer sequences are ahead, at workers and waiting */
    const char *why; /* one is not, as by__refusal_of has it: "wait" or "late" */
} by__admission_rule;

/* What holds for a request that may wait as by__admission_bound says, while little is known by
 * BY__ADMISSION_COLD, and `left` seconds at most (0: as long as it takes). patient: only `left`
 * counts, since nobody is connected for it. */
by__admission_rule by__admission_rule_of(const by__admission *a, double setting, double left,
                                         bool patient);
/* Seconds until a request has a session, with so many sequences ahead; 0 where it is not known. */
double by__admission_wait(const by__admission *a, int64_t ahead);

#endif
