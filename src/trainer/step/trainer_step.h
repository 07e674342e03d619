/* trainer/step: the trainer as a whole: opens, lays out and allocates it, loads weights, takes
 * steps. */
#ifndef BY_TRAINER_STEP_TRAINER_STEP_H
#define BY_TRAINER_STEP_TRAINER_STEP_H

#include "checkpoint/storage.h"
#include "trainer/state/trainer.h"

/* ---- whole_model.c, rounds.c, update_in_memory.c ---- */

extern const by__trainer_strategy by__step_whole_model;
extern const by__trainer_strategy by__step_rounds;
extern const by__trainer_updater by__step_update_in_memory;

/* Adds the program of the model, for training or for its loss. */
by_status by__trainer_add_model(by_trainer *t, const by_trainer_options *o, bool training,
                                by_error *error);
/* Binds the parameters of these programs. */
by_status by__trainer_bind_models(by_trainer *t, by_error *error);
/* Runs that of the loss. */
by_status by__trainer_evaluate_loss(by_trainer *t, const by_batch *batch, by_error *error);
int64_t by__trainer_part_of_model(const by_trainer *t, const by__exec_program_row *row);

/* ---- adapters.c ---- */

/* Loads the adapters to start from (lora.from) into a trainer that has its other weights. */
by_status by__trainer_adapters_load(by_trainer *trainer, const by_config *config,
                                    const by__trainer_recipe *recipe, by_error *error);
/* Makes adapter_config.json of the adapters that a config trains, freed with free(), and the prefix
 * of PEFT's parameter names relative to ours; static. */
by_status by__trainer_adapters_describe(char **out, const by_config *config,
                                        const by__trainer_recipe *recipe, by_error *error);
const char *by__trainer_adapters_prefix(const by_config *config);

/* ---- trainer.c ---- */

/* by_trainer_open with a plan whose activations take at most `arena_bytes` (0: any number), if the
 * passes find one. */
by_status by__trainer_build(by_trainer **out, const by_config *config, const by_trainer_options *o,
                            size_t arena_bytes, by_error *error);

/* ---- trainer_average.c ---- */

/* Collective, with train.eval_ema and no step in flight: puts the moving average in the place of
 * the weights, which are saved in the memory of the gradients, or (`back`) restores them. */
by_status by__trainer_swap_average(by_trainer *trainer, bool back, by_error *error);
/* Of weights in memory (update_in_memory.c): adds its programs, */
by_status by__trainer_average_plan(by_trainer *t, by_error *error);
by_status by__trainer_average_open(by_trainer *t, by_error *error);
/* submits its step, after the update, and swaps it with the weights. */
by_status by__trainer_average_update(by_trainer *t, by_error *error);
by_status by__trainer_average_swap(by_trainer *t, bool back, by_error *error);

/* ---- trainer_layout.c ---- */

/* Declares parameters, the flat buffers of masters, copies, gradient sets and states, and the units
 * of updates. */
by_status by__trainer_lay_out(by_trainer *t, by_error *error);
/* Bytes of gradients and states saved by frozen parameters; *elements: number of frozen
 * elements. */
uint64_t by__trainer_spared(const by_trainer *t, int64_t *elements);
/* Bytes of parameters that weights in codes take less than as they are. */
uint64_t by__trainer_coded(const by_trainer *t);

/* ---- coded_slices.c: what checkpoints have of a weight that is held in codes ---- */

bool by__trainer_codes_has(const by_trainer *trainer, size_t parameter);
/* What a checkpoint has of it, from part 1 on. Returns false if there is no such part, or, with an
 * error, if its name does not allow it. */
bool by__trainer_codes_slice(by__checkpoint_held_slice *out, const by_trainer *trainer,
                             size_t parameter, int part, by_error *error);
/* Makes the values of a part from the panels of the weight; freed with free(). */
by_status by__trainer_codes_read(const by_trainer *trainer, size_t parameter, int part,
                                 const void *panels, void **owned, by_error *error);
/* Adds to the text of config.json, which is freed and replaced, in which codes the weights are. */
by_status by__trainer_codes_describe(char **text, const by_trainer *trainer, by_error *error);

/* ---- trainer_weights.c ---- */

/* by_trainer_load_weights for the weights that a run starts from: parameters that match model.new
 * keep their initial values where these lack them or have them in another shape. known_tokens: as
 * in by_task_data. */
by_status by__trainer_start_from(by_trainer *t, const by_weights *weights, int64_t known_tokens,
                                 by_error *error);
/* Collective: loads those parameters that are present, checked by the caller; the others keep their
 * values. */
by_status by__trainer_load_adapter(by_trainer *trainer, const by_weights *weights, by_error *error);

/* Number of slices that this rank holds, 0 if none; the i-th; and its values, dense, in the
 * trainer's memory or in *owned, freed with free(). */
size_t by__trainer_slices(const by_trainer *trainer, size_t parameter, int state);
void by__trainer_slice_at(by__trainer_held *out, const by_trainer *trainer, size_t parameter,
                          int state, size_t i);
by_status by__trainer_read_slice(const by_trainer *trainer, size_t parameter, int state, size_t i,
                                 const void **data, void **owned, by_error *error);

/* Bytes of this rank's part of a checkpoint: parameters and states. */
uint64_t by__trainer_saved_bytes(const by_trainer *trainer);
/* Returns true if another thread may read them while gradients are computed. */
bool by__trainer_saves_in_background(const by_trainer *trainer);
/* Sets a function called before they are changed; NULL: none. */
void by__trainer_before_change(by_trainer *trainer, void (*call)(void *user), void *user);
/* Calls before_change: parameters and states are about to change. */
void by__trainer_changes(const by_trainer *t);

/* Collective: after weights were set, updates compute copies and the parts of other ranks. */
by_status by__trainer_refresh(by_trainer *t, by_error *error);

#endif
