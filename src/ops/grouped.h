/* grouped: what products of rows with the matrix of their group have in common, with plain
 * (grouped_product.c) and with packed matrices (packed_op.c).
 *
 * Never put here: the grouping itself (group.c).
 */
#ifndef BY_OPS_GROUPED_H
#define BY_OPS_GROUPED_H

#include "ops/row.h"

#define BY__GROUPED_CAPACITY BY__ATTR_AS("capacity", capacity, INT, BY__ATTR_SPARE)
#define BY__GROUPED_CHOSEN   BY__ATTR_AS("chosen", chosen, INT, BY__ATTR_NO_WORK | BY__ATTR_SPARE)

/* Refuses operand 2 unless it has ranges for so many matrices, and invalid attributes. */
by_status by__op_group_ranges_check(const by__op_signature *s, int64_t matrices, by_error *error);
/* The share of the matrices that one example uses: those of the groups chosen for it, on whatever
 * rank they are. */
double by__op_group_share(const by__op_signature *s, int64_t matrices);

#endif
