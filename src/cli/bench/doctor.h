/* doctor: what `banyan doctor` finds out about the ranks of a job. doctor.c examines a host and
 * prints, doctor_ranks.c gathers data and measures. */
#ifndef BY_CLI_BENCH_DOCTOR_H
#define BY_CLI_BENCH_DOCTOR_H

#include "banyan/comm.h"
#include "banyan/machine.h"
#include "base/cli.h"

#define DOCTOR_MEASURED 16 /* maximum number of ranks between which speed is measured */

/* A rank's view of its host. Plain data, sent between ranks as bytes. */
typedef struct doctor_host {
    char host[64];
    char version[32];
    char build[36]; /* hash of the executable */
    char level[16];
    char libraries[192];
    char mpi[96];
    char cpu[128];
    char cpus[128]; /* CPUs that it may run on: "0-3,8" */
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
    double *clocks; /* seconds that each clock is ahead of rank 0's, and the error bound */
    double *clock_errors;
    bool same;                   /* no field differs */
    bool same_bits;              /* no field differs for which training refuses to start */
    int chosen[DOCTOR_MEASURED]; /* ranks between which speed was measured */
    int measured;
    double *latency;   /* seconds, [measured][measured] */
    double *bandwidth; /* bytes a second, likewise */
    char *line;        /* the command line advised */
} doctor_report;

/* The fields that are compared between ranks. refused: training does not start if the field
 * differs. */
int doctor_field_count(void);
const char *doctor_field_name(int field, bool *refused);
const char *doctor_field(const doctor_host *host, int field);

/* Collective: gathers the views of all ranks and measures between them. Only rank 0's report is
 * complete. */
by_status doctor_measure(doctor_report *out, const doctor_host *here, by_comm *comm,
                         by_error *error);
void doctor_report_free(doctor_report *report);

#endif
