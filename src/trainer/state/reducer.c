#include "trainer/state/reducer.h"

#include <stdlib.h>

#include "comm/comm.h"

struct by__trainer_reducer {
    by__trainer_reducer_spec spec;
    by__comm_holder_plan plan;
    int *owners;
    by__sum_merge *merges;
    int held;
    float *mine[BY__SUM_TREE_NODES];
    size_t *slices; /* of a bucket: elements of each peer, */
    size_t *first;  /* and their offsets */
    size_t *parts;  /* of an owner's slice: elements of each of its peers */
    /* Micro-batches in turn: the round that the plan is for, and the sums it leaves. */
    int64_t round;
    by__sum_node *nodes;
    int *kept;
    int kept_count;
};

static int parts_of(const by__trainer_reducer_spec *spec)
{
    return spec->parts > 1 ? spec->parts : 1;
}

/* Lists the forest of a replica, with the beginning of each sum. Returns their number. */
static int list_sums(const by__trainer_reducer *r, int replica, by__sum_node *nodes)
{
    int64_t first;
    int64_t count;
    int replicas = by_comm_size(r->spec.peers) / parts_of(&r->spec);
    by__sum_tree_block(r->spec.leaves, replicas, replica, &first, &count);
    int64_t together = r->spec.last_apart ? count - 1 : count;
    int forest = by__sum_tree_forest(first, together, r->spec.leaves, nodes);
    if (together < count) {
        nodes[forest++] = (by__sum_node){first + together, 1, -1};
    }
    return forest;
}

/* State while the plan is made. */
typedef struct planning {
    by__trainer_reducer *r;
    int64_t *begin; /* for one part: first leaf of each holder */
    size_t begins;
    size_t owners;
    size_t merges;
    int *roots; /* the holder of each part's sum */
} planning;

/* The forests of all peers that have a part, concatenated: each of their nodes is a holder. One
 * extra entry of `begin` is the end. */
static by_status list_holders(planning *p, int part, int *holders, by_error *error)
{
    by__trainer_reducer *r = p->r;
    int parts = parts_of(&r->spec);
    int replicas = by_comm_size(r->spec.peers) / parts;
    *holders = 0;
    for (int replica = 0; replica < replicas; replica++) {
        by__sum_node nodes[BY__SUM_TREE_NODES];
        int owner = replica * parts + part;
        int forest = list_sums(r, replica, nodes);
        r->held = owner == by_comm_rank(r->spec.peers) ? forest : r->held;
        size_t wanted = (size_t)(r->plan.holders + *holders + forest) + 1;
        BY_TRY(by__reserve((void **)&p->begin, &p->begins, wanted, sizeof *p->begin, error));
        BY_TRY(by__reserve((void **)&r->owners, &p->owners, wanted, sizeof *r->owners, error));
        for (int i = 0; i < forest; i++) {
            p->begin[*holders] = nodes[i].first;
            r->owners[r->plan.holders + (*holders)++] = owner;
        }
        p->begin[*holders] = r->spec.leaves;
    }
    return BY_OK;
}

/* Appends merges; their holder i is holder[i], or first + i if holder is NULL. */
static by_status append_merges(planning *p, const int64_t *begin, int count, const int *holder,
                               int first, int *root, by_error *error)
{
    by__trainer_reducer *r = p->r;
    by__sum_merge *merges;
    size_t more;
    BY_TRY(by__sum_tree_merges(&merges, &more, begin, count, error));
    by_status status = by__reserve((void **)&r->merges, &p->merges, r->plan.merge_count + more + 1,
                                   sizeof *r->merges, error);
    *root = holder == NULL ? first : holder[0];
    for (size_t i = 0; i < more && status == BY_OK; i++) {
        by__sum_merge merge = merges[i];
        merge.left = holder == NULL ? first + merge.left : holder[merge.left];
        merge.right = holder == NULL ? first + merge.right : holder[merge.right];
        *root = merge.left;
        r->merges[r->plan.merge_count++] = merge;
    }
    free(merges);
    return status;
}

/* Plans each part's sum tree over the micro-batches, then the tree over the parts. */
static by_status plan_parts(planning *p, by_error *error)
{
    by__trainer_reducer *r = p->r;
    int parts = parts_of(&r->spec);
    BY_TRY(by__alloc((void **)&p->roots, (size_t)parts, sizeof *p->roots, "reducer", error));
    for (int part = 0; part < parts; part++) {
        int holders;
        BY_TRY(list_holders(p, part, &holders, error));
        BY_TRY(append_merges(p, p->begin, holders, NULL, r->plan.holders, &p->roots[part], error));
        r->plan.holders += holders;
    }
    BY_TRY(by__reserve((void **)&p->begin, &p->begins, (size_t)parts + 1, sizeof *p->begin, error));
    for (int part = 0; part <= parts; part++) {
        p->begin[part] = part;
    }
    return append_merges(p, p->begin, parts, p->roots, 0, &r->plan.root, error);
}

static by_status make_plan(by__trainer_reducer *r, by_error *error)
{
    planning p = {.r = r};
    by_status status = plan_parts(&p, error);
    free(p.begin);
    free(p.roots);
    r->plan.owners = r->owners;
    r->plan.merges = r->merges;
    return status;
}

/* Reserves memory for the plan of any round. */
static by_status reserve_rounds(by__trainer_reducer *r, by_error *error)
{
    size_t most = (size_t)by_comm_size(r->spec.peers) + BY__SUM_TREE_NODES;
    r->round = -1;
    BY_TRY(by__alloc((void **)&r->owners, most, sizeof *r->owners, "reducer", error));
    BY_TRY(by__alloc((void **)&r->merges, most, sizeof *r->merges, "reducer", error));
    BY_TRY(by__alloc((void **)&r->nodes, most, sizeof *r->nodes, "reducer", error));
    BY_TRY(by__alloc((void **)&r->kept, most, sizeof *r->kept, "reducer", error));
    r->plan.owners = r->owners;
    r->plan.merges = r->merges;
    return BY_OK;
}

by_status by__trainer_reducer_open(by__trainer_reducer **out, const by__trainer_reducer_spec *spec,
                                   by_error *error)
{
    by__trainer_reducer *r;
    size_t ranks = (size_t)by_comm_size(spec->peers);
    BY_TRY(by__alloc((void **)&r, 1, sizeof *r, "reducer", error));
    r->spec = *spec;
    by_status status = by__alloc((void **)&r->slices, ranks, sizeof *r->slices, "reducer", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&r->first, ranks, sizeof *r->first, "reducer", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&r->parts, ranks, sizeof *r->parts, "reducer", error);
    }
    if (status == BY_OK) {
        status = spec->round_robin ? reserve_rounds(r, error) : make_plan(r, error);
    }
    if (status != BY_OK) {
        by__trainer_reducer_close(&r);
        return status;
    }
    *out = r;
    return BY_OK;
}

void by__trainer_reducer_close(by__trainer_reducer **reducer)
{
    if (reducer == NULL || *reducer == NULL) {
        return;
    }
    free((*reducer)->merges);
    free((*reducer)->owners);
    free((*reducer)->slices);
    free((*reducer)->first);
    free((*reducer)->parts);
    free((*reducer)->nodes);
    free((*reducer)->kept);
    free(*reducer);
    *reducer = NULL;
}

/* Divides the slices of a bucket's owners among their peers. Returns the offset of the slice of
 * owner `mine`, and sets r->parts to its parts. */
static size_t cut_slices(by__trainer_reducer *r, const by__trainer_bucket *b, int mine)
{
    int owners = r->spec.owners;
    int parts = parts_of(&r->spec);
    int copies = by_comm_size(r->spec.peers) / owners;
    size_t begin = 0;
    size_t found = 0;
    for (int k = 0; k < owners; k++) {
        size_t first = begin;
        by__comm_even_slices(r->parts, b->slices[k], copies);
        for (int c = 0; c < copies; c++) {
            int peer = (c / parts * owners + k) * parts + c % parts;
            r->slices[peer] = r->parts[c];
            r->first[peer] = first;
            first += r->parts[c];
        }
        found = k == mine ? begin : found;
        begin = first;
    }
    by__comm_even_slices(r->parts, b->slices[mine], copies);
    return found;
}

/* Elements of f32 memory; none of them are {0}. */
static by_memory elements_of(by_memory memory, size_t first, size_t count)
{
    return count == 0 ? (by_memory){0}
                      : (by_memory){memory.device, memory.address + first * sizeof(float),
                                    count * sizeof(float)};
}

by_status by__trainer_reducer_run(by__trainer_reducer *reducer, size_t bucket,
                                  const by_memory *sets, by_error *error)
{
    by__trainer_reducer *r = reducer;
    const by__trainer_bucket *b = &r->spec.buckets[bucket];
    int rank = by_comm_rank(r->spec.peers);
    int owner = rank / parts_of(&r->spec) % (r->spec.owners > 1 ? r->spec.owners : 1);
    by__device_staging *staging = r->spec.staging;
    size_t begin = 0;
    size_t offset = (size_t)b->offset;
    char what[48];
    BY_TRY(by__device_staging_begin(staging, sets[0].device, error));
    for (int i = 0; i < r->held; i++) {
        void *copy;
        BY_TRY(by__device_stage(staging, elements_of(sets[i], offset, (size_t)b->part.count), true,
                                &copy, error));
        r->mine[i] = copy;
    }
    BY_TRY(by__device_staging_wait(staging, error));
    (void)snprintf(what, sizeof what, "bucket %zu of the gradients", bucket);
    by__comm_holder_sum sum = {.plan = &r->plan,
                               .mine = r->mine,
                               .out = r->mine[r->held - 1],
                               .count = (size_t)b->part.count,
                               .slices = r->slices,
                               .gather = r->spec.owners <= 1,
                               .what = what};
    if (sum.gather) {
        by__comm_even_slices(r->slices, sum.count, by_comm_size(r->spec.peers));
    } else {
        begin = cut_slices(r, b, owner);
        sum.first = r->first;
    }
    BY_TRY(by__comm_reduce_holders(r->spec.peers, &sum, error));
    BY_TRY(sum.gather || r->spec.copies == NULL
               ? BY_OK
               : by_comm_all_gather(r->spec.copies, sum.out + r->first[rank], sum.out + begin,
                                    r->parts, BY_F32, what, error));
    const by_memory result =
        elements_of(sets[r->held - 1], offset + begin, sum.gather ? sum.count : b->slices[owner]);
    BY_TRY(by__device_unstage(staging, result, sum.out + begin, error));
    return by__device_staging_wait(staging, error);
}

/* ---- micro-batches in turn ---- */

int by__trainer_reducer_sets(int64_t leaves, int ranks)
{
    by__sum_node nodes[BY__SUM_TREE_NODES];
    int most = 1;
    for (int64_t first = ranks; first < leaves; first += ranks) {
        int held = by__sum_tree_forest(0, first, leaves, nodes);
        most = held > most ? held : most;
    }
    return most;
}

/* The holders of a round are in the order of their leaves, those of earlier rounds first. */
static void plan_round(by__trainer_reducer *r, int64_t round)
{
    int ranks = by_comm_size(r->spec.peers);
    int64_t first = round * ranks;
    int64_t left = r->spec.leaves - first;
    int earlier = by__sum_tree_forest(0, first, r->spec.leaves, r->nodes);
    int holders = earlier + (left < ranks ? (int)left : ranks);
    for (int h = 0; h < holders; h++) {
        if (h >= earlier) {
            r->nodes[h] = (by__sum_node){first + h - earlier, 1, h};
        }
        r->nodes[h].set = h;
        r->owners[h] = h < earlier ? BY__EVERY_RANK : h - earlier;
    }
    r->plan.holders = holders;
    r->kept_count = holders;
    r->plan.merge_count = by__sum_tree_fold(r->merges, r->nodes, &r->kept_count, r->spec.leaves);
    for (int i = 0; i < r->kept_count; i++) {
        r->kept[i] = r->nodes[i].set;
    }
    r->held = earlier;
    r->round = round;
}

by_status by__trainer_reducer_add(by__trainer_reducer *reducer, int64_t round, size_t bucket,
                                  float *leaf, const by_memory *sums, by_error *error)
{
    by__trainer_reducer *r = reducer;
    const by__trainer_bucket *b = &r->spec.buckets[bucket];
    int rank = by_comm_rank(r->spec.peers);
    size_t begin = cut_slices(r, b, rank / parts_of(&r->spec) % r->spec.owners);
    size_t part = r->first[rank] - begin;
    by__device_staging *staging = r->spec.staging;
    float *copies[BY__SUM_TREE_NODES + 1] = {NULL};
    float *mine[BY__SUM_TREE_NODES + 1];
    float *results[BY__SUM_TREE_NODES];
    char what[48];
    if (round != r->round) {
        plan_round(r, round);
    }
    for (int i = 0; i < r->held || i < r->kept_count; i++) {
        void *copy;
        BY_TRY(by__device_stage(staging, sums[i], i < r->held, &copy, error));
        copies[i] = copy;
    }
    BY_TRY(by__device_staging_wait(staging, error));
    for (int i = 0; i < r->held; i++) {
        mine[i] = copies[i] + part;
    }
    mine[r->held] = leaf;
    for (int i = 0; i < r->kept_count; i++) {
        results[i] = copies[i] + part;
    }
    (void)snprintf(what, sizeof what, "bucket %zu of the gradients", bucket);
    const by__comm_holder_sum sum = {.plan = &r->plan,
                                     .mine = mine,
                                     .count = (size_t)b->part.count,
                                     .slices = r->slices,
                                     .first = r->first,
                                     .kept = r->kept,
                                     .kept_count = r->kept_count,
                                     .results = results,
                                     .what = what};
    BY_TRY(by__comm_reduce_holders(r->spec.peers, &sum, error));
    bool last = (round + 1) * by_comm_size(r->spec.peers) >= r->spec.leaves;
    BY_TRY(last && r->spec.copies != NULL
               ? by_comm_all_gather(r->spec.copies, copies[0] + part, copies[0], r->parts, BY_F32,
                                    what, error)
               : BY_OK);
    for (int i = 0; i < r->kept_count; i++) {
        BY_TRY(by__device_unstage(staging, sums[i], copies[i], error));
    }
    return by__device_staging_wait(staging, error);
}
