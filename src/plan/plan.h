/* plan: measures what a machine can do and where the time of a run goes.
 *
 * Types: by_machine holds a machine's figures, by__plan_product the shape of a measured product,
 * by_profile what was recorded of programs and ranks (recorder.h).
 *
 * Files: machine.c assembles a by_machine; products.c, bandwidth.c and onednn.c measure its
 * figures; machine_cache.c keeps them between processes. program_profile.c records when the nodes
 * of programs ran and sums that up by operation, layer and shape; rank_times.c sums up what ranks
 * computed, exchanged and waited for, and rank_profile.c gathers it; profile_trace.c writes a trace
 * of it. law/ fits scaling laws, and cost/ tells what a run costs (banyan/plan.h): numbers in,
 * numbers out, nothing measured. cluster/ reads the figures of devices and network, and layout/
 * plans memory and time of a job from compiled graphs, with the figures that it is given; search/
 * finds its best layout from blocks of the model.
 *
 * A peak is an upper bound, so it is the best rate that the machine has shown: that of our own
 * matrix products or of those of oneDNN, whichever is higher. oneDNN is loaded only while a peak is
 * measured (it is 40 MB that training does not need); without it, only our own kernels are
 * measured.
 *
 * Of several times the best one counts and never the mean, because any disturbance can only make a
 * measurement slower.
 *
 * Who owns what: a by_machine is plain data; a by_profile owns its events and what it watches.
 *
 * Never put here: anything on the path of a training step; a figure of a machine that was not
 * measured.
 */
#ifndef BY_PLAN_PLAN_H
#define BY_PLAN_PLAN_H

#include "banyan/machine.h"
#include "base/json.h"
#include "device/cpu/pages.h"
#include "device/device.h"
#include "exec/exec.h"

/* One product, y [m, n] = op(a) op(b), with inner size k. */
typedef struct by__plan_product {
    int64_t m;
    int64_t n;
    int64_t k;
    bool trans_a;
    bool trans_b;
} by__plan_product;

/* The products that peaks are measured with, in ascending size. The first one is small enough for
 * the slowest machine. */
extern const by__plan_product by__plan_products[];
extern const size_t by__plan_product_count;

static inline double by__product_flops(const by__plan_product *product)
{
    return 2.0 * (double)product->m * (double)product->n * (double)product->k;
}

/* Returns true if one run of a product would take over half a second at the best rate so far
 * (operations a second; 0 before the first). Such products are skipped. */
static inline bool by__product_too_long(const by__plan_product *product, double best)
{
    return best > 0.0 && by__product_flops(product) > 0.5 * best;
}

/* Measures the fastest of several runs of `run`: at least two, and as many as fit into `budget`
 * seconds. */
by_status by__plan_best_seconds(double *best, double budget,
                                by_status (*run)(void *user, by_error *error), void *user,
                                by_error *error);

/* How often work that takes so long is submitted before the host waits for it, so that launching
 * and waiting do not count; 1 on the host. */
int by__plan_repeats(const by_device *device, double seconds);

/* Describes a device as by_machine_describe does; measures the figures that by_machine_measure
 * does. */
by_status by__plan_machine_describe(by_machine *out, const char *name, const by_device *device,
                                    by_error *error);
by_status by__plan_machine_measure(by_machine *m, by_device *device, unsigned figures,
                                   by_error *error);
/* Seconds that runnable threads of this process have waited for a processor so far; 0 if the kernel
 * does not count them. (machine.c) */
double by__plan_waited(void);
/* Measures the best rate of a device's own kernels over by__plan_products, in 1e9 operations a
 * second. dtype is f32 or bf16. */
by_status by__plan_measure_products(double *gflops, by_dtype dtype, by_device *device,
                                    by_error *error);
/* The same for oneDNN, where BY_U8 means u8 x s8 to i32. Returns 0, which is not an error, if the
 * library is not installed, was not available when banyan was built, or has no such product at
 * instruction-set level `level`. */
double by__plan_measure_onednn(by_dtype dtype, const char *level, int threads);
/* Measures the rate of summing products of bytes in registers at instruction-set level `level`, in
 * 1e9 operations a second; 0 if it is unknown for this level. */
double by__plan_measure_byte_products(const char *level, int threads);
/* Returns `buffer` with a version, "2.6.3", or "" if there is no oneDNN. */
const char *by__plan_onednn_version(char buffer[32]);

/* Copies within the memory of a device that has its own. */
by_status by__plan_measure_copies(double *gbps, by_device *device, by_error *error);
by_status by__plan_measure_memory(double *read_gbps, double *copy_gbps, int threads,
                                  by_error *error);

/* Sets cpu and key from a file in the format of /proc/cpuinfo. */
void by__plan_machine_identify(by_machine *out, const char *path);
/* Sets the figures that the cache file at `path` has for a described machine. Does nothing if it
 * has none or is damaged. */
void by__plan_machine_recall(by_machine *machine, const char *path);
/* Returns true if an entry of a file names this machine; and such an entry, NULL when memory is
 * exhausted. */
bool by__plan_machine_is(const json_t *entry, const by_machine *machine);
json_t *by__plan_machine_name(const by_machine *machine);
/* Raises each figure of `machine` to that of `other` if the latter is larger. */
void by__plan_machine_raise(by_machine *machine, const by_machine *other);
/* Stores the machine in the cache file at `path`. */
by_status by__plan_machine_remember(const by_machine *machine, const char *path, by_error *error);

#endif
