/* What this machine can do, measured: the roof under every speed that banyan prints.
 *
 * Figures are kept in a cache file, one entry for each CPU model and build of banyan, number of
 * threads and instruction-set level (see by_machine_cache_path), so that a share of the peak costs
 * a second once and nothing afterwards. `banyan bench machine` measures anew and replaces the
 * entry.
 */
#ifndef BANYAN_MACHINE_H
#define BANYAN_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "banyan/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A machine and what was measured on it. Plain data. A figure that was not measured is 0. */
typedef struct by_machine {
    char cpu[128]; /* model name, as the system tells it; "unknown" when it does not */
    char key[192]; /* family, model, stepping and flags of the CPU, and how banyan was built: what
                      figures are for; measured ones are kept by it */
    char isa[16];  /* instruction-set level in use: the best of the machine, capped by BANYAN_ISA */
    int cores;     /* that this process may run on */
    int threads;   /* compute threads that the figures are for */

    /* Matrix products, best of several large ones in the layouts that training uses: the larger of
     * banyan's own kernels and of oneDNN's where that library is installed. 1e9 operations (a
     * multiplication and an addition are two) a second. */
    double f32_gflops;
    double bf16_gflops;
    /* u8 x s8 to i32: what the instructions of this level do from registers, or oneDNN, whichever
     * is more */
    double int8_gops;
    /* banyan's own kernels alone. */
    double own_f32_gflops;
    double own_bf16_gflops;

    /* Main memory over all threads, 1e9 bytes a second. A copy counts what it reads and what it
     * writes. */
    double read_gbps;
    double copy_gbps;

    /* A file in the directory that was asked for, 1e9 bytes a second; the write with its fsync. */
    double disk_write_gbps;
    double disk_read_gbps;
    bool disk_direct; /* past the page cache (O_DIRECT); false: the file system has no such thing */

    /* Bits of by_machine_figures: measured while other processes took processors away from this one
     * and therefore too low. by_machine_load measures them again. */
    unsigned busy;
} by_machine;

/* Figures to measure: bits. */
typedef enum by_machine_figures {
    BY_MACHINE_F32 = 1,
    BY_MACHINE_BF16 = 2,
    BY_MACHINE_INT8 = 4,
    BY_MACHINE_MEMORY = 8,
    BY_MACHINE_COMPUTE = 7, /* the three products */
    BY_MACHINE_ALL = 15
} by_machine_figures;

/* Names the machine: cpu, isa, cores, threads (-1: one a core that this process may run on); no
 * figures. BY_EARG: BANYAN_ISA is not a level. */
BY_API by_status by_machine_describe(by_machine *out, int threads, by_error *error);
/* The instruction-set levels that BANYAN_ISA can choose on this machine, without the slow reference
 * kernels: "baseline" first, the best one last. Static. */
BY_API const char *const *by_machine_levels(size_t *count);
/* What the figures stand on: "banyan 0.1.0, oneDNN 2.6.3, ...". Freed with free(). */
BY_API by_status by_machine_libraries(char **out, by_error *error);

/* Measures these figures of a described machine, which takes about a second for all of them, and
 * says in `busy` which of them were disturbed. Others keep their values. */
BY_API by_status by_machine_measure(by_machine *machine, unsigned figures, by_error *error);
/* Memory read while other work runs, for machines whose memory is shared and changes from second to
 * second: a share of its speed then means something only if both are measured in turn. Of `bytes`
 * that are read again and again, caches keep a part from pass to pass, as they do of the weights of
 * a model, so a probe of a model's size is the fair comparison; 0: 1 GiB, of which caches keep
 * next to nothing. Never more than 1 GiB or an eighth of what is free, nor less than 32 KiB a
 * thread. */
typedef struct by_memory_probe by_memory_probe;
/* threads: -1: one a core that this process may run on. BY_EMEMORY. */
BY_API by_status by_memory_probe_open(by_memory_probe **out, size_t bytes, int threads,
                                      by_error *error);
BY_API void by_memory_probe_close(by_memory_probe **probe);
/* Reads all of it once; 1e9 bytes a second, over all threads. */
BY_API by_status by_memory_probe_read(by_memory_probe *probe, double *gbps, by_error *error);
/* Measures writing and reading a file in `directory`: up to 256 MiB or a second each. The file has
 * no name while it exists. BY_EIO: the directory cannot be written, or the disk is full. */
BY_API by_status by_machine_measure_disk(by_machine *machine, const char *directory,
                                         by_error *error);

/* Where figures are kept: $XDG_CACHE_HOME/banyan/machine.json, or ~/.cache/banyan/machine.json.
 * Freed with free(). BY_EIO: neither variable names an absolute path. */
BY_API by_status by_machine_cache_path(char **out, by_error *error);
/* Puts the machine's figures into the cache, over those of the same machine, atomically. A cache
 * that cannot be read is written anew. BY_EIO. */
BY_API by_status by_machine_store(const by_machine *machine, by_error *error);
/* Describes the machine and fills these figures: from the cache, and what is not there or was
 * measured on a busy machine is measured and stored; of two values of a figure, of which one was
 * measured on a busy machine, the larger one counts. Never fails because of the cache. */
BY_API by_status by_machine_load(by_machine *out, int threads, unsigned figures, by_error *error);

/* The peak for products of this type: bf16_gflops for bf16, else f32_gflops. */
BY_API double by_machine_gflops(const by_machine *machine, by_dtype dtype);
/* Seconds below which this machine cannot do this work (Williams, Waterman and Patterson 2009,
 * "Roofline"): the longer of flops at the peak of `dtype` and bytes at the speed of main memory.
 * Work whose operands are in a cache can be faster. */
BY_API double by_machine_roof(const by_machine *machine, by_dtype dtype, double flops,
                              double bytes);
/* by_machine_load of that figure alone, at f32, bf16 or f16 (whose products
 * are computed in f32). */
BY_API by_status by_machine_peak(double *gflops, by_dtype dtype, int threads, by_error *error);
/* The same, always measured, and not stored. */
BY_API by_status by_machine_measure_peak(double *gflops, by_dtype dtype, int threads,
                                         by_error *error);

#ifdef __cplusplus
}
#endif
#endif
