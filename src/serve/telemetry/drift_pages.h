/* Internal record of a drift report, shared by drift_replay.c (reads data) and drift_page.c
 * (prints). */
#ifndef BY_SERVE_TELEMETRY_DRIFT_PAGES_H
#define BY_SERVE_TELEMETRY_DRIFT_PAGES_H

#include "banyan/drift_report.h"
#include "serve/telemetry/served_drift.h"

struct by_drift_report {
    by__telemetry_served_drift *drift;
    char *title;
    uint64_t requests;
    by_drift_verdict *verdicts; /* [windows, features] */
    size_t windows;
    size_t capacity;
    size_t features;
    size_t alarms;
    double threshold;
    bool *expected;    /* [features] the data should have values of it */
    char *unpredicted; /* why rows have no predictions; NULL: they do, or are none of a table */
};

#endif
