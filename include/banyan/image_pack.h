/* Packing pictures: writes those of folders and shards into shards of one size, mixed, on many
 * ranks.
 *
 * A shard is a tar archive as WebDataset reads it (docs/images.md): for each picture the members
 * NUMBER.cls, its class, and NUMBER.jpg, .png or .webp, its bytes as they were; in front, if
 * classes have names, __classes.json. Pictures are aligned so that each lies in as few pages of
 * 4,096 bytes as its size allows, by pax headers with a comment, which readers skip.
 *
 * The pictures are in the order in which training lists them, which mixes the classes. What is in a
 * shard depends only on the inputs and the options, so ranks share the shards without talking to
 * each other, and a run that ended early goes on where it was.
 */
#ifndef BANYAN_IMAGE_PACK_H
#define BANYAN_IMAGE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/remote.h"
#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_image_pack_options {
    /* Folders with a folder for each class, shards, folders of shards; paths or URLs; shards may be
     * compressed by gzip. Labels that are texts name the classes, in the order of their bytes. */
    const char *const *inputs;
    size_t input_count;
    const char *output;       /* directory that is made */
    uint64_t shard_bytes;     /* most bytes of a shard; 0: 256 MiB */
    size_t threads;           /* 0: one per core */
    size_t rank;              /* of this process among `ranks` that pack the same */
    size_t ranks;             /* 0: 1 */
    bool skip_corrupt;        /* leave out samples that are damaged; otherwise they are errors */
    by_remote_options remote; /* of inputs that are URLs */
    /* May be NULL. Called by one thread at a time; returning false stops with BY_ESTOPPED. */
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
} by_image_pack_options;

typedef struct by_image_pack_result {
    uint64_t pictures; /* of all ranks */
    uint64_t skipped;
    uint64_t shards;
    uint64_t bytes;   /* of the shards */
    uint64_t written; /* shards that this call wrote */
    bool complete;    /* the output is there; false: other ranks still write */
} by_image_pack_result;

/* Packs this rank's share. The shards are written into OUTPUT.partial, which the rank that finds
 * all of them there renames to OUTPUT. Shards that are there already are kept: to go on after a
 * crash, call it again, with any number of ranks. Returns BY_EARG if OUTPUT or OUTPUT.partial is of
 * other inputs or options; BY_EFORMAT if an input is damaged; BY_EIO; BY_ESTOPPED. `result` may be
 * NULL. */
BY_API by_status by_image_pack(const by_image_pack_options *options, by_image_pack_result *result,
                               by_error *error);

#ifdef __cplusplus
}
#endif

#endif
