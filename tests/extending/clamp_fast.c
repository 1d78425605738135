#include "clamp.h"
#include "ops/cpu/range.h"

#include "clamp_fast.inc"
