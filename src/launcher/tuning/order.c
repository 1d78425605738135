/* Which trial of a space comes next: one after the other, by chance, or where a model of the times
 * measured so far expects the best. DeepSpeed: autotuning/tuner, whose model is trees of
 * xgboost. */
#include "launcher/tuning/tuning.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { GRID, RANDOM, MODEL }; /* tuner_type */
enum { FEATURES = 1 + SHOALI_KNOBS, SEEDS = 2 };
enum { THROUGHPUT, LATENCY, FLOPS }; /* metric */

bool shoali_tuning_better(const struct shoali_tuning *tuning, double a, double b)
{
    return tuning->config.metric == THROUGHPUT || tuning->config.metric == FLOPS ? a > b : a < b;
}

static int32_t count_open(const struct shoali_tuning *tuning, int32_t begin, int32_t end)
{
    int32_t open = 0;
    for (int32_t i = begin; i < end; i++)
        open += !tuning->trial[i].over;
    return open;
}

/* The same ones each time the search is made. */
static int32_t by_chance(const struct shoali_tuning *tuning, int32_t begin, int32_t end,
                         int32_t open)
{
    const struct shoali_stream stream = shoali_stream_make(1, "autotuning", "", 0);
    int32_t skip = (int32_t)shoali_random_below(&stream, (uint64_t)open, (uint64_t)open);
    for (int32_t i = begin; i < end; i++)
        if (!tuning->trial[i].over && skip-- == 0)
            return i;
    return -1;
}

/* A knob is felt by the order of its value, from -1 to 1. */
static void features_of(const struct shoali_tuning *tuning, const struct shoali_trial *trial,
                        double feature[FEATURES])
{
    memset(feature, 0, FEATURES * sizeof(feature[0]));
    feature[0] = 1;
    for (int32_t i = 0; i < tuning->knob_count; i++)
        if (trial->knob[i] >= 0 && tuning->knobs[i].count > 1)
            feature[i + 1] = 2.0 * trial->knob[i] / (tuning->knobs[i].count - 1) - 1;
}

/* Solves the symmetric system, which ridge makes positive, in place. */
static void solve(double matrix[FEATURES][FEATURES], double right[FEATURES])
{
    for (int32_t i = 0; i < FEATURES; i++)
        for (int32_t k = i + 1; k < FEATURES; k++) {
            const double factor = matrix[k][i] / matrix[i][i];
            for (int32_t j = i; j < FEATURES; j++)
                matrix[k][j] -= factor * matrix[i][j];
            right[k] -= factor * right[i];
        }
    for (int32_t i = FEATURES - 1; i >= 0; i--) {
        for (int32_t j = i + 1; j < FEATURES; j++)
            right[i] -= matrix[i][j] * right[j];
        right[i] /= matrix[i][i];
    }
}

/* Least squares over those that were measured; false: they are too few. */
static bool fit(const struct shoali_tuning *tuning, int32_t begin, int32_t end,
                double weight[FEATURES])
{
    double matrix[FEATURES][FEATURES] = {{0}}, feature[FEATURES];
    int32_t count = 0;
    memset(weight, 0, FEATURES * sizeof(weight[0]));
    for (int32_t i = 0; i < FEATURES; i++)
        matrix[i][i] = 1e-3;
    for (int32_t i = begin; i < end; i++) {
        const struct shoali_trial *trial = &tuning->trial[i];
        if (!trial->runs)
            continue;
        count++;
        features_of(tuning, trial, feature);
        for (int32_t k = 0; k < FEATURES; k++) {
            weight[k] += feature[k] * trial->value;
            for (int32_t j = 0; j < FEATURES; j++)
                matrix[k][j] += feature[k] * feature[j];
        }
    }
    if (count < SEEDS)
        return false;
    solve(matrix, weight);
    return true;
}

static int32_t by_model(const struct shoali_tuning *tuning, int32_t begin, int32_t end,
                        const double weight[FEATURES])
{
    double feature[FEATURES], best_value = 0;
    int32_t best = -1;
    for (int32_t i = begin; i < end; i++) {
        double value = 0;
        if (tuning->trial[i].over)
            continue;
        features_of(tuning, &tuning->trial[i], feature);
        for (int32_t k = 0; k < FEATURES; k++)
            value += weight[k] * feature[k];
        if (best < 0 || shoali_tuning_better(tuning, value, best_value)) {
            best = i;
            best_value = value;
        }
    }
    return best;
}

int32_t shoali_tuning_next(const struct shoali_tuning *tuning, int32_t begin, int32_t end)
{
    double weight[FEATURES];
    const int32_t open = count_open(tuning, begin, end);
    if (open == 0)
        return -1;
    if (tuning->config.tuner_type == MODEL && fit(tuning, begin, end, weight))
        return by_model(tuning, begin, end, weight);
    if (tuning->config.tuner_type != GRID)
        return by_chance(tuning, begin, end, open);
    for (int32_t i = begin; i < end; i++)
        if (!tuning->trial[i].over)
            return i;
    return -1;
}
