/* The curve of an engine: its files share the measured steps. engine_curve.c has the formula and
 * its file, curve_measure.c runs the steps, curve_fit.c fits the formula to them. request_load.c,
 * simulate.c and least_replicas.c use no more of it than banyan/capacity.h says. */
#ifndef BY_PLAN_SERVING_CURVE_STEPS_H
#define BY_PLAN_SERVING_CURVE_STEPS_H

#include "banyan/capacity.h"
#include "base/base.h"

/* Steps that were measured. */
typedef struct by__serving_steps {
    by_engine_work *items;
    size_t count;
    size_t capacity;
} by__serving_steps;

by_status by__serving_steps_add(by__serving_steps *steps, const by_engine_work *work,
                                by_error *error);
void by__serving_steps_close(by__serving_steps *steps);
/* Fits the seconds of programs and of keys, and the ratios, of a curve whose programs are known. A
 * program without steps gets what those with other numbers of rows tell. BY_ESTATE without
 * steps. */
by_status by__serving_curve_fit(by_engine_curve *curve, const by__serving_steps *steps,
                                by_error *error);

#endif
