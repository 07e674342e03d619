/* Decides which rank writes what, when ranks hold the same or different parts of the tensors. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"

/* Small data are written faster by one rank than divided. */
#define WORTH_A_WRITER ((uint64_t)64 << 20)

/* A slice held by a rank, with its index there. */
typedef struct slice_record {
    const by__checkpoint_held_slice *held;
    int rank;
    size_t number;
} slice_record;

/* Records of the same slice: records[first], ... */
typedef struct record_group {
    size_t first;
    size_t count;
    size_t tensor;
    uint64_t bytes;
} record_group;

/* The table of all ranks, used while a plan is made. */
typedef struct slice_table {
    int ranks;
    int rank;
    by__checkpoint_held_slice *held;
    size_t *counts; /* slices of each rank; bytes while they are gathered */
    slice_record *records;
    size_t count;
    record_group *groups;
    size_t group_count;
    int *writer_of; /* each rank's number as a writer; -1: none */
} slice_table;

static int compare_numbers(const int64_t *a, const int64_t *b)
{
    for (int i = 0; i < BY_TENSOR_MAX_RANK; i++) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return 0;
}

static int compare_tensors(const by__checkpoint_held_slice *a, const by__checkpoint_held_slice *b)
{
    return a->optimizer != b->optimizer ? (a->optimizer ? 1 : -1) : strcmp(a->name, b->name);
}

static int compare_slices(const by_tensor_slice *a, const by_tensor_slice *b)
{
    int order = a->flat != b->flat ? (a->flat ? 1 : -1) : compare_numbers(a->offset, b->offset);
    return order != 0 ? order : compare_numbers(a->shape, b->shape);
}

static int by_slice(const void *a, const void *b)
{
    const slice_record *x = a;
    const slice_record *y = b;
    int order = compare_tensors(x->held, y->held);
    order = order != 0 ? order : compare_slices(&x->held->slice, &y->held->slice);
    return order != 0 ? order : x->rank - y->rank;
}

static int largest_first(const void *a, const void *b)
{
    const record_group *x = a;
    const record_group *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->first < y->first ? -1 : 1;
}

static by_status gather(slice_table *t, by_comm *comm, const by__checkpoint_held_slice *held,
                        size_t count, by_error *error)
{
    size_t ranks = (size_t)t->ranks;
    int32_t mine = (int32_t)count;
    int32_t *counts;
    size_t total = 0;
    BY_TRY(by__alloc((void **)&t->counts, ranks, sizeof *t->counts, "a checkpoint", error));
    BY_TRY(by__alloc((void **)&counts, ranks, sizeof *counts, "a checkpoint", error));
    for (size_t i = 0; i < ranks; i++) {
        t->counts[i] = 1;
    }
    by_status status =
        by_comm_all_gather(comm, &mine, counts, t->counts, BY_I32, "what ranks hold", error);
    for (size_t i = 0; i < ranks && status == BY_OK; i++) {
        t->counts[i] = (size_t)counts[i] * sizeof *held;
        total += (size_t)counts[i];
    }
    free(counts);
    BY_TRY(status);
    BY_TRY(by__alloc((void **)&t->held, total, sizeof *t->held, "a checkpoint", error));
    BY_TRY(by__alloc((void **)&t->records, total, sizeof *t->records, "a checkpoint", error));
    BY_TRY(by_comm_all_gather(comm, held, t->held, t->counts, BY_U8, "what ranks hold", error));
    for (size_t r = 0; r < ranks; r++) {
        t->counts[r] /= sizeof *held;
        for (size_t i = 0; i < t->counts[r]; i++) {
            t->records[t->count] = (slice_record){&t->held[t->count], (int)r, i};
            t->count++;
        }
    }
    return BY_OK;
}

static by_tensor_view view_of(const by__checkpoint_held_slice *held)
{
    by_tensor_view view = {.name = held->name, .dtype = held->dtype, .rank = held->rank};
    memcpy(view.shape, held->shape, sizeof view.shape);
    return view;
}

/* Sorts the records into groups, and lists the tensors. */
static by_status group_records(by__checkpoint_save_plan *p, slice_table *t, by_comm *comm,
                               by_error *error)
{
    if (t->count > 1) {
        qsort(t->records, t->count, sizeof *t->records, by_slice);
    }
    BY_TRY(by__alloc((void **)&t->groups, t->count, sizeof *t->groups, "a checkpoint", error));
    BY_TRY(by__alloc((void **)&p->tensors, t->count, sizeof *p->tensors, "a checkpoint", error));
    BY_TRY(by__alloc((void **)&p->frozen, t->count, sizeof *p->frozen, "a checkpoint", error));
    for (size_t i = 0; i < t->count; i++) {
        const by__checkpoint_held_slice *held = t->records[i].held;
        const by__checkpoint_held_slice *before = i == 0 ? NULL : t->records[i - 1].held;
        bool next = before == NULL || compare_tensors(before, held) != 0;
        if (next) {
            p->tensors[p->count++] = view_of(held);
            p->model_count += held->optimizer ? 0 : 1;
        } else if (held->dtype != before->dtype || held->rank != before->rank ||
                   compare_numbers(held->shape, before->shape) != 0) {
            return by_error_set(error, BY_ESTATE,
                                "tensor '%s' has another shape or type on rank %d (%s) than on "
                                "rank %d (%s)",
                                held->name, t->records[i].rank,
                                by_comm_host(comm, t->records[i].rank), t->records[i - 1].rank,
                                by_comm_host(comm, t->records[i - 1].rank));
        }
        if (next || compare_slices(&before->slice, &held->slice) != 0) {
            size_t elements;
            BY_TRY(by__checkpoint_slice_check(&p->tensors[p->count - 1], &held->slice, &elements,
                                              error));
            t->groups[t->group_count++] =
                (record_group){.first = i,
                               .tensor = p->count - 1,
                               .bytes = (uint64_t)elements * by_dtype_size(held->dtype)};
        }
        t->groups[t->group_count - 1].count++;
    }
    return BY_OK;
}

static bool is_copy(const slice_table *t, const record_group *g)
{
    for (size_t i = 0; i < g->count; i++) {
        if (!t->records[g->first + i].held->is_copy) {
            return false;
        }
    }
    return true;
}

/* Drops the slices of a tensor that consist only of copies if others do not: the rank that trains a
 * tensor may have divided it differently. A tensor with copies only is frozen. Groups are sorted by
 * tensor. */
static void drop_copies(by__checkpoint_save_plan *p, slice_table *t)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->group_count;) {
        size_t end = i;
        bool trained = false;
        for (; end < t->group_count && t->groups[end].tensor == t->groups[i].tensor; end++) {
            trained = trained || !is_copy(t, &t->groups[end]);
        }
        if (t->groups[i].tensor < p->model_count) {
            p->frozen[t->groups[i].tensor] = !trained;
            p->frozen_count += !trained;
        }
        for (; i < end; i++) {
            if (!trained || !is_copy(t, &t->groups[i])) {
                t->groups[kept++] = t->groups[i];
            }
        }
    }
    t->group_count = kept;
}

/* Chooses the writer of a slice among the holders with the best copy: the one that already writes
 * another slice of the tensor (`before`; -1: none), so that a tensor that is whole on a rank is
 * whole in a file; else, preferably among the wanted writers, the one with the least to write so
 * far. */
static const slice_record *choose(const slice_table *t, const record_group *g, const bool *wanted,
                                  const uint64_t *load, int before)
{
    const slice_record *best = &t->records[g->first];
    for (size_t i = 1; i < g->count; i++) {
        const slice_record *r = &t->records[g->first + i];
        bool better = r->held->is_copy != best->held->is_copy ? best->held->is_copy
                      : best->rank == before                  ? false
                      : r->rank == before                     ? true
                      : wanted[r->rank] != wanted[best->rank] ? wanted[r->rank]
                                                              : load[r->rank] < load[best->rank];
        best = better ? r : best;
    }
    return best;
}

/* Assigns each group; its only record is then the one that is written. */
static by_status assign(slice_table *t, size_t tensors, int64_t writers, by_error *error)
{
    bool *wanted = NULL;
    uint64_t *load = NULL;
    int *rank_of = NULL; /* writer of earlier slices of a tensor; -1: none yet */
    uint64_t total = 0;
    size_t ranks = (size_t)t->ranks;
    for (size_t i = 0; i < t->group_count; i++) {
        total += t->groups[i].bytes;
    }
    writers = writers < 1 ? 1 + (int64_t)(total / WORTH_A_WRITER) : writers;
    writers = writers < t->ranks ? writers : t->ranks;
    BY_TRY(by__alloc((void **)&t->writer_of, ranks, sizeof *t->writer_of, "a checkpoint", error));
    by_status status = by__alloc((void **)&wanted, ranks, sizeof *wanted, "a checkpoint", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&load, ranks, sizeof *load, "a checkpoint", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&rank_of, tensors, sizeof *rank_of, "a checkpoint", error);
    }
    if (status == BY_OK) {
        for (size_t i = 0; i < tensors; i++) {
            rank_of[i] = -1;
        }
        for (int64_t w = 0; w < writers; w++) { /* spread over the hosts */
            wanted[w * t->ranks / writers] = true;
        }
        if (t->group_count > 1) {
            qsort(t->groups, t->group_count, sizeof *t->groups, largest_first);
        }
        t->writer_of[0] = 1;
        for (size_t i = 0; i < t->group_count; i++) {
            int *before = &rank_of[t->groups[i].tensor];
            const slice_record *r = choose(t, &t->groups[i], wanted, load, *before);
            *before = r->rank;
            load[r->rank] += t->groups[i].bytes;
            t->writer_of[r->rank] |= t->groups[i].bytes > 0 ? 1 : 0;
            t->groups[i].first = (size_t)(r - t->records);
        }
    }
    free(rank_of);
    free(load);
    free(wanted);
    return status;
}

static int by_record(const void *a, const void *b)
{
    const record_group *x = a;
    const record_group *y = b;
    return x->first < y->first ? -1 : x->first > y->first ? 1 : 0;
}

/* Numbers the writers and lists the parts of this one, sorted by tensor. */
static by_status list_parts(by__checkpoint_save_plan *p, slice_table *t, by_error *error)
{
    for (int r = 0; r < t->ranks; r++) {
        t->writer_of[r] = t->writer_of[r] != 0 ? p->writers++ : -1;
    }
    p->writer = t->writer_of[t->rank];
    if (t->group_count > 1) {
        qsort(t->groups, t->group_count, sizeof *t->groups, by_record);
    }
    BY_TRY(by__alloc((void **)&p->parts, t->group_count, sizeof *p->parts, "a checkpoint", error));
    BY_TRY(by__alloc((void **)&p->held, t->group_count, sizeof *p->held, "a checkpoint", error));
    for (size_t i = 0; i < t->group_count; i++) {
        const slice_record *r = &t->records[t->groups[i].first];
        if (r->rank == t->rank && t->groups[i].bytes > 0) {
            p->held[p->part_count] = r->number;
            p->parts[p->part_count++] = (by_checkpoint_part){t->groups[i].tensor, r->held->slice};
        }
    }
    return BY_OK;
}

/* Moves the names to the plan. */
static by_status own_names(by__checkpoint_save_plan *p, by_error *error)
{
    for (size_t i = 0; i < p->count; i++) {
        p->tensors[i].name = by__strdup(p->tensors[i].name);
        p->named += p->tensors[i].name != NULL;
        if (p->tensors[i].name == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: tensor names");
        }
    }
    return BY_OK;
}

static by_status plan_single(by__checkpoint_save_plan *p, const by__checkpoint_held_slice *held,
                             size_t count, by_error *error)
{
    p->writers = 1;
    BY_TRY(by__alloc((void **)&p->tensors, count, sizeof *p->tensors, "a checkpoint", error));
    BY_TRY(by__alloc((void **)&p->frozen, count, sizeof *p->frozen, "a checkpoint", error));
    BY_TRY(by__alloc((void **)&p->parts, count, sizeof *p->parts, "a checkpoint", error));
    BY_TRY(by__alloc((void **)&p->held, count, sizeof *p->held, "a checkpoint", error));
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || compare_tensors(&held[i - 1], &held[i]) != 0) {
            p->tensors[p->count++] = view_of(&held[i]);
            p->model_count += held[i].optimizer ? 0 : 1;
            p->frozen[p->count - 1] = !held[i].optimizer && held[i].is_copy;
            p->frozen_count += p->frozen[p->count - 1];
        }
        p->parts[i] = (by_checkpoint_part){p->count - 1, held[i].slice};
        p->held[i] = i;
    }
    p->part_count = count;
    return own_names(p, error);
}

by_status by__checkpoint_save_plan_make(by__checkpoint_save_plan *out, by_comm *comm,
                                        const by__checkpoint_held_slice *held, size_t count,
                                        int64_t writers, by_error *error)
{
    by__checkpoint_save_plan p = {0};
    slice_table t = {0};
    by_status status = BY_OK;
    if (comm == NULL || by_comm_size(comm) == 1) {
        status = plan_single(&p, held, count, error);
    } else {
        t.ranks = by_comm_size(comm);
        t.rank = by_comm_rank(comm);
        status = gather(&t, comm, held, count, error);
        if (status == BY_OK) {
            status = group_records(&p, &t, comm, error);
        }
        if (status == BY_OK) {
            drop_copies(&p, &t);
            status = assign(&t, p.count, writers, error);
        }
        if (status == BY_OK) {
            status = list_parts(&p, &t, error);
        }
        if (status == BY_OK) {
            status = own_names(&p, error);
        }
    }
    free(t.writer_of);
    free(t.groups);
    free(t.records);
    free(t.held);
    free(t.counts);
    if (status != BY_OK) {
        by__checkpoint_save_plan_free(&p);
        return status;
    }
    *out = p;
    return BY_OK;
}

by_checkpoint_layout by__checkpoint_save_plan_layout(const by__checkpoint_save_plan *plan)
{
    return (by_checkpoint_layout){.model = plan->tensors,
                                  .model_count = plan->model_count,
                                  .optimizer = plan->tensors + plan->model_count,
                                  .optimizer_count = plan->count - plan->model_count,
                                  .writers = plan->writers,
                                  .frozen = plan->frozen_count > 0 ? plan->frozen : NULL,
                                  .parts = plan->writers > 1 ? plan->parts : NULL,
                                  .part_count = plan->writers > 1 ? plan->part_count : 0};
}

size_t by__checkpoint_save_plan_elements(const by__checkpoint_save_plan *p, size_t part)
{
    size_t elements = 0; /* the slice was checked */
    const by_checkpoint_part *what = &p->parts[part];
    (void)by__checkpoint_slice_check(&p->tensors[what->tensor], &what->slice, &elements, NULL);
    return elements;
}

by_status by__checkpoint_save_plan_order(const by__checkpoint_save_plan *p,
                                         const by_checkpoint_writer *writer, size_t *order,
                                         by_error *error)
{
    size_t *first; /* first part of each tensor */
    size_t next = 0;
    if (p->writers > 1) {
        for (size_t i = 0; i < p->part_count; i++) {
            order[i] = by_checkpoint_order(writer, i);
        }
        return BY_OK;
    }
    /* The parts of a tensor are consecutive. */
    BY_TRY(by__alloc((void **)&first, p->count, sizeof *first, "a checkpoint", error));
    for (size_t i = p->part_count; i > 0; i--) {
        first[p->parts[i - 1].tensor] = i - 1;
    }
    for (size_t i = 0; i < p->count; i++) {
        size_t tensor = by_checkpoint_order(writer, i);
        for (size_t k = first[tensor]; k < p->part_count && p->parts[k].tensor == tensor; k++) {
            order[next++] = k;
        }
    }
    free(first);
    return BY_OK;
}

by_status by__checkpoint_save_plan_add(const by__checkpoint_save_plan *p,
                                       by_checkpoint_writer *writer, size_t part, size_t first,
                                       size_t count, const void *data, by_error *error)
{
    const by_checkpoint_part *what = &p->parts[part];
    return by__checkpoint_writer_add_range(writer, p->writers > 1 ? part : what->tensor,
                                           &what->slice, first, count, data, error);
}

static by_status add_part(const by__checkpoint_save_plan *p, by_checkpoint_writer *writer,
                          size_t part, by__checkpoint_read_held *read, void *user, by_error *error)
{
    const void *data = NULL;
    void *owned = NULL;
    by_status status = read(user, p->held[part], &data, &owned, error);
    if (status == BY_OK) {
        status = by__checkpoint_save_plan_add(
            p, writer, part, 0, by__checkpoint_save_plan_elements(p, part), data, error);
    }
    free(owned);
    return status;
}

by_status by__checkpoint_save_plan_write(const by__checkpoint_save_plan *p,
                                         by_checkpoint_writer *writer,
                                         by__checkpoint_read_held *read, void *user,
                                         by_error *error)
{
    size_t *order;
    if (writer == NULL) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&order, p->part_count, sizeof *order, "a checkpoint", error));
    by_status status = by__checkpoint_save_plan_order(p, writer, order, error);
    for (size_t i = 0; i < p->part_count && status == BY_OK; i++) {
        status = add_part(p, writer, order[i], read, user, error);
    }
    free(order);
    return status;
}

void by__checkpoint_save_plan_free(by__checkpoint_save_plan *plan)
{
    for (size_t i = 0; i < plan->named; i++) {
        free((void *)(uintptr_t)plan->tensors[i].name);
    }
    free(plan->tensors);
    free(plan->frozen);
    free(plan->parts);
    free(plan->held);
    *plan = (by__checkpoint_save_plan){0};
}
