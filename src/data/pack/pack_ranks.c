/* Packing on several ranks: each encodes pieces of the texts into OUTPUT.partial/pieces-KEY, which
 * rank 0 joins as they come, or the rank that finds all of them there. KEY is a hash of all that
 * determines the result, so that what is left of a pack of other texts is never used. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/paths.h"
#include "data/corpus/token_manifest.h"
#include "data/pack/pack_join.h"

#define PIECES    "pieces-"
#define TOKENIZER "tokenizer.json"

typedef struct rank_pack {
    by__data_pack *pack;
    char *output;
    char *partial;
    char *pieces;
    const by_tokenizer *tokenizer; /* NULL: it is made of the texts */
    by_tokenizer *own;
} rank_pack;

/* ---- the directory ---- */

/* Whether the output was made of the same texts: by a rank that was faster than this one. */
static by_status check_output(const rank_pack *r, by_error *error)
{
    const by__data_source *s = &r->pack->source;
    by__data_token_manifest m = {0};
    char *path;
    bool split = r->pack->options.valid_fraction > 0.0;
    BY_TRY(by__path_make(&path, r->output, split ? "train" : "", error));
    bool same =
        by__data_token_manifest_read(&m, path, NULL) == BY_OK && m.source_count == s->count &&
        (r->tokenizer == NULL || strcmp(m.tokenizer_hash, by_tokenizer_hash(r->tokenizer)) == 0);
    for (size_t i = 0; i < s->count && same; i++) {
        same = strcmp(m.sources[i].hash, s->files[i].hash) == 0;
    }
    by__data_token_manifest_free(&m);
    free(path);
    return same ? BY_OK
                : by_error_set(error, BY_EARG,
                               "%s already exists, of other texts: remove it or name another "
                               "output directory",
                               r->output);
}

/* Refuses what another pack has left; else begins. */
static by_status begin(const rank_pack *r, int fd, by_error *error)
{
    char **names;
    size_t count;
    bool other = false;
    BY_TRY(by__list_dir(&names, &count, r->partial, error));
    for (size_t i = 0; i < count; i++) {
        other = other || strncmp(names[i], PIECES, strlen(PIECES)) == 0;
    }
    by__names_free(names, count);
    if (other) {
        return by_error_set(error, BY_EARG,
                            "%s is of other texts or options: remove it or name another output "
                            "directory",
                            r->partial);
    }
    BY_TRY(by__data_pack_clear(fd, r->partial, error));
    return mkdir(r->pieces, 0777) == 0 ? BY_OK : by__io_error(error, "create directory", r->pieces);
}

/* Begins or goes on with OUTPUT.partial; *done: OUTPUT is there. */
static by_status open_partial(const rank_pack *r, bool *done, by_error *error)
{
    int fd;
    BY_TRY(by__data_pack_lock(r->pack, r->partial, r->output, &fd, error));
    *done = fd < 0;
    if (*done) {
        return check_output(r, error);
    }
    by_status status = by__path_exists(r->pieces) ? BY_OK : begin(r, fd, error);
    (void)close(fd);
    return status;
}

/* ---- the tokenizer ---- */

static by_status make_tokenizer(rank_pack *r, const char *path, by_error *error)
{
    by_tokenizer *made;
    if (by__path_exists(path)) {
        return BY_OK;
    }
    BY_TRY(by__data_pack_make_tokenizer(r->pack, &made, error));
    by_status status = by_tokenizer_save(made, path, error);
    by_tokenizer_close(&made);
    return status;
}

/* Waits for the tokenizer that rank 0 makes; or for the output, which others may have finished. */
static by_status await_tokenizer(const rank_pack *r, const char *path, bool *done, by_error *error)
{
    const by_pack_options *o = &r->pack->options;
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    const by_pack_progress progress = {"waiting", 0, r->pack->source.bytes, 0};
    while (!by__path_exists(path)) {
        *done = by__path_exists(r->output);
        if (*done) {
            return check_output(r, error);
        }
        if (o->progress != NULL && !o->progress(o->user, &progress)) {
            return by_error_set(error, BY_ESTOPPED,
                                "stopped while waiting for the tokenizer that rank 0 makes");
        }
        (void)nanosleep(&pause, NULL);
    }
    return BY_OK;
}

/* Rank 0 makes a tokenizer of the texts, as training one on each would take as long as on one. */
static by_status open_tokenizer(rank_pack *r, bool *done, by_error *error)
{
    char *path;
    *done = false;
    if (r->tokenizer != NULL) {
        return BY_OK;
    }
    BY_TRY(by__path_make(&path, r->pieces, TOKENIZER, error));
    by_status status = r->pack->options.rank == 0 ? make_tokenizer(r, path, error)
                                                  : await_tokenizer(r, path, done, error);
    if (status == BY_OK && !*done) {
        status = by_tokenizer_open(&r->own, path, error);
        r->tokenizer = r->own;
    }
    free(path);
    return status;
}

/* ---- packing ---- */

static by_status make_paths(rank_pack *r, by_error *error)
{
    char key[33];
    by_string name = {0};
    char *parent;
    BY_TRY(by__data_pack_find_tokenizer(&r->pack->options, &r->tokenizer, &r->own, error));
    BY_TRY(by__data_pack_key(key, r->pack, r->tokenizer, error));
    BY_TRY(by__data_pack_names(&r->output, &r->partial, r->pack->options.output, error));
    by_string_format(&name, "%s/%s%s", r->partial, PIECES, key);
    BY_TRY(by__string_release(&name, &r->pieces, error));
    r->pack->pieces = r->pieces;
    const char *slash = strrchr(r->output, '/');
    if (slash == NULL || slash == r->output) {
        return BY_OK;
    }
    parent = by__strndup(r->output, (size_t)(slash - r->output));
    by_status status = parent == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                      : by__make_dirs(parent, error);
    free(parent);
    return status;
}

/* Encodes the share of this rank, beside which rank 0 joins the pieces of all. */
static by_status encode_and_join(const rank_pack *r, by_pack_result *result, by_error *error)
{
    const by__data_join join = {r->pack, r->tokenizer, r->partial, r->output};
    by__data_joiner joiner = {0};
    bool is_joiner = r->pack->options.rank == 0;
    int alive;
    BY_TRY(by__data_join_announce(r->pack, &alive, error));
    by_status status = is_joiner ? by__data_joiner_start(&joiner, &join, error) : BY_OK;
    if (status == BY_OK) {
        status = by__data_pack_encode_share(r->pack, r->tokenizer, error);
    }
    (void)close(alive);
    if (status == BY_OK && is_joiner) {
        status = by__data_joiner_await(&joiner, result, error);
    }
    by__data_joiner_close(&joiner);
    return status == BY_OK && !result->complete ? by__data_join_all(&join, result, error) : status;
}

static by_status run(rank_pack *r, by_pack_result *result, by_error *error)
{
    bool done;
    BY_TRY(open_partial(r, &done, error));
    if (!done) {
        double began = by__now();
        BY_TRY(open_tokenizer(r, &done, error));
        result->learn_seconds = by__now() - began;
    }
    if (done) {
        result->complete = true;
        return BY_OK;
    }
    return encode_and_join(r, result, error);
}

/* Whether another rank has finished the output, and removed OUTPUT.partial while this one used it.
 * If result->complete, this rank held the lock of the output: what failed is not of that. */
static bool is_finished(const rank_pack *r, const by_pack_result *result)
{
    return !result->complete && by__path_exists(r->output) && check_output(r, NULL) == BY_OK;
}

by_status by__data_pack_ranks(by__data_pack *pack, by_pack_result *result, by_error *error)
{
    rank_pack r = {.pack = pack};
    by_status status = make_paths(&r, error);
    if (status == BY_OK) {
        status = run(&r, result, error);
        if (status != BY_OK && status != BY_ESTOPPED && is_finished(&r, result)) {
            result->complete = true;
            status = BY_OK;
        }
    }
    pack->pieces = NULL;
    by_tokenizer_close(&r.own);
    free(r.output);
    free(r.partial);
    free(r.pieces);
    return status;
}
