/* tensor_read.c - reading a tensor on the host. Declared in tensor.h; here because it needs a
 * device. */
#include "accelerator/accelerator.h"

shoal_status shoal_tensor_read(const shoal_tensor *tensor, int64_t first, int64_t count, void *out)
{
    const int64_t elements = shoal_shape_count(&tensor->shape);
    shoal_status status = SHOAL_OK;
    char text[128];
    if (first < 0 || count < 0 || first > elements || count > elements - first)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "tensor read: %lld elements from %lld are outside a %s tensor of shape %s",
            (long long)count, (long long)first, shoal_dtype_name(tensor->dtype),
            shoali_shape_format(&tensor->shape, text));
    if (tensor->stream == NULL || tensor->data == NULL)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "tensor read: the %s tensor of shape %s has no memory (meta mode, or "
                          "dropped after its last use)",
                          shoal_dtype_name(tensor->dtype),
                          shoali_shape_format(&tensor->shape, text));
    const size_t width = shoal_dtype_bytes(tensor->dtype);
    const char *from = (const char *)tensor->data + (size_t)first * width;
    if (tensor->arrive != NULL)
        SHOAL_TRY(status, tensor->arrive(tensor), done);
    SHOAL_TRY(status, shoali_download(tensor->stream, out, from, (size_t)count * width), done);
done:
    return status;
}

shoal_status shoal_tensor_get_scalar(const shoal_tensor *tensor, double *value)
{
    char text[128];
    union {
        float f32;
        double f64;
        uint16_t bits;
    } raw;
    const bool floating = tensor->dtype == SHOAL_F32 || tensor->dtype == SHOAL_F64 ||
                          tensor->dtype == SHOAL_F16 || tensor->dtype == SHOAL_BF16;
    if (!floating || shoal_shape_count(&tensor->shape) != 1)
        return SHOAL_FAIL(
            SHOAL_EINVAL, "get_scalar: needs a floating tensor of one element, got %s %s",
            shoal_dtype_name(tensor->dtype), shoali_shape_format(&tensor->shape, text));
    shoal_status status;
    SHOAL_TRY(status, shoal_tensor_read(tensor, 0, 1, &raw), done);
    if (tensor->dtype == SHOAL_F64)
        *value = raw.f64;
    else if (tensor->dtype == SHOAL_F32)
        *value = (double)raw.f32;
    else if (tensor->dtype == SHOAL_F16)
        *value = (double)shoali_f16_to_f32(raw.bits);
    else
        *value = (double)shoali_bf16_to_f32(raw.bits);
done:
    return status;
}
