/* runner: compiles a graph and gives it memory, so that a test sees names and numbers only. Every
 * call fails the running test with the library's message when something goes wrong. */
#ifndef BY_TESTS_RUNNER_H
#define BY_TESTS_RUNNER_H

#include "banyan/config.h"
#include "banyan/program.h"
#include "base/base.h"
#include "graph/graph.h"

typedef struct runner {
    by_graph *graph; /* the caller's */
    by_device *device;
    by_program *program;
    void **buffers; /* of external values, by value; NULL for the others */
    void *arena;
    void *workspace;
} runner;

/* Fails the running test with the error's message unless the call went well. */
void check_ok(by_status status, const by_error *error);
/* Fails unless `status` is `want` and the message contains `text`; resets the error. */
void check_error(by_status status, by_status want, by_error *error, const char *text);
/* A graph whose calls all went well so far. */
by_graph *open_graph(void);

/* A resolved config: the defaults, then both lists of "section.key=value", each NULL at its end. */
by_config *config_of(const char *const *common, const char *const *settings);

/* Zeroed buffers for every external value; arena and workspace full of NaN bits, so that
 * reading memory that nothing wrote shows. */
void runner_open(runner *r, by_graph *graph, int threads);
void runner_run(runner *r);
void runner_close(runner *r);
/* Buffer and number of elements of the value of this name. */
void *runner_data(const runner *r, const char *name);
size_t runner_count(const runner *r, const char *name);
/* Fills inputs, parameters and states with values in [-1, 1) that depend on seed and name alone;
 * i32 values with ids in [0, ids). */
void runner_fill(runner *r, uint64_t seed, int32_t ids);
/* Element i of a tensor as a number, and a number into a tensor. */
double get_element(const void *data, by_dtype dtype, size_t i);
void set_element(void *data, by_dtype dtype, size_t i, double value);
/* Uniform in [-1, 1), a function of (seed, stream, i). */
double random_unit(uint64_t seed, uint64_t stream, size_t i);
/* ||a - b|| / ||b|| over f32; ||a|| when b is zero. */
double relative_distance(const float *a, const float *b, size_t count);
/* Caps the kernels of programs compiled from now on: "reference", "native", ... */
void set_isa(const char *isa);

#endif
