/* The record of a calibration (banyan/calibrate.h). */
#ifndef BY_PLAN_SEARCH_CALIBRATION_H
#define BY_PLAN_SEARCH_CALIBRATION_H

#include "banyan/calibrate.h"
#include "plan/search/search.h"

typedef struct by__search_case_model {
    char text[512]; /* config, which tells models apart */
    by_config *config;
} by__search_case_model;

/* A profile at a micro-batch, which steps share. */
typedef struct by__search_case_point {
    size_t model;
    size_t profile;
    int64_t micro_batch;
    int sequence;
    by__search_block block;
} by__search_case_point;

struct by_calibration {
    by_measured_step *steps;
    size_t count;
    by__search_case_model *models;
    size_t model_count;
    size_t model_capacity;
    by__search_profile *profiles;
    size_t *model_of; /* of each profile */
    size_t profile_count;
    by__search_case_point *points;
    size_t point_count;
    size_t *point_of; /* of each step */
};

/* measured_steps.c: fills in steps and models. */
by_status by__search_cases_read(by_calibration *c, const by_table *table, by_error *error);

#endif
