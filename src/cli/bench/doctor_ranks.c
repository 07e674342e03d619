/* Exchanges data between the ranks of a job and measures the speed of messages. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "banyan/program.h"
#include "bench/doctor.h"

#define CLOCK_ROUNDS     30
#define LATENCY_ROUNDS   100
#define BANDWIDTH_ROUNDS 8
#define BANDWIDTH_BYTES  (4u << 20)
/* Returns the status of a call unless it is BY_OK. */
#define CLI_TRY(call)                                                                              \
    do {                                                                                           \
        by_status tried = (call);                                                                  \
        if (tried != BY_OK) {                                                                      \
            return tried;                                                                          \
        }                                                                                          \
    } while (0)
#define WORDS(bytes) ((bytes) / sizeof(int32_t))

/* ---- compared fields ---- */

static const struct {
    const char *name;
    size_t offset;
    bool refused;
} fields[] = {
    {"version", offsetof(doctor_host, version), true},
    {"level", offsetof(doctor_host, level), true},
    {"build", offsetof(doctor_host, build), false},
    {"libraries", offsetof(doctor_host, libraries), false},
    {"mpi", offsetof(doctor_host, mpi), false},
    {"cpu", offsetof(doctor_host, cpu), false},
};

int doctor_field_count(void)
{
    return (int)(sizeof fields / sizeof fields[0]);
}

const char *doctor_field_name(int field, bool *refused)
{
    *refused = fields[field].refused;
    return fields[field].name;
}

const char *doctor_field(const doctor_host *host, int field)
{
    return (const char *)host + fields[field].offset;
}

static void compare(doctor_report *r)
{
    r->same = true;
    r->same_bits = true;
    for (int i = 1; i < r->ranks; i++) {
        for (int k = 0; k < doctor_field_count(); k++) {
            if (strcmp(doctor_field(&r->hosts[0], k), doctor_field(&r->hosts[i], k)) != 0) {
                r->same = false;
                r->same_bits = r->same_bits && !fields[k].refused;
            }
        }
    }
}

static by_status gather(doctor_report *r, const doctor_host *here, by_comm *comm, by_error *error)
{
    size_t *counts = calloc((size_t)r->ranks, sizeof *counts);
    by_status status =
        counts == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: ranks") : BY_OK;
    for (int i = 0; i < r->ranks && status == BY_OK; i++) {
        counts[i] = WORDS(sizeof *here);
    }
    if (status == BY_OK) {
        status = by_comm_all_gather(comm, here, r->hosts, counts, BY_I32, "the hosts of the ranks",
                                    error);
    }
    free(counts);
    return status;
}

/* ---- clocks ---- */

static double wall_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Measures how far a rank's clock is ahead of rank 0's: its reply is compared with the midpoint of
 * the fastest of several round trips (Cristian 1989). */
static by_status compare_clock(doctor_report *r, by_comm *comm, int rank, by_error *error)
{
    static const char what[] = "clocks";
    int me = by_comm_rank(comm);
    double best = 1e300;
    for (int i = 0; i < CLOCK_ROUNDS; i++) {
        double theirs = 0.0;
        if (me == rank) {
            CLI_TRY(
                by_comm_receive(comm, &theirs, WORDS(sizeof theirs), BY_I32, 0, 1, what, error));
            theirs = wall_clock();
            CLI_TRY(by_comm_send(comm, &theirs, WORDS(sizeof theirs), BY_I32, 0, 1, what, error));
        } else {
            double sent = wall_clock();
            CLI_TRY(
                by_comm_send(comm, &theirs, WORDS(sizeof theirs), BY_I32, rank, 1, what, error));
            CLI_TRY(
                by_comm_receive(comm, &theirs, WORDS(sizeof theirs), BY_I32, rank, 1, what, error));
            double back = wall_clock();
            if (back - sent < best) {
                best = back - sent;
                r->clocks[rank] = theirs - 0.5 * (sent + back);
                r->clock_errors[rank] = 0.5 * best;
            }
        }
    }
    return BY_OK;
}

/* ---- speed ---- */

typedef struct rank_pair {
    by_comm *comm;
    int first;
    int second;
    int32_t *buffer;
} rank_pair;

/* Measures the one-way time of a message: half of a round trip. */
static by_status time_latency(double *out, const rank_pair *p, by_error *error)
{
    static const char what[] = "latency";
    bool begins = by_comm_rank(p->comm) == p->first;
    int other = begins ? p->second : p->first;
    double began = by_clock();
    for (int i = 0; i < LATENCY_ROUNDS; i++) {
        if (begins) {
            CLI_TRY(by_comm_send(p->comm, p->buffer, 1, BY_I32, other, 2, what, error));
        }
        CLI_TRY(by_comm_receive(p->comm, p->buffer, 1, BY_I32, other, 2, what, error));
        if (!begins) {
            CLI_TRY(by_comm_send(p->comm, p->buffer, 1, BY_I32, other, 2, what, error));
        }
    }
    *out = (by_clock() - began) / (2.0 * LATENCY_ROUNDS);
    return BY_OK;
}

static by_status time_bandwidth(double *out, const rank_pair *p, by_error *error)
{
    static const char what[] = "bandwidth";
    bool sends = by_comm_rank(p->comm) == p->first;
    double began = by_clock();
    for (int i = 0; i < BANDWIDTH_ROUNDS; i++) {
        CLI_TRY(sends ? by_comm_send(p->comm, p->buffer, WORDS(BANDWIDTH_BYTES), BY_I32, p->second,
                                     3, what, error)
                      : by_comm_receive(p->comm, p->buffer, WORDS(BANDWIDTH_BYTES), BY_I32,
                                        p->first, 3, what, error));
    }
    /* A send may complete before the message is received, so wait for a reply. */
    CLI_TRY(sends ? by_comm_receive(p->comm, p->buffer, 1, BY_I32, p->second, 4, what, error)
                  : by_comm_send(p->comm, p->buffer, 1, BY_I32, p->first, 4, what, error));
    *out = BANDWIDTH_ROUNDS * (double)BANDWIDTH_BYTES / (by_clock() - began);
    return BY_OK;
}

/* Chooses all ranks if there are few, else the first rank of each host. */
static void choose(doctor_report *r)
{
    r->measured = 0;
    for (int i = 0; i < r->ranks && r->measured < DOCTOR_MEASURED; i++) {
        bool known = false;
        for (int k = 0; k < r->measured; k++) {
            known = known || strcmp(r->hosts[i].host, r->hosts[r->chosen[k]].host) == 0;
        }
        if (r->ranks <= DOCTOR_MEASURED || !known) {
            r->chosen[r->measured++] = i;
        }
    }
}

/* Times pair after pair, so that pairs do not disturb each other. The first rank of a pair has the
 * figures. */
static by_status time_pairs(doctor_report *r, by_comm *comm, int32_t *buffer, by_error *error)
{
    int me = by_comm_rank(comm);
    for (int i = 0; i < r->measured; i++) {
        for (int k = 0; k < r->measured; k++) {
            const rank_pair p = {comm, r->chosen[i], r->chosen[k], buffer};
            double *at[2] = {&r->latency[i * r->measured + k], &r->bandwidth[i * r->measured + k]};
            CLI_TRY(by_comm_barrier(comm, "the turn of two ranks", error));
            if (i != k && (me == p.first || me == p.second)) {
                CLI_TRY(time_latency(at[0], &p, error));
                CLI_TRY(time_bandwidth(at[1], &p, error));
            }
            if (me != p.first) {
                *at[0] = 0.0;
                *at[1] = 0.0;
            }
        }
    }
    return BY_OK;
}

/* Gathers the figures at rank 0. Each comes from one rank; the others have zero. */
static by_status collect(doctor_report *r, double *values, by_comm *comm, by_error *error)
{
    size_t count = (size_t)(r->measured * r->measured);
    size_t *counts = calloc((size_t)r->ranks, sizeof *counts);
    double *all = calloc((size_t)r->ranks * count + 1, sizeof *all);
    by_status status = counts == NULL || all == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: figures")
                           : BY_OK;
    for (int i = 0; i < r->ranks && status == BY_OK; i++) {
        counts[i] = count * WORDS(sizeof *all);
    }
    if (status == BY_OK) {
        status = by_comm_all_gather(comm, values, all, counts, BY_I32, "figures", error);
    }
    for (size_t i = 0; i < (size_t)r->ranks * count && status == BY_OK; i++) {
        values[i % count] = i < count ? all[i] : values[i % count] + all[i];
    }
    free(counts);
    free(all);
    return status;
}

static by_status measure_pairs(doctor_report *r, by_comm *comm, by_error *error)
{
    int32_t *buffer = calloc(1, BANDWIDTH_BYTES);
    size_t count = (size_t)(r->measured * r->measured);
    r->latency = calloc(count + 1, sizeof *r->latency);
    r->bandwidth = calloc(count + 1, sizeof *r->bandwidth);
    by_status status = BY_OK;
    if (buffer == NULL || r->latency == NULL || r->bandwidth == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: messages");
    }
    if (status == BY_OK) {
        status = time_pairs(r, comm, buffer, error);
    }
    if (status == BY_OK) {
        status = collect(r, r->latency, comm, error);
    }
    if (status == BY_OK) {
        status = collect(r, r->bandwidth, comm, error);
    }
    free(buffer);
    return status;
}

by_status doctor_measure(doctor_report *r, const doctor_host *here, by_comm *comm, by_error *error)
{
    int me = by_comm_rank(comm);
    by_comm_library library;
    by_comm_library_describe(&library);
    r->ranks = by_comm_size(comm);
    r->backend = by_comm_backend(comm);
    r->thread_level = library.thread_level;
    r->hosts = calloc((size_t)r->ranks, sizeof *r->hosts);
    r->clocks = calloc((size_t)r->ranks, sizeof *r->clocks);
    r->clock_errors = calloc((size_t)r->ranks, sizeof *r->clock_errors);
    if (r->hosts == NULL || r->clocks == NULL || r->clock_errors == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: ranks");
    }
    CLI_TRY(gather(r, here, comm, error));
    compare(r);
    for (int i = 1; i < r->ranks; i++) {
        CLI_TRY(me == 0 || me == i ? compare_clock(r, comm, i, error) : BY_OK);
    }
    if (r->ranks == 1) {
        return BY_OK; /* there are no pairs */
    }
    choose(r);
    return measure_pairs(r, comm, error);
}

void doctor_report_free(doctor_report *r)
{
    free(r->hosts);
    free(r->clocks);
    free(r->clock_errors);
    free(r->latency);
    free(r->bandwidth);
    free(r->line);
    *r = (doctor_report){0};
}
