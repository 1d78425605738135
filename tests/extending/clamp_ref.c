#include "clamp.h"
#include "ops/storage.h"

#include "clamp_ref.inc"
