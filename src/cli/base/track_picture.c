/* Pictures that commands draw of a model, for TensorBoard. */
#include <stdlib.h>
#include <string.h>

#include "banyan/track.h"
#include "base/cli.h"

/* The step in the name of a checkpoint's directory, step-00000016; 0: it has none. */
static uint64_t step_of(const char *directory)
{
    const char *slash = strrchr(directory, '/');
    const char *name = slash == NULL ? directory : slash + 1;
    return strncmp(name, "step-", 5) == 0 ? strtoull(name + 5, NULL, 10) : 0;
}

by_status cli_track_picture(const by_pretrained *model, const char *run, const char *tag,
                            const char *path, by_error *error)
{
    size_t length = strlen(path);
    const char *directory = by_pretrained_directory(model);
    if (run == NULL) {
        return by_error_set(error, BY_EARG,
                            "--tensorboard: %s is not a run, beside whose events a picture goes",
                            directory);
    }
    if (length < 5 || strcmp(path + length - 4, ".png") != 0) {
        return by_error_set(error, BY_EARG,
                            "--tensorboard: %s: TensorBoard shows PNG: name a file in .png", path);
    }
    return by_track_image(run, tag, step_of(directory), path, error);
}
