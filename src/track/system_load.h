/* What the machine and this process do: looked at now and then, never on the way of a step. */
#ifndef BY_TRACK_SYSTEM_LOAD_H
#define BY_TRACK_SYSTEM_LOAD_H

#include "base/base.h"

/* What rates are measured against. {0}: nothing was looked at yet. */
typedef struct by__system_past {
    double clock;
    double cpu_seconds;  /* of this process */
    uint64_t busy_ticks; /* of all CPUs */
    uint64_t all_ticks;
} by__system_past;

/* NaN: the system does not say, or there was no earlier look. */
typedef struct by__system_load {
    double cpu_cores;   /* that this process has kept busy since the last look */
    double cpu_share;   /* of the time of all CPUs that anything used */
    double temperature; /* of the hottest CPU sensor, in degrees Celsius */
    double resident;    /* bytes of this process in memory */
    double available;   /* bytes that it could still take */
    double disk_free;   /* bytes on the disk of `directory` */
    double written;     /* bytes that this process has had written to disks */
} by__system_load;

/* `root` is put before /proc and /sys, for tests; "" for the system's. */
void by__system_look(by__system_load *out, by__system_past *past, const char *directory,
                     const char *root);

#endif
