#include "monitor/append.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* Where the part that is kept ends; -1: errno says why nobody knows. */
static long end_of_whole(const struct shoali_append *batch, FILE *file)
{
    long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (batch->whole_bytes != SHOALI_APPEND_LINES)
        return end < batch->whole_bytes ? end : (long)batch->whole_bytes;
    while (end > 0 && fseek(file, end - 1, SEEK_SET) == 0 && fgetc(file) != '\n')
        end--;
    return end;
}

static bool put(const struct shoali_str *text, FILE *file)
{
    return fwrite(shoali_str_get(text), 1, text->length, file) == text->length;
}

bool shoali_append(const struct shoali_append *batch)
{
    FILE *file = fopen(batch->path, batch->fresh ? "w+" : "a+");
    if (!file)
        return false;
    const bool limited = shoali_file_limit_begin();
    const long end = end_of_whole(batch, file);
    bool good = end >= 0 && ftruncate(fileno(file), end) == 0 && fseek(file, end, SEEK_SET) == 0 &&
                (end > 0 || !batch->head || put(batch->head, file)) && put(batch->text, file) &&
                fflush(file) == 0;
    const int error = errno;
    good = fclose(file) == 0 && good;
    if (!good && end >= 0 && truncate(batch->path, end) == 0)
        errno = error;
    shoali_file_limit_end(limited);
    return good;
}
