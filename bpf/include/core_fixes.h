/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Kernel drift: one flavour structure and one accessor for each field that
 * moved, with the commit that moved it. A flavour is the kernel's name followed
 * by ___ and a word of ours; CO-RE ignores what follows the three underscores.
 */
#ifndef TRACECORE_CORE_FIXES_H
#define TRACECORE_CORE_FIXES_H

#include "kernel.h"

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpadded"
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#pragma clang attribute pop
#pragma clang diagnostic pop

#endif
