/* The inside of by_checkpoint_writer, shared by checkpoint_write.c (files, slices, references) and
 * checkpoint_commit.c (checks of the whole, records, the name that makes it visible). */
#ifndef BY_CHECKPOINT_CHECKPOINT_WRITER_H
#define BY_CHECKPOINT_CHECKPOINT_WRITER_H

#include <pthread.h>

#include "checkpoint/storage.h"

/* A weight file. One writer alone streams it through a sink as long as its slices come in order;
 * otherwise slices are written where they belong and the checksum is read back at the end. */
typedef struct by__weight_file {
    const by__planned_file *plan;
    int fd;              /* of writing in place; -1: not open */
    by__sink *sink;      /* of streaming */
    uint64_t position;   /* bytes given to the sink */
    by__file_list whole; /* its record, once it is whole: streamed or referenced */
} by__weight_file;

/* A slice that was written: the content of slices-RANK. */
typedef struct by__written_slice {
    uint64_t tensor;
    by_tensor_slice slice;
} by__written_slice;

struct by_checkpoint_writer {
    char *root;
    char *final;
    char *temporary;
    int lock;
    uint64_t step;
    int rank; /* 0: the one that began */
    int writers;
    by_tensor_view *tensors; /* names owned; model, then optimizer */
    size_t model_count;
    size_t count;
    by__weights_plan plans[2]; /* model, optimizer */
    by__weight_file *files;    /* of both, in order */
    size_t file_count;
    by__file_list references; /* of files that hold no tensors */
    pthread_mutex_t mutex;    /* of what follows, and of the files' fields */
    by__written_slice *slices;
    size_t slice_count;
    size_t slice_capacity;
    bool failed;
};

/* Says of an error that the step was not saved. Returns `status`. */
by_status by__writer_not_saved(const by_checkpoint_writer *w, by_status status, by_error *error);
/* BY_EIO: "cannot VERB DIRECTORY/NAME: REASON", the reason from errno. */
by_status by__writer_error(by_error *error, const char *verb, const char *directory,
                           const char *name);
/* Opens a weight file for writing in place, unless it is open. */
by_status by__writer_open_file(const by_checkpoint_writer *w, by__weight_file *f, by_error *error);
/* The file that a tensor goes to, and its place there. */
by__weight_file *by__writer_file_of(const by_checkpoint_writer *w, size_t tensor,
                                    by__planned_tensor *place);
/* Whether a list has a file of this name. */
bool by__file_listed(const by__file_list *list, const char *name);
/* "slices-RANK": the list of slices that a writer leaves for the commit. */
void by__slices_name(char out[32], int rank);

#endif
