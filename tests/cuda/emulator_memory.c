/* Memory of the emulator: which is there, who wrote and read it last, and the functions that the
 * compiler calls before each access of a checked kernel. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/emulator.h"

/* Bytes that share a cell; accesses of single bytes are told apart by their masks. */
#define GRANULE       2
#define ALL           3u /* bytes of it */
#define HOST          1u /* the launch that stands for the host and copies */
#define MANY          UINT32_MAX
#define MOST_RANGES   65536
#define MOST_LAUNCHES (1 << 20)

/* An access by a thread, or by many of a warp or of a launch. */
typedef struct emulator_access_record {
    uint32_t launch; /* 0: none */
    uint32_t block;  /* instance of it, or MANY */
    uint32_t barriers;
    uint32_t warp_sync;
    uint32_t thread; /* or MANY of the warps */
    uint32_t bytes;  /* of the granule: a mask */
} access_record;

typedef struct emulator_cell {
    access_record write;
    access_record read;
    uint32_t warps; /* that have read */
    uint32_t other; /* a launch that has read, and is not before that of `read`; 0: none */
    uint8_t known;  /* bytes that have been written: a mask */
    bool atomic;    /* the write was one */
    bool awaited;   /* a copy to it is under way */
} cell;

typedef struct emulator_range {
    uintptr_t base;
    size_t bytes;
    cell *cells;
} memory_range;

static memory_range ranges[MOST_RANGES]; /* ascending */
static size_t range_count;
static size_t last_found;
static cell *shared_cells; /* of the section, then of dynamic shared memory */
static size_t shared_cell_count;

/* Of each launch its queue, and its number there; of each queue what its launches come after. */
static struct {
    uint8_t queue;
    uint32_t number;
} launches[MOST_LAUNCHES];
static uint32_t seen[EMULATOR_QUEUES][EMULATOR_QUEUES];
static int queue_now;

extern char __start_by_shared[] __attribute__((visibility("hidden")));
extern char __stop_by_shared[] __attribute__((visibility("hidden")));
extern char __ehdr_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));

/* ---- ranges ---- */

static cell *open_cells(size_t bytes)
{
    size_t size = (bytes / GRANULE + 2) * sizeof(cell);
    void *cells = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cells == MAP_FAILED) {
        abort();
    }
    return cells;
}

static void close_cells(memory_range *range)
{
    (void)munmap(range->cells, (range->bytes / GRANULE + 2) * sizeof(cell));
}

/* The number of ranges that begin at or before an address. */
static size_t ranges_before(uintptr_t address)
{
    size_t low = 0;
    size_t high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].base <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static memory_range *find_range(uintptr_t address)
{
    if (last_found < range_count && address - ranges[last_found].base < ranges[last_found].bytes) {
        return &ranges[last_found];
    }
    size_t count = ranges_before(address);
    if (count == 0 || address - ranges[count - 1].base >= ranges[count - 1].bytes) {
        return NULL;
    }
    last_found = count - 1;
    return &ranges[last_found];
}

void emulator_memory_add(void *base, size_t bytes)
{
    size_t at = ranges_before((uintptr_t)base);
    if (range_count == MOST_RANGES) {
        abort();
    }
    memmove(&ranges[at + 1], &ranges[at], (range_count - at) * sizeof ranges[0]);
    ranges[at] = (memory_range){(uintptr_t)base, bytes, open_cells(bytes)};
    range_count++;
    memset(base, 0xff, bytes);
}

void emulator_memory_remove(void *base)
{
    size_t at = ranges_before((uintptr_t)base) - 1;
    close_cells(&ranges[at]);
    memmove(&ranges[at], &ranges[at + 1], (range_count - at - 1) * sizeof ranges[0]);
    range_count--;
}

/* Allocations are far apart, and what is between them is not there. */
#define GAP (1 << 20)

static size_t pages_of(size_t bytes)
{
    return bytes / 4096 * 4096 + 4096;
}

void *emulator_alloc(size_t bytes)
{
    char *base = mmap(NULL, pages_of(bytes) + 2 * GAP, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || mprotect(base + GAP, pages_of(bytes), PROT_READ | PROT_WRITE) != 0) {
        abort();
    }
    emulator_memory_add(base + GAP, bytes);
    return base + GAP;
}

void emulator_free(void *base)
{
    memory_range *range = base == NULL ? NULL : find_range((uintptr_t)base);
    if (base != NULL) {
        size_t bytes = range == NULL ? 0 : range->bytes;
        emulator_memory_remove(base);
        (void)munmap((char *)base - GAP, pages_of(bytes) + 2 * GAP);
    }
}

static uint32_t mask_of(uintptr_t granule, uintptr_t from, uintptr_t to)
{
    uint32_t mask = 0;
    for (unsigned i = 0; i < GRANULE; i++) {
        mask |= granule + i >= from && granule + i < to ? 1u << i : 0;
    }
    return mask;
}

void emulator_written(const void *base, size_t bytes)
{
    uintptr_t from = (uintptr_t)base;
    memory_range *range = find_range(from);
    for (uintptr_t g = from / GRANULE; range != NULL && g * GRANULE < from + bytes; g++) {
        cell *c = &range->cells[g - range->base / GRANULE];
        uint32_t mask = mask_of(g * GRANULE, from, from + bytes);
        *c = (cell){.write = {.launch = HOST, .bytes = mask}, .known = (uint8_t)(c->known | mask)};
    }
}

/* ---- queues ---- */

void emulator_queue(int queue)
{
    queue_now = queue;
}

void emulator_order(int before, int after)
{
    for (int q = 0; q < EMULATOR_QUEUES; q++) {
        seen[after][q] = seen[before][q] > seen[after][q] ? seen[before][q] : seen[after][q];
    }
}

void emulator_clock(int queue, const uint32_t after[EMULATOR_QUEUES])
{
    memcpy(seen[queue], after, sizeof seen[queue]);
    queue_now = queue;
}

void emulator_memory_launch(uint32_t launch)
{
    if (launch >= MOST_LAUNCHES) {
        return; /* what is not recorded counts as before */
    }
    launches[launch].queue = (uint8_t)queue_now;
    launches[launch].number = ++seen[queue_now][queue_now];
}

static bool launch_is_before(uint32_t launch)
{
    return launch == HOST || launch >= MOST_LAUNCHES ||
           launches[launch].number <= seen[queue_now][launches[launch].queue];
}

/* ---- races ---- */

static bool is_before(const access_record *a, uint32_t warps)
{
    uint32_t thread = emulator_now->number;
    if (a->launch != emulator_here.launch) {
        return launch_is_before(a->launch);
    }
    if (a->block != emulator_here.instance) {
        return false;
    }
    if (a->barriers < emulator_here.barriers || a->thread == thread) {
        return true;
    }
    bool own_warp = warps == 1u << thread / 32;
    return own_warp && a->warp_sync < emulator_now->warp_sync;
}

static void report_race(const access_record *a, uintptr_t address, const char *now,
                        const char *then, bool shared)
{
    const char *memory = shared ? "shared" : "global";
    if (a->launch != emulator_here.launch) {
        emulator_report("race in %s memory at %p: %s what a launch of another queue %s", memory,
                        (void *)address, now, then);
    } else if (a->block != emulator_here.instance) {
        emulator_report("race in %s memory at %p: %s what another block %s", memory,
                        (void *)address, now, then);
    } else if (a->thread == MANY) {
        emulator_report("race in %s memory at %p: %s what other threads %s", memory,
                        (void *)address, now, then);
    } else {
        emulator_report("race in %s memory at %p: %s what thread %u %s", memory, (void *)address,
                        now, a->thread, then);
    }
}

static void note_read(cell *c, uint32_t mask)
{
    uint32_t warp = 1u << emulator_now->number / 32;
    access_record me = {emulator_here.launch,    emulator_here.instance, emulator_here.barriers,
                        emulator_now->warp_sync, emulator_now->number,   mask};
    access_record *r = &c->read;
    if (r->launch != me.launch) {
        if (r->launch != 0 && !launch_is_before(r->launch)) {
            c->other = r->launch;
        }
        *r = me;
        c->warps = warp;
        return;
    }
    if (r->block != me.block) {
        r->block = MANY;
        r->bytes |= mask;
        return;
    }
    if (r->barriers != me.barriers) {
        *r = me;
        c->warps = warp;
        return;
    }
    if (c->warps == warp && r->warp_sync < me.warp_sync) { /* all that have read are before */
        *r = me;
        return;
    }
    c->warps |= warp;
    r->bytes |= mask;
    r->thread = r->thread == me.thread ? me.thread : MANY;
    r->warp_sync = r->warp_sync > me.warp_sync ? r->warp_sync : me.warp_sync;
}

/* Returns true if a read changes nothing: one like it was noted, and what was written is before it
 * for all threads of the block. */
static inline bool is_noted(const cell *c, uint32_t mask)
{
    const access_record *w = &c->write;
    const access_record *r = &c->read;
    bool before = w->launch == HOST ||
                  (w->launch == emulator_here.launch && w->block == emulator_here.instance &&
                   w->barriers < emulator_here.barriers);
    return before && !c->awaited && (c->known & mask) == mask &&
           r->launch == emulator_here.launch &&
           (r->block == MANY ||
            (r->block == emulator_here.instance && r->barriers == emulator_here.barriers &&
             (r->thread == MANY || r->thread == emulator_now->number) &&
             (c->warps >> emulator_now->number / 32 & 1u) != 0 &&
             r->warp_sync >= emulator_now->warp_sync)) &&
           (r->bytes & mask) == mask;
}

static void check_cell(cell *c, uintptr_t address, uint32_t mask, bool write, bool atomic,
                       bool shared)
{
    access_record *w = &c->write;
    if (shared && w->launch != 0 && w->block != emulator_here.instance) {
        *c = (cell){.write = {0}}; /* of a block that has ended */
    }
    bool both_atomic = atomic && c->atomic;
    if (c->awaited) {
        emulator_report("%s shared memory at %p, to which a copy is under way",
                        write ? "writes" : "reads", (void *)address);
        c->awaited = false;
    }
    if ((c->known & mask) != mask && (!write || atomic)) {
        emulator_report("reads %s memory at %p that nothing has written",
                        shared ? "shared" : "global", (void *)address);
    }
    if (w->launch != 0 && (w->bytes & mask) != 0 && !both_atomic &&
        !is_before(w, 1u << w->thread / 32)) {
        report_race(w, address, write ? "writes" : "reads", "wrote", shared);
    }
    if (!write) {
        note_read(c, mask);
        return;
    }
    if (c->read.launch != 0 && (c->read.bytes & mask) != 0 && !is_before(&c->read, c->warps)) {
        report_race(&c->read, address, "writes", "read", shared);
    } else if (c->other != 0 && !launch_is_before(c->other)) {
        report_race(&(access_record){.launch = c->other}, address, "writes", "read", shared);
    }
    *w = (access_record){emulator_here.launch,    emulator_here.instance, emulator_here.barriers,
                         emulator_now->warp_sync, emulator_now->number,   mask};
    c->known = (uint8_t)(c->known | mask);
    c->read.launch = 0;
    c->other = 0;
    c->atomic = atomic;
}

/* The cells of an address in shared memory. */
static cell *shared_cell(uintptr_t address)
{
    uintptr_t start = (uintptr_t)__start_by_shared;
    uintptr_t size = (uintptr_t)__stop_by_shared - start;
    uintptr_t dynamic = (uintptr_t)emulator_here.shared;
    if (shared_cells == NULL) {
        shared_cell_count = (size + (256 << 10)) / GRANULE + 4;
        shared_cells = open_cells(shared_cell_count * GRANULE);
    }
    if (address - start < size) {
        return &shared_cells[(address - start) / GRANULE];
    }
    return &shared_cells[size / GRANULE + 2 + (address - dynamic) / GRANULE];
}

static cell *global_cell(uintptr_t address, size_t bytes, bool write)
{
    memory_range *range = find_range(address);
    if (range != NULL && address - range->base + bytes <= range->bytes) {
        return &range->cells[address / GRANULE - range->base / GRANULE];
    }
    bool constant = address >= (uintptr_t)__ehdr_start && address < (uintptr_t)_end && !write;
    if (!constant) {
        emulator_report("%s %zu bytes at %p, outside the device's memory",
                        write ? "writes" : "reads", bytes, (void *)address);
        emulator_stop();
    }
    return NULL;
}

void emulator_access(uintptr_t address, size_t bytes, bool write, bool atomic)
{
    if (emulator_now == NULL || emulator_in_stack(address)) {
        return;
    }
    bool shared = emulator_in_shared(address);
    cell *c = shared ? shared_cell(address) : global_cell(address, bytes, write);
    if (c == NULL) {
        return;
    }
    if (bytes <= 16 && address % bytes != 0) {
        emulator_report("%s %zu bytes at %p, which is not aligned", write ? "writes" : "reads",
                        bytes, (void *)address);
        emulator_stop();
    }
    for (uintptr_t g = address / GRANULE; g * GRANULE < address + bytes; g++, c++) {
        uint32_t mask = bytes == 1 ? 1u << (address & 1u) : ALL;
        if (write || !is_noted(c, mask)) {
            check_cell(c, g * GRANULE, mask, write, atomic, shared);
        }
    }
}

int emulator_work(const char *name, const emulator_span *spans, size_t count)
{
    emulator_thread host = {.number = 0};
    emulator_begin(name);
    emulator_now = &host;
    for (size_t i = 0; i < count; i++) {
        uintptr_t from = (uintptr_t)spans[i].base;
        uintptr_t to = from + spans[i].bytes;
        memory_range *range = find_range(from);
        for (uintptr_t g = from / GRANULE; range != NULL && g * GRANULE < to; g++) {
            check_cell(&range->cells[g - range->base / GRANULE], g * GRANULE,
                       mask_of(g * GRANULE, from, to), spans[i].write, false, false);
        }
    }
    emulator_now = NULL;
    return emulator_faults();
}

void emulator_await(uintptr_t address, size_t bytes, bool awaited)
{
    cell *c = emulator_in_shared(address) ? shared_cell(address) : NULL;
    for (size_t i = 0; c != NULL && i < bytes / GRANULE; i++) {
        c[i].awaited = awaited;
    }
}

/* ---- what the compiler calls ---- */

#define ACCESS_FUNCTIONS(n)                                                                        \
    void __tsan_read##n(void *p);                                                                  \
    void __tsan_write##n(void *p);                                                                 \
    void __tsan_unaligned_read##n(void *p);                                                        \
    void __tsan_unaligned_write##n(void *p);                                                       \
    void __tsan_read_write##n(void *p);                                                            \
    void __tsan_unaligned_read_write##n(void *p);                                                  \
    void __tsan_read##n(void *p)                                                                   \
    {                                                                                              \
        emulator_access((uintptr_t)p, n, false, false);                                            \
    }                                                                                              \
    void __tsan_write##n(void *p)                                                                  \
    {                                                                                              \
        emulator_access((uintptr_t)p, n, true, false);                                             \
    }                                                                                              \
    void __tsan_unaligned_read##n(void *p)                                                         \
    {                                                                                              \
        emulator_access((uintptr_t)p, n, false, false);                                            \
    }                                                                                              \
    void __tsan_unaligned_write##n(void *p)                                                        \
    {                                                                                              \
        emulator_access((uintptr_t)p, n, true, false);                                             \
    }                                                                                              \
    void __tsan_read_write##n(void *p)                                                             \
    {                                                                                              \
        emulator_access((uintptr_t)p, n, false, false);                                            \
        emulator_access((uintptr_t)p, n, true, false);                                             \
    }                                                                                              \
    void __tsan_unaligned_read_write##n(void *p)                                                   \
    {                                                                                              \
        __tsan_read_write##n(p);                                                                   \
    }

ACCESS_FUNCTIONS(1)
ACCESS_FUNCTIONS(2)
ACCESS_FUNCTIONS(4)
ACCESS_FUNCTIONS(8)
ACCESS_FUNCTIONS(16)

void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memmove(void *to, const void *from, size_t bytes);
void *__tsan_memset(void *to, int byte, size_t bytes);

void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller)
{
    (void)caller;
}

void __tsan_func_exit(void)
{
}

void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
    emulator_access((uintptr_t)from, bytes, false, false);
    emulator_access((uintptr_t)to, bytes, true, false);
    return memcpy(to, from, bytes);
}

void *__tsan_memmove(void *to, const void *from, size_t bytes)
{
    emulator_access((uintptr_t)from, bytes, false, false);
    emulator_access((uintptr_t)to, bytes, true, false);
    return memmove(to, from, bytes);
}

void *__tsan_memset(void *to, int byte, size_t bytes)
{
    emulator_access((uintptr_t)to, bytes, true, false);
    return memset(to, byte, bytes);
}
