/* What a cluster takes for an exchange, and this machine as one. */
#include "banyan/cluster.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double by_origin_error(by_origin origin)
{
    static const double errors[BY_ORIGINS] = {0.03, 0.08, 0.15, 0.3};
    return errors[origin];
}

by_origin by_cluster_origin(const by_cluster_device *d, unsigned figures)
{
    unsigned absent = (d->launch > 0.0 ? 0u : BY_FIGURE_LAUNCH) |
                      (d->host > 0.0 ? 0u : BY_FIGURE_HOST) | (d->step > 0.0 ? 0u : BY_FIGURE_STEP);
    return (figures & d->guessed & ~absent) != 0 ? BY_ORIGIN_GUESS : d->origin;
}

double by_cluster_devices(const by_cluster *cluster)
{
    double devices = 1.0;
    for (int i = 0; i < cluster->level_count; i++) {
        devices *= (double)cluster->levels[i].width;
    }
    return devices;
}

double by_cluster_flops(const by_cluster *cluster, by_dtype dtype)
{
    const by_cluster_device *d = &cluster->device;
    return dtype == BY_BF16 || dtype == BY_F16 ? d->bf16_flops : d->f32_flops;
}

/* Rates of a typical core, for machines that were not measured. */
#define USUAL_FLOPS 5e10
#define USUAL_BYTES 1e10

static double either(double figure, double otherwise)
{
    return figure > 0.0 ? figure : otherwise;
}

void by_cluster_of_machine(by_cluster *out, const by_machine *m, int ranks)
{
    double count = ranks < 1 ? 1.0 : (double)ranks;
    double cores = m->cores < 1 ? 1.0 : (double)m->cores;
    bool host = strcmp(m->device, "cpu") == 0;
    /* Ranks divide the memory of a host, and its processors if they have more threads than there
     * are; each has a GPU of its own. */
    double threads = m->threads < 1 ? cores : (double)m->threads;
    double share = host && threads * count > cores ? cores / (threads * count) : 1.0;
    double f32 = either(1e9 * m->f32_gflops, USUAL_FLOPS * threads);
    double bytes = 1e9 * (m->copy_gbps > m->read_gbps ? m->copy_gbps : m->read_gbps);
    unsigned measured = (m->f32_gflops > 0.0 ? BY_FIGURE_F32 : 0u) |
                        (m->bf16_gflops > 0.0 ? BY_FIGURE_BF16 : 0u) |
                        (bytes > 0.0 ? BY_FIGURE_BANDWIDTH : 0u);
    by_cluster c = {.device = {.origin = measured != 0 ? BY_ORIGIN_MEASURED : BY_ORIGIN_GUESS,
                               .guessed = ((1u << BY_FIGURES) - 1u) & ~measured,
                               .f32_flops = f32 * share,
                               .bf16_flops = either(1e9 * m->bf16_gflops, f32) * share,
                               .product_share = 0.8,
                               .attention_share = 0.5,
                               .memory = m->memory / (host ? count : 1.0),
                               .bandwidth = either(bytes, USUAL_BYTES * threads) * share,
                               .launch = host ? 0.0 : 5e-6,
                               .compute_slowdown = host ? 0.3 : 0.1,
                               .exchange_slowdown = host ? 0.3 : 0.1,
                               .price = (double)NAN,
                               .watts = (double)NAN},
                    .level_count = 1};
    c.device.fp8_flops = c.device.bf16_flops;
    (void)snprintf(c.name, sizeof c.name, "this machine");
    (void)snprintf(c.device.name, sizeof c.device.name, "%s", m->device[0] ? m->device : "cpu");
    c.levels[0] = (by_cluster_level){.name = "host",
                                     .origin = BY_ORIGIN_GUESS,
                                     .width = (int64_t)count,
                                     .latency = host ? 5e-6 : 1e-5,
                                     .bandwidth = c.device.bandwidth / (host ? 4.0 : 20.0)};
    *out = c;
}

/* ---- exchanges ---- */

/* Members of a group in one unit of the first `levels` levels. */
static double members_within(const by_cluster *c, int levels, const by_exchange_group *g)
{
    double size = 1.0;
    for (int i = 0; i < levels; i++) {
        size *= (double)c->levels[i].width;
    }
    double members = floor(size / g->stride);
    members = members < 1.0 ? 1.0 : members;
    /* The outermost level holds what is beyond it, too: a job larger than the file says. */
    return levels == c->level_count || members > g->ranks ? g->ranks : members;
}

/* Bytes a second of one rank through a level. */
static double share_of(const by_cluster *c, int level, const by_exchange_group *g)
{
    double below = 1.0;
    for (int i = 0; i < level; i++) {
        below *= (double)c->levels[i].width;
    }
    below = below < g->world ? below : g->world;
    return c->levels[level].bandwidth / (below < 1.0 ? 1.0 : below);
}

bool by_cluster_crosses(const by_cluster *c, int level, const by_exchange_group *g)
{
    double below = level == 0 ? 1.0 : members_within(c, level, g);
    return g->ranks > 1.0 && members_within(c, level + 1, g) > below;
}

static double shift(const by_cluster *c, double bytes, const by_exchange_group *g)
{
    int level = 0;
    while (level + 1 < c->level_count && members_within(c, level + 1, g) < g->ranks) {
        level++;
    }
    return c->levels[level].latency + bytes / share_of(c, level, g);
}

double by_cluster_exchange(const by_cluster *c, by_exchange what, double bytes,
                           const by_exchange_group *g)
{
    double seconds = 0.0;
    double below = 1.0; /* members in a unit of the level below */
    if (g->ranks <= 1.0) {
        return 0.0;
    }
    if (what == BY_EXCHANGE_SHIFT) {
        return shift(c, bytes, g);
    }
    for (int i = 0; i < c->level_count; i++) {
        const by_cluster_level *l = &c->levels[i];
        double within = members_within(c, i + 1, g);
        double units = within / below;
        double w = share_of(c, i, g);
        if (units > 1.0) {
            double part = what == BY_EXCHANGE_ALL_TO_ALL ? bytes * (within - below) / g->ranks
                                                         : bytes / below * (units - 1.0) / units;
            bool gathers = what != BY_EXCHANGE_REDUCE_SCATTER;
            bool sums = what == BY_EXCHANGE_ALL_REDUCE || what == BY_EXCHANGE_REDUCE_SCATTER;
            double half = (units - 1.0) * l->latency + part / w;
            seconds += (gathers ? half : 0.0) + (sums ? half + bytes / below * l->sum : 0.0);
        }
        below = within;
    }
    return seconds;
}
