#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/paths.h"
#include "data/image/image_pack.h"
#include "data/image/picture_use.h"
#include "formats/shards/tar_write.h"

#define SHARD_BYTES ((uint64_t)256 << 20)

const char *by__image_plan_name(char out[BY__IMAGE_PLAN_NAME], size_t shard)
{
    (void)snprintf(out, BY__IMAGE_PLAN_NAME, "shard-%06zu.tar", shard);
    return out;
}

uint64_t by__image_plan_place(by_string *before, uint64_t at, size_t number, int32_t label,
                              const char *ending, uint64_t size)
{
    char name[40];
    char text[16];
    size_t begin = before->length;
    int length = snprintf(text, sizeof text, "%d", (int)label);
    (void)snprintf(name, sizeof name, "%09zu.cls", number);
    by__format_tar_member(before, name, text, (size_t)length);
    size_t gap = by__format_tar_gap(at + (before->length - begin), size);
    if (gap > 0) {
        by__format_tar_pad(before, gap);
    }
    (void)snprintf(name, sizeof name, "%09zu.%s", number, ending);
    by__format_tar_header(before, name, size);
    return before->length - begin + (size + BY__TAR_BLOCK - 1) / BY__TAR_BLOCK * BY__TAR_BLOCK;
}

/* ---- the pictures ---- */

static by_status find_size(uint64_t *out, by__image_plan *plan, const by__image_picture_file *f,
                           by_error *error)
{
    const by_image_range *r = &f->range;
    struct stat info;
    *out = r->page.size > 0 ? r->page.length : r->size;
    if (*out > 0) {
        return BY_OK;
    }
    if (plan->remote != NULL && by_remote_is(f->path)) {
        by__remote_file *file;
        BY_TRY(by__remote_find(&file, plan->remote, f->path, error));
        *out = by__remote_size(file);
        return BY_OK;
    }
    if (stat(f->path, &info) != 0) {
        return by__io_error(error, "read", f->path);
    }
    *out = (uint64_t)info.st_size;
    return BY_OK;
}

/* Leaves out samples that are damaged, or refuses them. */
static by_status find_sizes(by__image_plan *plan, bool skip, by_error *error)
{
    by__image_folder *f = &plan->folder;
    size_t kept = 0;
    BY_TRY(by__alloc((void **)&plan->sizes, f->count, sizeof *plan->sizes, "sizes", error));
    for (size_t i = 0; i < f->count; i++) {
        by__image_picture_file *file = &f->files[i];
        by_error why = {.status = BY_EFORMAT};
        uint64_t size = 0;
        if (file->range.problem == NULL) {
            BY_TRY(find_size(&size, plan, file, error));
        }
        if (size == 0 && !skip) {
            (void)snprintf(why.message, sizeof why.message, "%s",
                           file->range.problem != NULL ? file->range.problem : "it is empty");
            return by__image_picture_refuse(file->path, &file->range, &why,
                                            " (--corrupt skip leaves it out)", error);
        }
        if (size == 0) {
            plan->skipped++;
            by__image_folder_free_file(file);
            *file = (by__image_picture_file){0};
            continue;
        }
        plan->sizes[kept] = size;
        by__image_picture_file moved = *file;
        *file = (by__image_picture_file){0};
        f->files[kept++] = moved;
    }
    f->count = kept;
    return kept > 0 ? BY_OK : by_error_set(error, BY_EFORMAT, "none of the pictures can be read");
}

/* ---- the shards ---- */

static by_status name_classes(by__image_plan *plan, by_error *error)
{
    by_string text = {0};
    const by__image_folder *f = &plan->folder;
    if (f->class_count == 0) {
        return BY_OK;
    }
    by__string_append(&text, "{\"names\": [");
    for (size_t i = 0; i < f->class_count; i++) {
        by__string_append(&text, i > 0 ? ", " : "");
        by_string_json(&text, f->classes[i], strlen(f->classes[i]));
    }
    by__string_append(&text, "]}\n");
    plan->classes = text;
    return text.failed ? by_error_set(error, BY_EMEMORY, "out of memory: classes") : BY_OK;
}

static uint64_t head_bytes(const by__image_plan *plan)
{
    size_t n = plan->classes.length;
    return n == 0 ? 0 : BY__TAR_BLOCK + (n + BY__TAR_BLOCK - 1) / BY__TAR_BLOCK * BY__TAR_BLOCK;
}

/* Two blocks of zeros end an archive, up to the end of a page. */
static uint64_t whole_bytes(uint64_t at)
{
    return (at + 2 * BY__TAR_BLOCK + BY__TAR_PAGE - 1) / BY__TAR_PAGE * BY__TAR_PAGE;
}

static by_status cut_shards(by__image_plan *plan, uint64_t most, by_error *error)
{
    const by__image_folder *f = &plan->folder;
    by_string text = {0};
    uint64_t at = 0;
    by_status status = BY_OK;
    for (size_t i = 0; i < f->count && status == BY_OK; i++) {
        by__image_plan_shard *s = plan->count == 0 ? NULL : &plan->shards[plan->count - 1];
        text.length = 0;
        uint64_t bytes = s == NULL ? 0
                                   : by__image_plan_place(&text, at, i, f->files[i].label, "jpg",
                                                          plan->sizes[i]);
        if (s == NULL || whole_bytes(at + bytes) > most) {
            status = by__reserve((void **)&plan->shards, &plan->capacity, plan->count + 1,
                                 sizeof *plan->shards, error);
            if (status != BY_OK) {
                break;
            }
            s = &plan->shards[plan->count++];
            *s = (by__image_plan_shard){.first = i};
            at = head_bytes(plan);
            text.length = 0;
            bytes = by__image_plan_place(&text, at, i, f->files[i].label, "jpg", plan->sizes[i]);
        }
        at += bytes;
        s->count++;
        s->bytes = whole_bytes(at);
        if (text.failed) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: a shard");
        }
    }
    by_string_free(&text);
    for (size_t i = 0; i < plan->count; i++) {
        plan->bytes += plan->shards[i].bytes;
    }
    return status;
}

/* The text of pack.json: which shards there are, and a hash of the pictures in them. */
static by_status describe(by__image_plan *plan, by_error *error)
{
    const by__image_folder *f = &plan->folder;
    by_string *text = &plan->text;
    by__hasher *hasher;
    char hash[33];
    char name[BY__IMAGE_PLAN_NAME];
    BY_TRY(by__hasher_open(&hasher, error));
    for (size_t i = 0; i < f->count; i++) {
        by__hasher_add_u64(hasher, f->files[i].order);
        by__hasher_add_u64(hasher, (uint64_t)(int64_t)f->files[i].label);
        by__hasher_add_u64(hasher, plan->sizes[i]);
    }
    by__hasher_add(hasher, plan->classes.data, plan->classes.length);
    by__hasher_hex(hasher, hash);
    by__hasher_close(&hasher);
    by_string_format(text, "{\"format\": \"banyan images\", \"version\": 1, \"pictures\": %zu,\n",
                     f->count);
    by_string_format(text, " \"source\": \"%s\",\n \"shards\": [\n", hash);
    for (size_t i = 0; i < plan->count; i++) {
        by_string_format(text,
                         "  {\"name\": \"%s\", \"pictures\": %zu, \"bytes\": %" PRIu64 "}%s\n",
                         by__image_plan_name(name, i), plan->shards[i].count, plan->shards[i].bytes,
                         i + 1 < plan->count ? "," : "");
    }
    by__string_append(text, "]}\n");
    return text->failed ? by_error_set(error, BY_EMEMORY, "out of memory: pack.json") : BY_OK;
}

by_status by__image_plan_make(by__image_plan *out, const by_image_pack_options *o,
                              const char *const *streams, by_error *error)
{
    bool remote = false;
    *out = (by__image_plan){0};
    for (size_t i = 0; i < o->input_count; i++) {
        remote = remote || by_remote_is(streams[i]);
    }
    if (remote) {
        BY_TRY(by__remote_open(&out->remote, &o->remote, error));
    }
    out->folder.remote = out->remote;
    out->folder.collects = true;
    if (o->remote.cache != NULL) {
        BY_TRY(by__path_make(&out->indexes, o->remote.cache, "index", error));
    } else {
        (void)by__cache_path(&out->indexes, "index", NULL); /* without, none are kept */
    }
    out->folder.indexes = out->indexes;
    BY_TRY(by__image_list(&out->folder, streams, o->input_count, true, error));
    BY_TRY(find_sizes(out, o->skip_corrupt, error));
    BY_TRY(name_classes(out, error));
    BY_TRY(cut_shards(out, o->shard_bytes > 0 ? o->shard_bytes : SHARD_BYTES, error));
    return describe(out, error);
}

void by__image_plan_close(by__image_plan *plan)
{
    by__image_folder_free(&plan->folder);
    free(plan->indexes);
    free(plan->sizes);
    free(plan->shards);
    by_string_free(&plan->classes);
    by_string_free(&plan->text);
    by__remote_close(&plan->remote);
    *plan = (by__image_plan){0};
}
