/* shuffle: the lanes of two vectors in another order.
 *
 * BY__SHUFFLE(a, b, i, j, ...) is a vector of the lanes i, j, ... of a and, behind them, b. Lanes
 * have 32 bits. The indices are constants; there are as many as lanes in a, or a half or a quarter
 * of them. gcc 11 has no __builtin_shufflevector, and a __builtin_shuffle that keeps the number of
 * lanes.
 */
#ifndef BY_DEVICE_CPU_KERNELS_SHUFFLE_H
#define BY_DEVICE_CPU_KERNELS_SHUFFLE_H

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define BY__SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif

#ifndef BY__SHUFFLE
#define BY__SHUFFLE(a, b, ...)                                                                     \
    (__extension__({                                                                               \
        typedef __typeof__((a)[0]) shuffle_lane;                                                   \
        typedef int shuffle_indices __attribute__((vector_size(sizeof(a))));                       \
        typedef shuffle_lane shuffle_result                                                        \
            __attribute__((vector_size(sizeof((char[]){__VA_ARGS__}) * sizeof(shuffle_lane))));    \
        union {                                                                                    \
            __typeof__(a) all;                                                                     \
            shuffle_result first;                                                                  \
        } shuffled = {__builtin_shuffle((a), (b), (shuffle_indices){__VA_ARGS__})};                \
        shuffled.first;                                                                            \
    }))
#endif

#endif
