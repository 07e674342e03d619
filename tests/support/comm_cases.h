/* What every backend of communicators must do, as functions that the ranks of a communicator call
 * together: tests/unit/comm/test_comm.c runs them on threads, tests/dist under mpirun. They return
 * an error that says what was not as it must be. */
#ifndef BY_TEST_COMM_CASES_H
#define BY_TEST_COMM_CASES_H

#include "banyan/comm.h"

/* All collectives, splits and messages, in all dtypes and many sizes. */
by_status comm_cases_all(by_comm *comm, void *user, by_error *error);
/* Sums of many messages a slice. */
by_status comm_cases_large(by_comm *comm, by_error *error);
/* Places and communicators of a mesh over comm. */
by_status comm_cases_mesh(by_comm *comm, by_mesh *mesh, by_error *error);

#endif
