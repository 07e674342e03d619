// Compares our declarations of NVIDIA's libraries with their headers, when it is compiled: every
// constant, and of every function the number of parameters and their sizes.
#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>

extern "C" {
#include "device/cuda/cuda_driver.h"
#include "device/cuda/cuda_products_api.h"
}

template <class R, class... A, class S, class... B> constexpr bool alike(R (*)(A...), S (*)(B...))
{
    if constexpr (sizeof...(A) == sizeof...(B)) {
        return sizeof(R) == sizeof(S) && ((sizeof(A) == sizeof(B)) && ...);
    }
    return false;
}

#define FUNCTION(member, symbol, parameters)                                                       \
    static_assert(                                                                                 \
        alike(static_cast<int(*) parameters>(nullptr), static_cast<decltype(&symbol)>(nullptr)),   \
        #symbol " has other parameters");
BY__CUDA_DRIVER(FUNCTION)
BY__CUDA_PRODUCTS(FUNCTION)

#define SAME(ours, theirs) static_assert(int(ours) == int(theirs), #theirs)
SAME(BY__CUDA_SUCCESS, CUDA_SUCCESS);
SAME(BY__CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(BY__CUDA_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(BY__CUDA_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME(BY__CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(BY__CUDA_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(BY__CUDA_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(BY__CUDA_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(BY__CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(BY__CUDA_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
SAME(BY__CUDA_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(BY__CUDA_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(BY__CUDA_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(BY__CUDA_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(BY__CUDA_SHARED_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(BY__CUDA_FUNCTION_SHARED_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(BY__CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(BY__CUDA_EVENT_UNTIMED, CU_EVENT_DISABLE_TIMING);
SAME(BY__CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(BY__CUDA_CAPTURE_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(sizeof(by__cuda_address) == sizeof(CUdeviceptr), "CUdeviceptr");

SAME(BY__CUDA_LT_OK, CUBLAS_STATUS_SUCCESS);
SAME(BY__CUDA_LT_NOT_INITIALIZED, CUBLAS_STATUS_NOT_INITIALIZED);
SAME(BY__CUDA_LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(BY__CUDA_LT_R_32F, CUDA_R_32F);
SAME(BY__CUDA_LT_R_16F, CUDA_R_16F);
SAME(BY__CUDA_LT_R_16BF, CUDA_R_16BF);
SAME(BY__CUDA_LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(BY__CUDA_LT_COMPUTE_TF32, CUBLAS_COMPUTE_32F_FAST_TF32);
SAME(BY__CUDA_LT_OP_T, CUBLAS_OP_T);
SAME(BY__CUDA_LT_DESC_TRANS_A, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(BY__CUDA_LT_DESC_TRANS_B, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(BY__CUDA_LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(BY__CUDA_LT_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(BY__CUDA_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(BY__CUDA_LT_LAYOUT_BATCHES, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(BY__CUDA_LT_LAYOUT_STEP, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(BY__CUDA_LT_PREFERENCE_WORK, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(BY__CUDA_LT_PREFERENCE_REDUCTION, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(BY__CUDA_LT_REDUCTION_NONE, CUBLASLT_REDUCTION_SCHEME_NONE);
static_assert(sizeof(by__cuda_lt_algorithm) == sizeof(cublasLtMatmulAlgo_t),
              "cublasLtMatmulAlgo_t");
static_assert(sizeof(by__cuda_lt_choice) == sizeof(cublasLtMatmulHeuristicResult_t) &&
                  offsetof(by__cuda_lt_choice, work) ==
                      offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
                  offsetof(by__cuda_lt_choice, status) ==
                      offsetof(cublasLtMatmulHeuristicResult_t, state),
              "cublasLtMatmulHeuristicResult_t");

int main()
{
    return 0;
}
