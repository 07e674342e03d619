/* images: the kernels as the build made them. */
#ifndef BY_DEVICE_CUDA_IMAGES_H
#define BY_DEVICE_CUDA_IMAGES_H

#include <stdbool.h>
#include <stddef.h>

/* architecture: of a cubin, the compute capability times ten (90: sm_90a); of PTX, that times -1;
 * of source text, 0. Every family has its source; the others are there where the build found NVRTC,
 * compressed by zstd if it has that, too. */
typedef struct by__cuda_image {
    const char *family; /* stem of the file in kernels/: "norm" */
    int architecture;
    const unsigned char *data;
    size_t bytes;
    bool compressed;
} by__cuda_image;

const by__cuda_image *by__cuda_images(size_t *count);

/* Files that sources include, by the name that they use. */
#define BY__CUDA_HEADERS 6
const by__cuda_image *by__cuda_headers(void);

#endif
