/* Included by rotary.c for float and double, after real.h. */

static void R(rotary_put)(const struct shoali_rotary_args *args, int64_t at, REAL v)
{
    const REAL old = args->accumulate ? R(load)(args->y, at, args->dtype) : 0;
    R(store)(args->y, at, args->accumulate ? old + v : v, args->dtype);
}

/* Pair i of the head that begins at element `head`. */
static void R(rotary_pair)(const struct shoali_rotary_args *args, int64_t head, int64_t i,
                           int64_t position)
{
    const int64_t half = args->rotary_size / 2;
    const int64_t first = head + (args->interleaved ? 2 * i : i);
    const int64_t second = first + (args->interleaved ? 1 : half);
    const float angle = (float)position * args->inverse_frequency[i];
    const REAL c = (REAL)shoali_cos((double)angle);
    const REAL s = (REAL)shoali_sin(args->inverse ? -(double)angle : (double)angle);
    const REAL a = R(load)(args->x, first, args->dtype), b = R(load)(args->x, second, args->dtype);
    R(rotary_put)(args, first, R(fma)(a, c, -(b * s)));
    R(rotary_put)(args, second, R(fma)(b, c, a * s));
}

static void R(rotary)(const struct shoali_rotary_args *args)
{
    for (int64_t row = 0; row < args->batch * args->length; row++) {
        const int64_t position = args->first_position + row % args->length;
        const int64_t begin = row * args->columns;
        for (int64_t c = 0; c < args->columns; c++) {
            const bool turned = c < args->heads * args->head_size;
            if (turned && c % args->head_size < args->rotary_size)
                continue;
            R(rotary_put)(args, begin + c, R(load)(args->x, begin + c, args->dtype));
        }
        for (int64_t h = 0; h < args->heads; h++)
            for (int64_t i = 0; i < args->rotary_size / 2; i++)
                R(rotary_pair)(args, begin + h * args->head_size, i, position);
    }
}
