/* The inside of by_checkpoint_writer, shared by checkpoint_write.c (files, slices),
 * checkpoint_refer.c (files of an earlier checkpoint), checkpoint_parts.c (the part of one writer)
 * and checkpoint_commit.c (checks of the whole, records, the name that makes it visible). */
#ifndef BY_CHECKPOINT_CHECKPOINT_WRITER_H
#define BY_CHECKPOINT_CHECKPOINT_WRITER_H

#include <pthread.h>

#include "checkpoint/storage.h"

/* A weight file, which one writer alone writes: streamed through a sink as long as its parts come
 * in order; otherwise they are written in place and the checksum is read back at the end. */
typedef struct by__weight_file {
    const by__planned_file *plan;
    int fd;              /* of writing in place; -1: not open */
    by__sink *sink;      /* of streaming */
    uint64_t position;   /* bytes given to the sink, or found equal */
    bool is_frozen;      /* it may be that of an earlier checkpoint */
    by__map same;        /* that one, as long as what comes is equal to it; NULL: it is not */
    by__file_list whole; /* its record, once it is whole: streamed or referenced */
} by__weight_file;

/* A slice that was written: the content of slices-RANK. */
typedef struct by__written_slice {
    uint64_t tensor;
    uint64_t writer;
    by_tensor_slice slice;
} by__written_slice;

/* What a writer's files hold: whole tensors where it is alone, else its parts, and, of the first
 * one, the tensors that have no elements. */
typedef struct by__part {
    size_t tensor;
    by_tensor_slice slice;
    size_t number; /* in the layout's parts; SIZE_MAX: not one of these */
} by__part;

/* Tensors that have files of their own: the trained ones, the frozen ones, the optimizer's. */
enum { BY__TRAINED = 0, BY__FROZEN, BY__OPTIMIZER, BY__WEIGHT_GROUPS };

struct by_checkpoint_writer {
    char *root;
    char *final;
    char *temporary;
    int lock;
    uint64_t step;
    uint64_t token;
    int rank; /* 0: the one that began */
    int writers;
    by_tensor_view *tensors; /* names owned; model, then optimizer */
    size_t model_count;
    size_t count;
    bool *frozen;          /* of each tensor; NULL: none is */
    char *previous;        /* the newest checkpoint before; NULL: none */
    by__manifest earlier;  /* its manifest */
    by__part *parts;       /* by group */
    by_tensor_view *views; /* of the parts, as they are in files; names owned */
    size_t part_count;
    size_t group_end[BY__WEIGHT_GROUPS];       /* the last part of each group, and one */
    size_t *index_of;                          /* the index in `parts` of each of the layout's */
    size_t *order;                             /* the layout's in the order of the files */
    size_t order_count;                        /* of all */
    by__weights_plan plans[BY__WEIGHT_GROUPS]; /* of the parts */
    by__weight_file *files;                    /* of all, in order */
    size_t file_count;
    by__file_list references; /* of files that hold no tensors */
    pthread_mutex_t mutex;    /* of what follows, and of the files' fields */
    by__written_slice *slices;
    size_t slice_count;
    size_t slice_capacity;
    bool started; /* something was added */
    bool failed;
};

/* Says of an error that the step was not saved. Returns `status`. */
by_status by__writer_not_saved(const by_checkpoint_writer *w, by_status status, by_error *error);
/* BY_EIO: "cannot VERB DIRECTORY/NAME: REASON", the reason from errno. */
by_status by__writer_error(by_error *error, const char *verb, const char *directory,
                           const char *name);
/* What the writer's files will hold (checkpoint_parts.c). */
by_status by__writer_plan(by_checkpoint_writer *w, const by_checkpoint_layout *layout,
                          by_error *error);
/* The file that a part goes to, and its place in it. */
by__weight_file *by__writer_file(const by_checkpoint_writer *w, size_t part,
                                 by__planned_tensor *place);
/* Notes a slice as written. The mutex is held. */
by_status by__writer_note(by_checkpoint_writer *w, size_t tensor, const by_tensor_slice *slice,
                          by_error *error);
/* Adds this writer's weight files to a list, whole and on the disk, with their checksums. */
by_status by__writer_record(by_checkpoint_writer *w, by__file_list *files, by_error *error);
/* What a writer that joined leaves for the commit: slices-RANK, what it has written, and
 * files-RANK, a manifest of that and of its files; and the commit takes and removes both. */
by_status by__writer_leave(by_checkpoint_writer *w, by_error *error);
by_status by__writer_take(by_checkpoint_writer *w, int rank, by__file_list *files, by_error *error);
/* Group of a tensor. */
int by__writer_group(const by_checkpoint_writer *w, size_t tensor);
/* Whether a stem may have several files that writers have named: there are several writers, or
 * frozen tensors. */
bool by__writer_is_cut(const by_checkpoint_writer *w);

/* ---- files that an earlier checkpoint has too (checkpoint_share.c) ---- */

/* Finds the newest valid checkpoint but that of the writer's step; none is no error. */
by_status by__share_find(by_checkpoint_writer *w, by_error *error);
/* Maps the earlier file if it begins as this one will. */
void by__share_begin(const by_checkpoint_writer *w, by__weight_file *f);
/* Whether `n` bytes at the file's position are equal to the earlier file's; if so, moves on. */
bool by__share_take(by__weight_file *f, const void *data, size_t n);
/* Everything was equal: the file becomes that of the earlier checkpoint. *linked is false where the
 * file system has no hard links. */
by_status by__share_end(by_checkpoint_writer *w, by__weight_file *f, bool *linked, by_error *error);
/* The same of a file whose content is in memory. */
by_status by__share_content(by_checkpoint_writer *w, const char *name, const void *data, size_t n,
                            by__file_list *written, bool *linked, by_error *error);

/* "model-00002-of-00004": the name of a writer's file of a group without its ending, where
 * by__writer_is_cut. */
void by__writer_stem(char out[64], int group, int rank, int writers);

#endif
