#include <stdlib.h>

#include "bench/bench.h"

static by_status time_steps(cli_timing *out, by_trainer *trainer, int64_t steps, by_error *error)
{
    double *seconds = malloc((size_t)steps * sizeof *seconds);
    by_step_result result = {0};
    by_random_batch *random = NULL;
    double total = 0.0;
    double exposed = 0.0;
    double disk = 0.0;
    by_status status = by_random_batch_open(&random, trainer, error);
    if (status == BY_OK && seconds == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: times");
    }
    for (int64_t i = -1; i < steps && status == BY_OK && !cli_stop_requested(NULL); i++) {
        double began = by_clock();
        status = by_trainer_step(trainer, by_random_batch_view(random), &result, error);
        if (i < 0) {
            out->start_ms = cli_process_age_ms();
        } else {
            seconds[i] = by_clock() - began;
            total += seconds[i];
            exposed += result.exposed;
            disk += result.disk;
        }
    }
    if (status == BY_OK && cli_stop_requested(NULL)) {
        status = by_error_set(error, BY_ESTOPPED, "interrupted: nothing was measured");
    }
    if (status == BY_OK) {
        out->loss = result.loss;
        double median = cli_median(seconds, (size_t)steps);
        out->step_ms = 1e3 * median;
        out->exposed_ms = out->step_ms * exposed / total;
        out->disk_ms = out->step_ms * disk / total;
        out->spread_ms = 1e3 * (seconds[steps - 1] - seconds[0]);
        out->examples_per_s = (double)result.examples / median;
    }
    by_random_batch_close(&random);
    free(seconds);
    return status;
}

/* Measures the peak of this rank: once more if the steps, of one rank, were faster. */
static by_status measure_own_peak(cli_timing *out, const by_config *config, bool alone,
                                  by_error *error)
{
    double reached = 1e-9 * out->examples_per_s * out->size.flops_per_example;
    by_dtype dtype = cli_compute_dtype(config);
    int threads = (int)config->train.threads;
    by_status status =
        by_machine_measure_peak(&out->peak_gflops, dtype, config->device, threads, error);
    if (status == BY_OK && alone && reached > out->peak_gflops) {
        double again = 0.0;
        status = by_machine_measure_peak(&again, dtype, config->device, threads, error);
        out->peak_gflops = again > out->peak_gflops ? again : out->peak_gflops;
    }
    return status;
}

/* Measures the peak of all ranks, on all of them at once. */
static by_status measure_peak(cli_timing *out, const by_config *config, by_comm *comm,
                              by_error *error)
{
    float peak;
    bool alone = comm == NULL || by_comm_size(comm) == 1;
    by_status status = measure_own_peak(out, config, alone, error);
    if (status != BY_OK || comm == NULL) {
        return status;
    }
    peak = (float)out->peak_gflops;
    status = by_comm_all_reduce(comm, &peak, 1, BY_F32, "peak", error);
    out->peak_gflops = (double)peak;
    return status;
}

/* Sets what the trainer's device has given, of memory of its own, since `before`. */
static void measure_device(cli_timing *out, const by_trainer *trainer, uint64_t before)
{
    const by_memory_report *plan = by_trainer_memory(trainer);
    by_device_info info;
    if (by_trainer_device(&info, trainer, NULL) == BY_OK && !info.host_memory) {
        out->device_planned = plan->parameters + plan->gradients + plan->optimizer +
                              plan->activations + plan->workspace;
        out->device_measured = before > info.memory_free ? before - info.memory_free : 0;
    }
}

by_status cli_time_training(cli_timing *out, by_config *config, int64_t steps, by_comm *comm,
                            by_error *error)
{
    by_trainer *trainer;
    const by_trainer_options options = {.comm = comm, .speeds = cli_speeds(config)};
    *out = (cli_timing){0};
    by_status status = by_trainer_open_fitting(&trainer, config, &options, error);
    if (status != BY_OK) {
        return status;
    }
    by_device_info before = {0};
    status = by_trainer_device(&before, trainer, error);
    if (status == BY_OK) {
        status = by_trainer_allocate(trainer, error);
    }
    if (status == BY_OK) {
        status = by_trainer_initialize(trainer, error);
    }
    if (status == BY_OK) {
        status = time_steps(out, trainer, steps, error);
    }
    measure_device(out, trainer, before.memory_free);
    out->resident = by_peak_resident_bytes();
    out->on_disk = by_trainer_memory(trainer)->on_disk;
    out->size = *by_trainer_size(trainer);
    if (status == BY_OK) {
        status = measure_peak(out, config, comm, error);
    }
    out->planned = by_trainer_memory(trainer)->total;
    out->examples = by_trainer_task(trainer)->examples;
    if (comm != NULL) {
        status = by_comm_fail(comm, status, error); /* before closing what others wait for */
    }
    by_trainer_close(&trainer);
    return status;
}
