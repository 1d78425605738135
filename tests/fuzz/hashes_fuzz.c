/* hashes.jsonl: a file of it compared with itself is equal, or cannot be read. */
#include "fuzz.h"

#include "monitor/hashes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shoali_str text = {0};
    struct shoali_hashes_verdict verdict = {0};
    const char *path = fuzz_file(data, size);
    if (shoali_hashes_diff(path, path, &text, &verdict) == SHOAL_OK)
        FUZZ_CHECK(verdict.equal && text.length > 0);
    shoali_str_fini(&text);
    return 0;
}
