/* sized.c - structs of programs that were compiled with other headers. */
#include "base/sized.h"

#include <string.h>

/* The first byte that is not 0; `bytes` when all are. */
static size_t first_set(const unsigned char *memory, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && memory[i] == 0)
        i++;
    return i;
}

shoal_status shoali_sized_read(const struct shoali_sized *type, const void *theirs,
                               size_t theirs_bytes, void *ours)
{
    if (theirs == NULL)
        return SHOAL_OK;
    if (theirs_bytes < type->first_bytes)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%zu bytes were given as the size of a %s, which never had fewer than "
                          "%zu: pass the size of the struct itself, not of a pointer to it",
                          theirs_bytes, type->type, type->first_bytes);
    const size_t known = theirs_bytes < type->bytes ? theirs_bytes : type->bytes;
    const size_t set =
        known + first_set((const unsigned char *)theirs + known, theirs_bytes - known);
    if (set < theirs_bytes)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "this program sets a member of %s, at byte %zu of %zu, that libshoal " SHOAL_VERSION
            " does not know (it knows %zu bytes): the program was "
            "compiled with newer headers; install the libshoal that they belong to, "
            "or leave that member 0",
            type->type, set, theirs_bytes, type->bytes);
    memcpy(ours, theirs, known);
    return SHOAL_OK;
}

void shoali_sized_copy(void *to, size_t to_bytes, const void *from, size_t from_bytes)
{
    const size_t both = to_bytes < from_bytes ? to_bytes : from_bytes;
    if (to == NULL)
        return;
    if (from != NULL)
        memcpy(to, from, both);
    memset((unsigned char *)to + (from != NULL ? both : 0), 0,
           to_bytes - (from != NULL ? both : 0));
}

shoal_status shoali_check_reserved(const char *what, const void *reserved, size_t bytes)
{
    if (first_set(reserved, bytes) == bytes)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s is not 0, and libshoal " SHOAL_VERSION " gives it no meaning: zero the "
                      "struct before you fill it (an initialiser does), or install the libshoal "
                      "that the program's headers belong to",
                      what);
}
