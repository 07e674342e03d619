/* Whether a launcher of MPI started this process. */
#include <stdlib.h>

#include "comm/comm.h"

bool by__comm_launched(void)
{
    /* Open MPI, PMIx (Slurm), PMI (MPICH and its kin). */
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        if (getenv(names[i]) != NULL) {
            return true;
        }
    }
    return false;
}
