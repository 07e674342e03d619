/* Runs a list of work on two queues, one that computes and one that communicates. A collective is
 * put on the second one when the first gets to it, and runs after those before it; a node that
 * waits stops the first queue until the collective has ended. While both have something to do, each
 * takes longer by its factor: they share the memory's bandwidth, or the processors. The host puts
 * nodes on the queues one after another, ahead of them where it is faster, and the device waits
 * where it is not. */
#include <stdlib.h>

#include "base/base.h"
#include "plan/layout/layout.h"

by_exchange_group by__layout_group(const by__layout_job *job, unsigned mesh)
{
    by_exchange_group g = {.ranks = 1.0, .stride = 1.0, .world = (double)job->ranks};
    bool outside = true; /* of all axes of the set so far, the innermost ones */
    for (int axis = BY_MESH_AXES - 1; axis >= 0; axis--) {
        if ((mesh >> axis & 1u) != 0 && job->sizes[axis] > 1) {
            g.ranks *= (double)job->sizes[axis];
            outside = false;
        }
        g.stride *= outside ? (double)job->sizes[axis] : 1.0;
    }
    return g;
}

double by__layout_seconds(const by_cluster *cluster, const by__layout_item *item)
{
    const by_cluster_device *d = &cluster->device;
    double share = item->part == BY_LAYOUT_ATTENTION ? d->attention_share : d->product_share;
    double computing = item->flops / (by_cluster_flops(cluster, item->dtype) * share);
    double moving = item->bytes / d->bandwidth;
    double scores = item->scores * d->score_bytes / d->bandwidth;
    return d->launch + (computing > moving ? computing : moving) + scores;
}

double by__layout_beside(const by_cluster *cluster, double computing, double exchanging)
{
    double slow = 1.0 + cluster->device.compute_slowdown;
    double other = 1.0 + cluster->device.exchange_slowdown;
    double both = exchanging * other; /* until the exchange ends */
    if (both <= computing * slow) {
        return both - both / slow;
    }
    return computing * slow + (exchanging - computing * slow / other) - computing;
}

/* The queue of collectives. */
typedef struct exchange_queue {
    size_t *items; /* in the order in which they started */
    double *left;  /* seconds of each that remain, alone */
    size_t first;  /* that has not ended */
    size_t count;
    double began; /* when the first that has not ended began */
} exchange_queue;

typedef struct queue_run {
    const by__layout_work *work;
    const by_cluster_device *device;
    exchange_queue queue;
    double issued; /* seconds after which the host has issued the node */
    by__layout_time *time;
    by__layout_trace *trace;
} queue_run;

static by_layout_span span_of(const by__layout_item *item, bool exchange)
{
    return (by_layout_span){.exchange = exchange,
                            .part = item->part,
                            .pass = -1,
                            .micro_batch = -1,
                            .block = item->block,
                            .backward = item->backward};
}

/* Ends the first collective of the queue; the next one begins. */
static void end_exchange(queue_run *r)
{
    exchange_queue *q = &r->queue;
    double now = r->time->total;
    by__layout_trace_add(r->trace, span_of(&r->work->items[q->items[q->first]], true), q->began,
                         now);
    q->first++;
    q->began = now;
}

/* Advances both queues by `seconds` of computation alone (INFINITY: until `until` collectives have
 * ended), of a part that computes. */
static void compute(queue_run *r, double seconds, by_layout_part part)
{
    exchange_queue *q = &r->queue;
    double slow = 1.0 + r->device->compute_slowdown;
    double slow_exchange = 1.0 + r->device->exchange_slowdown;
    while (seconds > 0.0 && q->first < q->count) {
        double *left = &q->left[q->first];
        by_layout_part hidden = r->work->items[q->items[q->first]].part;
        double both = *left * slow_exchange; /* until the collective ends */
        double spent = seconds * slow < both ? seconds * slow : both;
        r->time->hidden[hidden] += spent;
        r->time->seconds[part] += spent;
        r->time->total += spent;
        if (spent < both) {
            *left -= spent / slow_exchange;
            return;
        }
        seconds -= spent / slow;
        end_exchange(r);
    }
    r->time->seconds[part] += seconds;
    r->time->total += seconds;
}

/* The host issues a node of a part; the device has nothing to compute until then. */
static void issue(queue_run *r, by_layout_part part)
{
    exchange_queue *q = &r->queue;
    r->issued += r->device->host;
    double idle = r->issued - r->time->total;
    if (idle <= 0.0) {
        return;
    }
    r->time->seconds[part] += idle;
    r->time->total += idle;
    while (idle > 0.0 && q->first < q->count) {
        double *left = &q->left[q->first];
        double spent = idle < *left ? idle : *left;
        r->time->hidden[r->work->items[q->items[q->first]].part] += spent;
        *left -= spent;
        idle -= spent;
        q->first += *left > 0.0 ? 0 : 1;
    }
}

/* Waits until the collective of an item has ended. */
static void wait_for(queue_run *r, size_t item)
{
    exchange_queue *q = &r->queue;
    bool ended = true;
    for (size_t i = q->first; i < q->count; i++) {
        ended = ended && q->items[i] != item;
    }
    while (!ended && q->first < q->count) {
        by_layout_part part = r->work->items[q->items[q->first]].part;
        r->time->seconds[part] += q->left[q->first];
        r->time->total += q->left[q->first];
        ended = q->items[q->first] == item;
        end_exchange(r);
    }
}

static void run_items(queue_run *r, const by__layout_job *job)
{
    exchange_queue *q = &r->queue;
    for (size_t i = 0; i < r->work->count; i++) {
        const by__layout_item *item = &r->work->items[i];
        if (item->kind == BY__LAYOUT_WAITS) {
            wait_for(r, item->start);
            continue;
        }
        issue(r, item->part);
        if (item->kind == BY__LAYOUT_STARTS) {
            by_exchange_group group = by__layout_group(job, item->mesh);
            group.ranks = item->ranks < group.ranks ? item->ranks : group.ranks;
            q->began = q->first == q->count ? r->time->total : q->began;
            q->items[q->count] = i;
            q->left[q->count++] =
                by_cluster_exchange(job->cluster, item->exchange, item->payload, &group);
        } else {
            double began = r->time->total;
            compute(r, by__layout_seconds(job->cluster, item), item->part);
            by__layout_trace_add(r->trace, span_of(item, false), began, r->time->total);
        }
    }
    while (q->first < q->count) { /* a program ends when its collectives have */
        wait_for(r, q->items[q->first]);
    }
}

by_status by__layout_run(by__layout_time *out, const by__layout_work *work,
                         const by__layout_job *job, by_error *error)
{
    by__layout_time time = {0};
    queue_run r = {
        .work = work, .device = &job->cluster->device, .time = &time, .trace = job->trace};
    BY_TRY(
        by__alloc((void **)&r.queue.items, work->count + 1, sizeof *r.queue.items, "work", error));
    by_status status =
        by__alloc((void **)&r.queue.left, work->count + 1, sizeof *r.queue.left, "work", error);
    if (status == BY_OK) {
        run_items(&r, job);
        *out = time;
    }
    free(r.queue.left);
    free(r.queue.items);
    return status;
}

void by__layout_add(by__layout_time *sum, const by__layout_time *time, double times)
{
    sum->total += times * time->total;
    for (int part = 0; part < BY_LAYOUT_PARTS; part++) {
        sum->seconds[part] += times * time->seconds[part];
        sum->hidden[part] += times * time->hidden[part];
    }
}

void by__layout_add_exchange(by__layout_time *sum, const by__layout_job *job, by_layout_part part,
                             by_exchange what, double bytes, unsigned mesh)
{
    const by_exchange_group group = by__layout_group(job, mesh);
    double seconds = by_cluster_exchange(job->cluster, what, bytes, &group);
    sum->seconds[part] += seconds;
    sum->total += seconds;
    if (job->trace != NULL) {
        const by_layout_span span = {
            .exchange = true, .part = part, .pass = -1, .micro_batch = -1, .block = -1};
        by__layout_trace_add(job->trace, span, 0.0, seconds);
        job->trace->now += seconds;
    }
}
