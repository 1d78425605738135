/* A file of tensors of any format: what it lists can be read, to the last element. */
#include "fuzz.h"

#include "formats/formats.h"

#include <string.h>

static void read_ends(struct shoali_tensor_file *file, const struct shoali_file_tensor *weight)
{
    char first[16], last[16], text[SHOALI_FILE_TENSOR_SHAPE_BYTES];
    float number;
    (void)shoali_file_tensor_shape_text(weight, text);
    FUZZ_CHECK(weight->name && weight->count >= 0 && weight->ndim <= SHOALI_FILE_TENSOR_MAX_DIMS);
    if (weight->count == 0)
        return;
    if (weight->type == SHOALI_ELEMENT_COUNT) {
        FUZZ_CHECK(shoali_tensor_file_read(file, weight, 0, 1, first) == SHOAL_EUNSUPPORTED);
        return;
    }
    FUZZ_CHECK(shoali_tensor_file_read(file, weight, 0, 1, first) == SHOAL_OK);
    FUZZ_CHECK(shoali_tensor_file_read(file, weight, weight->count - 1, 1, last) == SHOAL_OK);
    (void)!shoali_tensor_file_read_f32(file, weight, weight->count / 2, 1, &number);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shoali_tensor_file file;
    fuzz_be_silent();
    if (shoali_tensor_file_open(fuzz_file(data, size), &file) < 0)
        return 0;
    for (int32_t i = 0; i < file.count; i++)
        read_ends(&file, &file.tensor[i]);
    shoali_tensor_file_close(&file);
    return 0;
}
