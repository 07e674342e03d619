/* faulty: what the kernels of faulty.cu are asked to do wrong. */
#ifndef BY_TESTS_CUDA_FAULTY_H
#define BY_TESTS_CUDA_FAULTY_H

typedef enum fault {
    FAULT_NONE,
    FAULT_BOUND,
    FAULT_UNWRITTEN,
    FAULT_DIVERGENT,
    FAULT_TWO_BARRIERS,
    FAULT_NO_BARRIER,
    FAULT_REUSED,
    FAULT_ALL_WRITE,
    FAULT_OTHER_BLOCK,
    FAULT_BLOCKS_WRITE,
    FAULT_ATOMIC,
    FAULT_MISALIGNED,
    FAULT_HOST,
    FAULT_PAST_END,
    FAULT_NO_WARP_BARRIER,
    FAULT_OTHER_WARP,
    FAULT_SHUFFLE_LANE,
    FAULT_HALF_SHUFFLES,
    FAULT_SAME_STAGE,
    FAULT_SHORT_COPY,
    FAULT_WAIT_COUNT,
    FAULT_BARRIER_BEFORE_WAIT,
    FAULT_NO_BARRIER_BEHIND,
    FAULT_NEVER_WAITED,
    FAULT_TILE_EDGE,
    FAULT_PLAIN_COUNT
} fault;

typedef struct faulty_args {
    const float *x;
    float *y, *z;
    const float *host; /* not the device's memory */
    int fault;
} faulty_args;

#endif
