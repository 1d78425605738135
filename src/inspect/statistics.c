/* One pass over a tensor. Mean and squares of a piece are taken about the piece's own mean, and
 * pieces are joined in order, so that the result does not depend on anything but the numbers. */
#include "inspect/inspect.h"

#include <jansson.h>
#include <math.h>

enum { PIECE = 1 << 15 };

struct sums {
    double least, largest, mean, squares; /* of finite numbers; squares: about the mean */
    int64_t finite, zeros, nan, infinite;
};

static void add_piece(struct sums *sums, const double *number, int64_t count)
{
    double sum = 0, squares = 0;
    int64_t finite = 0;
    for (int64_t i = 0; i < count; i++) {
        const double x = number[i];
        sums->nan += isnan(x) != 0;
        sums->infinite += isinf(x) != 0;
        if (!isfinite(x))
            continue;
        sums->zeros += x == 0;
        if (sums->finite + finite == 0 || x < sums->least)
            sums->least = x;
        if (sums->finite + finite == 0 || x > sums->largest)
            sums->largest = x;
        sum += x;
        finite++;
    }
    if (finite == 0)
        return;
    const double mean = sum / (double)finite;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(number[i]))
            squares += (number[i] - mean) * (number[i] - mean);
    const double before = (double)sums->finite, now = (double)finite, all = before + now;
    const double apart = mean - sums->mean;
    sums->mean += apart * (now / all);
    sums->squares += squares + apart * apart * (before * now / all);
    sums->finite += finite;
}

/* JSON has no infinities: a mean of numbers near the largest may be one. */
static int set_real(json_t *object, const char *key, double value)
{
    return json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null());
}

static json_t *to_json(const struct sums *sums)
{
    json_t *object = json_object();
    int failed = 0;
    if (!object)
        return NULL;
    if (sums->finite > 0) {
        failed |= set_real(object, "min", sums->least);
        failed |= set_real(object, "max", sums->largest);
        failed |= set_real(object, "mean", sums->mean);
        failed |= set_real(object, "std", sqrt(sums->squares / (double)sums->finite));
    }
    failed |= json_object_set_new(object, "zeros", json_integer(sums->zeros));
    failed |= json_object_set_new(object, "nan", json_integer(sums->nan));
    failed |= json_object_set_new(object, "inf", json_integer(sums->infinite));
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

shoal_status shoali_inspect_statistics(struct shoali_tensor_file *file,
                                       const struct shoali_file_tensor *tensor, json_t **out)
{
    shoal_status status = SHOAL_OK;
    struct sums sums = {0};
    char *raw = NULL;
    double *numbers = NULL;
    *out = NULL;
    if (tensor->type >= SHOALI_ELEMENT_C64)
        return SHOAL_OK; /* no order, or not known */
    raw = shoali_malloc(PIECE * sizeof(double), "numbers of a tensor");
    numbers = shoali_malloc(PIECE * sizeof(double), "numbers of a tensor");
    if (!raw || !numbers) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (int64_t at = 0; at < tensor->count; at += PIECE) {
        const int64_t count = tensor->count - at < PIECE ? tensor->count - at : PIECE;
        SHOAL_TRY(status, shoali_tensor_file_read(file, tensor, at, count, raw), done);
        (void)shoali_element_to_f64(tensor->type, raw, count, numbers);
        add_piece(&sums, numbers, count);
    }
    *out = to_json(&sums);
    if (!*out)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate statistics");
done:
    shoali_free(raw);
    shoali_free(numbers);
    return status;
}
