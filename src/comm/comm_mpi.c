/* Ranks as processes that MPI started. */
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

by_status by__comm_open_mpi(by_comm **out, double timeout, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(timeout);
    return by_error_set(error, BY_EARG,
                        "this build has no MPI; install libopenmpi-dev and build again");
}
