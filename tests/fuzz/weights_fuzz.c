/* A file of tensors of any format: what it lists can be read, to the last element. */
#include "fuzz.h"

#include "formats/formats.h"

#include <string.h>

static void read_ends(struct shoali_weights *weights, const struct shoali_weight *weight)
{
    char first[16], last[16], text[SHOALI_WEIGHT_SHAPE_BYTES];
    float number;
    (void)shoali_weight_shape_text(weight, text);
    FUZZ_CHECK(weight->name && weight->count >= 0 && weight->ndim <= SHOALI_WEIGHT_MAX_DIMS);
    if (weight->count == 0)
        return;
    FUZZ_CHECK(shoali_weights_read(weights, weight, 0, 1, first) == SHOAL_OK);
    FUZZ_CHECK(shoali_weights_read(weights, weight, weight->count - 1, 1, last) == SHOAL_OK);
    (void)!shoali_weights_read_f32(weights, weight, weight->count / 2, 1, &number);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shoali_weights weights;
    fuzz_be_silent();
    if (shoali_weights_open(fuzz_file(data, size), &weights) < 0)
        return 0;
    for (int32_t i = 0; i < weights.count; i++)
        read_ends(&weights, &weights.tensor[i]);
    shoali_weights_close(&weights);
    return 0;
}
