/* The update of state on disk, window by window.
 *
 * Each window has a fixed place in the buffer, where it may be read once the windows that occupied
 * the place have been written. Windows enter and leave the buffer in order, which repeats in each
 * step; those in it are the range [tail, head) of a running count. */
#include <stdlib.h>

#include "trainer/offload/offload_windows.h"

#include "trainer/offload/offload.h"

/* ---- memory ---- */

by_status by__offload_open(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    BY_TRY(by_device_alloc(&o->buffer, t->device, o->buffer_bytes + BY__SCRATCH_ALIGNMENT,
                           "the buffer of what is on disk", error));
    uintptr_t base = by__round_up(o->buffer.address, BY__SCRATCH_ALIGNMENT);
    for (size_t i = 0; i < o->count; i++) {
        by__trainer_window *w = &o->windows[i];
        size_t at = w->at;
        for (int k = 0; k < w->part_count; k++) {
            w->parts[k].transfer.data = (char *)(base + at);
            at += w->parts[k].transfer.bytes;
        }
    }
    for (size_t i = 0; i < o->kind_count; i++) {
        BY_TRY(by__trainer_bind_update(t, o->kinds[i].row, error));
    }
    return BY_OK;
}

/* Waits for transfers in flight, whether they fail or not, and empties the buffer. */
static void finish(by_trainer *t)
{
    by__offload *o = t->offload;
    for (size_t i = 0; i < o->count && by__store_scratch_of(t->store) != NULL; i++) {
        for (int k = 0; k < o->windows[i].part_count; k++) {
            (void)by__store_scratch_wait(by__store_scratch_of(t->store),
                                         &o->windows[i].parts[k].transfer, NULL);
        }
    }
    o->tail = o->head = o->next;
}

void by__offload_close(by_trainer *t)
{
    by__offload *o = t->offload;
    if (o == NULL) {
        return;
    }
    finish(t);
    by_device_free(&o->buffer);
    free(o->windows);
    free(o->kinds);
    free(o);
    t->offload = NULL;
}

/* ---- transfers ---- */

static by_status start(by_trainer *t, by__trainer_window *w, by__store_transfer_kind what,
                       by_error *error)
{
    for (int k = 0; k < w->part_count; k++) {
        w->parts[k].transfer.kind = what;
        BY_TRY(
            by__store_scratch_start(by__store_scratch_of(t->store), &w->parts[k].transfer, error));
    }
    return BY_OK;
}

static bool is_done(const by_trainer *t, const by__trainer_window *w)
{
    for (int k = 0; k < w->part_count; k++) {
        if (!by__store_scratch_is_done(by__store_scratch_of(t->store), &w->parts[k].transfer)) {
            return false;
        }
    }
    return true;
}

static by_status wait(by_trainer *t, by__trainer_window *w, by_error *error)
{
    double begin = by__now();
    for (int k = 0; k < w->part_count; k++) {
        BY_TRY(
            by__store_scratch_wait(by__store_scratch_of(t->store), &w->parts[k].transfer, error));
    }
    t->offload->waited += by__now() - begin;
    return BY_OK;
}

static by__trainer_window *window_of(by__offload *o, uint64_t number)
{
    return &o->windows[number % o->trained];
}

/* Returns true if the place of the next window is free. */
static bool is_free(by__offload *o)
{
    const by__trainer_window *w = window_of(o, o->head);
    for (uint64_t s = o->tail; s < o->head; s++) {
        const by__trainer_window *other = window_of(o, s);
        if (other == w || (w->at < other->at + other->bytes && other->at < w->at + w->bytes)) {
            return false;
        }
    }
    return true;
}

/* Starts as many reads as there is room for. */
static by_status read_ahead(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    for (;;) {
        while (o->tail < o->next && is_done(t, window_of(o, o->tail))) {
            o->tail++;
        }
        if (!is_free(o)) {
            return BY_OK;
        }
        BY_TRY(start(t, window_of(o, o->head), BY__TRANSFER_READ, error));
        o->head++;
    }
}

/* Waits until the next window is in memory. */
static by_status load_next(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    BY_TRY(read_ahead(t, error));
    while (o->head == o->next) {
        BY_TRY(wait(t, window_of(o, o->tail), error));
        BY_TRY(read_ahead(t, error));
    }
    return wait(t, window_of(o, o->next), error);
}

/* Discards data read ahead if the file was written in the meantime. */
static void drop_stale(by_trainer *t)
{
    by__offload *o = t->offload;
    const by__store_scratch *scratch = by__store_scratch_of(t->store);
    uint64_t version = scratch == NULL ? 0 : by__store_scratch_version(scratch);
    if (version != o->version) {
        finish(t);
        o->version = version;
    }
}

/* ---- the update ---- */

/* Binds the values of a window, on disk or not. */
static by_status bind(by_trainer *t, const by__trainer_window *w, by__exec_program_row *row,
                      by_error *error)
{
    char name[64];
    bool whole = w->tensor != BY__NO_ENTRY;
    int gradients = t->flats.gradient_sets[t->flats.sum_set];
    const int flats[] = {t->flats.masters, t->flats.copies, gradients, gradients};
    const char *const names[] = {BY__WINDOW_UNIT_NAME, "copy.unit", "grad.unit", "kept.unit"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(flats); i++) {
        bool has =
            i == 0 || (i == 1 ? w->kinds[BY__USE_COPIES] >= 0 : w->kinds[BY__USE_UPDATE] >= 0);
        by_memory memory = !has    ? (by_memory){0}
                           : whole ? by__store_buffer(t->store, flats[i], w->tensor)
                                   : by__store_memory(t->store, flats[i], w->part);
        if (memory.bytes > 0) {
            BY_TRY(by__exec_row_bind(row, names[i], memory, error));
        }
    }
    for (int k = 0; k < w->part_count; k++) {
        const by__trainer_window_part *p = &w->parts[k];
        const by_memory memory = {.device = t->offload->buffer.device,
                                  .address = (uintptr_t)p->transfer.data,
                                  .bytes = p->transfer.bytes};
        (void)snprintf(name, sizeof name, "%s.%s", by__store_flat_name(t->store, p->flat),
                       BY__WINDOW_UNIT_NAME);
        BY_TRY(by__exec_row_bind(row, p->flat == t->flats.masters ? BY__WINDOW_UNIT_NAME : name,
                                 memory, error));
    }
    return BY_OK;
}

/* Runs the program of kind `number` on a window in memory. */
static by_status compute(by_trainer *t, const by__trainer_window *w, int number, by_error *error)
{
    by__exec_program_row *row = t->offload->kinds[number].row;
    BY_TRY(bind(t, w, row, error));
    return by_program_run(row->program, error);
}

by_status by__offload_update(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    o->waited = 0.0;
    if (o->trained == 0) { /* all tensors belong to other ranks */
        return BY_OK;
    }
    drop_stale(t);
    for (size_t i = 0; i < o->trained; i++) {
        by__trainer_window *w = window_of(o, o->next);
        BY_TRY(load_next(t, error));
        BY_TRY(compute(t, w, w->kinds[BY__USE_UPDATE], error));
        BY_TRY(w->kinds[BY__USE_AVERAGE] >= 0 ? compute(t, w, w->kinds[BY__USE_AVERAGE], error)
                                              : BY_OK);
        BY_TRY(start(t, w, BY__TRANSFER_WRITE, error));
        o->next++;
    }
    return read_ahead(t, error);
}

by_status by__offload_copy(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    finish(t);
    for (size_t i = 0; i < o->count; i++) {
        by__trainer_window *w = &o->windows[i];
        if (w->kinds[BY__USE_COPIES] >= 0) {
            by__store_transfer *master = &w->parts[0].transfer;
            master->kind = BY__TRANSFER_READ;
            BY_TRY(by__store_scratch_start(by__store_scratch_of(t->store), master, error));
            BY_TRY(by__store_scratch_wait(by__store_scratch_of(t->store), master, error));
            BY_TRY(compute(t, w, w->kinds[BY__USE_COPIES], error));
        }
    }
    return BY_OK;
}

/* One window after another, without overlap: this is for evaluations, not for steps. */
by_status by__offload_swap(by_trainer *t, bool back, by_error *error)
{
    by__offload *o = t->offload;
    for (size_t i = 0; i < o->trained; i++) { /* writes of the last update must be complete */
        BY_TRY(wait(t, &o->windows[i], error));
    }
    finish(t);
    for (size_t i = 0; i < o->trained; i++) {
        by__trainer_window *w = &o->windows[i];
        BY_TRY(start(t, w, BY__TRANSFER_READ, error));
        BY_TRY(wait(t, w, error));
        BY_TRY(compute(t, w, w->kinds[back ? BY__USE_SWAP_OUT : BY__USE_SWAP_IN], error));
        BY_TRY(start(t, w, BY__TRANSFER_WRITE, error));
        BY_TRY(wait(t, w, error));
    }
    return BY_OK;
}

double by__offload_waited(const by_trainer *t)
{
    return t->offload->waited;
}
