/* generator.c - order strings, and ranks as mixed-radix numbers over axes. */
#include "parallel_state/parallel_state.h"

#include <string.h>

static const struct {
    const char *name;
    shoal_axes axis;
} axes[SHOALI_AXES] = {{"tp", SHOAL_AXIS_TP},
                       {"cp", SHOAL_AXIS_CP},
                       {"ep", SHOAL_AXIS_EP},
                       {"dp", SHOAL_AXIS_DP},
                       {"pp", SHOAL_AXIS_PP}};

const char *shoali_axis_name(shoal_axes axis)
{
    for (size_t i = 0; i < SHOALI_AXES; i++)
        if (axes[i].axis == axis)
            return axes[i].name;
    return "?";
}

/* The axis of this name; 0: none. */
static shoal_axes axis_of(const char *name, size_t length)
{
    for (size_t i = 0; i < SHOALI_AXES; i++)
        if (strlen(axes[i].name) == length && strncmp(axes[i].name, name, length) == 0)
            return axes[i].axis;
    return 0;
}

shoal_status shoali_order_parse(const char *order, struct shoali_generator *generator)
{
    shoal_axes seen = 0;
    *generator = (struct shoali_generator){0};
    for (const char *at = order; at != NULL;) {
        const size_t length = strcspn(at, "-");
        const shoal_axes axis = axis_of(at, length);
        if (axis == 0)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "order \"%s\": \"%.*s\" is no axis; write some of tp, cp, ep, dp, pp "
                              "with '-' between them, the fastest first",
                              order, (int)length, at);
        if (seen & axis)
            return SHOAL_FAIL(SHOAL_EINVAL, "order \"%s\" names %s twice", order,
                              shoali_axis_name(axis));
        seen |= axis;
        generator->axis[generator->count++] = axis;
        at = at[length] == '-' ? at + length + 1 : NULL;
    }
    return SHOAL_OK;
}

static const int32_t *axis_size(const struct shoali_axis_sizes *sizes, shoal_axes axis)
{
    switch (axis) {
    case SHOAL_AXIS_TP:
        return &sizes->tp;
    case SHOAL_AXIS_CP:
        return &sizes->cp;
    case SHOAL_AXIS_EP:
        return &sizes->ep;
    case SHOAL_AXIS_DP:
        return &sizes->dp;
    default:
        return &sizes->pp;
    }
}

shoal_status shoali_generator_set(struct shoali_generator *generator, const char *order,
                                  const struct shoali_axis_sizes *sizes)
{
    int32_t stride = 1;
    shoal_axes named = 0;
    for (int32_t i = 0; i < generator->count; i++) {
        generator->size[i] = *axis_size(sizes, generator->axis[i]);
        generator->stride[i] = stride;
        stride *= generator->size[i];
        named |= generator->axis[i];
    }
    for (size_t i = 0; i < SHOALI_AXES; i++) {
        const int32_t size = *axis_size(sizes, axes[i].axis);
        if (size != 1 && !(named & axes[i].axis))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%s has %d ranks, but the order \"%s\" does not name it; add it",
                              axes[i].name, (int)size, order);
    }
    return SHOAL_OK;
}

/* ---- numbers -------------------------------------------------------------------------------- */

int32_t shoali_generator_size(const struct shoali_generator *generator, shoal_axes set)
{
    int32_t size = 1;
    for (int32_t i = 0; i < generator->count; i++)
        if (generator->axis[i] & set)
            size *= generator->size[i];
    return size;
}

int32_t shoali_generator_number(const struct shoali_generator *generator, shoal_axes set,
                                int32_t rank)
{
    int32_t number = 0, radix = 1;
    for (int32_t i = 0; i < generator->count; i++)
        if (generator->axis[i] & set) {
            number += rank / generator->stride[i] % generator->size[i] * radix;
            radix *= generator->size[i];
        }
    return number;
}

int32_t shoali_generator_member(const struct shoali_generator *generator, shoal_axes set,
                                int32_t rank, int32_t number)
{
    for (int32_t i = 0; i < generator->count; i++)
        if (generator->axis[i] & set) {
            const int32_t here = rank / generator->stride[i] % generator->size[i];
            rank += (number % generator->size[i] - here) * generator->stride[i];
            number /= generator->size[i];
        }
    return rank;
}
