/* cuda_products_api: the part of cuBLASLt that is called, declared without its headers; a test
 * compares both where those are installed. (Source: cuBLAS documentation, version 12.9; the values
 * are the same in 13.) */
#ifndef BY_DEVICE_CUDA_CUDA_PRODUCTS_API_H
#define BY_DEVICE_CUDA_CUDA_PRODUCTS_API_H

#include <stddef.h>
#include <stdint.h>

#include "device/cuda/cuda_driver.h"

typedef void *by__cuda_lt_handle;
typedef void *by__cuda_lt_desc;
typedef void *by__cuda_lt_layout;
typedef void *by__cuda_lt_preference;

/* What the library chose for a product; it belongs to its version. */
typedef struct by__cuda_lt_algorithm {
    uint64_t data[8];
} by__cuda_lt_algorithm;

typedef struct by__cuda_lt_choice {
    by__cuda_lt_algorithm algorithm;
    size_t work;
    int status;
    float waves;
    int reserved[4];
} by__cuda_lt_choice;

/* Values of the library's enumerations. */
enum {
    BY__CUDA_LT_OK = 0,
    BY__CUDA_LT_NOT_INITIALIZED = 1,
    BY__CUDA_LT_NOT_SUPPORTED = 15,
    BY__CUDA_LT_R_32F = 0,
    BY__CUDA_LT_R_16F = 2,
    BY__CUDA_LT_R_16BF = 14,
    BY__CUDA_LT_COMPUTE_32F = 68,
    BY__CUDA_LT_COMPUTE_TF32 = 77,
    BY__CUDA_LT_OP_T = 1,
    BY__CUDA_LT_DESC_TRANS_A = 3,
    BY__CUDA_LT_DESC_TRANS_B = 4,
    BY__CUDA_LT_DESC_EPILOGUE = 7,
    BY__CUDA_LT_DESC_BIAS = 8,
    BY__CUDA_LT_EPILOGUE_BIAS = 4,
    BY__CUDA_LT_LAYOUT_BATCHES = 5,
    BY__CUDA_LT_LAYOUT_STEP = 6,
    BY__CUDA_LT_PREFERENCE_WORK = 1,
    BY__CUDA_LT_PREFERENCE_REDUCTION = 3,
    BY__CUDA_LT_REDUCTION_NONE = 0
};

/* X(member, symbol, parameters): all return a status. */
#define BY__CUDA_PRODUCTS(X)                                                                       \
    X(create, cublasLtCreate, (by__cuda_lt_handle * handle))                                       \
    X(destroy, cublasLtDestroy, (by__cuda_lt_handle handle))                                       \
    X(desc_create, cublasLtMatmulDescCreate, (by__cuda_lt_desc * desc, int compute, int scale))    \
    X(desc_destroy, cublasLtMatmulDescDestroy, (by__cuda_lt_desc desc))                            \
    X(desc_set, cublasLtMatmulDescSetAttribute,                                                    \
      (by__cuda_lt_desc desc, int attribute, const void *value, size_t bytes))                     \
    X(layout_create, cublasLtMatrixLayoutCreate,                                                   \
      (by__cuda_lt_layout * layout, int type, uint64_t rows, uint64_t columns, int64_t stride))    \
    X(layout_set, cublasLtMatrixLayoutSetAttribute,                                                \
      (by__cuda_lt_layout layout, int attribute, const void *value, size_t bytes))                 \
    X(layout_destroy, cublasLtMatrixLayoutDestroy, (by__cuda_lt_layout layout))                    \
    X(preference_create, cublasLtMatmulPreferenceCreate, (by__cuda_lt_preference * preference))    \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy, (by__cuda_lt_preference preference))    \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute,                                        \
      (by__cuda_lt_preference preference, int attribute, const void *value, size_t bytes))         \
    X(choose, cublasLtMatmulAlgoGetHeuristic,                                                      \
      (by__cuda_lt_handle handle, by__cuda_lt_desc desc, by__cuda_lt_layout a,                     \
       by__cuda_lt_layout b, by__cuda_lt_layout c, by__cuda_lt_layout d,                           \
       by__cuda_lt_preference preference, int most, by__cuda_lt_choice *choices, int *found))      \
    X(check, cublasLtMatmulAlgoCheck,                                                              \
      (by__cuda_lt_handle handle, by__cuda_lt_desc desc, by__cuda_lt_layout a,                     \
       by__cuda_lt_layout b, by__cuda_lt_layout c, by__cuda_lt_layout d,                           \
       const by__cuda_lt_algorithm *algorithm, by__cuda_lt_choice *choice))                        \
    X(matmul, cublasLtMatmul,                                                                      \
      (by__cuda_lt_handle handle, by__cuda_lt_desc desc, const void *alpha, const void *a,         \
       by__cuda_lt_layout a_layout, const void *b, by__cuda_lt_layout b_layout, const void *beta,  \
       const void *c, by__cuda_lt_layout c_layout, void *d, by__cuda_lt_layout d_layout,           \
       const by__cuda_lt_algorithm *algorithm, void *work, size_t work_bytes,                      \
       by__cuda_stream stream))

#endif
