/* A figure as text or JSON. */
#include "bench/bench.h"

#include "base/error.h"

#include <stdio.h>

static shoal_status flushed(void)
{
    if (fflush(stdout) == EOF || ferror(stdout))
        return SHOAL_FAIL(SHOAL_EIO, "cannot write to standard output");
    return SHOAL_OK;
}

shoal_status bench_wait_for_line(void *user)
{
    int byte;
    (void)user;
    printf("ready\n");
    if (flushed() < 0)
        return SHOAL_EIO;
    while ((byte = getchar()) != '\n')
        if (byte == EOF)
            return SHOAL_FAIL(SHOAL_EINVAL, "--paced: standard input ended before the last sample");
    return SHOAL_OK;
}

shoal_status bench_print_text(void *user, const shoali_bench_result *result)
{
    (void)user;
    if (result->untimed) {
        printf("%-52s %s: not timed\n", result->name, result->untimed);
        return flushed();
    }
    printf("%-52s %10.4g %s", result->name, result->median, result->unit);
    if (result->repeats > 1)
        printf(" (%.4g-%.4g of %d)", result->min, result->max, (int)result->repeats);
    if (result->ratio > 0)
        printf("  %.1f %% of %.4g (%s)", 100 * result->ratio, result->limit, result->limit_name);
    for (int32_t i = 0; i < result->value_count; i++)
        printf(result->values[i].value < 1e4 ? "%s%s %.4g %s" : "%s%s %.0f %s", i ? ", " : "  ",
               result->values[i].name, result->values[i].value, result->values[i].unit);
    printf(result->emulated ? "  (emulated)\n" : "\n");
    if (result->note)
        printf("  %s\n", result->note);
    return flushed();
}

/* Names are ours: they have no quotes and no control characters. */
shoal_status bench_print_json(void *user, const shoali_bench_result *result)
{
    static const char emulated[] = ", \"emulated\": true";
    (void)user;
    if (result->untimed) {
        printf("{\"bench\": \"%s\", \"name\": \"%s\", \"unit\": \"%s\", \"median\": null, "
               "\"untimed\": \"%s\"%s}\n",
               result->bench, result->name, result->unit, result->untimed,
               result->emulated ? emulated : "");
        return flushed();
    }
    printf("{\"bench\": \"%s\", \"name\": \"%s\", \"unit\": \"%s\", \"median\": %.6g, "
           "\"min\": %.6g, \"max\": %.6g, \"repeats\": %d, \"limit_name\": ",
           result->bench, result->name, result->unit, result->median, result->min, result->max,
           (int)result->repeats);
    if (result->limit > 0)
        printf("\"%s\", \"limit\": %.6g, \"ratio\": %.6g", result->limit_name, result->limit,
               result->ratio);
    else
        printf("null, \"limit\": null, \"ratio\": null");
    printf(", \"values\": {");
    for (int32_t i = 0; i < result->value_count; i++)
        printf("%s\"%s\": {\"value\": %.8g, \"unit\": \"%s\"}", i ? ", " : "",
               result->values[i].name, result->values[i].value, result->values[i].unit);
    printf("}%s", result->emulated ? emulated : "");
    printf(result->note ? ", \"note\": \"%s\"}\n" : "}\n", result->note);
    return flushed();
}

/* ---- the device ---- */

shoal_status bench_print_device_text(void *user, const shoali_bench_device *device)
{
    (void)user;
    printf("accelerator %s, device %d: %s", device->accelerator, (int)device->index, device->name);
    if (device->capability[0])
        printf(", capability %s", device->capability);
    if (device->driver[0])
        printf(", driver with %s", device->driver);
    printf(device->emulated ? "; emulated: its times mean nothing\n" : "\n");
    return flushed();
}

/* A card's name has neither quotes nor control characters. */
shoal_status bench_print_device_json(void *user, const shoali_bench_device *device)
{
    (void)user;
    printf("{\"accelerator\": \"%s\", \"bench\": \"%s\", \"device\": %d, \"card\": \"%s\", "
           "\"capability\": \"%s\", \"driver\": \"%s\", \"emulated\": %s}\n",
           device->accelerator, device->bench, (int)device->index, device->name, device->capability,
           device->driver, device->emulated ? "true" : "false");
    return flushed();
}
