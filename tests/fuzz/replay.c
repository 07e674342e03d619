/* Runs a fuzz target over the files of the directories given: the corpus as a plain regression
 * test, with any compiler. Exit 0 when every file was accepted or cleanly refused. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
    size_t replayed = 0;
    for (int i = 1; i < argc; i++) {
        char **names;
        size_t count;
        by_error error = {0};
        if (by__list_dir(&names, &count, argv[i], &error) != BY_OK) {
            fprintf(stderr, "%s\n", error.message);
            return 1;
        }
        for (size_t k = 0; k < count; k++) {
            char *path = by__path_join(argv[i], names[k]);
            char *data;
            size_t length;
            if (path == NULL ||
                by__file_read(&data, &length, path, SIZE_MAX / 2, &error) != BY_OK) {
                fprintf(stderr, "%s\n", error.message);
                return 1;
            }
            (void)LLVMFuzzerTestOneInput((const uint8_t *)data, length);
            replayed++;
            free(data);
            free(path);
        }
        by__names_free(names, count);
    }
    printf("replayed %zu inputs\n", replayed);
    return replayed > 0 ? 0 : 1;
}
