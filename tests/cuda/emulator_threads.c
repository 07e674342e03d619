/* Blocks, warps and threads of the emulator: fibers that change at barriers, and what lanes of a
 * warp exchange. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/emulated_calls.h"
#include "cuda/emulator.h"

#define MOST_THREADS 1024
#define LANES        32
#define STACK        (64 << 10)
#define MOST_SHARED  (228 << 10)
#define MOST_COPIES  64
#define WORDS        8 /* that a lane offers to its warp at once */

typedef enum fiber_state { READY, AT_BLOCK, AT_WARP, ENDED } fiber_state;

/* A copy that is under way; its group is complete when enough younger ones are. */
typedef struct late_copy {
    void *to;
    const void *from;
    unsigned bytes; /* that are read; the others of 16 become zeros */
    unsigned group;
} late_copy;

typedef struct fiber {
    emulator_thread thread; /* first: emulator_now points here */
    void *stack_top;
    fiber_state state;
    const char *what;  /* it waits for */
    const void *where; /* the call */
    unsigned turn;     /* of the two sets of words */
    uint32_t words[2][WORDS];
    late_copy copies[MOST_COPIES];
    int copy_count;
    unsigned group; /* of copies that are issued now */
} fiber;

emulator_thread *emulator_now;
emulator_place emulator_here;

static fiber fibers[MOST_THREADS];
static char *stacks;
static void *scheduler_top;
static unsigned thread_count;
static unsigned seed;
static bool checks;
static int faults;
static char first_fault[512];
static const char *kernel_name = "";
static void (*kernel_body)(const void *args);
static const void *kernel_args;
static unsigned char dynamic_shared[MOST_SHARED] __attribute__((aligned(1024)));
static char no_shared[8] __attribute__((section("by_shared"), used, aligned(16)));
extern char __start_by_shared[] __attribute__((visibility("hidden")));
extern char __stop_by_shared[] __attribute__((visibility("hidden")));

/* ---- faults ---- */

void emulator_report(const char *format, ...)
{
    va_list list;
    if (faults++ > 0) {
        return;
    }
    int used = snprintf(first_fault, sizeof first_fault, "%s: block %u", kernel_name,
                        emulator_here.block_number);
    if (emulator_now != NULL) {
        used += snprintf(first_fault + used, sizeof first_fault - (size_t)used, ", thread %u",
                         emulator_now->number);
    }
    used += snprintf(first_fault + used, sizeof first_fault - (size_t)used, ": ");
    va_start(list, format);
    (void)vsnprintf(first_fault + used, sizeof first_fault - (size_t)used, format, list);
    va_end(list);
}

const char *emulator_fault(void)
{
    return first_fault;
}

void emulator_check(bool on)
{
    checks = on;
}

void emulator_seed(unsigned to)
{
    seed = to;
}

bool emulator_in_stack(uintptr_t address)
{
    return address - (uintptr_t)stacks < (uintptr_t)STACK * MOST_THREADS;
}

bool emulator_in_shared(uintptr_t address)
{
    return (address >= (uintptr_t)__start_by_shared && address < (uintptr_t)__stop_by_shared) ||
           address - (uintptr_t)dynamic_shared < MOST_SHARED;
}

/* ---- fibers: a switch saves what a called function must, and changes stacks ---- */

void emulator_switch(void **from, void *to);
__asm__(".text\n"
        ".type emulator_switch, @function\n"
        "emulator_switch:\n"
        "  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
        "  mov %rsp, (%rdi); mov %rsi, %rsp\n"
        "  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret\n"
        ".size emulator_switch, .-emulator_switch\n");

static fiber *running(void)
{
    return (fiber *)(void *)emulator_now;
}

static void to_scheduler(void)
{
    emulator_switch(&running()->stack_top, scheduler_top);
}

void emulator_stop(void)
{
    running()->state = ENDED;
    to_scheduler();
    abort();
}

static void fiber_entry(void)
{
    kernel_body(kernel_args);
    if (running()->copy_count > 0) {
        emulator_report("an asynchronous copy is never waited for");
    }
    emulator_stop();
}

static void prepare_fiber(unsigned i)
{
    fiber *f = &fibers[i];
    void **top = (void **)(void *)(stacks + (size_t)STACK * (i + 1));
    *--top = NULL; /* the stack is aligned as after a call */
    void (*entry)(void) = fiber_entry;
    memcpy(--top, &entry, sizeof entry);
    for (int saved = 0; saved < 6; saved++) {
        *--top = NULL;
    }
    f->stack_top = top;
    f->state = READY;
    f->thread.index.x = i;
    f->thread.number = i;
    f->thread.warp_sync = 0;
    f->turn = 0;
    f->copy_count = 0;
    f->group = 0;
}

/* ---- waiting ---- */

void by_emulated_sync_block(void)
{
    fiber *f = running();
    f->state = AT_BLOCK;
    f->what = "__syncthreads";
    f->where = __builtin_return_address(0);
    to_scheduler();
}

static void meet(const char *what, const void *where)
{
    fiber *f = running();
    f->state = AT_WARP;
    f->what = what;
    f->where = where;
    to_scheduler();
}

/* It alone orders the accesses of lanes: a shuffle does not. */
void by_emulated_sync_warp(void)
{
    meet("__syncwarp", __builtin_return_address(0));
    running()->thread.warp_sync++;
}

/* What lane `lane` of the running warp offered when it met the others last. */
static const uint32_t *offered(unsigned lane)
{
    fiber *f = running();
    unsigned other = f->thread.number / LANES * LANES + lane;
    return fibers[other].words[f->turn ^ 1u];
}

/* Offers words, meets the warp, and leaves the set to be read: the other one is offered next, so
 * nobody overwrites what another has yet to read. */
static void offer(const uint32_t *words, int count, const char *what, const void *where)
{
    fiber *f = running();
    memcpy(f->words[f->turn], words, (size_t)count * sizeof *words);
    f->turn ^= 1u;
    meet(what, where);
}

uint32_t by_emulated_shuffle(uint32_t value, unsigned lane)
{
    offer(&value, 1, "a shuffle", __builtin_return_address(0));
    if (lane >= LANES) {
        emulator_report("a shuffle from lane %u", lane);
        return ~0u;
    }
    return offered(lane)[0];
}

static float half_value(uint32_t word, unsigned upper, bool bf16)
{
    uint16_t bits = (uint16_t)(upper != 0 ? word >> 16 : word);
    return bf16 ? by_emulated_from_bf16(bits) : by_emulated_from_f16(bits);
}

/* The fragment tables of mma.m16n8k16 in the PTX ISA. Sums are in double and rounded once: tensor
 * cores round in their own ways. */
void by_emulated_mma(float d[4], const uint32_t a[4], const uint32_t b[2], int bf16)
{
    uint32_t words[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    unsigned lane = emulator_now->number % LANES;
    offer(words, 6, "mma", __builtin_return_address(0));
    for (unsigned c = 0; c < 4; c++) {
        unsigned row = lane / 4 + c / 2 * 8;
        unsigned column = lane % 4 * 2 + c % 2;
        double sum = (double)d[c];
        for (unsigned k = 0; k < 16; k++) {
            uint32_t x = offered(row % 8 * 4 + k % 8 / 2)[row / 8 + k / 8 * 2];
            uint32_t y = offered(column * 4 + k % 8 / 2)[4 + k / 8];
            sum +=
                (double)half_value(x, k % 2, bf16 != 0) * (double)half_value(y, k % 2, bf16 != 0);
        }
        d[c] = (float)sum;
    }
}

void by_emulated_ldmatrix(uint32_t r[4], const uint32_t row_words[4], int transposed)
{
    unsigned lane = emulator_now->number % LANES;
    offer(row_words, 4, "ldmatrix", __builtin_return_address(0));
    for (unsigned m = 0; m < 4; m++) {
        r[m] = 0;
        for (unsigned half = 0; half < 2; half++) {
            unsigned row = transposed ? lane % 4 * 2 + half : lane / 4;
            unsigned column = transposed ? lane / 4 : lane % 4 * 2 + half;
            uint32_t word = offered(m * 8 + row)[column / 2];
            r[m] |= (column % 2 != 0 ? word >> 16 : word & 0xffffu) << (16 * half);
        }
    }
}

/* ---- asynchronous copies ---- */

void by_emulated_copy_async(void *to, const void *from, unsigned bytes)
{
    fiber *f = running();
    if (f->copy_count == MOST_COPIES) {
        emulator_report("more than %d copies under way", MOST_COPIES);
        return;
    }
    if (emulator_here.checked) {
        emulator_access((uintptr_t)to, 16, true, false);
        if (bytes > 0) {
            emulator_access((uintptr_t)from, bytes, false, false);
        }
        emulator_await((uintptr_t)to, 16, true);
    }
    memset(to, 0xff, 16);
    f->copies[f->copy_count++] = (late_copy){to, from, bytes, f->group};
}

void by_emulated_copy_commit(void)
{
    running()->group++;
}

/* Lands the copies of all groups but the youngest `pending` ones. */
void by_emulated_copy_wait(unsigned pending)
{
    fiber *f = running();
    int kept = 0;
    for (int i = 0; i < f->copy_count; i++) {
        late_copy c = f->copies[i];
        if (c.group + pending >= f->group) {
            f->copies[kept++] = c;
            continue;
        }
        if (emulator_here.checked) {
            emulator_await((uintptr_t)c.to, 16, false);
            emulator_access((uintptr_t)c.to, 16, true, false);
        }
        memset(c.to, 0, 16);
        if (c.bytes > 0) {
            memcpy(c.to, c.from, c.bytes);
        }
    }
    f->copy_count = kept;
}

void by_emulated_atomic_float(void)
{
    emulator_report("an atomic sum of floats depends on the order of threads");
}

int32_t by_emulated_atomic_add(int32_t *p, int32_t value)
{
    if (emulator_here.checked) {
        emulator_access((uintptr_t)p, sizeof *p, true, true);
    }
    int32_t old = *p;
    *p = old + value;
    return old;
}

/* ---- scheduling ---- */

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static void shuffle(unsigned *order, unsigned count, uint32_t *state)
{
    for (unsigned i = count; seed != 0 && i > 1; i--) {
        unsigned other = next_random(state) % i;
        unsigned kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
}

/* Releases the warp that begins at thread `first` if all its lanes wait at one place. */
static bool release_warp(unsigned first)
{
    for (unsigned i = first; i < first + LANES; i++) {
        if (i >= thread_count || fibers[i].state != AT_WARP ||
            fibers[i].where != fibers[first].where) {
            return false;
        }
    }
    for (unsigned i = first; i < first + LANES; i++) {
        fibers[i].state = READY;
    }
    return true;
}

static void report_stuck(void)
{
    const fiber *first = &fibers[0];
    for (unsigned i = 1; i < thread_count; i++) {
        const fiber *f = &fibers[i];
        if (f->state != first->state || (f->state != ENDED && f->where != first->where)) {
            emulator_report("threads do not meet: thread 0 %s%s, thread %u %s%s",
                            first->state == ENDED ? "has ended" : "waits at ",
                            first->state == ENDED ? "" : first->what, i,
                            f->state == ENDED ? "has ended" : "waits at ",
                            f->state == ENDED ? "" : f->what);
            return;
        }
    }
    emulator_report("a warp of %u threads waits for %d lanes at %s", thread_count, LANES,
                    first->what);
}

/* Returns true if all threads wait at one barrier. */
static bool at_barrier(void)
{
    for (unsigned i = 0; i < thread_count; i++) {
        if (fibers[i].state != AT_BLOCK || fibers[i].where != fibers[0].where) {
            return false;
        }
    }
    return true;
}

static bool all_ended(void)
{
    for (unsigned i = 0; i < thread_count; i++) {
        if (fibers[i].state != ENDED) {
            return false;
        }
    }
    return true;
}

static bool run_block(uint32_t *state)
{
    static unsigned order[MOST_THREADS];
    for (unsigned i = 0; i < thread_count; i++) {
        prepare_fiber(i);
        order[i] = i;
    }
    shuffle(order, thread_count, state);
    for (;;) {
        bool ran = false;
        for (unsigned i = 0; i < thread_count; i++) {
            fiber *f = &fibers[order[i]];
            if (f->state == READY) {
                emulator_now = &f->thread;
                emulator_switch(&scheduler_top, f->stack_top);
                emulator_now = NULL;
                ran = true;
            }
        }
        for (unsigned w = 0; w < thread_count; w += LANES) {
            ran = release_warp(w) || ran;
        }
        if (at_barrier()) {
            emulator_here.barriers++;
            for (unsigned i = 0; i < thread_count; i++) {
                fibers[i].state = READY;
            }
            shuffle(order, thread_count, state);
        } else if (!ran) {
            bool ended = all_ended();
            if (!ended) {
                report_stuck();
            }
            return ended;
        }
    }
}

static void set_place(const emulator_grid *grid, unsigned block)
{
    const unsigned *n = grid->grid;
    emulator_here.block_number = block;
    emulator_here.block.x = block % n[0];
    emulator_here.block.y = block / n[0] % n[1];
    emulator_here.block.z = block / n[0] / n[1];
    emulator_here.instance++;
    emulator_here.barriers = 0;
}

void emulator_begin(const char *name)
{
    static uint32_t launches = 1;
    faults = 0;
    first_fault[0] = '\0';
    kernel_name = name;
    emulator_here.launch = ++launches;
    emulator_here.block_number = 0;
    emulator_here.instance++;
    emulator_here.barriers = 0;
    emulator_memory_launch(launches);
}

int emulator_faults(void)
{
    return faults;
}

int emulator_run(const emulator_grid *grid, const char *name, void (*body)(const void *args),
                 const void *args)
{
    unsigned blocks = grid->grid[0] * grid->grid[1] * grid->grid[2];
    emulator_begin(name);
    if (grid->block == 0 || grid->block > MOST_THREADS || grid->shared > MOST_SHARED) {
        emulator_report("%u threads and %u bytes of shared memory a block", grid->block,
                        grid->shared);
        return faults;
    }
    if (stacks == NULL) {
        stacks = mmap(NULL, (size_t)STACK * MOST_THREADS, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    unsigned *order = malloc((blocks + 1) * sizeof *order);
    if (stacks == MAP_FAILED || order == NULL) {
        abort();
    }
    uint32_t state = seed * 2654435761u + 1;
    for (unsigned i = 0; i < blocks; i++) {
        order[i] = i;
    }
    shuffle(order, blocks, &state);
    kernel_body = body;
    kernel_args = args;
    thread_count = grid->block;
    emulator_here.shared = dynamic_shared;
    emulator_here.blocks.x = grid->grid[0];
    emulator_here.blocks.y = grid->grid[1];
    emulator_here.blocks.z = grid->grid[2];
    emulator_here.threads.x = grid->block;
    emulator_here.threads.y = emulator_here.threads.z = 1;
    for (unsigned i = 0; i < blocks; i++) {
        set_place(grid, order[i]);
        memset(__start_by_shared, 0xff, (size_t)(__stop_by_shared - __start_by_shared));
        memset(dynamic_shared, 0xff, grid->shared);
        if (!run_block(&state)) {
            break;
        }
    }
    free(order);
    return faults;
}

int emulator_launch(const emulator_grid *grid, const char *symbol, const void *args)
{
    const emulator_kernel *kernel = emulator_find(symbol);
    if (kernel == NULL) {
        faults = 0;
        emulator_report("there is no kernel %s", symbol);
        return faults;
    }
    emulator_here.checked = checks;
    return emulator_run(grid, symbol, checks ? kernel->checked : kernel->plain, args);
}
