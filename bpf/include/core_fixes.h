/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Kernel drift: one flavour structure and one accessor for each field that
 * moved, with the commit that moved it. A flavour is the kernel's name followed
 * by ___ and a word of ours; CO-RE ignores what follows the three underscores.
 */
#ifndef TRACECORE_CORE_FIXES_H
#define TRACECORE_CORE_FIXES_H

#include "kernel.h"

/* Declare flavours as kernel.h does: -Wpadded off, preserve_access_index on. */

#endif
