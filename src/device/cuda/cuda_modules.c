/* The kernels' machine code: which of the embedded images a GPU runs. */
#include <stdlib.h>
#include <string.h>

#include "base/wire/zstd.h"
#include "device/cuda/cuda.h"

/* How well an image suits a capability; 0: not at all. A cubin runs on later GPUs of its generation
 * ("sm_80" on 8.9), PTX, whose architecture is negative, on all later ones. */
static int suits(const by__cuda_image *image, int capability)
{
    int architecture = image->architecture;
    if (architecture < 0) {
        return -architecture <= capability ? -architecture : 0;
    }
    bool fits = architecture / 10 == capability / 10 && architecture <= capability;
    return fits ? 1000 + architecture : 0;
}

/* The best image of a family, or NULL. */
static const by__cuda_image *choose(const char *family, int capability)
{
    size_t count;
    int best = 0;
    const by__cuda_image *chosen = NULL;
    const by__cuda_image *images = by__cuda_images(&count);
    for (size_t i = 0; i < count; i++) {
        int suit = strcmp(images[i].family, family) == 0 ? suits(&images[i], capability) : 0;
        chosen = suit > best ? &images[i] : chosen;
        best = suit > best ? suit : best;
    }
    return chosen;
}

static by_status load(by__cuda_device *d, const void *image, const char *family, by_error *error)
{
    int result = d->driver.module_open(&d->modules[d->module_count], image);
    if (result == BY__CUDA_UNSUPPORTED_PTX_VERSION || result == BY__CUDA_NO_BINARY_FOR_GPU) {
        return by_error_set(error, BY_EDEVICE,
                            "cuda:%d: the driver, for CUDA %d.%d, cannot load the kernels of this "
                            "build for sm_%d (%s): a newer driver can",
                            d->ordinal, d->driver.supports / 1000, d->driver.supports % 1000 / 10,
                            d->capability, d->name);
    }
    BY_TRY(by__cuda_driver_failed(&d->driver, result, family, error));
    d->module_count++;
    return BY_OK;
}

by_status by__cuda_image_decompress(char **out, const by__cuda_image *image, by_error *error)
{
    bool done = false;
    size_t bytes = by__zstd_bytes(image->data, image->bytes);
    BY_TRY(by__alloc((void **)out, bytes + 1, 1, "kernels", error));
    by_status status = by__zstd_decompress(&done, (uint8_t *)*out, bytes, image->data, image->bytes,
                                           "kernels for GPUs", error);
    if (status == BY_OK && (!done || bytes == 0)) {
        status = by_error_set(error, BY_EDEVICE,
                              "cuda: the kernels of %s in this program are damaged", image->family);
    }
    if (status != BY_OK) {
        free(*out);
        *out = NULL;
    }
    return status;
}

static by_status load_family(by__cuda_device *d, const by__cuda_image *source, by_error *error)
{
    const by__cuda_image *image = choose(source->family, d->capability);
    char *made;
    if (image != NULL && !image->compressed) {
        return load(d, image->data, source->family, error);
    }
    BY_TRY(image == NULL ? by__cuda_nvrtc_image(&made, d, source, error)
                         : by__cuda_image_decompress(&made, image, error));
    by_status status = load(d, made, source->family, error);
    free(made);
    return status;
}

/* Finds a kernel in the modules, and lets it have the shared memory that its launches ask for. */
static by_status find_kernel(by__cuda_device *d, by__cuda_kernel kernel, by_error *error)
{
    const char *symbol = by__cuda_kernel_symbol(kernel);
    int shared = (int)by__cuda_kernel_shared(kernel);
    int result = BY__CUDA_NOT_FOUND;
    for (int i = 0; i < d->module_count && result == BY__CUDA_NOT_FOUND; i++) {
        result = d->driver.module_function(&d->functions[kernel], d->modules[i], symbol);
    }
    if (result == BY__CUDA_SUCCESS && shared > BY__CUDA_SHARED_BYTES) {
        result =
            d->driver.function_set(d->functions[kernel], BY__CUDA_FUNCTION_SHARED_BYTES, shared);
    }
    return by__cuda_driver_failed(&d->driver, result, symbol, error);
}

by_status by__cuda_modules_load(by__cuda_device *d, by_error *error)
{
    size_t count;
    const by__cuda_image *images = by__cuda_images(&count);
    for (size_t i = 0; i < count; i++) {
        if (images[i].architecture == 0) {
            BY_TRY(load_family(d, &images[i], error));
        }
    }
    for (int kernel = 0; kernel < (int)BY__CUDA_KERNELS; kernel++) {
        BY_TRY(find_kernel(d, (by__cuda_kernel)kernel, error));
    }
    return BY_OK;
}

void by__cuda_modules_unload(by__cuda_device *d)
{
    while (d->module_count > 0) {
        (void)d->driver.module_close(d->modules[--d->module_count]);
    }
}
