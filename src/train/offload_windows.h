/* Windows of what is on disk: trainer_offload.c plans them and their programs, offload_windows.c
 * reads, updates and writes them. */
#ifndef BY_TRAIN_OFFLOAD_WINDOWS_H
#define BY_TRAIN_OFFLOAD_WINDOWS_H

#include "train/trainer.h"

#define BY__WINDOW_PARTS (1 + BY_MAX_STATES)
/* What programs call the weights of a window. */
#define BY__WINDOW_UNIT_NAME "unit"

/* What programs do with windows: the update, the compute copies alone, and the moving average of
 * the weights (trainer_average.c), which follows the update, takes their place and leaves it. */
typedef enum by__window_use {
    BY__USE_UPDATE,
    BY__USE_COPIES,
    BY__USE_AVERAGE,
    BY__USE_TAKE,
    BY__USE_RETURN,
    BY__USES
} by__window_use;

/* What a window has on disk of one flat buffer. */
typedef struct by__window_part {
    int flat;
    by__transfer transfer; /* its place in the buffer is known from by__offload_open on */
} by__window_part;

typedef struct by__window {
    by__slice slice;
    by__handle tensor;   /* all of it; BY__NO_ENTRY: elements of a group, whatever they are */
    int kinds[BY__USES]; /* which programs are for it; -1: none. It is trained if it is updated */
    size_t at;           /* where it begins in the buffer */
    size_t bytes;        /* that it takes there */
    by__window_part parts[BY__WINDOW_PARTS];
    int part_count;
} by__window;

/* A program for all windows that differ in nothing but their memory. */
typedef struct by__window_kind {
    char name[32];
    by__window_use purpose;
    by_update_unit unit;
} by__window_kind;

struct by__offload {
    by__window *windows; /* those that are trained come first */
    size_t count;
    size_t trained;
    size_t capacity;
    by__window_kind *kinds;
    size_t kind_count;
    size_t kind_capacity;
    const by__window_kind *building; /* while its program is added */
    size_t window_elements;
    size_t buffer_bytes;
    by_memory buffer;
    /* Windows in the buffer: those from `tail` on are written, `next` is the next to be computed,
     * those up to `head`, which comes into it next, are read. */
    uint64_t tail;
    uint64_t next;
    uint64_t head;
    uint64_t version; /* of the scratch file, when the windows from `next` on were read */
    double waited;    /* seconds for the disk, in the present step */
};

#endif
