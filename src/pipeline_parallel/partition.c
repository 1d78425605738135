#include "pipeline_parallel/partition.h"

#include "base/plain.h"
#include "base/str.h"

#include <math.h>
#include <regex.h>
#include <string.h>

/* ---- methods -------------------------------------------------------------------------------- */

static const char *const names[] = {"uniform", "parameters", "flops", "type:", "even", "layout:"};
enum { METHODS = sizeof names / sizeof names[0] };

shoal_status shoali_partition_parse(const char *method, enum shoali_partition_method *parsed,
                                    const char **text)
{
    *text = NULL;
    for (int i = 0; i < METHODS; i++) {
        const size_t length = strlen(names[i]);
        const bool has_text = names[i][length - 1] == ':';
        if (has_text ? shoali_strncasecmp(method, names[i], length) != 0
                     : shoali_strcasecmp(method, names[i]) != 0)
            continue;
        *parsed = (enum shoali_partition_method)i;
        *text = has_text ? method + length : NULL;
        return SHOAL_OK;
    }
    const char *nearest = shoali_nearest(method, names, METHODS);
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "there is no partition method \"%s\"%s%s; there are: uniform, parameters, "
                      "flops, type:REGEX, even, layout:TEXT",
                      method, nearest ? "; nearest is " : "", nearest ? nearest : "");
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* As equal in number as can be. */
static void cut_uniform(int32_t count, int32_t parts, int32_t *begin)
{
    const int32_t each = count / parts, left = count % parts;
    for (int32_t i = 0; i <= parts; i++)
        begin[i] = i * each + (i < left ? i : left);
}

/* The best cut of the first i items into j parts. */
struct best {
    double most, least; /* sums of parts; least above most: there is no such cut */
    int32_t last;       /* where the last part begins */
};

static void find_best(const double *sum, int32_t i, int32_t j, int32_t parts, struct best *best)
{
    struct best *found = &best[(size_t)i * (size_t)(parts + 1) + (size_t)j];
    double cost = INFINITY;
    for (int32_t k = j - 1; k < i; k++) {
        const struct best *before = &best[(size_t)k * (size_t)(parts + 1) + (size_t)(j - 1)];
        const double part = sum[i] - sum[k];
        const double most = fmax(before->most, part), least = fmin(before->least, part);
        const bool possible = j == 1 ? k == 0 : before->least <= before->most;
        if (!possible || most - least > cost)
            continue;
        cost = most - least;
        *found = (struct best){most, least, k};
    }
}

/* O(count^2 parts) time, O(count parts) memory. */
static shoal_status cut_balanced(const double *weights, int32_t count, int32_t parts,
                                 int32_t *begin)
{
    shoal_status status = SHOAL_ENOMEM;
    const size_t row = (size_t)parts + 1, cells = ((size_t)count + 1) * row;
    struct best *best = shoali_calloc(cells, sizeof *best, "the stages of a model");
    double *sum = shoali_calloc((size_t)count + 1, sizeof *sum, "weights of layers");
    if (!best || !sum)
        goto done;
    for (size_t c = 0; c < cells; c++)
        best[c] = (struct best){-INFINITY, INFINITY, 0};
    for (int32_t i = 1; i <= count; i++) {
        sum[i] = sum[i - 1] + weights[i - 1];
        for (int32_t j = 1; j <= parts && j <= i; j++)
            find_best(sum, i, j, parts, best);
    }
    begin[parts] = count;
    for (int32_t j = parts; j > 0; j--)
        begin[j - 1] = best[(size_t)begin[j] * row + (size_t)j].last;
    status = SHOAL_OK;
done:
    shoali_free(best);
    shoali_free(sum);
    return status;
}

/* ---- by type -------------------------------------------------------------------------------- */

/* Names each type where layers of it begin. */
static shoal_status no_such_type(const struct shoali_partition_args *args)
{
    struct shoali_str types = {0};
    const char *before = "";
    for (int32_t i = 0; i < args->layer_count; before = args->layers[i++].type)
        if (strcmp(args->layers[i].type, before) != 0)
            shoali_str_append(&types, "%s%s", i > 0 ? ", " : "", args->layers[i].type);
    const shoal_status status = SHOAL_FAIL(
        SHOAL_EINVAL, "partition method type:%s matches no layer; types of this model are %s",
        args->text, shoali_str_get(&types));
    shoali_str_fini(&types);
    return status;
}

static shoal_status weigh_by_type(const struct shoali_partition_args *args, double *weights)
{
    regex_t regex;
    char message[128];
    int32_t matches = 0;
    const int code = regcomp(&regex, args->text, REG_EXTENDED | REG_ICASE | REG_NOSUB);
    if (code != 0) {
        regerror(code, &regex, message, sizeof message);
        return SHOAL_FAIL(SHOAL_EINVAL, "partition method type:%s: %s", args->text, message);
    }
    for (int32_t i = 0; i < args->layer_count; i++) {
        const bool match = regexec(&regex, args->layers[i].type, 0, NULL, 0) == 0;
        weights[i] = match;
        matches += match;
    }
    regfree(&regex);
    if (matches > 0)
        return SHOAL_OK;
    return no_such_type(args);
}

static shoal_status cut_by_weight(const struct shoali_partition_args *args, int32_t *begin)
{
    shoal_status status = SHOAL_OK;
    double *weights =
        shoali_calloc((size_t)args->layer_count, sizeof *weights, "weights of layers");
    if (!weights)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < args->layer_count; i++)
        weights[i] = args->layers[i].weight;
    if (args->method == SHOALI_PARTITION_TYPE)
        SHOAL_TRY(status, weigh_by_type(args, weights), done);
    SHOAL_TRY(status, cut_balanced(weights, args->layer_count, args->stages * args->chunks, begin),
              done);
done:
    shoali_free(weights);
    return status;
}

/* ---- decoder layers ------------------------------------------------------------------------- */

/* Layers that stages other than those with a number of their own share, and how many such stages
 * there are. */
static void shared(const struct shoali_partition_args *args, int32_t *layers, int32_t *stages)
{
    *layers = args->layer_count - 2 - args->first - args->last;
    *stages = args->stages - (args->first > 0) - (args->last > 0);
    *layers += (args->embedding && args->first == 0) + (args->loss && args->last == 0);
}

static shoal_status check_even(const struct shoali_partition_args *args)
{
    int32_t layers, stages;
    shared(args, &layers, &stages);
    const int32_t parts = stages * args->chunks;
    if (args->first % args->chunks || args->last % args->chunks)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "%d and %d layers of the first and last pipeline stage do not divide into "
            "%d chunks each",
            args->first, args->last, args->chunks);
    if (layers < 0 || (parts == 0 && layers != 0) || (parts > 0 && layers % parts != 0))
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "%d layers%s%s, without %d of the first and %d of the last pipeline stage, "
            "do not divide among %d stage%s of %d chunk%s: change the number of stages, "
            "give the first and last stage numbers of their own, or use another "
            "partition method",
            args->layer_count - 2, args->embedding ? " and the embedding" : "",
            args->loss ? " and the loss" : "", args->first, args->last, stages,
            stages == 1 ? "" : "s", args->chunks, args->chunks == 1 ? "" : "s");
    if (parts > 0 && layers == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the first and last pipeline stage take all %d layers: none remains for "
                          "the other %d of %d stages",
                          args->first + args->last, stages, args->stages);
    return SHOAL_OK;
}

/* Decoder layers of a virtual stage. */
static int32_t decoder_layers(const struct shoali_partition_args *args, int32_t k)
{
    const int32_t stage = k % args->stages, last = args->stages * args->chunks - 1;
    int32_t layers, stages;
    shared(args, &layers, &stages);
    if (stage == 0 && args->first > 0)
        return args->first / args->chunks;
    if (stage == args->stages - 1 && args->last > 0)
        return args->last / args->chunks;
    return layers / (stages * args->chunks) - (args->embedding && args->first == 0 && k == 0) -
           (args->loss && args->last == 0 && k == last);
}

static shoal_status cut_even(const struct shoali_partition_args *args, int32_t *begin)
{
    shoal_status status;
    const int32_t parts = args->stages * args->chunks;
    SHOAL_TRY(status, check_even(args), done);
    begin[0] = 0;
    for (int32_t k = 0; k < parts; k++)
        begin[k + 1] = begin[k] + decoder_layers(args, k) + (k == 0) + (k == parts - 1);
done:
    return status;
}

/* ---- all ------------------------------------------------------------------------------------ */

shoal_status shoali_partition_make(const struct shoali_partition_args *args, int32_t *begin)
{
    shoal_status status = SHOAL_OK;
    const int32_t parts = args->stages * args->chunks;
    if (parts > args->layer_count)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a pipeline of %d stages%s needs more than %d layers (with embedding and "
                          "head): a stage has at least one",
                          parts, args->chunks > 1 ? " (with their chunks)" : "", args->layer_count);
    switch (args->method) {
    case SHOALI_PARTITION_UNIFORM:
        cut_uniform(args->layer_count, parts, begin);
        break;
    case SHOALI_PARTITION_PARAMETERS:
    case SHOALI_PARTITION_FLOPS:
    case SHOALI_PARTITION_TYPE:
        SHOAL_TRY(status, cut_by_weight(args, begin), done);
        break;
    case SHOALI_PARTITION_EVEN:
        SHOAL_TRY(status, cut_even(args, begin), done);
        break;
    case SHOALI_PARTITION_LAYOUT:
        begin[0] = 0;
        SHOAL_TRY(status, shoali_partition_layout(args, begin + 1), done);
        for (int32_t k = 0; k < parts; k++)
            begin[k + 1] += begin[k];
        break;
    }
done:
    return status;
}
