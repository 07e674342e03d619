/* Saves in the background.
 *
 * The staging buffer is a ring. A producer copies the parts of a checkpoint into it, in the order
 * of the files, and the saver's thread writes them out from there. If the thread may read the
 * values while others compute with them, it is the producer too: it copies as long as there is
 * room, and writes when there is none, so that everything is copied as early as the buffer permits.
 * Otherwise the thread that begins the save copies, and waits for room. Each part begins at a
 * multiple of RING_UNIT, so that no element is cut where the ring ends.
 *
 * All collectives of a save run on the saver's thread, on a separate communicator, so that they are
 * not mixed with those of computing threads. */
#include <stdlib.h>
#include <string.h>

#include "base/worker_thread.h"
#include "checkpoint/storage.h"

enum { RING_UNIT = 64, MIN_STAGING = 64 << 10, PIECE = 4 << 20 };

/* A position in the parts, in their order. */
typedef struct part_cursor {
    size_t part;   /* its index in the order */
    size_t offset; /* bytes of it that are done */
    size_t bytes;  /* size of it */
} part_cursor;

struct by__checkpoint_saver {
    by_comm *comm;
    uint8_t *ring;
    size_t capacity;
    /* of the current save: a deep copy, except plan and user */
    by__checkpoint_save_request request;
    by_checkpoint_writer *writer;
    size_t *order; /* of the parts */
    size_t part_count;
    part_cursor from; /* position of the producer, */
    part_cursor to;   /* and of the writer */
    const uint8_t *data;
    void *owned;
    by__base_worker thread; /* its lock protects the other members */
    uint64_t produced;      /* bytes written to the ring, */
    uint64_t consumed;      /* and read from it */
    bool is_pending;        /* begun, and not waited for */
    bool is_begun;          /* the thread knows the order */
    bool is_copied;         /* nothing more will be read */
    bool is_done;
    by_status status;
    by_error error;
    double began;
    double ended;
    double stalled;
};

/* ---- requests ---- */

static void free_request(by__checkpoint_save_request *r)
{
    for (size_t i = 0; i < r->value_count; i++) {
        free((void *)(uintptr_t)r->values[i].key);
        if (r->values[i].kind == BY_VALUE_STRING) {
            free((void *)(uintptr_t)r->values[i].as.string);
        }
    }
    for (size_t i = 0; i < r->file_count; i++) {
        free((void *)(uintptr_t)r->files[i].name);
        free((void *)(uintptr_t)r->files[i].data);
        free((void *)(uintptr_t)r->files[i].path);
        free((void *)(uintptr_t)r->files[i].trained_under);
    }
    free((void *)(uintptr_t)r->values);
    free((void *)(uintptr_t)r->files);
    free((void *)(uintptr_t)r->root);
    *r = (by__checkpoint_save_request){0};
}

/* Copies a text; NULL for NULL. Sets *failed if there is no memory. */
static char *copy_text(const char *text, bool *failed)
{
    char *copy = text == NULL ? NULL : by__strdup(text);
    *failed = *failed || (text != NULL && copy == NULL);
    return copy;
}

static by_status copy_request(by__checkpoint_save_request *out,
                              const by__checkpoint_save_request *r, by_error *error)
{
    bool failed = false;
    by_checkpoint_value *values;
    by_checkpoint_file *files;
    *out = *r;
    out->value_count = out->file_count = 0;
    out->values = NULL;
    out->files = NULL;
    out->root = copy_text(r->root, &failed);
    BY_TRY(by__alloc((void **)&values, r->value_count, sizeof *values, "a checkpoint", error));
    out->values = values;
    BY_TRY(by__alloc((void **)&files, r->file_count, sizeof *files, "a checkpoint", error));
    out->files = files;
    for (size_t i = 0; i < r->value_count; i++) {
        values[i] = r->values[i];
        values[i].key = copy_text(values[i].key, &failed);
        if (values[i].kind == BY_VALUE_STRING) {
            values[i].as.string = copy_text(values[i].as.string, &failed);
        }
        out->value_count++;
    }
    for (size_t i = 0; i < r->file_count; i++) {
        const by_checkpoint_file *f = &r->files[i];
        files[i] =
            (by_checkpoint_file){.name = copy_text(f->name, &failed),
                                 .data = f->data == NULL ? NULL : by__strndup(f->data, f->size),
                                 .size = f->size,
                                 .path = copy_text(f->path, &failed),
                                 .trained_under = copy_text(f->trained_under, &failed)};
        failed = failed || (f->data != NULL && files[i].data == NULL);
        out->file_count++;
    }
    return failed ? by_error_set(error, BY_EMEMORY, "out of memory: a checkpoint") : BY_OK;
}

/* What the leading process does after a checkpoint is on disk. */
static by_status follow_up(const by__checkpoint_save_request *r, by_error *error)
{
    if (r->is_best) {
        BY_TRY(by_checkpoint_mark_best(r->root, r->step, r->loss, error));
    }
    return r->retention.keep == 0 ? BY_OK
                                  : by_checkpoint_retain(r->root, &r->retention, NULL, NULL, error);
}

static bool leads(const by_comm *comm)
{
    return comm == NULL || by_comm_rank(comm) == 0;
}

static by_status commit(by_comm *comm, by_checkpoint_writer **writer, by_status status,
                        const by__checkpoint_save_request *r, by_error *error)
{
    BY_TRY(by__checkpoint_commit_together(writer, comm, status, r->values, r->value_count, r->files,
                                          r->file_count, error));
    return by__checkpoint_follow(comm, leads(comm) ? follow_up(r, error) : BY_OK, error);
}

by_status by__checkpoint_save_together(by_comm *comm, const by__checkpoint_save_request *r,
                                       by_error *error)
{
    by_checkpoint_writer *writer;
    by_checkpoint_layout layout = by__checkpoint_save_plan_layout(r->plan);
    BY_TRY(by__checkpoint_begin_together(&writer, comm, r->plan->writer, r->root, r->step, &layout,
                                         error));
    by_status status = by__checkpoint_save_plan_write(r->plan, writer, r->read, r->user, error);
    return commit(comm, &writer, status, r, error);
}

/* ---- the ring ---- */

static size_t padded(size_t n)
{
    return by__round_up(n, RING_UNIT);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t element_size(const by__checkpoint_saver *s, const part_cursor *c)
{
    const by__checkpoint_save_plan *p = s->request.plan;
    return by_dtype_size(p->tensors[p->parts[s->order[c->part]].tensor].dtype);
}

static void enter_part(const by__checkpoint_saver *s, part_cursor *c)
{
    c->offset = 0;
    c->bytes = c->part < s->part_count
                   ? by__checkpoint_save_plan_elements(s->request.plan, s->order[c->part]) *
                         element_size(s, c)
                   : 0;
}

/* Advances by n bytes, into the next part at the end of one. Returns true at an end. */
static bool advance(const by__checkpoint_saver *s, part_cursor *c, size_t n)
{
    c->offset += n;
    if (c->offset < c->bytes) {
        return false;
    }
    c->part++;
    enter_part(s, c);
    return true;
}

/* Bytes between two counts, at most to the end of the ring. */
static size_t in_ring(const by__checkpoint_saver *s, uint64_t at, uint64_t end)
{
    return smaller((size_t)(end - at), s->capacity - (size_t)(at % s->capacity));
}

static by_status fetch(by__checkpoint_saver *s, by_error *error)
{
    const by__checkpoint_save_plan *p = s->request.plan;
    const void *data = NULL;
    if (s->data != NULL) {
        return BY_OK;
    }
    BY_TRY(
        s->request.read(s->request.user, p->held[s->order[s->from.part]], &data, &s->owned, error));
    s->data = data;
    return data != NULL ? BY_OK
                        : by_error_set(error, BY_EARG, "a part of a checkpoint has no data");
}

/* Copies a piece; *did is false if there is no room, or nothing left. Called by the producer
 * only. */
static by_status produce(by__checkpoint_saver *s, bool *did, by_error *error)
{
    part_cursor *c = &s->from;
    by__base_worker_lock(&s->thread);
    size_t room = in_ring(s, s->produced, s->consumed + s->capacity);
    uint64_t at = s->produced % s->capacity;
    by__base_worker_unlock(&s->thread);
    *did = c->part < s->part_count && room > 0;
    if (!*did) {
        return BY_OK;
    }
    BY_TRY(fetch(s, error));
    size_t n = smaller(smaller(c->bytes - c->offset, room), PIECE);
    memcpy(s->ring + at, s->data + c->offset, n);
    if (advance(s, c, n)) {
        free(s->owned);
        s->owned = NULL;
        s->data = NULL;
    }
    by__base_worker_lock(&s->thread);
    s->produced += padded(n);
    s->is_copied = s->is_copied || c->part == s->part_count;
    by__base_worker_notify(&s->thread);
    by__base_worker_unlock(&s->thread);
    return BY_OK;
}

/* Writes a piece; *did is false if there is none yet. */
static by_status consume(by__checkpoint_saver *s, bool *did, by_error *error)
{
    part_cursor *c = &s->to;
    by__base_worker_lock(&s->thread);
    size_t there = in_ring(s, s->consumed, s->produced);
    uint64_t at = s->consumed % s->capacity;
    by__base_worker_unlock(&s->thread);
    *did = there > 0;
    if (!*did) {
        return BY_OK;
    }
    size_t n = smaller(smaller(c->bytes - c->offset, there), PIECE);
    size_t size = element_size(s, c);
    BY_TRY(by__checkpoint_save_plan_add(s->request.plan, s->writer, s->order[c->part],
                                        c->offset / size, n / size, s->ring + at, error));
    (void)advance(s, c, n);
    by__base_worker_lock(&s->thread);
    s->consumed += padded(n);
    by__base_worker_notify(&s->thread);
    by__base_worker_unlock(&s->thread);
    return BY_OK;
}

/* ---- the thread ---- */

/* Determines order and number of the parts; those without elements are skipped. */
static by_status plan_parts(by__checkpoint_saver *s, by_error *error)
{
    const by__checkpoint_save_plan *p = s->request.plan;
    size_t kept = 0;
    if (s->writer == NULL) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&s->order, p->part_count, sizeof *s->order, "a checkpoint", error));
    BY_TRY(by__checkpoint_save_plan_order(p, s->writer, s->order, error));
    for (size_t i = 0; i < p->part_count; i++) {
        if (by__checkpoint_save_plan_elements(p, s->order[i]) > 0) {
            s->order[kept++] = s->order[i];
        }
    }
    s->part_count = kept;
    enter_part(s, &s->from);
    enter_part(s, &s->to);
    return BY_OK;
}

static by_status begin_files(by__checkpoint_saver *s, by_error *error)
{
    const by__checkpoint_save_request *r = &s->request;
    by_checkpoint_layout layout = by__checkpoint_save_plan_layout(r->plan);
    BY_TRY(by__checkpoint_begin_together(&s->writer, s->comm, r->plan->writer, r->root, r->step,
                                         &layout, error));
    return plan_parts(s, error);
}

/* Signals that the order is known or, if `status` is an error, that there will be none. */
static void signal_begun(by__checkpoint_saver *s, by_status status)
{
    by__base_worker_lock(&s->thread);
    s->is_begun = true;
    s->status = status;
    s->is_copied = status != BY_OK || s->part_count == 0;
    by__base_worker_notify(&s->thread);
    by__base_worker_unlock(&s->thread);
}

/* Waits until the producer has made progress, or failed. */
static by_status wait_for_producer(by__checkpoint_saver *s)
{
    by__base_worker_lock(&s->thread);
    while (s->produced == s->consumed && s->status == BY_OK) {
        by__base_worker_wait(&s->thread);
    }
    by_status status = s->status;
    by__base_worker_unlock(&s->thread);
    return status;
}

static by_status write_parts(by__checkpoint_saver *s, by_error *error)
{
    while (s->to.part < s->part_count) {
        bool did = false;
        if (s->request.background) {
            BY_TRY(produce(s, &did, error));
        }
        if (!did) {
            BY_TRY(consume(s, &did, error));
        }
        if (!did) {
            BY_TRY(wait_for_producer(s)); /* its error is in s->error */
        }
    }
    return BY_OK;
}

static void save(by__checkpoint_saver *s)
{
    by_error error = {0};
    by_status status = begin_files(s, &error);
    bool began = status == BY_OK || s->writer != NULL;
    signal_begun(s, status);
    if (status == BY_OK) {
        status = write_parts(s, &error);
        by__base_worker_lock(&s->thread);
        if (s->status != BY_OK) { /* error of the producer */
            error = s->error;
        }
        s->status = status;
        s->is_copied = true;
        by__base_worker_notify(&s->thread);
        by__base_worker_unlock(&s->thread);
    }
    if (began) {
        status = commit(s->comm, &s->writer, status, &s->request, &error);
    }
    by__base_worker_lock(&s->thread);
    s->status = status;
    s->error = error;
    s->ended = by__now();
    s->is_done = true;
    by__base_worker_notify(&s->thread);
    by__base_worker_unlock(&s->thread);
}

static void *work(void *user)
{
    by__checkpoint_saver *s = user;
    memset(s->ring, 0, s->capacity); /* touches the pages now, and not while a step waits */
    by__base_worker_lock(&s->thread);
    for (;;) {
        while (!s->thread.stop && (!s->is_pending || s->is_done)) {
            by__base_worker_wait(&s->thread);
        }
        if (!s->is_pending || s->is_done) {
            break;
        }
        by__base_worker_unlock(&s->thread);
        save(s);
        by__base_worker_lock(&s->thread);
    }
    by__base_worker_unlock(&s->thread);
    return NULL;
}

/* ---- the caller's side ---- */

by_status by__checkpoint_saver_open(by__checkpoint_saver **out, by_comm **comm, size_t staging,
                                    by_error *error)
{
    by__checkpoint_saver *s;
    by_status status = by__alloc((void **)&s, 1, sizeof *s, "saves", error);
    if (status != BY_OK) {
        by_comm_close(comm);
        return status;
    }
    s->comm = *comm;
    *comm = NULL;
    s->capacity = by__round_up(staging < MIN_STAGING ? MIN_STAGING : staging, RING_UNIT);
    status = by__alloc_aligned((void **)&s->ring, s->capacity, "checkpoint.staging", error);
    if (status == BY_OK) {
        status = by__base_worker_start(&s->thread, work, s, "the thread of checkpoints", error);
    }
    if (status != BY_OK) {
        by__checkpoint_saver_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}

/* Releases a save that has ended. */
static void clear(by__checkpoint_saver *s)
{
    free(s->owned);
    free(s->order);
    free_request(&s->request);
    s->owned = NULL;
    s->data = NULL;
    s->order = NULL;
    s->part_count = 0;
    s->from = s->to = (part_cursor){0};
    s->produced = s->consumed = 0;
    s->is_pending = s->is_begun = s->is_copied = s->is_done = false;
    s->status = BY_OK;
    s->error = (by_error){0};
    s->stalled = 0.0;
}

void by__checkpoint_saver_close(by__checkpoint_saver **saver)
{
    by__checkpoint_saver *s = *saver;
    if (s == NULL) {
        return;
    }
    by__base_worker_close(&s->thread);
    clear(s);
    by_comm_close(&s->comm);
    free(s->ring);
    free(s);
    *saver = NULL;
}

/* Copies everything, for the thread to write. */
static void produce_all(by__checkpoint_saver *s)
{
    by_error error = {0};
    by_status status = BY_OK;
    by__base_worker_lock(&s->thread);
    while (!s->is_begun) {
        by__base_worker_wait(&s->thread);
    }
    while (!s->is_copied && status == BY_OK) { /* also if the thread has failed */
        bool did;
        by__base_worker_unlock(&s->thread);
        status = produce(s, &did, &error); /* progress, unless the ring is full */
        by__base_worker_lock(&s->thread);
        if (status == BY_OK && !s->is_copied && s->produced - s->consumed == s->capacity) {
            by__base_worker_wait(&s->thread);
        }
    }
    if (status != BY_OK && s->status == BY_OK) {
        s->status = status;
        s->error = error;
        s->is_copied = true;
        by__base_worker_notify(&s->thread);
    }
    by__base_worker_unlock(&s->thread);
}

by_status by__checkpoint_saver_begin(by__checkpoint_saver *s,
                                     const by__checkpoint_save_request *request, by_error *error)
{
    double began = by__now();
    by__checkpoint_save_request copy;
    if (s->is_pending) {
        return by_error_set(error, BY_ESTATE, "a save is under way");
    }
    by_status status = copy_request(&copy, request, error);
    if (status != BY_OK) {
        free_request(&copy);
        return status;
    }
    by__base_worker_lock(&s->thread);
    s->request = copy;
    s->began = began;
    s->is_pending = true;
    by__base_worker_notify(&s->thread);
    by__base_worker_unlock(&s->thread);
    if (!copy.background) {
        produce_all(s);
    }
    s->stalled = by__now() - began;
    return BY_OK;
}

void by__checkpoint_saver_wait_copied(by__checkpoint_saver *s)
{
    double began = by__now();
    by__base_worker_lock(&s->thread);
    while (s->is_pending && !s->is_copied) {
        by__base_worker_wait(&s->thread);
    }
    s->stalled += s->is_pending ? by__now() - began : 0.0;
    by__base_worker_unlock(&s->thread);
}

bool by__checkpoint_saver_is_pending(by__checkpoint_saver *s)
{
    return s->is_pending;
}

bool by__checkpoint_saver_is_done(by__checkpoint_saver *s)
{
    by__base_worker_lock(&s->thread);
    bool is_done = s->is_pending && s->is_done;
    by__base_worker_unlock(&s->thread);
    return is_done;
}

bool by__checkpoint_saver_has_failed(by__checkpoint_saver *s)
{
    by__base_worker_lock(&s->thread);
    bool failed = s->is_pending && s->is_done && s->status != BY_OK;
    by__base_worker_unlock(&s->thread);
    return failed;
}

by_status by__checkpoint_saver_wait(by__checkpoint_saver *s, by__checkpoint_save_end *end,
                                    by_error *error)
{
    by__base_worker_lock(&s->thread);
    while (s->is_pending && !s->is_done) {
        by__base_worker_wait(&s->thread);
    }
    by__base_worker_unlock(&s->thread);
    by_status status = s->is_pending ? s->status : BY_OK;
    if (end != NULL) {
        *end = (by__checkpoint_save_end){s->request.step, s->stalled, s->ended - s->began};
    }
    if (status != BY_OK) {
        status = by_error_set(error, status, "%s", s->error.message);
    }
    by__base_worker_lock(&s->thread);
    clear(s);
    by__base_worker_unlock(&s->thread);
    return status;
}
