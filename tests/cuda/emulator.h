/* emulator: runs the kernels of src/device/cuda without a GPU, and finds what a GPU would not tell.
 *
 * The same sources are compiled as C++ (emulated.h stands for the device), twice: plainly, and with
 * the compiler's -fsanitize=thread, whose calls before each access emulator_memory.c answers. Each
 * CUDA thread is a fiber (emulator_threads.c); blocks and threads run in an order drawn from a
 * seed, and change at barriers, warp barriers and shuffles.
 *
 * Faults of a checked launch:
 *   race           two accesses, one of them a write, without a barrier between them: in shared or
 *                  global memory, between threads, blocks, or launches of queues without an order
 *   bounds         outside the memory that was added, or in host memory
 *   alignment      an access of n bytes at an address that n does not divide
 *   uninitialised  memory that nothing has written
 *   barrier        threads that wait at different barriers, or for threads that have ended
 *   lane           a shuffle from a lane that is not there
 *   copy           an asynchronous copy that is never waited for; its data arrive as late as
 *                  allowed, and until then the destination holds NaN
 *   atomics        of floats, whose sums depend on the order
 *
 * Plain launches find barriers, lanes and copies. Not modelled: what ptxas does, the memory order
 * between blocks, approximate functions, how tensor cores round, time.
 *
 * One thread at a time may use it.
 */
#ifndef BY_TESTS_CUDA_EMULATOR_H
#define BY_TESTS_CUDA_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct emulator_grid {
    unsigned grid[3];
    unsigned block;
    unsigned shared; /* bytes of dynamic shared memory */
} emulator_grid;

/* Size of a kernel's parameters by its symbol ("by_cuda_fill"); 0: there is no such kernel. */
size_t emulator_args_bytes(const char *symbol);
/* Runs a kernel. Returns the number of faults; emulator_fault describes the first one. */
int emulator_launch(const emulator_grid *grid, const char *symbol, const void *args);
const char *emulator_fault(void);
/* Chooses the checked kernels (or the plain ones, which is the default). */
void emulator_check(bool on);
/* The order of blocks and threads: 0 is ascending. */
void emulator_seed(unsigned seed);

/* Memory that kernels may access. It begins uninitialised: filled with 0xff, which is NaN. */
void emulator_memory_add(void *base, size_t bytes);
void emulator_memory_remove(void *base);
/* The host or a copy has written this range. */
void emulator_written(const void *base, size_t bytes);
/* An allocation of this kind; the caller frees it. */
void *emulator_alloc(size_t bytes);
void emulator_free(void *base);

/* Launches belong to one of EMULATOR_QUEUES queues, 0 unless another was chosen, and those of one
 * queue follow each other. After emulator_order(a, b), later launches of queue b come after all
 * launches of queue a so far. */
#define EMULATOR_QUEUES 32
void emulator_queue(int queue);
void emulator_order(int before, int after);
/* Chooses a queue whose next launch comes after the first after[q] launches of each queue q. */
void emulator_clock(int queue, const uint32_t after[EMULATOR_QUEUES]);

/* A range that a copy or a library reads or writes. */
typedef struct emulator_span {
    const void *base;
    size_t bytes;
    bool write;
} emulator_span;

/* What runs without a kernel, as a launch of the current queue that does this to memory. Returns
 * the number of faults; what is not the device's memory is left alone. */
int emulator_work(const char *name, const emulator_span *spans, size_t count);

/* ---- between the files of the emulator ---- */

typedef struct emulator_index {
    unsigned x, y, z;
} emulator_index;

/* Who accesses: the fiber that runs. */
typedef struct emulator_thread {
    emulator_index index;
    unsigned number;    /* in the block */
    unsigned warp_sync; /* how many barriers of its warp it has passed */
} emulator_thread;

typedef struct emulator_place {
    emulator_index block, blocks, threads; /* blockIdx, gridDim, blockDim */
    unsigned block_number;
    uint32_t instance; /* counts blocks that have run: names the life of shared memory */
    uint32_t launch;   /* counts launches, from 2 on */
    uint32_t barriers; /* that this block has passed */
    bool checked;
    unsigned char *shared; /* dynamic shared memory */
} emulator_place;

extern emulator_thread *emulator_now; /* NULL outside kernels */
extern emulator_place emulator_here;

/* Reports a fault; the message is prefixed with kernel, block and thread. */
void emulator_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Stops the running thread for good, after a fault from which it cannot go on. */
void emulator_stop(void) __attribute__((noreturn));
bool emulator_in_stack(uintptr_t address);
bool emulator_in_shared(uintptr_t address);
/* Begins a launch: its name, its number and its first block. */
void emulator_begin(const char *name);
/* Faults of the launch so far. */
int emulator_faults(void);
/* A new launch begins. */
void emulator_memory_launch(uint32_t launch);
void emulator_access(uintptr_t address, size_t bytes, bool write, bool atomic);
/* An asynchronous copy to this range of shared memory is under way, or no more. */
void emulator_await(uintptr_t address, size_t bytes, bool awaited);

/* ---- kernels ---- */

typedef struct emulator_kernel {
    const char *symbol;
    size_t args;
    void (*plain)(const void *args);
    void (*checked)(const void *args);
} emulator_kernel;

/* The kernel of a symbol, or NULL (emulator_kernels.c). */
const emulator_kernel *emulator_find(const char *symbol);
/* Runs any function as a kernel, for the emulator's own tests. */
int emulator_run(const emulator_grid *grid, const char *name, void (*body)(const void *args),
                 const void *args);

#endif
