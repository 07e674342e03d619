/* exec: a compiled program and the loop that runs it.
 *
 * A by_program takes a graph whose passes are done, asks the memory pass where each activation lies
 * and the device for each node's kernel, and keeps one by__call a node. Pointers are resolved when
 * something was bound anew, so a run is a loop over calls: no allocation, no lock, no system call.
 *
 * Ownership: the program owns its calls and its memory plan; the graph, the arena, the workspace
 * and all bound buffers belong to the caller.
 *
 * by__pages (pages.c) is the memory that programs run on: whole pages from the system, zeroed, huge
 * pages where the system has them, because matrix products walk far and the page table is a cost.
 *
 * Never put here: knowledge of models, training or files.
 */
#ifndef BY_EXEC_EXEC_H
#define BY_EXEC_EXEC_H

#include "banyan/program.h"
#include "device/device.h"
#include "passes/passes.h"

typedef struct by__pages {
    void *data;
    size_t bytes;
} by__pages;

/* Zeroed pages, in memory already. bytes 0 gives a NULL block. */
by_status by__pages_open(by__pages *out, size_t bytes, const char *what, by_error *error);
void by__pages_close(by__pages *pages);

/* Threads for an option value: -1 is one a core that this process may run on. */
int by__thread_count(int threads);

#endif
