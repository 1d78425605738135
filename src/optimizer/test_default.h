/* test_default - an optimizer with all params at their defaults, which tests then change. */
#ifndef SHOALI_OPTIMIZER_TEST_DEFAULT_H
#define SHOALI_OPTIMIZER_TEST_DEFAULT_H

#include "optimizer/optimizer.h"

static inline shoal_status optimizer_default(const char *name, struct shoali_arena *arena,
                                             struct shoali_optimizer *optimizer)
{
    shoal_status status;
    struct shoali_json *document = NULL;
    const struct shoali_optimizer_config config = {.type = name};
    SHOAL_TRY(status, shoali_json_parse("{}", 2, "test.json", &document), done);
    SHOAL_TRY(status, shoali_optimizer_make(&config, document, "optimizer", arena, optimizer),
              done);
done:
    shoali_json_close(document);
    return status;
}

#endif
