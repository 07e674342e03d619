/* Decides which checkpoints are kept, and removes the others. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "checkpoint/storage.h"

/* Renames first: a crash leaves a .trash directory that no reader looks at. */
static by_status remove_step(const char *root, uint64_t step, const char *directory,
                             by_error *error)
{
    by_string text = {0};
    char *trash;
    by_string_format(&text, "%s/.trash-step-%08" PRIu64 "-%ld", root, step, (long)getpid());
    BY_TRY(by__string_release(&text, &trash, error));
    by_status status = BY_OK;
    if (rename(directory, trash) != 0) {
        status = by_error_set(error, BY_EIO, "cannot rename %s to %s: %s", directory, trash,
                              strerror(errno));
    }
    if (status == BY_OK) {
        status = by__sync_dir(root, error);
    }
    if (status == BY_OK) {
        status = by__remove_tree(trash, error);
    }
    free(trash);
    return status;
}

/* ---- candidates of a root ---- */

typedef struct retention_candidate {
    uint64_t step;
    bool valid;
    bool kept;
    double loss; /* NaN: unknown */
    by__checkpoint_manifest manifest;
} retention_candidate;

typedef struct candidates {
    retention_candidate *items; /* newest first */
    size_t count;
    bool marked; /* best.json names a step */
    uint64_t best;
} candidates;

static void free_candidates(candidates *c)
{
    for (size_t i = 0; i < c->count; i++) {
        by__checkpoint_manifest_free(&c->items[i].manifest);
    }
    free(c->items);
    *c = (candidates){0};
}

/* `known`: results of an earlier verification; steps that it lists as invalid are refused. */
static bool was_refused(const candidates *known, uint64_t step)
{
    for (size_t i = 0; known != NULL && i < known->count; i++) {
        if (known->items[i].step == step) {
            return !known->items[i].valid;
        }
    }
    return false;
}

static by_status find_candidates(candidates *out, const char *root, bool verify,
                                 const candidates *known, by_error *error)
{
    uint64_t *steps;
    size_t count;
    double loss;
    candidates c = {0};
    BY_TRY(by__checkpoint_root_best(&c.marked, &c.best, &loss, root, error));
    BY_TRY(by__checkpoint_root_steps(&steps, &count, root, error));
    by_status status = by__alloc((void **)&c.items, count, sizeof *c.items, "step list", error);
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        retention_candidate *item = &c.items[c.count++];
        char *directory = NULL;
        *item = (retention_candidate){.step = steps[i], .loss = (double)NAN};
        item->valid = !was_refused(known, steps[i]) &&
                      by__checkpoint_root_read(&item->manifest, &directory, root, steps[i], verify,
                                               NULL) == BY_OK;
        if (item->valid) {
            item->loss = by__checkpoint_loss(directory);
            free(directory);
        }
    }
    free(steps);
    if (status != BY_OK) {
        free_candidates(&c);
        return status;
    }
    *out = c;
    return BY_OK;
}

/* ---- decisions ---- */

/* Keeps the checkpoints that own a file of this one. References point to the owner of the bytes, so
 * they need not be followed further. */
static void keep_referenced(candidates *c, const by__checkpoint_manifest *manifest)
{
    for (size_t i = 0; i < manifest->files.count; i++) {
        uint64_t step;
        const char *in = manifest->files.items[i].in;
        for (size_t k = 0; in != NULL && by__checkpoint_step_of_name(in, &step) && k < c->count;
             k++) {
            c->items[k].kept = c->items[k].kept || c->items[k].step == step;
        }
    }
}

/* Returns true if fewer than `keep` checkpoints have a lower loss; of equal ones the newest
 * counts. */
static bool is_among_best(const candidates *c, size_t i, const by_retention *r)
{
    size_t better = 0;
    for (size_t k = 0; k < c->count; k++) {
        const retention_candidate *other = &c->items[k];
        better += other->valid && other->step <= r->last &&
                  (other->loss < c->items[i].loss || (k < i && other->loss == c->items[i].loss));
    }
    return isfinite(c->items[i].loss) && better < r->keep_best;
}

/* Servers map the files of a checkpoint, and open them again when a worker restarts. Each lease is
 * an open file, so it is closed again until the checkpoint is removed. */
static bool is_used(const retention_candidate *item, const char *root)
{
    by__checkpoint_lease *alone = NULL;
    char *directory = NULL;
    bool used = by__checkpoint_step_path(&directory, root, item->step, NULL) != BY_OK ||
                !by__checkpoint_lease_exclusive(&alone, directory);
    by__checkpoint_lease_close(&alone);
    free(directory);
    return used;
}

static void decide(candidates *c, const char *root, const by_retention *r)
{
    size_t newest = 0;
    for (size_t i = 0; i < c->count; i++) {
        retention_candidate *item = &c->items[i];
        if (!item->valid || item->step > r->last) {
            item->kept = true; /* belongs to another user */
            continue;
        }
        newest++;
        item->kept = item->kept || newest <= r->keep || (c->marked && item->step == c->best) ||
                     (r->keep_every > 0 && item->step % r->keep_every == 0) ||
                     (r->also > 0 && item->step == r->also) || is_among_best(c, i, r) ||
                     is_used(item, root);
        if (item->kept) {
            keep_referenced(c, &item->manifest);
        }
    }
}

/* ---- removal ---- */

/* Removes a checkpoint, unless a server has begun to use it since the decision. */
static by_status remove_item(candidates *c, retention_candidate *item, const char *root,
                             by_error *error)
{
    by__checkpoint_lease *alone = NULL;
    char *directory;
    BY_TRY(by__checkpoint_step_path(&directory, root, item->step, error));
    by_status status = BY_OK;
    if (by__checkpoint_lease_exclusive(&alone, directory)) {
        status = remove_step(root, item->step, directory, error);
        by__checkpoint_lease_close(&alone);
    } else {
        item->kept = true;
        keep_referenced(c, &item->manifest); /* these are older, and come after it */
    }
    free(directory);
    return status;
}

static by_status remove_rest(candidates *c, const char *root, by_error *error)
{
    by_status status = BY_OK;
    for (size_t i = 0; i < c->count && status == BY_OK; i++) {
        if (!c->items[i].kept) {
            status = remove_item(c, &c->items[i], root, error);
        }
    }
    return status;
}

/* Lists the steps that are not kept, ascending; returns their number. */
static size_t list_removed(uint64_t *out, const candidates *c)
{
    size_t n = 0;
    for (size_t i = c->count; i > 0; i--) {
        if (!c->items[i - 1].kept) {
            out[n++] = c->items[i - 1].step;
        }
    }
    return n;
}

static by_status retain(const char *root, const by_retention *r, const candidates *known,
                        uint64_t **steps, size_t *count, by_error *error)
{
    candidates c;
    uint64_t *removed = NULL;
    BY_TRY(find_candidates(&c, root, false, known, error));
    decide(&c, root, r);
    by_status status =
        steps == NULL ? BY_OK
                      : by__alloc((void **)&removed, c.count, sizeof *removed, "step list", error);
    if (status == BY_OK && !r->is_dry_run) {
        status = remove_rest(&c, root, error);
    }
    if (status == BY_OK && steps != NULL) {
        *count = list_removed(removed, &c);
        *steps = removed;
        removed = NULL;
    }
    free(removed);
    free_candidates(&c);
    return status;
}

static void unlock(int lock)
{
    if (lock >= 0) {
        (void)flock(lock, LOCK_UN); /* a forked child may have the descriptor too */
        (void)close(lock);
    }
}

by_status by_checkpoint_retain(const char *root, const by_retention *r, uint64_t **steps,
                               size_t *count, by_error *error)
{
    int lock = -1;
    candidates known = {0};
    if (r->keep == 0) {
        return by_error_set(error, BY_EARG, "keep must be at least 1");
    }
    /* Without the lock, because verification takes long. */
    if (r->verify) {
        BY_TRY(find_candidates(&known, root, true, NULL, error));
    }
    by_status status = r->is_dry_run ? BY_OK : by__checkpoint_root_lock(&lock, root, error);
    if (status == BY_OK) {
        status = retain(root, r, r->verify ? &known : NULL, steps, count, error);
    }
    unlock(lock);
    free_candidates(&known);
    return status;
}

by_status by__checkpoint_root_drop_after(const char *root, uint64_t step, by_error *error)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    int lock = -1;
    by_status status = by__checkpoint_root_lock(&lock, root, error);
    if (status == BY_OK) {
        status = by__checkpoint_root_steps(&steps, &count, root, error);
    }
    for (size_t i = 0; i < count && steps[i] > step && status == BY_OK; i++) {
        char *directory = NULL;
        status = by__checkpoint_step_path(&directory, root, steps[i], error);
        status = status == BY_OK ? remove_step(root, steps[i], directory, error) : status;
        free(directory);
    }
    unlock(lock);
    free(steps);
    return status;
}

by_status by_checkpoint_prune(const char *root, size_t keep, by_error *error)
{
    const by_retention retention = {.keep = keep, .last = UINT64_MAX};
    return by_checkpoint_retain(root, &retention, NULL, NULL, error);
}
