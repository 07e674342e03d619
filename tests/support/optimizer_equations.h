/* The published equations of every optimizer in float64, and how a test configures it. An optimizer
 * adds its equations and a row of `optimizer_references`. */
#ifndef BY_TESTS_OPTIMIZER_EQUATIONS_H
#define BY_TESTS_OPTIMIZER_EQUATIONS_H

#include "optim/optim.h"

/* One update of one tensor in float64. */
typedef struct optimizer_step {
    by_shape shape;
    const char *axes;
    int64_t count;
    int64_t number;               /* of the update, from 1 */
    double lr;                    /* eta */
    double lr_scale;              /* of the unit, where lr is without it */
    double decay;                 /* lambda */
    const double *g;              /* after clipping */
    double *p;                    /* in: before the update; out: after it */
    double *state[BY_MAX_STATES]; /* likewise */
} optimizer_step;

typedef struct optimizer_reference {
    const char *kind;
    const char *settings[5]; /* of the section optimizer */
    void (*step)(const optimizer_step *u);
    double lr;   /* at which the model below learns in 60 steps ... */
    double loss; /* down to this */
} optimizer_reference;

#define OPTIMIZER_REFERENCES 13
extern const optimizer_reference optimizer_references[OPTIMIZER_REFERENCES];

/* The first row of a kind; NULL for none. */
const optimizer_reference *optimizer_reference_of(const char *kind);
/* The config of a small model that is trained with it; the caller closes it. */
void optimizer_reference_config(by_config **out, const optimizer_reference *row);
/* So many zeros; the caller frees them. */
double *optimizer_zeros(int64_t count);

#endif
