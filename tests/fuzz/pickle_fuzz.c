/* A pickle: values that refer to each other, tensors inside their storages. */
#include "fuzz.h"

#include "foreign/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shoali_input input;
    struct shoali_arena arena;
    fuzz_be_silent();
    if (shoali_input_open(fuzz_file(data, size), &input) != SHOAL_OK) {
        shoali_error_clear(); /* a pointer of Git LFS is no file of its own */
        return 0;
    }
    shoali_arena_init(&arena);
    struct shoali_pickle pickle = {.input = &input, .arena = &arena, .end = (int64_t)size};
    if (shoali_pickle_read(&pickle) == SHOAL_OK) {
        FUZZ_CHECK(pickle.root && pickle.stop > 0 && pickle.stop <= (int64_t)size);
        for (const struct shoali_storage *s = pickle.storage; s; s = s->next)
            FUZZ_CHECK(s->key && s->count >= 0 && s->type < SHOALI_ELEMENT_COUNT);
        for (int64_t i = 0; i < shoali_value_count(pickle.root); i++)
            (void)shoali_value_text(shoali_value_at(pickle.root, i));
        (void)shoali_value_get(pickle.root, "x");
    }
    shoali_arena_fini(&arena);
    shoali_input_close(&input);
    return 0;
}
