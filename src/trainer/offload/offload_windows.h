/* Windows of optimizer state on disk: trainer_offload.c plans them and their programs,
 * offload_windows.c reads, updates and writes them. */
#ifndef BY_TRAINER_OFFLOAD_OFFLOAD_WINDOWS_H
#define BY_TRAINER_OFFLOAD_OFFLOAD_WINDOWS_H

#include "trainer/state/trainer.h"

#define BY__WINDOW_PARTS (1 + BY_MAX_STATES)
/* Name of a window's weights in programs. */
#define BY__WINDOW_UNIT_NAME "unit"

/* Programs that run on windows: the update, the compute copies alone, and the moving average of the
 * weights (trainer_average.c): its step after the update, its swap with the weights, and the way
 * back. */
typedef enum by__trainer_window_use {
    BY__USE_UPDATE,
    BY__USE_COPIES,
    BY__USE_AVERAGE,
    BY__USE_SWAP_IN,
    BY__USE_SWAP_OUT,
    BY__USES
} by__trainer_window_use;

/* The part of a window in one flat buffer on disk. */
typedef struct by__trainer_window_part {
    int flat;
    by__store_transfer transfer; /* its memory is fixed in by__offload_open */
} by__trainer_window_part;

typedef struct by__trainer_window {
    by__store_part part;
    by__store_handle tensor; /* a whole tensor; BY__NO_ENTRY: elements of a group, across tensors */
    int kinds[BY__USES];     /* programs that it runs; -1: none. It is trained if it is updated */
    size_t at;               /* offset in the buffer */
    size_t bytes;            /* size in the buffer */
    by__trainer_window_part parts[BY__WINDOW_PARTS];
    int part_count;
} by__trainer_window;

/* A program for all windows that differ only in their memory. */
typedef struct by__trainer_window_kind {
    char name[32];
    by__trainer_window_use purpose;
    by_update_unit unit;
    by__exec_program_row *row;
} by__trainer_window_kind;

struct by__offload {
    by__trainer_window *windows; /* trained ones first */
    size_t count;
    size_t trained;
    size_t capacity;
    by__trainer_window_kind *kinds;
    size_t kind_count;
    size_t kind_capacity;
    const by__trainer_window_kind *building; /* set while its program is added */
    size_t window_elements;
    size_t buffer_bytes;
    by_memory buffer;
    /* Windows in the buffer: those from `tail` on are being written, `next` is the next to be
     * computed, those up to `head`, the next one to load, are being read. */
    uint64_t tail;
    uint64_t next;
    uint64_t head;
    uint64_t version; /* of the scratch file, when the windows from `next` on were read */
    double waited;    /* seconds that the current step has waited for the disk */
};

#endif
