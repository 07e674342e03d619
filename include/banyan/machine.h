/* Measured performance of the machine: the reference for all speeds that banyan prints.
 *
 * Results are cached in a file (by_machine_cache_path), one entry per device, model of the
 * processor, build of banyan, number of threads and instruction-set level, so that they are
 * measured only once, in about a second. `banyan bench machine` measures again and replaces the
 * entry. */
#ifndef BANYAN_MACHINE_H
#define BANYAN_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "banyan/device.h"
#include "banyan/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A machine and its measured figures. Plain data. A figure that has not been measured is 0. */
typedef struct by_machine {
    char device[BY_DEVICE_NAME]; /* the figures are those of this device: "cpu" */
    /* Model name of its processor reported by the system, or "unknown". */
    char cpu[128];
    char key[192]; /* identifies CPU (family, model, stepping, flags) and build; key of the cache */
    char isa[16];  /* instruction-set level in use: the best available, limited by BANYAN_ISA */
    int cores;     /* available to this process */
    int threads;   /* compute threads that the figures apply to */
    double memory; /* bytes that were free on the device when it was described; 0: unknown */

    /* Matrix products: best of several large ones in layouts used by training, with banyan's
     * kernels or oneDNN's (if installed), whichever is faster. In 1e9 operations per second; a
     * multiplication and an addition count as two. */
    double f32_gflops;
    double bf16_gflops;
    /* u8 x s8 to i32: the throughput of this level's instructions on registers, or oneDNN's,
     * whichever is higher; 1e9 operations per second. */
    double int8_gops;
    /* The same as f32_gflops and bf16_gflops with banyan's own kernels only. */
    double own_f32_gflops;
    double own_bf16_gflops;

    /* Main memory with all threads, in 1e9 bytes per second. A copy counts bytes read and
     * written. */
    double read_gbps;
    double copy_gbps;

    /* A file in the directory given, in 1e9 bytes per second; writing includes fsync. */
    double disk_write_gbps;
    double disk_read_gbps;
    bool disk_direct; /* bypassed the page cache (O_DIRECT); false: not supported there */

    /* Bits of by_machine_figures that were measured while other processes used the processors and
     * are therefore too low. by_machine_load measures them again, BY_MACHINE_RETRIES times in all,
     * and keeps the largest values; `retries` counts these. */
    unsigned busy;
    int retries;
} by_machine;

/* On a machine that is always busy, every process would otherwise begin with a second of
 * measuring. */
#define BY_MACHINE_RETRIES 6

/* Figures to measure, as bits. */
typedef enum by_machine_figures {
    BY_MACHINE_F32 = 1,
    BY_MACHINE_BF16 = 2,
    BY_MACHINE_INT8 = 4,
    BY_MACHINE_MEMORY = 8,
    BY_MACHINE_COMPUTE = 7, /* the three kinds of products */
    BY_MACHINE_ALL = 15
} by_machine_figures;

/* Describes a device of the machine (device, cpu, key, isa, cores, threads, memory) without
 * figures; `device` is a name for by_device_open, whose errors it returns. threads -1: one per core
 * available to the process. */
BY_API by_status by_machine_describe(by_machine *out, const char *device, int threads,
                                     by_error *error);
/* Returns the instruction-set levels that BANYAN_ISA can select on this machine, "baseline" first,
 * the best last, and sets *count; excludes the slow reference kernels. Static storage. */
BY_API const char *const *by_machine_levels(size_t *count);
/* Makes a list of the libraries that the figures depend on: "banyan 0.1.0, oneDNN 2.6.3, ...". Free
 * it with free(). */
BY_API by_status by_machine_libraries(char **out, by_error *error);

/* Measures the selected figures of a described machine (about a second for all) and marks disturbed
 * ones in `busy`. Other figures are unchanged. */
BY_API by_status by_machine_measure(by_machine *machine, unsigned figures, by_error *error);
/* Measures memory bandwidth repeatedly, for machines with shared memory whose speed varies from
 * second to second, so that other work can be compared with the bandwidth at that time. Buffers are
 * partly cached from one pass to the next, as are the weights of a model, so use a probe of the
 * model's size for a fair comparison. */
typedef struct by_memory_probe by_memory_probe;
/* Opens a probe that reads `bytes`; 0: 1 GiB, little of which is cached. At most 1 GiB or an eighth
 * of free memory, at least 32 KiB per thread. threads -1: one per core available to the process.
 * Returns BY_EMEMORY if too little memory is free. */
BY_API by_status by_memory_probe_open(by_memory_probe **out, size_t bytes, int threads,
                                      by_error *error);
BY_API void by_memory_probe_close(by_memory_probe **probe);
/* Reads the buffer once and returns the bandwidth over all threads in 1e9 bytes per second. */
BY_API by_status by_memory_probe_read(by_memory_probe *probe, double *gbps, by_error *error);
/* Measures writing and reading an unnamed temporary file in `directory`: up to 256 MiB or one
 * second each. Returns BY_EIO if the directory is not writable or the disk is full. */
BY_API by_status by_machine_measure_disk(by_machine *machine, const char *directory,
                                         by_error *error);

/* Returns the path of the cache, $XDG_CACHE_HOME/banyan/machine.json or
 * ~/.cache/banyan/machine.json, to be freed with free(). Returns BY_EIO if neither variable holds
 * an absolute path. */
BY_API by_status by_machine_cache_path(char **out, by_error *error);
/* Stores the machine's figures in the cache, atomically, replacing those of the same machine. An
 * unreadable cache is overwritten. Returns BY_EIO. */
BY_API by_status by_machine_store(const by_machine *machine, by_error *error);
/* Describes the machine and fills in the selected figures from the cache. Those that are absent or
 * were measured on a busy machine (see `retries`) are measured and stored; if one of two values is
 * from a busy machine, the larger counts. Problems with the cache are not errors. */
BY_API by_status by_machine_load(by_machine *out, const char *device, int threads, unsigned figures,
                                 by_error *error);

/* Returns the peak for products of a dtype: bf16_gflops for bf16, and on a GPU for f16; otherwise
 * f32_gflops. */
BY_API double by_machine_gflops(const by_machine *machine, by_dtype dtype);
/* Returns the minimum time in seconds of work by the roofline model (Williams, Waterman and
 * Patterson 2009): the larger of `flops` at the peak of `dtype` and `bytes` at the speed of main
 * memory. Work on cached data can be faster. */
BY_API double by_machine_roof(const by_machine *machine, by_dtype dtype, double flops,
                              double bytes);
/* Gets by_machine_gflops for f32, bf16 or f16, from the cache or measured. Returns BY_EARG for
 * another dtype. */
BY_API by_status by_machine_peak(double *gflops, by_dtype dtype, const char *device, int threads,
                                 by_error *error);
/* Like by_machine_peak, but always measures and does not store the result. */
BY_API by_status by_machine_measure_peak(double *gflops, by_dtype dtype, const char *device,
                                         int threads, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
