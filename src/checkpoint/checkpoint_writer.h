/* Internal record of by_checkpoint_writer, shared by checkpoint_write.c (files, slices),
 * checkpoint_refer.c (files of an earlier checkpoint), checkpoint_parts.c (one writer's part) and
 * checkpoint_commit.c (final checks, records, and the rename that makes the checkpoint visible). */
#ifndef BY_CHECKPOINT_CHECKPOINT_WRITER_H
#define BY_CHECKPOINT_CHECKPOINT_WRITER_H

#include <pthread.h>

#include "checkpoint/storage.h"

/* A weight file, written by one writer alone: streamed through a sink as long as its parts arrive
 * in order; otherwise they are written in place and the file is read back at the end for its
 * checksum. */
typedef struct by__checkpoint_weight_file {
    const by__checkpoint_planned_file *plan;
    int fd;                    /* for writing in place; -1: not open */
    by__checkpoint_sink *sink; /* for streaming */
    uint64_t position;         /* bytes given to the sink, or found equal to the earlier file */
    bool is_frozen;            /* it may be shared with an earlier checkpoint */
    by__map same; /* the earlier file, while everything so far was equal to it; NULL: it is not */
    by__checkpoint_file_list whole; /* its record, once it is complete: streamed or shared */
} by__checkpoint_weight_file;

/* A slice that was written: an item of slices-RANK. */
typedef struct by__checkpoint_written_slice {
    uint64_t tensor;
    uint64_t writer;
    by_tensor_slice slice;
} by__checkpoint_written_slice;

/* The tensors in a writer's files: whole tensors if there is one writer, else its parts and, for
 * the first writer, tensors without elements. */
typedef struct by__checkpoint_part {
    size_t tensor;
    by_tensor_slice slice;
    size_t number; /* index in the layout's parts; SIZE_MAX: none */
} by__checkpoint_part;

/* Groups of tensors with separate files: trained ones, frozen ones, the optimizer's. */
enum { BY__TRAINED = 0, BY__FROZEN, BY__OPTIMIZER, BY__WEIGHT_GROUPS };

struct by_checkpoint_writer {
    char *root;
    char *final;
    char *temporary;
    int lock;
    uint64_t step;
    uint64_t token;
    int rank; /* 0: the writer that began */
    int writers;
    by_tensor_view *tensors; /* names owned; model, then optimizer */
    size_t model_count;
    size_t count;
    bool *frozen;                    /* for each tensor; NULL: none is frozen */
    char *previous;                  /* the newest earlier checkpoint; NULL: none */
    by__checkpoint_manifest earlier; /* its manifest */
    by__checkpoint_part *parts;      /* by group */
    by_tensor_view *views;           /* views of the parts, as in the files; names owned */
    size_t part_count;
    size_t group_end[BY__WEIGHT_GROUPS]; /* index of the end of each group's parts */
    size_t *index_of;                    /* index in `parts` of each part of the layout */
    size_t *order;                       /* parts of the layout in the order of the files */
    size_t order_count;                  /* their number */
    by__checkpoint_weights_plan plans[BY__WEIGHT_GROUPS]; /* plans of the parts */
    by__checkpoint_weight_file *files;                    /* all files, in order */
    size_t file_count;
    by__checkpoint_file_list references; /* shared files that contain no tensors */
    pthread_mutex_t mutex;               /* protects the members below and the files' members */
    by__checkpoint_written_slice *slices;
    size_t slice_count;
    size_t slice_capacity;
    bool started; /* something was added */
    bool failed;
};

/* Adds to an error that the step was not saved. Returns `status`. */
by_status by__checkpoint_writer_not_saved(const by_checkpoint_writer *w, by_status status,
                                          by_error *error);
/* BY_EIO: "cannot VERB DIRECTORY/NAME: REASON", with the reason from errno. */
by_status by__checkpoint_writer_error(by_error *error, const char *verb, const char *directory,
                                      const char *name);
/* Plans the content of the writer's files (checkpoint_parts.c). */
by_status by__checkpoint_writer_plan(by_checkpoint_writer *w, const by_checkpoint_layout *layout,
                                     by_error *error);
/* The file that contains a part, and its place there. */
by__checkpoint_weight_file *by__checkpoint_writer_file(const by_checkpoint_writer *w, size_t part,
                                                       by__checkpoint_planned_tensor *place);
/* Records a slice as written. The mutex must be held. */
by_status by__checkpoint_writer_note(by_checkpoint_writer *w, size_t tensor,
                                     const by_tensor_slice *slice, by_error *error);
/* Adds this writer's weight files, complete and synced, to a list with their checksums. */
by_status by__checkpoint_writer_record(by_checkpoint_writer *w, by__checkpoint_file_list *files,
                                       by_error *error);
/* by__checkpoint_writer_finish_part stores, for the commit, what a writer that joined has written:
 * slices-RANK, its slices, and files-RANK, a manifest of that file and of its weight files. The
 * commit reads and removes both. */
by_status by__checkpoint_writer_finish_part(by_checkpoint_writer *w, by_error *error);
by_status by__checkpoint_writer_merge(by_checkpoint_writer *w, int rank,
                                      by__checkpoint_file_list *files, by_error *error);
/* Group of a tensor. */
int by__checkpoint_writer_group(const by_checkpoint_writer *w, size_t tensor);
/* Returns true if a stem may have several files named by writers: there are several writers, or
 * frozen tensors. */
bool by__checkpoint_writer_is_cut(const by_checkpoint_writer *w);

/* ---- files shared with an earlier checkpoint (checkpoint_share.c) ---- */

/* Finds the newest valid checkpoint other than the writer's step; finding none is no error. */
by_status by__checkpoint_share_find(by_checkpoint_writer *w, by_error *error);
/* Maps the earlier file if it begins as this one will. */
void by__checkpoint_share_begin(const by_checkpoint_writer *w, by__checkpoint_weight_file *f);
/* Returns true, and advances, if `n` bytes at the file's position equal the earlier file's. */
bool by__checkpoint_share_matches(by__checkpoint_weight_file *f, const void *data, size_t n);
/* Everything was equal: makes the file a link to that of the earlier checkpoint. *linked is false
 * if the file system has no hard links. */
by_status by__checkpoint_share_end(by_checkpoint_writer *w, by__checkpoint_weight_file *f,
                                   bool *linked, by_error *error);
/* The same for a file whose content is in memory. */
by_status by__checkpoint_share_content(by_checkpoint_writer *w, const char *name, const void *data,
                                       size_t n, by__checkpoint_file_list *written, bool *linked,
                                       by_error *error);

/* "model-00002-of-00004": the name, without its extension, of a writer's file of a group, if
 * by__checkpoint_writer_is_cut. */
void by__checkpoint_writer_stem(char out[64], int group, int rank, int writers);

#endif
