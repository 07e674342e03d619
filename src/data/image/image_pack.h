/* data/image: packs pictures into shards (banyan/image_pack.h).
 *
 * image_plan.c lists the pictures and decides in which shard, and where in it, each lies;
 * image_pack.c writes the shards. A plan is a function of the inputs and the options alone: ranks
 * make the same one, and its text, pack.json, tells whether what lies in the output belongs to
 * it. */
#ifndef BY_DATA_IMAGE_IMAGE_PACK_H
#define BY_DATA_IMAGE_IMAGE_PACK_H

#include "banyan/image_pack.h"
#include "data/image/image_list.h"

typedef struct by__image_plan_shard {
    size_t first; /* picture */
    size_t count;
    uint64_t bytes; /* of the file */
} by__image_plan_shard;

typedef struct by__image_plan {
    by__image_folder folder;
    by__remote *remote;
    char *indexes;   /* directory of those of shards */
    uint64_t *sizes; /* [folder.count] of the pictures */
    by__image_plan_shard *shards;
    size_t count;
    size_t capacity;
    uint64_t bytes;    /* of all shards */
    uint64_t skipped;  /* pictures that were left out */
    by_string classes; /* content of __classes.json; "": classes have no names */
    by_string text;    /* of pack.json */
} by__image_plan;

/* Makes the plan of the inputs; `streams` are those that are read in the place of options->inputs.
 * Closed in any case. */
by_status by__image_plan_make(by__image_plan *out, const by_image_pack_options *options,
                              const char *const *streams, by_error *error);
void by__image_plan_close(by__image_plan *plan);
/* The name of a shard. */
#define BY__IMAGE_PLAN_NAME 32
const char *by__image_plan_name(char out[BY__IMAGE_PLAN_NAME], size_t shard);
/* The members of a picture that come before its bytes, and what fills its last block, at byte `at`
 * of the shard; number: of the picture. Returns the bytes of all of it, with the picture's. */
uint64_t by__image_plan_place(by_string *before, uint64_t at, size_t number, int32_t label,
                              const char *ending, uint64_t size);

#endif
