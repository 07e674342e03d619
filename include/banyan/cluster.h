/* Clusters: what the devices of a job and the network between them can do, as a plan of a layout
 * (banyan/layout.h) takes it.
 *
 * A cluster is one kind of device and a list of levels, innermost first: devices of a host, hosts
 * of a rack, racks of a spine. A level joins `width` units of the level below it. Figures come from
 * a YAML file, which `banyan bench machine --out FILE` writes for this machine and which people
 * write for others; each part says where its figures are from, because a plan is only as good as
 * they are:
 *
 *     name: 8 hosts of 8 A100
 *     device: {name: a100, from: table, f32_tflops: 19.5, bf16_tflops: 312, product_share: 0.705,
 *              memory: 80GiB, memory_gb_s: 1590, launch_us: 5.8}
 *     levels:
 *       - {name: host, width: 8, latency_us: 8, gb_s: 240, from: table}
 *       - {name: rack, width: 8, latency_us: 15, gb_s: 100, from: datasheet}
 *
 * Units are in the names of the keys: 1e12 operations, 1e9 bytes (not bits) and 1e-6 seconds.
 */
#ifndef BANYAN_CLUSTER_H
#define BANYAN_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/dtype.h"
#include "banyan/machine.h"
#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a figure is from. */
typedef enum by_origin {
    BY_ORIGIN_MEASURED = 0, /* on the devices themselves, */
    BY_ORIGIN_TABLE,        /* or elsewhere, on ones like them */
    BY_ORIGIN_DATASHEET,    /* the maker's figures, which are upper bounds */
    BY_ORIGIN_GUESS,
    BY_ORIGINS
} by_origin;

/* Returns "measured", "table", "datasheet" or "guess". */
BY_API const char *by_origin_name(by_origin origin);
/* Returns the relative error, one standard deviation, that figures of this origin have been found
 * to have: 3, 8, 15 and 30 %. A plan's interval is made of them. */
BY_API double by_origin_error(by_origin origin);

#define BY_CLUSTER_NAME   48
#define BY_CLUSTER_LEVELS 6

/* Figures of a device, as bits. */
typedef enum by_cluster_figure {
    BY_FIGURE_F32 = 1, /* peaks, */
    BY_FIGURE_BF16 = 2,
    BY_FIGURE_PRODUCT_SHARE = 4, /* and what is reached of them */
    BY_FIGURE_ATTENTION_SHARE = 8,
    BY_FIGURE_BANDWIDTH = 16,
    BY_FIGURE_LAUNCH = 32,
    BY_FIGURE_HOST = 64,
    BY_FIGURE_STEP = 128,
    BY_FIGURE_COMPUTE_SLOWDOWN = 256,
    BY_FIGURE_EXCHANGE_SLOWDOWN = 512,
    BY_FIGURES = 10 /* their number */
} by_cluster_figure;

/* A device. Rates are a second's. */
typedef struct by_cluster_device {
    char name[BY_CLUSTER_NAME];
    by_origin origin;       /* of the figures but */
    unsigned guessed;       /* those of these bits, which are guesses */
    double f32_flops;       /* peak of matrix products, a multiplication and an addition are two */
    double bf16_flops;      /* the same in bf16 and f16 */
    double fp8_flops;       /* the same in 8 bits */
    double product_share;   /* of the peak that large products reach */
    double attention_share; /* of the peak that attention reaches */
    double memory;          /* bytes that a rank may use; 0: unknown, all plans fit */
    double bandwidth;       /* bytes a second of that memory, read and written */
    double score_bytes;     /* of memory that attention moves for each score; 0: it keeps none */
    double launch;          /* seconds that an operation takes at least */
    double host;            /* seconds that the host takes to issue one, ahead of the device */
    double step;            /* seconds of a step outside of all programs: the host's loop, data */
    /* While computation and communication run at the same time, each takes this much longer: 0.2 is
     * 20 %. */
    double compute_slowdown;
    double exchange_slowdown;
    double price; /* money an hour; NAN: unknown */
    double watts; /* NAN: unknown */
} by_cluster_device;

/* A level of the network. */
typedef struct by_cluster_level {
    char name[BY_CLUSTER_NAME];
    by_origin origin;
    int64_t width;    /* units of the level below (devices, hosts, ...) that it joins */
    double latency;   /* seconds of a message */
    double bandwidth; /* bytes a second that a unit can send to the others while it receives as many
                         from them: of a host, all its devices together */
    double sum;       /* seconds a byte to add up what was received; 0: not counted */
} by_cluster_level;

typedef struct by_cluster {
    char name[BY_CLUSTER_NAME];
    by_cluster_device device;
    by_cluster_level levels[BY_CLUSTER_LEVELS]; /* innermost first */
    int level_count;
} by_cluster;

/* Reads a file. Figures that it leaves out are those of the comment at by_cluster_of_machine, or
 * usual ones, and guesses whatever the others are. Returns BY_ECONFIG with file and line for a
 * wrong key or value, no peak, or no level; BY_EIO if it cannot be read. */
BY_API by_status by_cluster_read(by_cluster *out, const char *path, by_error *error);
/* The same for text in memory; `name` stands for the file in messages. */
BY_API by_status by_cluster_parse(by_cluster *out, const char *name, const char *text,
                                  size_t length, by_error *error);
/* Writes a cluster as YAML that by_cluster_parse reads back; free it with free(). */
BY_API by_status by_cluster_print(char **out, const by_cluster *cluster, by_error *error);
/* Describes this machine as a cluster of `ranks` ranks, each with the threads that it was measured
 * with: its products and memory bandwidth, of which ranks that have more threads than there are
 * cores get a share, its free memory, which ranks on processors divide, and one level whose figures
 * are guesses, as are those that the machine was not measured for. */
BY_API void by_cluster_of_machine(by_cluster *out, const by_machine *machine, int ranks);
/* Returns where figures of a device, bits by by_cluster_figure, are from: the least certain of
 * them; a launch, host or step of 0 is not counted. */
BY_API by_origin by_cluster_origin(const by_cluster_device *device, unsigned figures);
/* Returns the devices that the levels join: the product of their widths. */
BY_API double by_cluster_devices(const by_cluster *cluster);
/* Returns the peak of products of a dtype. */
BY_API double by_cluster_flops(const by_cluster *cluster, by_dtype dtype);

/* ---- exchanges ---- */

typedef enum by_exchange {
    BY_EXCHANGE_ALL_REDUCE = 0,
    BY_EXCHANGE_REDUCE_SCATTER, /* bytes: of all slices together */
    BY_EXCHANGE_ALL_GATHER,     /* bytes: of all slices together */
    BY_EXCHANGE_ALL_TO_ALL,     /* bytes: that a rank has for all ranks */
    BY_EXCHANGE_SHIFT           /* bytes: that a rank sends to one other */
} by_exchange;

/* Ranks of a job that exchange: `ranks` of them, each `stride` after the one before, as all other
 * ranks of the job's `world` do at the same time. */
typedef struct by_exchange_group {
    double ranks;
    double stride;
    double world;
} by_exchange_group;

/* Returns the seconds of an exchange. At each level the members of a group are in k units; with S
 * bytes, of which those of a unit hold 1/m each by the levels below,
 *
 *     reduce-scatter, all-gather   (k - 1) latency + (k - 1) / k S / m / w + S / m sum
 *     all-reduce                   both
 *     all-to-all                   (k - 1) latency + (share of S for other units) / w
 *     shift                        latency + S / w, at the outermost level that the group crosses
 *
 * summed over the levels, which is what a hierarchical sum takes (reduce within a host, then
 * between hosts, then gather); with one level it is the ring of Patarasuk and Yuan 2009. w is the
 * level's bandwidth divided by the ranks that share the link of a unit. */
BY_API double by_cluster_exchange(const by_cluster *cluster, by_exchange what, double bytes,
                                  const by_exchange_group *group);

/* Returns true if a group has members in several of the units that a level joins: it exchanges
 * there. */
BY_API bool by_cluster_crosses(const by_cluster *cluster, int level,
                               const by_exchange_group *group);

/* An exchange that was measured. */
typedef struct by_exchange_time {
    by_exchange what;
    double bytes; /* as by_cluster_exchange takes them */
    double seconds;
} by_exchange_time;

/* Fits latency, bandwidth and sum of a level that joins `ranks` ranks to exchanges between all of
 * them, in which by_cluster_exchange is linear: least squares of relative differences, no figure
 * below 0. *difference: their root mean square. Sets width and origin, too; keeps the name. Returns
 * BY_EARG if the times tell no bandwidth. */
BY_API by_status by_cluster_fit_level(by_cluster_level *level, double *difference,
                                      const by_exchange_time *times, size_t count, int ranks,
                                      by_error *error);

#ifdef __cplusplus
}
#endif
#endif
