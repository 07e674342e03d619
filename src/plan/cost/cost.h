/* What money.c and price_file.c share: the checks of a price and of a region, wherever they were
 * read. `file` and `name` are for messages. */
#ifndef BY_PLAN_COST_COST_H
#define BY_PLAN_COST_COST_H

#include "banyan/plan.h"

by_status by__cost_check_price(const by_price *price, const char *file, const char *name,
                               by_error *error);
by_status by__cost_check_region(const by_region *region, const char *file, const char *name,
                                by_error *error);

#endif
