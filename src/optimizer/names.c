/* names - the search among the variants there are and those only known; the sentence for neither.
 */
#include "optimizer/names.h"

#include "base/plain.h"
#include "base/str.h"

enum { CANDIDATES_MAX = 64 };

shoal_status shoali_names_find(const struct shoali_names *names, const char *name, int32_t *index)
{
    const char *candidates[CANDIDATES_MAX];
    struct shoali_variant variant;
    size_t count = 0;
    for (int32_t i = 0; names->variant(i, &variant); i++) {
        SHOAL_ASSERT(count < CANDIDATES_MAX);
        candidates[count++] = variant.name;
        *index = i;
        if (shoali_strcasecmp(name, variant.name) == 0)
            return SHOAL_OK;
    }
    for (int32_t i = 0; i < names->known_count; i++) {
        SHOAL_ASSERT(count < CANDIDATES_MAX);
        candidates[count++] = names->known[i];
        if (shoali_strcasecmp(name, names->known[i]) == 0)
            return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "%s `%s` is known but not supported yet; use %s",
                              names->what, name, names->use);
    }
    const char *nearest = shoali_nearest(name, candidates, count);
    return SHOAL_FAIL(SHOAL_ECONFIG, "there is no %s `%s`%s%s%s; use %s", names->what, name,
                      nearest ? "; the nearest name is `" : "", nearest ? nearest : "",
                      nearest ? "`" : "", names->use);
}
