/* row_groups: rows that are sorted by group, each of which is multiplied by the matrix of its group
 * (GROUPED_MATMUL, PACKED_GROUPED_MATMUL): the rows of a group, and products with packed weights
 * group by group.
 *
 * Never put here: a product.
 */
#ifndef BY_DEVICE_CPU_ROW_GROUPS_H
#define BY_DEVICE_CPU_ROW_GROUPS_H

#include "device/cpu/cpu.h"

/* Returns the number of rows of range g, which starts at row *begin; 0 if the range is out of the
 * operands' bounds. */
int64_t by__cpu_group_rows(const by__device_call *call, int64_t g, int64_t *begin);
/* Zeroes the result if some of its rows are in no range. */
void by__cpu_group_zero(const by__device_call *call, const by__device_context *context);

/* The workspace of a PACKED_MATMUL without bias and added tensor, in bytes. */
typedef size_t by__cpu_packed_work(const by__device_call *product, int threads);
/* Computes it. */
typedef void by__cpu_packed_product(const by__device_call *product, int threads);

/* PACKED_GROUPED_MATMUL as a PACKED_MATMUL of each group's rows. How many they are is known when it
 * runs, so the workspace is the largest that any number of rows needs. */
void by__cpu_packed_groups_prepare(by__device_call *call, int threads, by__cpu_packed_work *work);
void by__cpu_packed_groups_run(const by__device_call *call, const by__device_context *context,
                               by__cpu_packed_product *product);

#endif
