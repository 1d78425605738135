/* Any bytes as a compressed file, read in pieces whose size the first byte says, and written and
 * read again: what is read does not depend on the pieces, and what is refused names the file. */
#include "fuzz.h"

#include "text_data/gzip.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST (1 << 20) /* of text: a few bytes may stand for a gigabyte */

struct result {
    shoal_status status;
    size_t bytes;
    uint64_t hash;
};

static struct result read_all(int file, size_t piece)
{
    static char text[MOST];
    struct result result = {0};
    struct shoali_gzip *gzip = NULL;
    size_t count = 1;
    FUZZ_CHECK(lseek(file, 0, SEEK_SET) == 0);
    result.status = shoali_gzip_open(file, "the file", &gzip);
    while (result.status == SHOAL_OK && count > 0 && result.bytes < MOST) {
        const size_t left = MOST - result.bytes, room = left < piece ? left : piece;
        result.status = shoali_gzip_read(gzip, text + result.bytes, room, &count);
        FUZZ_CHECK(result.status < 0 || count <= room);
        result.bytes += result.status == SHOAL_OK ? count : 0;
    }
    result.hash = shoali_hash64(text, result.bytes);
    shoali_gzip_close(gzip);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    fuzz_be_silent();
    if (size == 0)
        return 0;
    if (file < 0)
        file = memfd_create("file", MFD_CLOEXEC);
    FUZZ_CHECK(file >= 0 && ftruncate(file, 0) == 0);
    FUZZ_CHECK(pwrite(file, data + 1, size - 1, 0) == (ssize_t)(size - 1));
    const struct result whole = read_all(file, MOST);
    if (whole.status == SHOAL_EUNSUPPORTED)
        return 0;
    FUZZ_CHECK(whole.status == SHOAL_OK || whole.status == SHOAL_EINVAL);
    if (whole.status == SHOAL_EINVAL)
        FUZZ_CHECK(strstr(shoal_error_message(), "the file") != NULL);
    const struct result pieces = read_all(file, 1 + (size_t)data[0]);
    FUZZ_CHECK(pieces.status == whole.status);
    if (whole.status == SHOAL_OK)
        FUZZ_CHECK(pieces.bytes == whole.bytes && pieces.hash == whole.hash);
    return 0;
}
