/* trainer/probes: what watches steps: guards against steps that must not be applied
 * (state/guard.h describes them), statistics of tensors and activations, sampled texts. Each
 * does nothing unless the config asks for it. */
#ifndef BY_TRAINER_PROBES_PROBES_H
#define BY_TRAINER_PROBES_PROBES_H

#include "trainer/state/trainer.h"

/* ---- activations.c ---- */

/* Called after the programs of the model were added. */
by_status by__trainer_activations_plan(by_trainer *t, by_error *error);
/* Bytes of memory, on the device and pinned. */
size_t by__trainer_activations_bytes(const by_trainer *t);
by_status by__trainer_activations_open(by_trainer *t, by_error *error);
void by__trainer_activations_close(by_trainer *t);
/* Called before the results of the next submitted step are fetched to `slot`. */
by_status by__trainer_activations_fetch(by_trainer *t, unsigned slot, by_error *error);
/* Called when the step of that slot is collected. */
void by__trainer_activations_collect(by_trainer *t, unsigned slot);

/* ---- guard.c ---- */

/* Between norm and update of a step: applies the host's checks. */
by_status by__trainer_guard_decide(by_trainer *trainer, unsigned slot, double weight,
                                   by_error *error);
/* Handles a step that was read back: `failed` means that it was not applied. result->skipped is the
 * host's veto, if any, and on return the reason why the step was not applied. Updates the counts.
 * BY_EDIVERGED if the config does not allow skipped steps, or too many were skipped in a row: this
 * step is then rolled back. */
by_status by__trainer_guard_collected(by_trainer *trainer, by_step_result *result, bool failed,
                                      by_error *error);

/* State that is saved in checkpoints if there is any. */
const by__trainer_guard *by__trainer_guard_of(const by_trainer *trainer);
/* Restores it, after by_trainer_load_optimizer. */
void by__trainer_set_guard(by_trainer *trainer, const by__trainer_guard *guard);

/* ---- guard_abft.c ---- */

/* Starts to check the sums of products, if guard.abft is set. */
by_status by__trainer_abft_open(by_trainer *trainer, by_error *error);
/* Bytes of these checksums. */
size_t by__trainer_abft_bytes(const by_trainer *trainer);
/* Collective, before an update: BY_ECORRUPT, on all ranks, if a checksum was wrong on one; names
 * the node. */
by_status by__trainer_abft_verdict(by_trainer *trainer, by_error *error);
void by__trainer_abft_close(by_trainer *trainer);

/* ---- guard_replay.c ---- */

/* Returns true if the gradients of the next step are to be computed twice (guard.replay_every). */
bool by__trainer_replay_is_due(const by_trainer *trainer);
/* Called before the first computation, between the two, and after the second. Collective;
 * BY_ECORRUPT, on all ranks, if the results differ on one: names the first node, or the weight that
 * it read. */
by_status by__trainer_replay_begin(by_trainer *trainer, by_error *error);
by_status by__trainer_replay_repeat(by_trainer *trainer, by_error *error);
by_status by__trainer_replay_end(by_trainer *trainer, by_error *error);
void by__trainer_replay_close(by_trainer *trainer);

/* ---- guard_spike.c ---- */

/* The robust z-score of a loss relative to a window: (loss - median) / sigma, where sigma is 1.4826
 * times the median absolute deviation, which for a normal distribution is the standard deviation
 * (Rousseeuw and Croux 1993), or 1e-4 of the median if that is more. 0 for a window of fewer than
 * `least` losses. */
double by__trainer_robust_zscore(const double *losses, int64_t count, int64_t least, double loss);
/* Print the window as text, 16 hexadecimal digits per loss, and parse it. BY_EFORMAT: malformed. */
by_status by__trainer_window_print(by_string *out, const by__trainer_guard *guard);
by_status by__trainer_window_parse(by__trainer_guard *guard, const char *text, by_error *error);

/* ---- layer_norms.c ---- */

/* Called after the programs of the update were added. */
by_status by__trainer_layers_plan(by_trainer *t, by_error *error);
/* Bytes of memory, on the device and pinned. */
size_t by__trainer_layers_bytes(const by_trainer *t);
by_status by__trainer_layers_open(by_trainer *t, by_error *error);
void by__trainer_layers_close(by_trainer *t);
/* Called before and after the update of a step whose results go to `slot`; the gradient is in
 * t->flats.sum_set. */
by_status by__trainer_layers_before_update(by_trainer *t, unsigned slot, by_error *error);
by_status by__trainer_layers_after_update(by_trainer *t, unsigned slot, by_error *error);
/* Called when the step of that slot is collected. */
void by__trainer_layers_collect(by_trainer *t, unsigned slot);

/* ---- node_watch.c ---- */

void by__trainer_node_watch_close(by_trainer *trainer);

/* ---- sampler.c ---- */

/* Adds the program. BY_ECONFIG: in this layout no rank has all weights. */
by_status by__trainer_sampler_plan(by_trainer *t, const by_trainer_options *o, by_error *error);
/* Bytes of its caches and inputs. */
size_t by__trainer_sampler_bytes(const by_trainer *t);
/* Binds the program to the weights and its own memory; called after by__trainer_open_feeds. */
by_status by__trainer_sampler_open(by_trainer *t, by_error *error);
void by__trainer_sampler_close(by_trainer *t);
/* Number of positions in its caches; 0: there is no sampler. */
int64_t by__trainer_sampler_positions(const by_trainer *t);
/* Continues ids[0 .. count) by ids[count .. count + more), all below `vocab`, drawn from softmax at
 * temperature 0.8; the draws depend on the config's seed and the position alone. *made is less than
 * `more` if no logit is finite. Nothing may be in flight. count + more is at most
 * by__trainer_sampler_positions. */
by_status by__trainer_sampler_run(by_trainer *t, int32_t *ids, size_t count, size_t more,
                                  int64_t vocab, size_t *made, by_error *error);

#endif
