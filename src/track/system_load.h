/* Load of the machine and of this process: sampled now and then, never during a step. */
#ifndef BY_TRACK_SYSTEM_LOAD_H
#define BY_TRACK_SYSTEM_LOAD_H

#include "base/base.h"

/* The previous sample, which rates are computed from. {0}: there was none. */
typedef struct by__track_system_past {
    double clock;
    double cpu_seconds;  /* of this process */
    uint64_t busy_ticks; /* of all CPUs */
    uint64_t all_ticks;
} by__track_system_past;

/* NaN: the system does not provide the figure, or there was no previous sample. */
typedef struct by__track_system_load {
    double cpu_cores;   /* cores that this process kept busy since the previous sample */
    double cpu_share;   /* share of all CPU time that anything used */
    double temperature; /* of the hottest CPU sensor, in degrees Celsius */
    double resident;    /* bytes of this process in memory */
    double available;   /* bytes that it could still take */
    double disk_free;   /* bytes on the disk of `directory` */
    double written;     /* bytes that this process has caused to be written to disks */
} by__track_system_load;

/* Takes a sample. `root` is prefixed to /proc and /sys, for tests; "" for the real ones. */
void by__track_system_read(by__track_system_load *out, by__track_system_past *past,
                           const char *directory, const char *root);

/* Processors whose counters are read, at most. */
#define BY__TRACK_PACKAGES 16

/* Energy of the processors of this host, by the counters of Linux' powercap (RAPL). They count all
 * processes, and begin anew after some minutes to hours, so they must be read more often. */
typedef struct by__track_energy {
    int package[BY__TRACK_PACKAGES]; /* number of its zone */
    double last[BY__TRACK_PACKAGES]; /* microjoules */
    double range[BY__TRACK_PACKAGES];
    int count;     /* 0: none may be read */
    double joules; /* since the beginning */
} by__track_energy;

void by__track_energy_begin(by__track_energy *energy, const char *root);
/* Adds what was used since the last call. A counter that can no longer be read is left out. */
void by__track_energy_update(by__track_energy *energy, const char *root);

#endif
