/* Included by embedding.c for float and double, after real.h. */

static void R(embedding)(const struct shoali_embedding_args *args)
{
    for (int64_t r = 0; r < args->rows; r++) {
        const int64_t id = args->ids[r] - args->first_row, whole = args->whole_rows;
        const bool good = id >= 0 && id < args->table_rows;
        const bool other = !good && args->ids[r] >= 0 && args->ids[r] < whole;
        if (!good && !other)
            *args->bad_id = r + 1;
        for (int64_t c = 0; c < args->columns; c++) {
            REAL v = good ? R(load)(args->table, id * args->columns + c, args->dtype) : 0;
            if (other)
                v = -(REAL)0;
            if (good && args->positions != NULL) {
                const int64_t position = r % args->period + args->first_position;
                v += R(load)(args->positions, position * args->columns + c, args->dtype);
            }
            R(store)(args->out, r * args->columns + c, v, args->dtype);
        }
    }
}

static void R(embedding_backward)(const struct shoali_embedding_backward_args *args)
{
    const int64_t columns = args->columns;
    REAL *dtable = (REAL *)args->dtable, *dpositions = (REAL *)args->dpositions;
    if (dtable != NULL && !args->accumulate_table)
        memset(dtable, 0, (size_t)(args->table_rows * columns) * sizeof(REAL));
    if (dpositions != NULL && !args->accumulate_positions)
        memset(dpositions, 0, (size_t)(args->position_rows * columns) * sizeof(REAL));
    for (int64_t r = 0; r < args->rows; r++) {
        const int64_t id = args->ids[r] - args->first_row;
        const bool good = id >= 0 && id < args->table_rows;
        for (int64_t c = 0; good && c < columns; c++) {
            const REAL d = R(load)(args->dout, r * columns + c, args->dtype);
            if (dtable != NULL)
                dtable[id * columns + c] += d;
            if (dpositions != NULL)
                dpositions[(r % args->period + args->first_position) * columns + c] += d;
        }
    }
}
