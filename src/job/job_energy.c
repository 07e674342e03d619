/* What a job uses: time, and energy. Measured where the kernel lets the counters of processors be
 * read or the device has a meter, on rank 0's host; else rated, by the watts that the caller
 * knows. */
#include <math.h>

#include "job/job.h"

/* Seconds between two readings. A meter tells the power of a moment. */
static const double interval = 1.0;

void by__job_meter_open(by__job_meter *out, const char *device)
{
    *out = (by__job_meter){.began = by__now()};
    out->read = out->began;
    by__track_energy_begin(&out->processors, "");
    (void)by_device_meter_open(&out->device, device, NULL);
}

void by__job_meter_update(by__job_meter *m, bool now)
{
    double seconds = by__now() - m->read;
    by_device_usage usage;
    if (m->began == 0.0 || (!now && seconds < interval)) {
        return;
    }
    m->read += seconds;
    by__track_energy_update(&m->processors, "");
    if (m->device != NULL && by_device_meter_read(&usage, m->device, NULL) == BY_OK &&
        usage.watts >= 0.0) {
        m->device_joules += usage.watts * seconds;
        m->metered = true;
    }
}

double by__job_meter_joules(const by__job_meter *m)
{
    return m->processors.count > 0 || m->metered ? m->processors.joules + m->device_joules : -1.0;
}

void by__job_meter_close(by__job_meter *m)
{
    by_device_meter_close(&m->device);
}

by__job_use by__job_used(const by__job *job)
{
    const by__job_meter *m = &job->energy;
    const by_train_rates *rates = job->options->rates;
    double ranks = job->comm == NULL ? 1.0 : (double)by_comm_size(job->comm);
    double joules = by__job_meter_joules(m);
    by__job_use use = {.seconds = m->began > 0.0 ? by__now() - m->began : 0.0,
                       .measured = joules >= 0.0,
                       .money = (double)NAN,
                       .kg_co2 = (double)NAN};
    double rated = rates == NULL ? (double)NAN : ranks * rates->watts * use.seconds;
    double site = rates == NULL ? 1.0 : rates->pue;
    use.kwh = (use.measured ? joules : rated) * site / 3.6e6;
    if (rates != NULL) {
        use.money = ranks * rates->price_per_hour * use.seconds / 3600.0;
        use.kg_co2 = 1e-3 * rates->grams_per_kwh * use.kwh;
    }
    return use;
}

void by__job_energy_track(by__job *job)
{
    by__job_meter_update(&job->energy, true);
    by__job_use use = by__job_used(job);
    const struct {
        const char *key;
        double value;
    } values[] = {
        {"seconds", use.seconds}, {"kwh", use.kwh}, {"kg_co2", use.kg_co2}, {"money", use.money}};
    by__track_begin(job->tracker, BY__EVENT_SYSTEM, "use", (uint64_t)job->at.done_step);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(values); i++) {
        if (isfinite(values[i].value)) {
            by__track_number(job->tracker, values[i].key, values[i].value);
        }
    }
    if (isfinite(use.kwh)) {
        by__track_text(job->tracker, "energy", use.measured ? "measured" : "rated");
    }
    by__track_end(job->tracker);
}

void by__job_energy_note(const by__job *job)
{
    by__job_use use = by__job_used(job);
    char text[3][64] = {"", "", ""};
    if (!isfinite(use.kwh) && !isfinite(use.money)) {
        return;
    }
    if (isfinite(use.kwh)) {
        (void)snprintf(text[0], sizeof text[0], ", %.3g kWh (%s)", use.kwh,
                       use.measured ? "measured" : "rated, not measured");
    }
    if (isfinite(use.kg_co2)) {
        (void)snprintf(text[1], sizeof text[1], ", %.3g kg CO2", use.kg_co2);
    }
    if (isfinite(use.money)) {
        (void)snprintf(text[2], sizeof text[2], ", %.4g money", use.money);
    }
    by__job_note(job, "used %.0f s%s%s%s", use.seconds, text[0], text[1], text[2]);
}
