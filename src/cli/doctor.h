/* doctor: what `banyan doctor` knows of the ranks of a job. doctor.c looks at a host and prints,
 * doctor_ranks.c gathers and measures. */
#ifndef BY_CLI_DOCTOR_H
#define BY_CLI_DOCTOR_H

#include "banyan/comm.h"
#include "banyan/machine.h"
#include "cli.h"

#define DOCTOR_MEASURED 16 /* ranks at most between which speed is measured */

/* A rank's host as the rank sees it. Plain data: it is sent as it is. */
typedef struct doctor_host {
    char host[64];
    char version[32];
    char build[36]; /* hash of the executable */
    char level[16];
    char libraries[192];
    char mpi[96];
    char cpu[128];
    char cpus[128]; /* that it may run on: "0-3,8" */
    char threads[16];
    char interfaces[256];
    int32_t cores;
    int32_t quota;
    int32_t single_copy;
} doctor_host;

typedef struct doctor_report {
    int ranks;
    const char *backend;
    const char *thread_level;
    doctor_host *hosts;
    double
        *clocks; /* seconds that each clock is ahead of rank 0's, and how far that may be wrong */
    double *clock_errors;
    bool same;                   /* no field differs */
    bool same_bits;              /* none of those that training refuses */
    int chosen[DOCTOR_MEASURED]; /* ranks between which speed was measured */
    int measured;
    double *latency;   /* seconds, measured x measured */
    double *bandwidth; /* bytes a second */
    char *line;        /* advised */
} doctor_report;

/* What is compared between ranks. refused: training does not start where it differs. */
int doctor_field_count(void);
const char *doctor_field_name(int field, bool *refused);
const char *doctor_field(const doctor_host *host, int field);

/* Collective: gathers what the ranks see and measures between them. Rank 0's report has all. */
by_status doctor_measure(doctor_report *out, const doctor_host *here, by_comm *comm,
                         by_error *error);
void doctor_report_free(doctor_report *report);

#endif
